"""Layout `probvlm`: ProbVLM's adapters, whose generalised Gaussians have a mean and a variance."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from scipy.spatial.distance import cdist
from scipy.special import gamma, gammaln
from scipy.stats import gennorm

from cimtool import api, cli
from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.ir.heads.csd import Csd
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.loading.layer_map import read_layer_map
from cimtool.loading.source import ModelSource
from cimtool.passes.approximate import fit_curve
from cimtool.passes.curves import CURVE_TOLERANCE
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.simulation.simulator import Simulator
from tests.kits.agreement import require_one_result
from tests.kits.public_checkpoints import Tensors, first_right, paired, probvlm

D, HIDDEN = 24, 16
ROWS = paired(D, 64)
TENSORS = probvlm(D, HIDDEN)


def saved(folder: Path, tensors: Tensors | None = None, **other: torch.Tensor) -> Path:
    file = folder / "probvlm.safetensors"
    save_file((tensors or TENSORS) | other, file)
    return file


def outputs(tensors: Tensors, side: str, x: FloatArray) -> tuple[FloatArray, ...]:
    """mu, alpha and beta of BayesCap_MLP and get_GGuncer in ProbVLM's public code.

    There beta is at least 0.1.
    """
    t = {name: one.double().numpy() for name, one in tensors.items()}

    def layer(name: str, x: FloatArray) -> FloatArray:
        name = f"{side}_BayesCap.{name}"
        return np.asarray(x @ t[f"{name}.weight"].T + t[f"{name}.bias"])

    def block(name: str) -> FloatArray:
        return layer(f"{name}.2", np.maximum(layer(f"{name}.0", h), 0))

    h = np.maximum(layer("mod.0", x), 0)
    h = layer("mod.5", np.maximum(layer("mod.2", h), 0)) + x
    inverse, shape = (np.maximum(block(f"block_{one}"), 0) for one in ("alpha", "beta"))
    alpha = np.clip(1 / (inverse + 1e-5), 1e-4, 5)
    return block("block_mu"), alpha, np.clip(shape + 0.1, 0.5, 5)


def gaussians(
    tensors: Tensors, rows: Mapping[str, np.ndarray]
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """mu and variance of each side, the variance by equation 9 of the paper."""
    found = {}
    for modality, side in (("text", "txt"), ("video", "img")):
        mu, alpha, beta = outputs(tensors, side, rows[modality].astype(np.float64))
        found[modality] = mu, alpha**2 * gamma(3 / beta) / gamma(1 / beta)
    return found


def expected_cosines(tensors: Tensors, rows: Mapping[str, np.ndarray]) -> FloatArray:
    """The score of head `probcosine`."""
    text, video = (
        mu / np.sqrt((mu**2 + s).sum(1, keepdims=True))
        for mu, s in gaussians(tensors, rows).values()
    )
    return np.asarray(text @ video.T)


def distances(tensors: Tensors, rows: Mapping[str, np.ndarray], text: bool = True) -> FloatArray:
    """`ed` of each pair, without the texts' variance if not `text`."""
    (mu, s), (nu, t) = gaussians(tensors, rows).values()
    square = cdist(mu, nu, "sqeuclidean") + t.sum(1)
    return np.asarray(square + text * s.sum(1)[:, None])


def test_the_score_is_that_of_the_published_formula(tmp_path: Path) -> None:
    model = ModelSource(saved(tmp_path)).for_rows(ROWS).load()
    assert (model.layout, model.head, model.text_width) == ("probvlm", ProbCosine(), D)
    wanted = expected_cosines(TENSORS, ROWS)
    found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    assert sum("an image's times exp(logit_scale)" in one for one in model.warnings) == 1


