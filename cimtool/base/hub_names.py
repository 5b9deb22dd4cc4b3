"""Names on a hub, and the command that fetches them: cimtool downloads nothing."""

from __future__ import annotations

import re

FETCH = "hf download {} --local-dir {}"
"""The command of a hub's own client that downloads a model into a folder."""

_FILE = re.compile(r"hf:/+([\w.-]+/([\w.-]+))(?:@[\w.-]+)?(?:/(.+))?", re.ASCII)
"""`hf://owner/model` or `hf://owner/model/file`; as a path it has one slash after the colon."""


def fetched_by(path: object) -> str:
    """The end of a sentence on a missing file: how to fetch it, if its name is on a hub."""
    name = _FILE.fullmatch(str(path))
    if name is None:
        return ""
    command = FETCH.format(" ".join(filter(None, (name[1], name[3]))), name[2])
    return f", and nothing is downloaded; expected a file, such as `{command}` makes"
