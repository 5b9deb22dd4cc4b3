"""`cimtool demo`: all public commands on real data, a line a step."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cimtool.cli.group import Command
from cimtool.cli.options import FILE
from cimtool.cli.output import Output
from cimtool.cli.verify import failures_shown
from cimtool.demo import CACHE, OUT, TEACHER, DemoSettings, run_demo
from cimtool.report.page import render_text
from cimtool.training.demo_data import DemoFiles
from cimtool.verification.render import terminal_text

BY_HAND = Path("by-hand")
"""Folder of what the printed commands make."""


@click.command(cls=Command)
@click.option("--target", metavar="NAME|FILE", default="isaac-rram-128", show_default=True)
@click.option(
    "--epochs", type=int, metavar="N", default=6, show_default=True, help="Training epochs."
)
@click.option(
    "--out",
    "folder",
    type=FILE,
    default=OUT,
    show_default=True,
    help="Folder of bundle and scores.",
)
@click.option(
    "--cache", type=FILE, default=CACHE, show_default=True, help="Folder of trained models."
)
@click.pass_obj
def command(out: Output, target: str, epochs: int, folder: Path, cache: Path) -> None:
    """Run the whole pipeline on real data that needs no download.

    Trains projectors on functions and their docstrings of the installed libraries, fits the
    polynomial, compiles, simulates and verifies. A second run starts at compile.
    """
    with failures_shown(out):
        found = run_demo(target, epochs, cache, folder, out.step, out.say)
    files = found.files
    commands = demo_commands(files, found.settings, target)
    trained = ("--projectors", files.projectors, "--poly", files.poly)
    other = ("--calibration", files.calibration, "--target", "hermes-pcm-14nm")
    again = _line("compile", *trained, *other)
    text = render_text("cimtool.cli", "demo.txt", found=found, again=again, commands=commands)
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
        f"\n{terminal_text(found.report, out.width)}\n\n{text}",
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
    return tuple(_line(*words) for words in lines)


def _line(*words: object) -> str:
    return shlex.join(map(str, ("cimtool", *words)))