def test_distances_take_both_variances(tmp_path: Path) -> None:
    file, ed = saved(tmp_path), distances(TENSORS, ROWS)
    for source, wanted in (
        (ModelSource(file, head="csd", a=0.01, b=2.0), 2.0 - 0.01 * ed),
        (ModelSource(file, head="csd-ranking"), -distances(TENSORS, ROWS, text=False)),
    ):
        model = source.for_rows(ROWS).load()
        found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
        assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)


@pytest.mark.parametrize("side", ["txt", "img"])
def test_the_variance_is_that_of_a_generalised_gaussian(tmp_path: Path, side: str) -> None:
    modality = {"txt": "text", "img": "video"}[side]
    x = ROWS[modality].astype(np.float64)
    mu, alpha, beta = outputs(TENSORS, side, x)
    assert np.ptp(beta) > 0.5
    assert alpha.max() > 5 * alpha.min()
    model = ModelSource(saved(tmp_path)).for_rows(ROWS).load()
    found = model.towers[modality == "video"].run({"x": x})
    np.testing.assert_allclose(found["mu"], mu, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["s"], gennorm.var(beta, scale=alpha), rtol=1e-9)


def test_the_mean_of_a_distance_is_exact_and_its_variance_is_not() -> None:
    """`vd` lacks `sum s^2 (kurtosis - 3)` of both sides, a number of each item."""
    rng = np.random.default_rng(1)
    sides, samples, missing = [], [], 0.0
    for beta in (0.8, 3.0):
        mu, alpha = rng.normal(size=3), rng.uniform(0.3, 1.0, size=3)
        samples.append(mu + alpha * gennorm.rvs(beta, size=(400_000, 3), random_state=rng))
        s = gennorm.var(beta, scale=alpha)
        kurtosis = gamma(5 / beta) * gamma(1 / beta) / gamma(3 / beta) ** 2
        sides.append(Gaussians(mu[None], s[None]))
        missing += float((s**2 * (kurtosis - 3)).sum())
    squares = np.square(samples[0] - samples[1]).sum(1)
    assert squares.mean() == pytest.approx(expected_distance(*sides)[0], rel=0.01)
    vd = distance_variance(*sides)[0]
    assert squares.var() == pytest.approx(vd + missing, rel=0.05)
    assert missing > 0.3 * vd


POLYNOMIAL = {
    "degree": 1,
    "coeff": [-1.0, 0.2],
    "bias": 2.0,
    "scale_ed": 1e4,
    "scale_vd": 1e8,
    "a": 1e-4,
    "b": 2.0,
}


def test_a_polynomial_takes_both_statistics(tmp_path: Path) -> None:
    poly = tmp_path / "poly.json"
    poly.write_text(json.dumps(POLYNOMIAL))
    text, video = (Gaussians(*one) for one in gaussians(TENSORS, ROWS).values())
    wanted = [
        2 - expected_distance(one, video) / 1e4 + 0.2 * distance_variance(one, video) / 1e8
        for one in (Gaussians(text.mu[[i] * 64], text.s[[i] * 64]) for i in range(64))
    ]
    model = ModelSource(saved(tmp_path), head="pcme-poly", poly=poly).for_rows(ROWS).load()
    found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)


