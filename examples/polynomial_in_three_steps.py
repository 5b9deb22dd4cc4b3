"""The document of the polynomial surrogate in its three steps: label, fit, train.

    python examples/polynomial_in_three_steps.py [FOLDER] [DEMO]

DEMO holds train.npz and eval.npz; by default it is what `cimtool demo` left in demo-cache/. The
steps have the document's file names and settings, except for a tenth of its 300,000 labelled pairs.
A model that learns by sampling comes first, for the document begins with one. At full size this
takes about 5 minutes; docs/teacher.md says what each claim of the document comes to.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cimtool

WAYS = ("text_to_video", "video_to_text")
PAIRS = 30_000


def main(folder: Path, demo: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows, unseen = demo / "train.npz", demo / "eval.npz"

    # 0. A model that samples, as PCME does. The document takes one as given.
    sampled = cimtool.train(
        rows, folder / "sampled", loss="soft-contrastive", epochs=3, resume=True, say=print
    ).model

    # 1. Build the teacher: the matching probability of pairs by K = 10 samples a side, nine tenths
    # of them right pairs. Without a model: cimtool.teacher(data=rows, logvar=-5, a=0.1, b=0, ...).
    teacher = cimtool.teacher(
        sampled, rows, labels="mc", samples=10, pairs=PAIRS, output=folder / "teacher.npz"
    )

    # 2. Fit the polynomial of degree 4 by ridge regression. Against its labels the error is that of
    # the labels themselves. Exact labels of the same pairs show how far the polynomial is off.
    fit = cimtool.fit(
        folder / "teacher.npz", degree=4, alpha=1e-3, output=folder / "poly_coeffs.pt"
    )
    labelled = fit.errors[0]
    assert labelled.noise is not None
    exact = cimtool.teacher(sampled, rows, pairs=PAIRS).labels
    assert np.array_equal(exact.ed, teacher.labels.ed), "the same pairs"
    off = float(np.sqrt(np.mean((fit.polynomial.evaluate(exact.ed, exact.vd) - exact.logit) ** 2)))
    print(
        f"RMSE of the polynomial: {labelled.rmse:.2g} from its labels, whose own noise is "
        f"{labelled.noise:.2g}, and {off:.2g} from the exact logit"
    )
    assert labelled.rmse > 0.8 * labelled.noise, "no fit is nearer to labels than their noise"
    assert off < 0.5 * labelled.rmse

    # 3. Train projectors from random weights on the polynomial: AdamW at 5e-6, 10 epochs, batches
    # of 64, weight decay 1e-4, tau 0.07, variance 0.001. These are the defaults of the loss.
    best = cimtool.train(
        rows,
        folder / "best_projectors.pth",
        poly=folder / "poly_coeffs.pt",
        loss="info-nce-poly",
        options={"model.linear": False},
        resume=True,
        say=print,
    ).model

    # 4. Pairs that nothing was trained on. The sampling model, ranked by the polynomial and by
    # samples: the same R@1. The projectors from random weights: far less.
    model = cimtool.ModelSource(sampled, folder / "poly_coeffs.pt")
    polynomial, samples, *_ = cimtool.evaluate(unseen, model, samples=[10]).scores
    trained = cimtool.evaluate(unseen, best).scores[0]
    for way in (f"r1_{way}" for way in WAYS):
        change = samples.differences[way]
        print(
            f"{way}: polynomial {polynomial.metrics[way]:.1%}, samples {100 * change.value:+.1f} "
            f"points ({100 * change.low:+.1f} to {100 * change.high:+.1f}); trained on the "
            f"polynomial from random weights {trained.metrics[way]:.1%}"
        )
        assert change.low < 0.01, "samples are not surely better by a point"
        assert trained.metrics[way] < polynomial.metrics[way]


def newest_demo() -> Path:
    """The folder of the last demo; an exit with what to do where there is none."""
    found = sorted(Path("demo-cache").glob("*/poly.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        sys.exit("demo-cache: holds no trained model; run `cimtool demo` first")
    return found[-1].parent


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(
        given[0] if given else Path("exports/three-steps"), given[1] if given[1:] else newest_demo()
    )
