"""The door: files become validated, frozen values here, or one sentence says why not."""