@pytest.mark.thorough("each head; two are in the first tier", quick=("probcosine", "pcme-poly"))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"a": 100.0},
        {"head": "csd", "a": 0.01, "b": 2.0},
        {"head": "csd-ranking"},
        {"head": "pcme-poly", "poly": POLYNOMIAL},
    ],
    ids=["probcosine", "logit", "csd", "csd-ranking", "pcme-poly"],
)
def test_what_is_compiled_is_the_same_to_the_last_bit(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    if "poly" in options:
        (tmp_path / "poly.json").write_text(json.dumps(options["poly"]))
        options = {**options, "poly": tmp_path / "poly.json"}
    require_one_result(
        api.prepare(saved(tmp_path), calibration=ROWS, drift="given", target="ideal", **options),
        ROWS,
    )


def test_the_variance_is_within_the_stated_errors(tmp_path: Path) -> None:
    compiled = api.prepare(saved(tmp_path), calibration=ROWS, drift="given", target="ideal")
    stages = {stage.name: stage.program for stage in compiled.stages}
    for modality in ("text", "video"):
        exact, lowered = (
            Simulator(stages[name]).values(modality, ROWS[modality], ["logvar", "s"])
            for name in ("calibrated", "lowered")
        )
        notes = [note for note in compiled.notes if note.startswith(f"{modality}.")]

        def worst(value: str, notes: list[str] = notes) -> float:
            (note,) = (note for note in notes if f".{value}: " in note)
            said = re.search(r"worst (?:relative )?error (\d\.\de-\d+)", note)
            assert said is not None
            return 1.05 * float(said[1])  # said to two digits

        roots = worst("alpha_root") / 2 + worst("inverse_alpha_root4")
        bound = 8 * (worst("log_root4") + roots) + worst("log_gamma_ratio") + 1e-9
        off = np.abs(lowered["logvar"] - exact["logvar"]).max()
        assert 0 < off <= bound < 2e-3
        most = worst("s") * exact["s"].max()
        assert (np.abs(lowered["s"] - exact["s"]) <= np.expm1(bound) * exact["s"] + most).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(0.5, 5.0), st.floats(0.5, 5.0))
def test_the_shape_has_polynomials_on_each_range_within_its_limits(lo: float, hi: float) -> None:
    lo, hi = sorted((lo, hi))

    def ratio(beta: FloatArray) -> FloatArray:
        return np.asarray(gammaln(3 / beta) - gammaln(1 / beta))

    fit = fit_curve(ratio, lo, max(hi, lo + 1e-3), CURVE_TOLERANCE)
    assert fit is not None
    beta = np.random.default_rng(0).uniform(lo, hi, 999)
    bound = CURVE_TOLERANCE * np.abs(ratio(np.array([0.5]))).item()
    assert fit.error <= bound < 3e-4
    assert np.abs(fit(beta) - ratio(beta)).max() <= 1.01 * fit.error + 1e-12


@pytest.mark.parametrize("largest", [5.0, 99.0])
def test_widths_of_all_sizes_have_a_logarithm(tmp_path: Path, largest: float) -> None:
    """1 / alpha from its least to its most, in dimensions of one item."""
    bias = "img_BayesCap.block_alpha.2.bias"
    spread = torch.logspace(-3, 5, D, dtype=torch.float32)
    torch.save({**TENSORS, bias: spread, "alpha_max": largest}, tmp_path / "wide.pth")
    compiled = api.prepare(tmp_path / "wide.pth", calibration=ROWS, drift="given", target="ideal")
    stages = {stage.name: stage.program for stage in compiled.stages}
    x = ROWS["video"]
    limited = Simulator(stages["calibrated"]).values("video", x, ["inverse_alpha"])["inverse_alpha"]
    assert (limited.min(), limited.max()) == (1 / largest, 1e4)
    exact, lowered = (
        Simulator(stages[name]).values("video", x, ["logvar"])["logvar"]
        for name in ("calibrated", "lowered")
    )
    assert np.abs(lowered - exact).max() < 4e-3


def test_a_training_checkpoint_beside_its_frozen_model_is_the_same(tmp_path: Path) -> None:
    beside = {"clip_model.visual.proj": torch.zeros(3, 4)}
    wrapped = {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in (TENSORS | beside).items()}}
    torch.save(wrapped, tmp_path / "probvlm_best.pth")
    model = ModelSource(tmp_path / "probvlm_best.pth").for_rows(ROWS).load()
    found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
    wanted = expected_cosines(TENSORS, ROWS)
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)
    assert any("1 tensor of encoders and of training" in one for one in model.warnings)


