"""Silence for what libraries of C and C++ print."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Drop what C and C++ code writes to file descriptor 1, past Python's standard output.

    What other threads write there meanwhile is dropped too.
    """
    try:
        kept = os.dup(1)
    except OSError:  # closed: nothing can be written there
        yield
        return
    c_library, nowhere = ctypes.CDLL(None), os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is not None:
        sys.stdout.flush()
    c_library.fflush(None)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        c_library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
