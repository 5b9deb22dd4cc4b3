"""`files.sha256`: by it `make` sees, without Python, that no file changed since the export."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from cimtool.handoff.written import HANDOFF

LIST = "files.sha256"
GOAL = "unchanged"
PROGRAM = "sha256sum"
EXTENDED = "sv/faults.txt"
"""A file to which a user adds faults of a macro of their own, so it is not in the list."""


def list_text(digests: Mapping[str, str]) -> str:
    """The content of `files.sha256`, as `sha256sum -c` reads it; `digests` are SHA-256 by path."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items() if name != EXTENDED)


def goal_lines(listed: str) -> tuple[str, ...]:
    """The goal's commands; the list itself is compared with its SHA-256, which they contain.

    `handoff.json` lists the Makefile, so they look in it for the SHA-256 of the list alone.
    """
    digest = hashlib.sha256(listed.encode()).hexdigest()
    own = f"printf '%s  %s\\n' {digest} {LIST} | cat - {LIST} 2> build/{GOAL}.log"
    compared = f"LC_ALL=C $(SHA256) -c > build/{GOAL}.txt 2>> build/{GOAL}.log"
    first = f"sed -n 's/: FAILED.*//p' build/{GOAL}.txt | head -n 1"
    return (
        "@command -v $(firstword $(SHA256)) > build/found || { echo '$(firstword $(SHA256)) is not "
        'installed; SHA256="shasum -a 256" names another program\' >&2; exit 2; }',
        f'@{own} | {compared} || {{ file=$$({first}); echo "$${{file:-{LIST}}}: changed since it '
        f'was exported, or is missing (SHA-256 in {LIST}); export again" >&2; exit 2; }}',
        f"@grep -q {digest} {HANDOFF} 2> build/{GOAL}.log || {{ echo '{HANDOFF}: changed since it "
        f"was exported, or is missing (it has the SHA-256 of {LIST}); export again' >&2; "
        "exit 2; }",
    )
