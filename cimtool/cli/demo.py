"""`cimtool demo`: all public commands on real data, a line a step."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cimtool.cli.checked import failures_shown
from cimtool.cli.group import Command
from cimtool.cli.options import FILE
from cimtool.cli.output import Output
from cimtool.demo import CACHE, OUT, TEACHER, DemoResult, DemoSettings, run_demo
from cimtool.training.demo_data import DemoFiles
from cimtool.verification.render import REPORT_FILES, terminal_text

BY_HAND = Path("by-hand")
"""Folder of what the printed commands make."""


@click.command(cls=Command)
@click.option("--target", metavar="NAME|FILE", default="isaac-rram-128", show_default=True)
@click.option("--epochs", type=int, metavar="N", default=6, show_default=True, help="Of training.")
@click.option(
    "--out", "folder", type=FILE, default=OUT, show_default=True, help="Gets bundle and scores."
)
@click.option("--cache", type=FILE, default=CACHE, show_default=True, help="Keeps trained models.")
@click.pass_obj
def command(out: Output, target: str, epochs: int, folder: Path, cache: Path) -> None:
    """Go the whole way on real data that needs no download.

    Trains projectors on functions and their docstrings of the installed libraries, fits the
    polynomial, compiles, simulates and verifies. A second run starts at compile.
    """
    with failures_shown(out):
        found = run_demo(target, epochs, cache, folder, out.step, out.say)
    files = found.files
    commands = demo_commands(files, found.settings, target)
    out.result(
        {
            "target": target,
            "epochs": epochs,
            "artefacts": vars(files),
            "bundle": found.bundle,
            "scores": found.scores,
            "report": found.report.to_json(),
            "commands": commands,
        },
        f"\n{terminal_text(found.report, out.width)}\n\n{_where(found, commands)}",
    )


def _where(found: DemoResult, commands: tuple[str, ...]) -> str:
    files = found.files
    again = [
        "cimtool", "compile", "--projectors", files.projectors, "--poly", files.poly,
        "--calibration", files.calibration, "--target", "hermes-pcm-14nm",
    ]  # fmt: skip
    report = next(name for name in REPORT_FILES if name.endswith(".html"))
    return "\n".join(
        [
            f"model   {files.projectors.parent}",
            f"bundle  {found.bundle}",
            f"scores  {found.scores}",
            f"report  {found.bundle / report}",
            f"next    {shlex.join(map(str, again))}",
            "",
            "the same by hand:",
            *(f"  {line}" for line in commands),
        ]
    )


def demo_commands(
    files: DemoFiles, settings: DemoSettings, target: str, folder: Path = BY_HAND
) -> tuple[str, ...]:
    """Command lines that come to the demo's artefacts and report in `folder`."""
    projectors, poly = DemoFiles.under(folder).projectors, DemoFiles.under(folder).poly
    bundle, teacher, pairs = folder / "bundle", folder / TEACHER, settings.teacher_pairs
    options = [f"--set={name}={value}" for name, value in settings.options.items()]
    train = ["--data", files.train, "--epochs", settings.epochs, *options]
    label = ["--data", files.train, "--labels", "exact", "--matched", 0.5, "--pairs", pairs]
    build = ["--poly", poly, "--calibration", files.calibration, "--target", target]
    lines: tuple[list[object], ...] = (
        ["train", *train, "-o", projectors.parent],
        ["teacher", "--projectors", projectors, *label, "-o", teacher],
        ["fit", teacher, "-o", poly],
        ["compile", "--projectors", projectors, *build, "-o", bundle],
        ["simulate", bundle, "--inputs", files.eval, "-o", folder / "scores.npz"],
        ["verify", bundle, "--data", files.eval],
    )
    return tuple(shlex.join(map(str, ["cimtool", *words])) for words in lines)
