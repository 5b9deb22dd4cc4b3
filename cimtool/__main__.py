"""The command `cimtool`, which is `python -m cimtool` too."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130
"""The status that `cimtool.cli` ends with where it is interrupted."""


STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""The standard streams in the order of their descriptors, with their modes."""


def main() -> None:
    """Run the command line; Ctrl-C while it is still imported ends it as Ctrl-C does later."""
    open_streams()
    try:
        from cimtool.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("cimtool: error: interrupted\n")
        sys.exit(INTERRUPTED)
    run()


def open_streams() -> None:
    """Open the null device in place of each standard stream that was closed from the start.

    Python has None for it, and the next file that is opened would get its descriptor: a library's
    message would go into that file.
    """
    for name, mode in STREAMS.items():
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)  # processes that we start have it too
            stream = os.fdopen(null, mode, encoding="utf-8", errors="backslashreplace")
            setattr(sys, name, stream)


if __name__ == "__main__":
    main()
