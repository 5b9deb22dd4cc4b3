from __future__ import annotations

import ctypes
import subprocess
import sys

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


def test_nothing_need_be_dropped_where_standard_output_is_closed() -> None:
    code = (
        "import os; os.close(1)\n"
        "from cimtool.base.quiet import quiet_libraries\n"
        "with quiet_libraries():\n"
        "    os.write(2, b'inside')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert found.stderr == b"inside"
