"""The page of a run: learning curves, the table of epochs, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cimtool.base.modality_names import TEXT_VIDEO, Modalities, way_names
from cimtool.report.charts import Points, curves
from cimtool.report.document import Block, Document, FactList, Picture, Section, Sentence
from cimtool.report.formats import NumberFormat, counted, four_digits, whole
from cimtool.report.html import html
from cimtool.report.svg import percent_tick, tick_text
from cimtool.report.table import Column, make_table
from cimtool.training.baseline import leading, raw_sentence
from cimtool.training.history import MEASURES, CompiledEpoch, EpochT, RetrievalEpoch, best_epoch
from cimtool.training.trainer import Run

MeasuredColumn = tuple[Column, Sequence[float | None]]
"""A column of the table of epochs, and its value for each of them."""


def retrieval_headline(
    history: Sequence[RetrievalEpoch],
    raw: Mapping[str, float] | None = None,
    called: Modalities = TEXT_VIDEO,
) -> str:
    """The best epoch and its recalls, and those of the raw rows, or that they have none."""
    best = best_epoch(history)
    which = f"epoch {best.number}" if best.number else "the start, before any training"
    said = f"Best of {history[-1].number} epochs is {which}: {best.shares}, means of both ways."
    return f"{said} {raw_sentence(raw, called)}"


def retrieval_page(
    title: str,
    settings: Mapping[str, Any],
    history: Sequence[RetrievalEpoch],
    stopped: str | None,
    raw: Mapping[str, float] | None = None,
    called: Modalities = TEXT_VIDEO,
) -> str:
    """The page of trained projectors as one HTML document; `raw` are the figures of raw rows."""
    trained = history[1:]
    terms = list(trained[0].terms) if trained else []
    recalls = [
        Points(name, [(e.number, e.means[name]) for e in history]) for name in history[0].means
    ]
    if raw is not None:
        name, share = leading(raw)
        recalls.append(Points(f"raw {name}", [(e.number, share) for e in history]))
    held_losses: list[Points] = []
    if all("loss" in e.held for e in history):
        held_losses = [Points("held-out loss", [(e.number, e.held["loss"]) for e in history])]
    percent = "{:.1%}".format
    watched = history[-1].watched
    figures = {
        key: f"{title} {said}"
        for way, said in way_names(called).items()
        for name, title in MEASURES.items()
        if (key := f"{name}_{way}") in history[0].recalls
    }
    return run_page(
        settings,
        history,
        stopped,
        [
            *((Column(n, four_digits), [e.terms.get(n) for e in history]) for n in terms),
            *(
                (Column(f"held-out {n}", four_digits), [e.held.get(n) for e in history])
                for n in history[0].held
            ),
            *((Column(n, percent), [e.watched.get(n) for e in history]) for n in watched),
            *((Column(figures[n], percent), [e.recalls[n] for e in history]) for n in figures),
        ],
        [Points(name, [(e.number, e.terms[name]) for e in trained]) for name in terms[:3]],
        held_losses,
        title=title,
        headline=retrieval_headline(history, raw, called),
        held="pairs",
        curve=epoch_curves(recalls, "recall on held-out pairs", percent_tick),
        caption="Recall on the held-out pairs after each epoch, means of both ways.",
        done="trained",
    )


def compiled_headline(history: Sequence[CompiledEpoch]) -> str:
    """One sentence: the best epoch, and what it gained."""
    best, start = best_epoch(history), history[0].centred_rmse
    if not best.number:
        return (
            f"None of {history[-1].number} epochs is better than the start, whose compiled "
            f"centred logit RMSE is {start:.4g} on held-out rows; it was kept."
        )
    return (
        f"Best of {history[-1].number} epochs is epoch {best.number}: compiled centred logit "
        f"RMSE {best.centred_rmse:.4g} on held-out rows, {start:.4g} before."
    )


def fine_tuning_page(
    settings: Mapping[str, Any], history: Sequence[CompiledEpoch], stopped: str | None
) -> str:
    """The error by epoch as one HTML document."""
    measure = "compiled centred logit RMSE"
    errors = Points("centred RMSE", [(epoch.number, epoch.centred_rmse) for epoch in history])
    return run_page(
        settings,
        history,
        stopped,
        [
            (Column(measure, four_digits), [epoch.centred_rmse for epoch in history]),
            (Column("RMSE", four_digits), [epoch.rmse for epoch in history]),
        ],
        title=f"{settings['start']} fine-tuned for {settings['hardware']}",
        headline=compiled_headline(history),
        held="rows",
        curve=epoch_curves([errors], measure, tick_text),
        caption="Distance of the compiled model's logits from those of the float model that it "
        "started from, before the first epoch and after each.",
        done="fine-tuned",
    )


def run_page(
    settings: Mapping[str, Any],
    history: Sequence[EpochT],
    stopped: str | None,
    measured: Sequence[MeasuredColumn],
    terms: Sequence[Points] = (),
    others: Sequence[Points] = (),
    **words: str,
) -> str:
    """The page of any run: what was `measured` in each epoch stands beside its loss.

    `terms`, if they are several, are drawn beside the loss, and `others` in any case. `words` say
    what was `done` to what, by how much (`headline`), and have the `curve`, with its `caption`, of
    what was measured on the rows `held` out.
    """
    losses = [(epoch.number, epoch.loss) for epoch in history if epoch.loss is not None]
    lines = [Points("loss", losses), *(terms if len(terms) > 1 else ()), *others]
    columns, values = zip(
        (Column("epoch", whole), [epoch.number for epoch in history]),
        (Column("loss", four_digits), [epoch.loss for epoch in history]),
        *measured,
        strict=True,
    )
    best = best_epoch(history)
    epochs = make_table(
        "Epochs; the best is bold",
        columns,
        zip(*values, strict=True),
        ["result" if epoch is best else "" for epoch in history],
        absent="",
    )
    facts = tuple((name, "none" if v is None else str(v)) for name, v in settings.items())
    drawn = []
    if losses:
        loss = epoch_curves(lines, "mean loss of the epoch", tick_text)
        drawn = [Picture("loss", loss, "Mean over the batches of each epoch.")]
    measured_on: tuple[Block, ...] = (
        Sentence(words["headline"], "verdict"),
        *([Sentence(stopped)] if stopped else []),
        Picture("measured", words["curve"], words["caption"]),
        epochs.named("epochs"),
    )
    sections = (
        Section(f"On {words['held']} that were held out", measured_on),
        *([Section("The loss", tuple(drawn))] if drawn else []),
        Section(f"How it was {words['done']}", (FactList(facts),)),
    )
    return html(Document(words["title"], sections))


def epoch_curves(lines: Sequence[Points], title: str, form: NumberFormat) -> str:
    """A picture of values by epoch, which `form` writes at the ticks."""
    ends = "; ".join(f"{one.name} ends at {form(one.points[-1][1])}" for one in lines)
    return curves(lines, "epoch", title, f"{title}: {ends}", form, log_x=False)


def document(run: Run[Any]) -> Document:
    """The losses of epochs of any kind, and each in words."""
    columns = (Column("epoch", whole), Column("loss", four_digits), Column("measured"))
    rows = [(one.number, one.loss, one.measured) for one in run.history]
    best = ["result" if one is run.best else "" for one in run.history]
    losses = [(one.number, one.loss) for one in run.history if one.loss is not None]
    epochs = make_table("Epochs; the best is bold", columns, rows, best, absent="")
    curves = []
    if losses:
        curve = epoch_curves([Points("loss", losses)], "mean loss of the epoch", tick_text)
        curves = [Picture("loss", curve, "Mean over the batches of each epoch.")]
    return Document(
        f"{run.folder}, {counted(len(run.history) - 1, 'epoch')}",
        (
            Sentence(f"The best is epoch {run.best.number}: {run.best.measured}."),
            epochs.named("epochs"),
            *curves,
        ),
        lambda: {"epochs": [one.to_json() for one in run.history], "files": list(run.files)},
    )
