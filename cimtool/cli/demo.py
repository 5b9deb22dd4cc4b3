"""`cimtool demo`: the whole walk, a line a step."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cimtool.cli.checked import failures_shown
from cimtool.cli.group import Command
from cimtool.cli.options import FILE
from cimtool.cli.output import Output
from cimtool.demo import CACHE, OUT, Walk, walk
from cimtool.verification.files import REPORT_FILES
from cimtool.verification.render import terminal_text


@click.command(cls=Command)
@click.option("--target", metavar="NAME|FILE", default="isaac-rram-128", show_default=True)
@click.option("--epochs", type=int, metavar="N", default=6, show_default=True, help="Of training.")
@click.option(
    "--out", "folder", type=FILE, default=OUT, show_default=True, help="Gets bundle and scores."
)
@click.option("--cache", type=FILE, default=CACHE, show_default=True, help="Keeps trained models.")
@click.pass_obj
def command(out: Output, target: str, epochs: int, folder: Path, cache: Path) -> None:
    """Walk the whole way on real data that needs no download.

    Trains projectors on functions and their docstrings of the installed libraries, fits the
    polynomial, compiles, simulates and verifies. A second run starts at compile.
    """
    with failures_shown(out):
        found = walk(target, epochs, cache, folder, out.step, out.say)
    files = found.files
    out.result(
        {
            "target": target,
            "epochs": epochs,
            "artefacts": vars(files),
            "bundle": found.bundle,
            "scores": found.scores,
            "report": found.report.to_json(),
        },
        f"\n{terminal_text(found.report, out.width)}\n\n{_where(found)}",
    )


def _where(found: Walk) -> str:
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
        ]
    )
