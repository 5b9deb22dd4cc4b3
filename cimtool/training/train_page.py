"""The page of a run: learning curves, the table of epochs, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cimtool.reference.queries import RECALLS, WAY_NAMES
from cimtool.report.charts import Points, curves
from cimtool.report.formats import four_digits, whole
from cimtool.report.page import render
from cimtool.report.svg import percent_tick, tick_text
from cimtool.report.table import Column, Form, make_table
from cimtool.training.history import EpochT, RetrievalEpoch, best_epoch
from cimtool.training.saved import PAGE

PACKAGE = "cimtool.training"

FIGURES = {"map": "mAP", **{f"r{k}": f"R@{k}" for k in RECALLS}}
TITLES = {
    f"{name}_{way}": f"{title} {said}"
    for way, said in WAY_NAMES.items()
    for name, title in FIGURES.items()
}


def headline(history: Sequence[RetrievalEpoch]) -> str:
    """One sentence: the best epoch and its recalls."""
    best = best_epoch(history)
    which = f"epoch {best.number}" if best.number else "the start, before any training"
    return f"Best of {history[-1].number} epochs is {which}: {best.shares}, means of both ways."


def train_page(
    title: str,
    settings: Mapping[str, Any],
    history: Sequence[RetrievalEpoch],
    stopped: str | None,
) -> str:
    """The page of trained projectors as one HTML document."""
    trained = history[1:]
    terms = list(trained[0].terms) if trained else []
    drawn = terms[:3] if len(terms) > 1 else []
    recalls = [Points(f"R@{k}", [(e.number, e.mean_recall(k)) for e in history]) for k in RECALLS]
    if history[0].mean_map is not None:
        recalls.insert(0, Points("mAP", [(e.number, e.mean_map or 0.0) for e in history]))
    watched = list(history[-1].watched)
    figures = [name for name in TITLES if name in history[0].recalls]
    shares = [*watched, *(TITLES[name] for name in figures)]
    return run_page(
        settings,
        history,
        stopped,
        [*(Column(n, four_digits) for n in terms), *(Column(n, "{:.1%}".format) for n in shares)],
        [
            (
                *(epoch.terms.get(name) for name in terms),
                *(epoch.watched.get(name) for name in watched),
                *(epoch.recalls[name] for name in figures),
            )
            for epoch in history
        ],
        [Points(name, [(e.number, e.terms[name]) for e in trained]) for name in drawn],
        title=title,
        headline=headline(history),
        held="pairs",
        curve=epoch_curves(recalls, "recall on held-out pairs", percent_tick),
        caption="Recall on the held-out pairs after each epoch, means of both ways.",
        done="trained",
    )


def run_page(
    settings: Mapping[str, Any],
    history: Sequence[EpochT],
    stopped: str | None,
    columns: Sequence[Column],
    measured: Sequence[Sequence[float | None]],
    terms: Sequence[Points] = (),
    **words: str,
) -> str:
    """The page of any run: `columns` of what was `measured` in each epoch stand beside its loss.

    `terms` are drawn beside the loss. `words` are the template's: what was `done` to what, by how
    much (`headline`), and the `curve` of what was measured on the rows `held` out.
    """
    losses = [(epoch.number, epoch.loss) for epoch in history if epoch.loss is not None]
    lines = [Points("loss", losses), *terms]
    heads = Column("epoch", whole), Column("loss", four_digits)
    best = best_epoch(history)
    epochs = make_table(
        "Epochs; the best is bold",
        (*heads, *columns),
        [(e.number, e.loss, *more) for e, more in zip(history, measured, strict=True)],
        ["result" if epoch is best else "" for epoch in history],
        absent="",
    )
    return render(
        PACKAGE,
        PAGE,
        stopped=stopped,
        loss=epoch_curves(lines, "mean loss of the epoch", tick_text) if losses else None,
        epochs=epochs,
        facts=[(name, "none" if v is None else str(v)) for name, v in settings.items()],
        **words,
    )


def epoch_curves(lines: Sequence[Points], title: str, form: Form) -> str:
    """A picture of values by epoch, which `form` writes at the ticks."""
    ends = "; ".join(f"{one.name} ends at {form(one.points[-1][1])}" for one in lines)
    return curves(lines, "epoch", title, f"{title}: {ends}", form, log_x=False)
