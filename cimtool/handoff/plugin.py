"""The exporters of this folder, and the description of a hand-off."""

from __future__ import annotations

from pathlib import Path

import cimtool.handoff.exporters  # noqa: F401
from cimtool.handoff.written import HANDOFF, describe_handoff
from cimtool.loading.inspect import Described, Facts


class HandoffFolder(Described, name="handoff"):
    """A hand-off: every file is checked, and weights are read back from the cells."""

    file = HANDOFF

    @classmethod
    def facts(cls, folder: Path) -> Facts:
        """Its layers and their arrays."""
        return describe_handoff(folder)
