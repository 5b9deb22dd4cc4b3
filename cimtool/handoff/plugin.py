"""The exporters of this folder: hand-offs to a chip team, test vectors, conductances."""

from __future__ import annotations

import cimtool.handoff.exporters  # noqa: F401