def test_inner_layers_may_have_another_width(tmp_path: Path) -> None:
    """BayesCap_HF_MLP of the public code has 128 numbers there."""
    narrow = {
        name: one[:, :9] if name.endswith("2.weight") else one[:9]
        for name, one in TENSORS.items()
        if re.search(r"block_\w+\.(0|2\.weight)", name)
    }
    tensors = {name: one.contiguous() for name, one in (TENSORS | narrow).items()}
    model = ModelSource(saved(tmp_path, tensors)).for_rows(ROWS).load()
    found = Simulator(model.program).scores(ROWS["text"], ROWS["video"])
    wanted = expected_cosines(tensors, ROWS)
    assert np.abs(found - wanted).max() <= 1e-5 * np.ptp(wanted)


def dead(tensors: Tensors, block: str) -> Tensors:
    """The adapters with a ReLU that gives 0 in one dimension of images."""
    bias = f"img_BayesCap.{block}.2.bias"
    moved = tensors[bias].clone()
    moved[3] = -1e3
    return {**tensors, bias: moved}


def test_a_shape_of_0_is_the_least_that_the_layout_or_a_map_says(tmp_path: Path) -> None:
    tensors, x = dead(TENSORS, "block_beta"), ROWS["video"].astype(np.float64)
    file, limits = saved(tmp_path, tensors), tmp_path / "limits.toml"
    _, alpha, beta = outputs(tensors, "img", x)
    assert (beta[:, 3] == 0.5).all()
    assert (np.delete(beta, 3, axis=1) > 0.5).all()
    for least in (0.5, 0.1, 0.8):
        limits.write_text(f"[image]\nbeta_min = {least}\n")
        layer_map = None if least == 0.5 else limits
        model = ModelSource(file, layer_map=layer_map).for_rows(ROWS).load()
        own = np.maximum(np.where(np.arange(D) == 3, least, beta), least)
        found = model.towers[1].run({"x": x})["s"]
        np.testing.assert_allclose(found, gennorm.var(own, scale=alpha), rtol=1e-9)
        assert any(f"beta at least {least:g}, which" in one for one in model.warnings)
    require_one_result(api.prepare(file, calibration=ROWS, drift="given", target="ideal"), ROWS)


def test_a_variance_beyond_the_polynomials_is_refused(tmp_path: Path) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text("[image]\nbeta_min = 0.1\n")
    file = saved(tmp_path, dead(TENSORS, "block_beta"))
    with pytest.raises(CimError, match=r"video\.s: logvar spans .* too wide for exp.* a clamp"):
        api.prepare(file, calibration=ROWS, drift="given", target="ideal", layer_map=limits)


def test_the_largest_width_can_be_limited(tmp_path: Path) -> None:
    tensors = dead(TENSORS, "block_alpha")
    x = ROWS["video"].astype(np.float64)
    _, alpha, beta = outputs(tensors, "img", x)
    assert (alpha[:, 3] == 5).all()
    for value in (5.0, 2.0):
        torch.save({**tensors, "alpha_max": value}, tmp_path / "limited.pth")
        model = ModelSource(tmp_path / "limited.pth").for_rows(ROWS).load()
        wanted = gennorm.var(beta, scale=np.minimum(alpha, value))
        np.testing.assert_allclose(model.towers[1].run({"x": x})["s"], wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("beta_min = 0.0", r"beta_min is 0\.0; expected a number of at least 0\.1 and below 5"),
        ("beta_min = 5.0", r"beta_min is 5\.0; expected a number of at least 0\.1 and below 5"),
        ('alpha_max = "wide"', r"alpha_max is wide; expected a number of at least 0\.0001 and"),
        ("alpha_max = true", r"alpha_max is True; expected a number of at least"),
        ("alpha_max = nan", r"alpha_max is nan; expected a number of at least"),
    ],
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, said: str, wanted: str) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text(f"[text]\n{said}\n")
    source = ModelSource(saved(tmp_path), layer_map=limits)
    with pytest.raises(CimError, match=rf"^{limits}: {wanted}"):
        source.for_rows(ROWS).load()
    assert read_layer_map(limits)["text"].values


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("block_beta.2.weight", (23, 24), r"has shape \[23, 24\]; expected \[24, 24\]"),
        ("block_alpha.0.weight", (24, 23), r"has shape \[24, 23\]; expected \[any, 24\]"),
        ("mod.5.bias", (5,), r"has shape \[5\]; expected \[24\]"),
    ],
)
def test_layers_of_other_widths_are_refused(
    tmp_path: Path, name: str, shape: tuple[int, ...], said: str
) -> None:
    file = saved(tmp_path, **{f"img_BayesCap.{name}": torch.ones(shape)})
    with pytest.raises(CimError, match=rf"^{file}: img_BayesCap\.{re.escape(name)} {said}"):
        ModelSource(file).for_rows(ROWS).load()


