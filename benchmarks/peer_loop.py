"""The loop of a script that another simulator's interpreter runs: a batch whenever it is asked.

It answers its versions as a line of JSON, then a line for each line that it reads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version


def serve(run: Callable[[], object], packages: tuple[str, ...]) -> None:
    """Say the packages' versions, then call `run` at every line of standard input."""
    print(json.dumps({name: version(name) for name in packages}), flush=True)
    for _ in sys.stdin:
        run()
        print("done", flush=True)
