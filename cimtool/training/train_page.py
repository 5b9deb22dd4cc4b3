"""The page of a run: learning curves, recalls by epoch, and how it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cimtool.reference.queries import RECALLS, WAY_NAMES
from cimtool.report.charts import Points, curves
from cimtool.report.formats import four_digits, whole
from cimtool.report.page import render
from cimtool.report.svg import percent_tick, tick_text
from cimtool.report.table import Column, Table, make_table
from cimtool.training.history import Epoch, best_epoch

PACKAGE = "cimtool.training"
PAGE = "training.html"

FIGURES = {"map": "mAP", **{f"r{k}": f"R@{k}" for k in RECALLS}}
TITLES = {
    f"{name}_{way}": f"{title} {said}"
    for way, said in WAY_NAMES.items()
    for name, title in FIGURES.items()
}


def history_text(settings: Mapping[str, Any], history: Sequence[Epoch], stopped: str | None) -> str:
    """The JSON of a run: settings, epochs, the best one, and why it stopped early if it did."""
    values = {
        "settings": dict(settings),
        "best_epoch": best_epoch(history).number,
        "stopped": stopped,
        "epochs": [epoch.to_json() for epoch in history],
    }
    return json.dumps(values, indent=2) + "\n"


def headline(history: Sequence[Epoch]) -> str:
    """One sentence: the best epoch and its recalls."""
    best = best_epoch(history)
    which = f"epoch {best.number}" if best.number else "the start, before any training"
    return f"Best of {history[-1].number} epochs is {which}: {best.shares}, means of both ways."


def train_page(
    title: str, settings: Mapping[str, Any], history: Sequence[Epoch], stopped: str | None
) -> str:
    """The page as one HTML document."""
    trained = [epoch for epoch in history if epoch.loss is not None]
    terms = list(trained[0].terms) if trained else []
    losses = [Points("loss", [(e.number, e.loss or 0.0) for e in trained])]
    if len(terms) > 1:
        losses += [Points(n, [(e.number, e.terms[n]) for e in trained]) for n in terms[:3]]
    recalls = [Points(f"R@{k}", [(e.number, e.mean_recall(k)) for e in history]) for k in RECALLS]
    if history[0].mean_map is not None:
        recalls.insert(0, Points("mAP", [(e.number, e.mean_map or 0.0) for e in history]))
    return render(
        PACKAGE,
        PAGE,
        title=title,
        headline=headline(history),
        stopped=stopped,
        held="pairs",
        curve=epoch_curves(recalls, "recall on held-out pairs", percent_tick),
        caption="Recall on the held-out pairs after each epoch, means of both ways.",
        loss=epoch_curves(losses, "mean loss of the epoch", tick_text) if trained else None,
        epochs=_table(history, terms),
        done="trained",
        facts=settings_facts(settings),
    )


def settings_facts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A run's settings for the page."""
    return [(name, "none" if v is None else str(v)) for name, v in settings.items()]


def epoch_curves(lines: Sequence[Points], title: str, form: Any) -> str:
    """A picture of values by epoch, which `form` writes at the ticks."""
    ends = "; ".join(f"{one.name} ends at {form(one.points[-1][1])}" for one in lines)
    return curves(lines, "epoch", title, f"{title}: {ends}", form, log_x=False)


def _table(history: Sequence[Epoch], terms: Sequence[str]) -> Table:
    watched = list(history[-1].watched)
    figures = [name for name in TITLES if name in history[0].recalls]
    share = "{:.1%}".format
    columns = [
        Column("epoch", whole),
        *(Column(name, four_digits) for name in ("loss", *terms)),
        *(Column(name, share) for name in (*watched, *(TITLES[name] for name in figures))),
    ]
    rows = [
        (
            epoch.number,
            epoch.loss,
            *(epoch.terms.get(name) for name in terms),
            *(epoch.watched.get(name) for name in watched),
            *(epoch.recalls[name] for name in figures),
        )
        for epoch in history
    ]
    return epoch_table(columns, rows, history.index(best_epoch(history)))


def epoch_table(
    columns: Sequence[Column], rows: Sequence[Sequence[float | None]], best: int
) -> Table:
    """A row an epoch, the `best` of them bold."""
    styles = ["result" if index == best else "" for index in range(len(rows))]
    return make_table("Epochs; the best is bold", columns, rows, styles, absent="")
