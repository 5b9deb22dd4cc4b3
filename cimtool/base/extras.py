"""Libraries that only a part of cimtool needs, and the extra of the package that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cimtool.base.errors import ArgumentError
from cimtool.base.plugins import package_of

EXTRAS = {
    "torch": ("torch", "train"),
    "sklearn": ("scikit-learn", "train"),
    "distributed": ("distributed", "dask"),
    "pyarrow": ("pyarrow", "parquet"),
    "pandas": ("pandas", "report"),
    "polars": ("polars", "polars"),
}
"""The package and the extra of each library, by the name under which it is imported."""


@contextmanager
def needing(what: str, otherwise: str = "") -> Iterator[None]:
    """Raise CimError where a library of EXTRAS is missing: `what` needs it, here is its extra.

    `otherwise` names what can be done without it; `what` may be an Argument.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = package_of(error.name or "")
        if library not in EXTRAS:
            raise
        package, extra = EXTRAS[library]
        raise ArgumentError(
            '{} needs the package {}; expected `pip install "cimtool[{}]"`{}',
            what, package, extra, f", or {otherwise}" if otherwise else "",
        ) from None  # fmt: skip
