"""`cimtool train`: projectors from embeddings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.fine_tune import fine_tune, hardware_options, split_options
from cimtool.cli.group import Command
from cimtool.cli.options import FILE, Files, embeddings_option
from cimtool.cli.output import Output
from cimtool.cli.values import parse_options
from cimtool.training.projectors import ProjectorRun
from cimtool.training.saved import BEST
from cimtool.training.train_page import headline


@click.command(cls=Command)
@embeddings_option("--data", "Pairs to train on")
@click.option("--validation", type=FILE, metavar="NPZ", help="Pairs that choose the best epoch.")
@click.option("--held-out", type=float, metavar="X", help="Without it: this share of --data (0.1).")
@click.option("--model", metavar="NAME", help="trunk, two-branch, ... (--start's; trunk).")
@click.option(
    "--loss", metavar="NAME", help="info-nce, info-nce-poly, ... (the latter with a polynomial)."
)
@click.option("--poly", type=FILE, metavar="FILE", help="The polynomial to train on.")
@click.option("--start", type=FILE, metavar="FILE", help="A checkpoint to start from.")
@click.option("--epochs", type=int, metavar="N", help="The loss's own; so all of these.")
@click.option("--batch", type=int, metavar="N", help="Pairs of a step.")
@click.option("--learning-rate", type=float, metavar="X", help="AdamW's.")
@click.option("--weight-decay", type=float, metavar="X", help="AdamW's.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--device", metavar="NAME", help="Train on cpu, cuda or cuda:N (cpu).")
@click.option(
    "--set", "options", metavar="KEY=VALUE", multiple=True,
    help="An option of the model or the loss: model.hidden=512, loss.tau=0.1.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on where a run into this folder was cut off.")
@click.option("-o", "--output", type=FILE, metavar="DIR", required=True, help="Where it all goes.")
@hardware_options
@click.pass_obj
def command(out: Output, /, data: Files, output: Path, **options: Any) -> None:
    """Train projectors, or fine-tune them for a target.

    They learn from a polynomial's logits, from -a ed, or by another --loss.
    DIR/model.pth is the best epoch on held-out pairs, by R@10 or, for a loss with labels, by mAP;
    last.pth is what --resume goes on from; training.html has the curves. Exit status 1 where the
    loss diverges: the best is kept. With --hardware the checkpoint of --start learns to give its
    own logits again once it is compiled, with the roundings of that target and those settings in
    the loop; --data needs no labels, and --model, --loss and the like are not for it.
    """
    plain, hardware = split_options(options)
    if hardware["hardware"] is not None:
        fine_tune(out, data, output, plain, hardware)
        return
    fields = parse_options(plain.pop("options"))
    run = api.train(data, output, options=fields, say=out.say, **plain)
    out.result(_values(run), _text(run))


def _values(run: ProjectorRun) -> dict[str, Any]:
    return {
        "best_epoch": run.best.number,
        "epochs": [epoch.to_json() for epoch in run.history],
        "remarks": list(run.remarks),
        "written": list(run.files),
    }


def _text(run: ProjectorRun) -> str:
    name = shlex.quote(str(run.folder / BEST))
    written = ", ".join(map(str, run.files))
    next_ = f"cimtool compile --projectors {name} --calibration NPZ --target NAME"
    if run.lacks_polynomial or run.outgrew_polynomial:
        next_ = f"cimtool teacher --projectors {name} --data NPZ"
    said = [headline(run.history), *run.remarks]
    return "\n".join([*said, "", f"wrote {written}", f"next: {next_}"])
