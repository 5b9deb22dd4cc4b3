"""Run the whole pipeline on real data that needs no download."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cimtool.base.options import DIR, OneName, Record, option
from cimtool.cli.commands.verify import failures_shown
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import Section, Verbatim

if TYPE_CHECKING:
    from cimtool.demo.data import DemoFiles, DemoSettings

CACHE, OUT = Path("demo-cache"), Path("exports")
BY_HAND = Path("by-hand")
"""Folder of what the printed commands make."""


class DemoOptions(Record):
    """The options of `demo`."""

    target: str = option("The hardware.", "NAME|FILE", default="isaac-rram-128")
    epochs: int = option("Epochs of each of the two trainings.", "N", default=6)
    rows: Literal["encoder", "tf-idf"] | None = option(
        "encoder (pretrained) or tf-idf (made here) [default: encoder if it is installed].",
        OneName(names=("encoder", "tf-idf")),
        default=None,
    )
    folder: Path = option("Folder of bundle and scores.", DIR, default=OUT, flag="out")
    cache: Path = option("Folder of trained models.", DIR, default=CACHE)


@record_command(DemoOptions)
def command(out: Output, options: DemoOptions) -> None:
    """Run the whole pipeline on real data that needs no download.

    Trains a probabilistic teacher on functions and their docstrings of the installed libraries,
    labels pairs, fits the polynomial, trains on it, compiles, simulates and verifies. It compares
    every stage with Monte Carlo and the raw embeddings. A second run starts at compile.
    """
    from cimtool.demo.walk import run_demo

    target, epochs = options.target, options.epochs
    with failures_shown(out):
        found = run_demo(
            target, epochs, options.cache, options.folder, out.step, out.say, options.rows
        )
    files = found.files
    commands = demo_commands(files, found.settings, target)
    trained = ("--projectors", files.projectors, "--poly", files.poly)
    other = ("--calibration", files.calibration, "--target", "hermes-pcm-14nm")
    again = _line("compile", *trained, *other)
    shown = found.report.document().plus(Section("", found.stages.document().blocks))
    if found.queries is not None:
        first = next(i for i, one in enumerate(shown.blocks) if isinstance(one, Section))
        blocks = [*shown.blocks[:first], found.queries.section(), *shown.blocks[first:]]
        shown = replace(shown, blocks=tuple(blocks))
    lines = [
        f"model   {files.projectors.parent}",
        f"bundle  {found.bundle}",
        f"scores  {found.scores}",
        f"report  {found.bundle / 'report.html'}",
        f"next    {again}",
        "",
        "the same by hand:",
        *(f"  {one}" for one in commands),
    ]
    values = {
        "target": target,
        "epochs": epochs,
        "artefacts": vars(files),
        "bundle": found.bundle,
        "scores": found.scores,
        "report": found.report.to_dict(),
        "stages": found.stages.to_dict(),
        "queries": None if found.queries is None else asdict(found.queries),
        "commands": commands,
    }
    shown = shown.plus(Verbatim(""), *map(Verbatim, lines))
    out.result(replace(shown, values=lambda: values))


def demo_commands(
    files: DemoFiles, settings: DemoSettings, target: str, folder: Path = BY_HAND
) -> tuple[str, ...]:
    """Command lines that come to the demo's artefacts and report in `folder`."""
    from cimtool.demo.data import DemoFiles
    from cimtool.demo.walk import FIRST, FIRST_POLY, LAST, POLY_LOSS, TEACHER_LOSS

    def judged(file: Path) -> list[object]:
        qrels = files.judged(file)
        return [] if qrels is None else ["--qrels", qrels]

    own, bundle, first = DemoFiles.under(folder), folder / "bundle", folder / FIRST_POLY
    options, on_poly = (
        [f"--set={name}={value}" for name, value in one.items()]
        for one in (settings.options, settings.poly_options)
    )
    rate = [] if settings.rate is None else [f"--learning-rate={settings.rate}"]
    on_poly += [f"--learning-rate={settings.poly_rate}"]
    samples = ",".join(map(str, settings.samples))
    train = ["train", "--data", files.train, "--epochs", settings.epochs]
    train += ["--batch", settings.batch, *judged(files.train)]

    def label(projectors: Path, pairs: int, labels: Path) -> list[object]:
        drawn = ["--data", files.train, "--labels", "exact", "--matched", settings.matched]
        return ["teacher", "--projectors", projectors, *drawn, "--pairs", pairs, "-o", labels]

    def fit(labels: Path, projectors: Path, poly: Path) -> list[object]:
        ranked = ["--projectors", projectors, "--data", files.few, *judged(files.few)]
        return ["fit", labels, *ranked, "-o", poly]

    few = ["--data", files.few, *judged(files.few), "--samples", samples]
    build = ["--calibration", files.calibration, "--target", target]
    lines: tuple[list[object], ...] = (
        [*train, "--loss", TEACHER_LOSS, *options, *rate, "-o", own.teacher.parent],
        label(own.teacher, settings.first_pairs, folder / FIRST),
        fit(folder / FIRST, own.teacher, first),
        [*train, "--loss", POLY_LOSS, "--start", own.teacher, "--poly", first,
         *on_poly, "-o", own.projectors.parent],
        label(own.projectors, settings.last_pairs, folder / LAST),
        fit(folder / LAST, own.projectors, own.poly),
        ["compile", "--projectors", own.projectors, "--poly", own.poly, *build, "-o", bundle],
        ["simulate", bundle, "--inputs", files.eval, "-o", folder / "scores.npz"],
        ["verify", bundle, "--data", files.eval, *judged(files.eval)],
        ["evaluate", own.teacher, "--poly", first, *few],
        ["evaluate", own.projectors, bundle, "--poly", own.poly, *few],
    )  # fmt: skip
    return tuple(_line(*words) for words in lines)


def _line(*words: object) -> str:
    return shlex.join(map(str, ("cimtool", *words)))
