"""The epochs of a fine-tuning, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cimtool.report.charts import Points
from cimtool.report.formats import four_digits
from cimtool.report.svg import tick_text
from cimtool.report.table import Column
from cimtool.training.history import Epoch, best_epoch
from cimtool.training.train_page import epoch_curves, run_page


@dataclass(frozen=True)
class CompiledEpoch(Epoch):
    """An epoch, and the compiled model's logit RMSE on held-out rows after it."""

    rmse: float

    @property
    def merit(self) -> tuple[float]:
        """The less it errs the better."""
        return (-self.rmse,)

    @property
    def measured(self) -> str:
        """The error."""
        return f"compiled logit RMSE {self.rmse:.4g}"


def headline(history: Sequence[CompiledEpoch]) -> str:
    """One sentence: the best epoch, and what it gained."""
    best, start = best_epoch(history), history[0].rmse
    if not best.number:
        return (
            f"None of {history[-1].number} epochs is better than the start, whose compiled logit "
            f"RMSE is {start:.4g} on held-out rows; it was kept."
        )
    return (
        f"Best of {history[-1].number} epochs is epoch {best.number}: compiled logit RMSE "
        f"{best.rmse:.4g} on held-out rows, {start:.4g} before."
    )


def fine_tuning_page(
    settings: Mapping[str, Any], history: Sequence[CompiledEpoch], stopped: str | None
) -> str:
    """The error by epoch as one HTML document."""
    measure = "compiled logit RMSE"
    errors = Points("RMSE", [(epoch.number, epoch.rmse) for epoch in history])
    return run_page(
        settings,
        history,
        stopped,
        [Column(measure, four_digits)],
        [(epoch.rmse,) for epoch in history],
        title=f"{settings['start']} fine-tuned for {settings['hardware']}",
        headline=headline(history),
        held="rows",
        curve=epoch_curves([errors], measure, tick_text),
        caption="Distance of the compiled model's logits from those of the float model that it "
        "started from, before the first epoch and after each.",
        done="fine-tuned",
    )
