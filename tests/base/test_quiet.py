from __future__ import annotations

import ctypes

import pytest

from cimtool.base.quiet import quiet_libraries


def test_what_a_c_library_prints_is_dropped_and_what_python_prints_after_it_stays(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print("before")
    with quiet_libraries():
        ctypes.CDLL(None).puts(b"a line of its own")
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"
