"""The way to choose bits that `compile` takes."""

from __future__ import annotations

from cimtool.base.progress import Say
from cimtool.bundle.bit_choice import BitChooser, ChosenBits, DriftGoal
from cimtool.hardware.configuration import Configuration
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model


class SolvedBits(BitChooser, name="solved"):
    """Bits by the error of each part, from an integer programme."""

    @classmethod
    def choose(
        cls, goal: DriftGoal, model: Model, data: Embeddings, start: Configuration, say: Say
    ) -> ChosenBits:
        """Choose as `solve_bits` does, which is imported only here: it needs many rooms."""
        from cimtool.experiments.solved_bits import solve_bits

        return solve_bits(goal, model, data, start, say)
