"""Scores of texts against videos on the bit-accurate simulator, as `simulate` writes them."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import Gallery
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.gallery import check_gallery
from cimtool.bundle.matcher import Matcher, load
from cimtool.bundle.scores import best_scores, check_scores_file, hybrid_scores, write_scores
from cimtool.bundle.trials import simulate_trials
from cimtool.ir.program import MODALITIES
from cimtool.loading.data import EmbeddingsLike, File, read_data, read_rows


def simulate(
    bundle: File,
    inputs: EmbeddingsLike,
    *,
    output: File | None = None,
    top: int | None = None,
    device: str | None = None,
    noise: NoiseOptions | None = None,
    say: Say = silent,
) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    `device` as in `load`. A bundle that holds a gallery looks at the texts alone; with a hybrid
    score it returns the best of each shortlist, all of it without `top`. With `noise` the scores of
    each die follow: `trial_scores` [T, n, m], `trial_rmse` [T] from the noise-free scores and,
    where the right pairs are known, `trial_r1` [T, 2]. Raises CimError for a bundle or inputs that
    do not fit, and for `top` with `noise`.
    """
    if output is not None:
        check_scores_file(Path(output))
    matcher = load(bundle, device)
    if noise is not None:
        found = _on_dies(matcher, inputs, top, noise, say)
    elif matcher.bundle.gallery is None:
        found = _all_pairs(matcher, inputs, top, say)
    else:
        found = _against_gallery(matcher, matcher.bundle.gallery, inputs, top, say)
    if output is not None:
        write_scores(Path(output), found)
    return found


def _on_dies(
    matcher: Matcher, inputs: EmbeddingsLike, top: int | None, noise: NoiseOptions, say: Say
) -> dict[str, Array]:
    if top is not None:
        raise ArgumentError(
            "{top} keeps the best of noise-free scores; expected it without {noise}"
        )
    read = read_data(inputs, matcher.bundle.model)
    check_gallery(matcher.bundle, read)
    return simulate_trials(matcher.bundle, matcher.simulator, read, noise, say)


def _against_gallery(
    matcher: Matcher, gallery: Gallery, inputs: EmbeddingsLike, top: int | None, say: Say
) -> dict[str, Array]:
    rows = read_rows(inputs, "text", matcher.bundle.model)
    say(f"encoding {len(rows)} texts")
    text = matcher.simulator.encode("text", rows)
    say(f"scoring {len(rows)} texts against {gallery.items} items in the memory")
    if gallery.shortlist is not None:
        items = matcher.bundle.gallery_features
        return hybrid_scores(matcher.simulator, text, items, gallery.shortlist, top)
    if top is None:
        return {"scores": matcher.score(text)}
    return best_scores(matcher.simulator, text, None, top)


def _all_pairs(
    matcher: Matcher, inputs: EmbeddingsLike, top: int | None, say: Say
) -> dict[str, Array]:
    read = read_data(inputs, matcher.bundle.model)
    say(f"encoding {len(read.text)} texts and {len(read.video)} videos")
    text, video = (matcher.simulator.encode(m, getattr(read, m)) for m in MODALITIES)
    say(f"scoring {len(read.text)} x {len(read.video)} pairs")
    if top is None:
        return {"scores": matcher.score(text, video)}
    return best_scores(matcher.simulator, text, video, top)
