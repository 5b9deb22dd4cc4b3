"""The command `cimtool`, which is `python -m cimtool` too."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The status that `cimtool.cli` ends with where it is interrupted."""


def main() -> None:
    """Run the command line; Ctrl-C while it is still imported ends it as Ctrl-C does later."""
    try:
        from cimtool.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("cimtool: error: interrupted\n")
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
