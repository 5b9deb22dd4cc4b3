"""Reading of files: each becomes a validated, frozen value, or an error says why not."""
