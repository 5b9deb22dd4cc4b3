"""The folder of a fine-tuning: the checkpoint, its history and a page of curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.files import replace_files
from cimtool.report.charts import Points
from cimtool.report.formats import four_digits, whole
from cimtool.report.page import render
from cimtool.report.svg import tick_text
from cimtool.report.table import Column, Table
from cimtool.training.hardware.fine_tune import FineTuned
from cimtool.training.hardware.loop import Epoch, best_epoch
from cimtool.training.saved import BEST, HISTORY
from cimtool.training.train_page import PACKAGE, PAGE, epoch_curves, epoch_table, settings_facts
from cimtool.training.trainer import Diverged


@dataclass(frozen=True)
class FineTunedFolder:
    """Where a fine-tuned model lies, and what each epoch came to, the start first."""

    folder: Path
    history: tuple[Epoch, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """What was written."""
        return tuple(self.folder / name for name in (BEST, HISTORY, PAGE))


def check_folder(folder: Path) -> None:
    """Raise CimError, before long work, for a file or a folder with an earlier run."""
    if folder.exists() and not folder.is_dir():
        raise CimError(f"{folder}: is a file; expected a folder, or none")
    found = [name for name in (BEST, HISTORY) if (folder / name).exists()]
    if found:
        raise CimError(
            f"{folder}: holds {', '.join(found)} of an earlier run; expected another folder"
        )


def write_folder(tuned: FineTuned, settings: Mapping[str, Any], folder: Path) -> FineTunedFolder:
    """Write the best weights and how they came to be; `settings` are plain values by name.

    Raises Diverged, with all of it written, where training stopped early.
    """
    best = best_epoch(tuned.history)
    kept = f"epoch {best.number}" if best.number else "the start"
    stopped = tuned.stopped
    if stopped is not None:
        stopped = f"{stopped}; {folder / BEST} keeps {kept}, the best before"
    values = {
        "settings": dict(settings),
        "best_epoch": best.number,
        "stopped": stopped,
        "epochs": [asdict(epoch) for epoch in tuned.history],
    }
    files = {
        BEST: tuned.to_bytes(),
        HISTORY: (json.dumps(values, indent=2) + "\n").encode(),
        PAGE: _page(settings, tuned.history, stopped).encode(),
    }
    replace_files(folder, files, "the fine-tuned model")
    if stopped is not None:
        raise Diverged(stopped)
    return FineTunedFolder(folder, tuned.history)


def headline(history: Sequence[Epoch]) -> str:
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


def _page(settings: Mapping[str, Any], history: Sequence[Epoch], stopped: str | None) -> str:
    errors = [(epoch.number, epoch.rmse) for epoch in history]
    losses = [(epoch.number, epoch.loss) for epoch in history if epoch.loss is not None]
    return render(
        PACKAGE,
        PAGE,
        title=f"{settings['start']} fine-tuned for {settings['hardware']}",
        headline=headline(history),
        stopped=stopped,
        held="rows",
        curve=_curve("RMSE", errors, "compiled logit RMSE"),
        caption="Distance of the compiled model's logits from those of the float model that it "
        "started from, before the first epoch and after each.",
        loss=_curve("loss", losses, "mean loss of the epoch") if losses else None,
        epochs=_table(history),
        done="fine-tuned",
        facts=settings_facts(settings),
    )


def _curve(name: str, points: list[tuple[int, float]], title: str) -> str:
    return epoch_curves([Points(name, points)], title, tick_text)


def _table(history: Sequence[Epoch]) -> Table:
    columns = (
        Column("epoch", whole),
        Column("loss", four_digits),
        Column("compiled logit RMSE", four_digits),
    )
    rows = [(epoch.number, epoch.loss, epoch.rmse) for epoch in history]
    return epoch_table(columns, rows, history.index(best_epoch(history)))
