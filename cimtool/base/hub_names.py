"""Names on a hub, and the command that fetches them: cimtool downloads nothing."""

from __future__ import annotations

import re

FETCH = "hf download {} --local-dir {}"
"""The command of a hub's own client that downloads a model into a folder."""

FETCH_SET = "hf download --repo-type dataset {} --local-dir {}"
"""The same for a data set."""

_FILE = re.compile(
    r"(?:hf:/+|hf-hub:)(datasets/)?([\w.-]+/([\w.-]+))(?:@[\w.-]+)?(?:/(.+))?", re.ASCII
)
"""`hf://owner/model`, with `/file` or without, or open_clip's `hf-hub:owner/model`.

`hf://datasets/owner/set` is a data set. As a path a name has one slash after the colon.
"""


def fetched_by(path: object) -> str:
    """The end of a sentence on a missing file: how to fetch it, if its name is on a hub."""
    name = _FILE.fullmatch(str(path))
    if name is None:
        return ""
    data_set, model, folder, file = name.groups()
    fetch = FETCH if data_set is None else FETCH_SET
    command = fetch.format(" ".join(filter(None, (model, file))), folder)
    return f", and nothing is downloaded; expected a file, such as `{command}` makes"
