"""From trained projectors to hardware: teacher, fit, train, compile, verify.

    python examples/train_on_a_polynomial.py [FOLDER] [DEMO]

DEMO holds demo/model.pth, train.npz, calibration.npz and eval.npz; by default it is what
`cimtool demo` left in demo-cache/. The projectors are trained on for two epochs, now on the logits
of the polynomial that is deployed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cimtool

TARGET = "isaac-rram-128"


def main(folder: Path, demo: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    start, rows, unseen = demo / "demo" / "model.pth", demo / "train.npz", demo / "eval.npz"

    # 1. The teacher: pairs labelled with the matching probability. Half of them are wrong ones, for
    # the polynomial must also be right about those.
    teacher = cimtool.teacher(start, rows, labels="exact", pairs=20_000, matched=0.5)

    # 2. The polynomial in ed and vd that stands for the teacher's logit.
    fit = cimtool.fit(teacher, degree=4, output=folder / "poly.json")
    print(f"the polynomial is {fit.errors[0].rmse:.1e} (RMSE, logit) from the exact logit")

    # 3. Training on its logits, from the same projectors. What is not said is the loss's own: AdamW
    # at 5e-6, tau 0.07. The best epoch by R@10 on held-out pairs is kept with its polynomial.
    run = cimtool.train(
        rows,
        folder / "trained",
        start=start,
        poly=folder / "poly.json",
        epochs=2,
        resume=True,
        say=print,
    )
    print(f"kept: epoch {run.best.number}; the curves: {run.folder / 'training.html'}")

    # 4. Compile: the checkpoint brings its polynomial.
    bundle = cimtool.compile(
        run.folder / "model.pth",
        calibration=demo / "calibration.npz",
        target=TARGET,
        output=folder / f"trained@{TARGET}",
    )

    # 5. Verify: what each step cost, and whether simulator and ONNX Runtime agree to the last bit.
    report = cimtool.verify(bundle.folder, unseen)
    for sentence in report.headline.sentences:
        print(sentence)
    print(f"values that differ: {sum(one.differing for one in report.checks.bits)}")


def newest_demo() -> Path:
    """The folder of the last demo; an exit with what to do where there is none."""
    found = sorted(Path("demo-cache").glob("*/poly.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        sys.exit("demo-cache: holds no trained model; run `cimtool demo` first")
    return found[-1].parent


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(given[0] if given else Path("exports/examples"), given[1] if given[1:] else newest_demo())
