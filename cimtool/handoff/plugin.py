"""The exporters for chip teams, and the description of a hand-off."""

from __future__ import annotations

import cimtool.handoff.conductances
import cimtool.handoff.handoff
import cimtool.handoff.testvectors  # noqa: F401
from cimtool.handoff.written import HandoffFolder as HandoffFolder
