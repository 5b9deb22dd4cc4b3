"""The page of a run: learning curves, the table of epochs, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cimtool.base.intervals import Interval
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, way_names
from cimtool.report.charts import Points, curves
from cimtool.report.document import Block, Document, FactList, Picture, Section, Sentence
from cimtool.report.formats import NumberFormat, counted, four_digits, whole
from cimtool.report.html import html
from cimtool.report.svg import percent_tick, tick_text
from cimtool.report.table import Column, Content, Table, make_table
from cimtool.training.history import (
    MEASURES,
    CompiledEpoch,
    EpochT,
    RetrievalEpoch,
    best_epoch,
    leading,
    raw_sentence,
    shares_text,
)
from cimtool.training.trainer import Run

MeasuredColumn = tuple[Column, Sequence[Content]]
"""A column of the table of epochs, and its value for each of them."""


def retrieval_headline(
    history: Sequence[RetrievalEpoch],
    raw: Mapping[str, float] | None = None,
    called: Modalities = TEXT_VIDEO,
    solved: Interval | None = None,
) -> str:
    """The best epoch and its recalls, and those of the raw rows, or that they have none.

    `solved` is the interval of R@1 of a model that nothing trained, as `ProjectorRun` has it.
    """
    best = best_epoch(history)
    of_raw = raw_sentence(raw, called)
    if solved is not None:
        means = {name: f"{name} {mean:.1%}" for name, mean in best.means.items()}
        means["R@1"] += f" [{solved.low:.1%}, {solved.high:.1%}]"
        said = ", ".join(means.values())
        return f"The model is solved, not trained: held-out {said}, means of both ways. {of_raw}"
    which = f"epoch {best.number}" if best.number else "the start, before any training"
    epochs = history[-1].number
    what = f"Best of {epochs} epochs is" if epochs else "The model is"
    said = f"{what} {which}: {shares_text(best.recalls)}"
    return f"{said}, means of both ways. {of_raw}"


def retrieval_page(
    title: str,
    settings: Mapping[str, Any],
    history: Sequence[RetrievalEpoch],
    stopped: str | None,
    raw: Mapping[str, float] | None = None,
    called: Modalities = TEXT_VIDEO,
    solved: Interval | None = None,
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
    drawn = terms[:3] if len(terms) > 1 else []  # one term alone is the loss itself
    lines = [Points(name, [(e.number, e.terms[name]) for e in trained]) for name in drawn]
    if all("loss" in e.held for e in history):
        lines.append(Points("held-out loss", [(e.number, e.held["loss"]) for e in history]))
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
        lines,
        title=title,
        headline=retrieval_headline(history, raw, called, solved),
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
    others: Sequence[Points] = (),
    **words: str,
) -> str:
    """The page of any run: what was `measured` in each epoch stands beside its loss.

    `others` are drawn beside the loss. `words` say what was `done` to what, by how much
    (`headline`), and have the `curve`, with its `caption`, of what was measured on the rows `held`
    out.
    """
    facts = tuple((name, "none" if v is None else str(v)) for name, v in settings.items())
    measured_on: tuple[Block, ...] = (
        Sentence(words["headline"], "verdict"),
        *([Sentence(stopped)] if stopped else []),
        Picture("measured", words["curve"], words["caption"]),
        _epochs(history, measured),
    )
    loss = _losses(history, others)
    sections = (
        Section(f"On held-out {words['held']}", measured_on),
        *([Section("The loss", loss)] if loss else []),
        Section(f"How it was {words['done']}", (FactList(facts),)),
    )
    return html(Document(words["title"], sections))


def _epochs(history: Sequence[EpochT], measured: Sequence[MeasuredColumn]) -> Table:
    columns, values = zip(
        (Column("epoch", whole), [epoch.number for epoch in history]),
        (Column("loss", four_digits), [epoch.loss for epoch in history]),
        *measured,
        strict=True,
    )
    best = best_epoch(history)
    styles = ["result" if epoch is best else "" for epoch in history]
    rows = zip(*values, strict=True)
    found = make_table("Epochs; the best is bold", columns, rows, styles, absent="")
    return found.named("epochs")


def _losses(history: Sequence[EpochT], others: Sequence[Points] = ()) -> tuple[Block, ...]:
    """The picture of the loss, with other lines; none before any training."""
    losses = [(epoch.number, epoch.loss) for epoch in history if epoch.loss is not None]
    if not losses:
        return ()
    curve = epoch_curves([Points("loss", losses), *others], "mean loss of the epoch", tick_text)
    return (Picture("loss", curve, "Mean over the batches of each epoch."),)


def epoch_curves(lines: Sequence[Points], title: str, form: NumberFormat) -> str:
    """A picture of values by epoch, which `form` writes at the ticks."""
    ends = "; ".join(f"{one.name} ends at {form(one.points[-1][1])}" for one in lines)
    return curves(lines, "epoch", title, f"{title}: {ends}", form, log_x=False)


def document(run: Run[Any]) -> Document:
    """The losses of epochs of any kind, and each in words."""
    measured = (Column("measured"), [one.measured for one in run.history])
    return Document(
        f"{run.folder}, {counted(len(run.history) - 1, 'epoch')}",
        (
            Sentence(f"The best is epoch {run.best.number}: {run.best.measured}."),
            _epochs(run.history, [measured]),
            *_losses(run.history),
        ),
        lambda: {"epochs": [one.to_json() for one in run.history], "files": list(run.files)},
    )
