"""Files of targets that tests write."""

from __future__ import annotations

from pathlib import Path


def eight_bits_at_most(folder: Path) -> Path:
    """A digital macro whose weights and inputs have at most 8 bits, at no operating point."""
    file = folder / "eight.toml"
    file.write_text(
        'name = "eight"\ntitle = "8 bits at most"\nbase = "ideal"\n'
        "[weights]\nmost_bits = 8\n[input]\nmost_bits = 8\n"
    )
    return file