def test_a_missing_block_is_named(tmp_path: Path) -> None:
    tensors = {k: v for k, v in TENSORS.items() if "txt_BayesCap.block_beta" not in k}
    file = saved(tmp_path, tensors)
    with pytest.raises(CimError, match=rf"^{file}: txt_BayesCap\.block_beta\.0\.weight is missing"):
        ModelSource(file).for_rows(ROWS).load()


def test_a_further_layer_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, **{"txt_BayesCap.block_beta.4.weight": torch.ones(24, 24)})
    with pytest.raises(CimError, match=r'block_beta\.4\.weight is not part of layout "probvlm"'):
        ModelSource(file).for_rows(ROWS).load()


def test_a_checkpoint_is_inspected_without_rows(tmp_path: Path) -> None:
    facts = inspect(saved(tmp_path))
    assert (facts["layout"], facts["head"]) == ("probvlm", "probcosine")


@pytest.mark.thorough("two adapters of 512 numbers and 900 pairs")
@pytest.mark.parametrize("head", ["probcosine", "csd"])
def test_clip_vit_b_32_keeps_its_retrieval_in_integers(tmp_path: Path, head: str) -> None:
    norm = 100.0 if head == "probcosine" else 1.0
    tensors = probvlm(512, 256, image_norm=norm)
    rows = paired(512, 900, noise=1.6, image_norm=norm)
    calibration = {m: x[:300] for m, x in rows.items()}
    held_out = {m: x[300:] for m, x in rows.items()}
    numbers = {} if head == "probcosine" else {"a": 10.0, "b": 5.0}
    compiled = api.prepare(
        saved(tmp_path, tensors), calibration=calibration, target="ideal", head=head, **numbers
    )
    exact = expected_cosines(tensors, held_out)
    if head == "csd":
        exact = 5 - 10 * distances(tensors, held_out)
    found = Simulator(compiled.stages[-1].program).scores(held_out["text"], held_out["video"])
    assert 0.5 < first_right(exact) < 0.99
    for one, other in ((exact, found), (exact.T, found.T)):
        assert first_right(other) >= first_right(one) - 0.006  # 3 of 600 queries
    assert np.sqrt(np.square(found - exact).mean()) < 0.03 * exact.std(axis=1).mean()
    require_one_result(compiled, {m: x[:48] for m, x in held_out.items()})


def test_the_command_needs_no_other_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.npz"
    np.savez(rows, **ROWS)
    given = ["compile", "--projectors", str(saved(tmp_path)), "--calibration", str(rows)]
    given += ["--drift", "given", "--target", "ideal", "-o", str(tmp_path / "bundle")]
    assert cli.run(given) == 0
    assert "probvlm (layout probvlm, head probcosine) on ideal" in capsys.readouterr().out


def test_other_heads_come_by_name(tmp_path: Path) -> None:
    source = ModelSource(saved(tmp_path), head="csd", a=0.5, b=1.0)
    assert source.for_rows(ROWS).load().head == Csd(0.5, 1.0)
