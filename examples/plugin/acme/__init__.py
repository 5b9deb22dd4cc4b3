"""Arrays of ACME for cimtool: importing this package registers all that it adds."""

from pathlib import Path

from acme import cells, converters, export, head, inputs, layout, noise, operation

__all__ = ["cells", "converters", "export", "head", "inputs", "layout", "noise", "operation"]

TARGETS = Path(__file__).parent / "targets"
