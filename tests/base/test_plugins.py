"""A library that only a part needs: its extra is named where it is missing."""

from __future__ import annotations

import pytest

from cimtool.base.errors import Argument, CimError
from cimtool.base.plugins import EXTRAS, needing


@pytest.mark.parametrize("library", EXTRAS)
def test_the_extra_of_a_missing_library_is_named(library: str) -> None:
    package, extra = EXTRAS[library]
    told_to = f'expected `pip install "cimtool[{extra}]"`, or x'
    expected = f"--dask needs the package {package}; {told_to}"
    with pytest.raises(CimError) as told, needing(Argument("dask"), "x"):
        raise ModuleNotFoundError("none", name=f"{library}.inner")
    assert told.value.sentence("--{}".format) == expected


def test_another_missing_module_is_a_fault() -> None:
    with pytest.raises(ModuleNotFoundError), needing("it"):
        raise ModuleNotFoundError("none", name="torchvision")
