"""Fresh read noise: drawn for every read, so it does not tie queries to one another."""

from __future__ import annotations

from typing import ClassVar, Literal

from cimtool.hardware.noise.model import NonIdeality, Redraw, Sigma


class Read(NonIdeality, name="read"):
    """Each device reads g (1 + sigma z); z is drawn for every product (`mvm`) or every cycle.

    A column sum of inputs x then has the variance sum x^2 (sigma g)^2 over its rows: one normal
    number a conversion stands for all devices.
    """

    drawn: ClassVar[Redraw] = "mvm"

    sigma: Sigma
    redraw: Literal["mvm", "cycle"] = "mvm"
