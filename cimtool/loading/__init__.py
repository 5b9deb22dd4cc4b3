"""The door: files become validated, frozen values here, or a sentence says why not."""
