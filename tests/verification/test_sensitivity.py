from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.bundle.bundle import IN_MEMORY, Bundle, read_bundle
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.reference.metrics import top1_agreement
from cimtool.simulation.simulator import Simulator
from cimtool.verification import hybrid
from cimtool.verification.report import json_values
from cimtool.verification.sensitivity import (
    LeftFloat,
    Part,
    Sensitivity,
    advice,
    sensitivity,
    subset,
)

from .conftest import MakeBundle, many_texts, pairs

LAYERS = ("fc1", "fc2", "logvar", "mu")
STORED = ("x.stored", "mu_stored", "s_stored", "s_summed")


def by_name(found: Sensitivity) -> dict[str, Part]:
    return {part.part: part for part in found.parts}


def with_layer(folder: Path, settings: str) -> Path:
    file = folder / "layers.toml"
    file.write_text(settings)
    return file


@pytest.fixture(scope="module")
def weak(make_bundle: MakeBundle, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """One layer of 3-bit weights among others of 8 bits."""
    text = '[layers."video.fc2"]\nweight_bits = 3\n'
    file = with_layer(tmp_path_factory.mktemp("settings"), text)
    return make_bundle("weak", settings=file)


@pytest.fixture(scope="module")
def found(weak: Bundle, data: Embeddings) -> Sensitivity:
    return sensitivity(weak.stages, data)


def rmse(a: np.ndarray, b: np.ndarray) -> float:
    """Without the mean difference of each query, in the worse direction."""
    return max(float(np.sqrt((a - b).var(axis=axis).mean())) for axis in (0, 1))


def test_the_whole_is_compiled_against_lowered(
    weak: Bundle, data: Embeddings, found: Sensitivity
) -> None:
    lowered = next(stage.program for stage in weak.stages if stage.name == "lowered")
    exact, compiled = (Simulator(p).scores(data.text, data.video) for p in (lowered, weak.program))
    assert (found.texts, found.videos) == (40, 40)
    assert found.centred_rmse == pytest.approx(rmse(exact, compiled), rel=1e-9)
    assert found.top1 == top1_agreement(compiled, exact)


def test_every_part_is_measured(found: Sensitivity) -> None:
    names = {f"{m}.{name}" for m in ("text", "video") for name in (*LAYERS, *STORED)}
    assert set(by_name(found)) == names | {"score"}
    assert len(found.parts) == len(names) + 1
    parts = by_name(found)
    assert (parts["text.x.stored"].kind, parts["text.x.stored"].bits) == ("input", 8)
    assert (parts["video.mu_stored"].kind, parts["video.mu_stored"].bits) == ("mu", 8)
    assert (parts["video.s_summed"].kind, parts["video.s_summed"].bits) == ("s_self", 16)
    assert (parts["text.fc1"].kind, parts["text.fc1"].bits) == ("layer", None)


def test_the_weak_layer_is_the_costliest(found: Sensitivity) -> None:
    assert found.costliest == "video.fc2"
    worst = found.worst
    others = [part for part in found.parts if part is not worst]
    assert worst.left_float_centred_rmse < min(part.left_float_centred_rmse for part in others)
    assert worst.alone_centred_rmse > max(part.alone_centred_rmse for part in others)
    assert worst.left_float_centred_rmse < 0.75 * found.centred_rmse < worst.alone_centred_rmse
    assert worst.alone_top1 <= min(part.alone_top1 for part in others)


def test_independent_errors_add_in_squares(found: Sensitivity) -> None:
    total = np.sqrt(sum(part.alone_centred_rmse**2 for part in found.parts))
    assert total == pytest.approx(found.centred_rmse, rel=0.25)


def test_the_settings_of_the_costliest_layer(found: Sensitivity) -> None:
    rest = {one.setting: one.centred_rmse for one in found.settings}
    assert set(rest) == {"weight_bits", "activation_bits"}
    assert rest["weight_bits"] < 0.75 * found.centred_rmse < rest["activation_bits"]
    assert rest["weight_bits"] == pytest.approx(found.worst.left_float_centred_rmse, rel=0.25)
    said = advice(found)
    assert said.startswith(
        "layer video.fc2 costs most: without its error the centred logit RMSE would be "
    )
    assert f"in place of {found.centred_rmse:.3g}" in said
    assert 'try more weight_bits for it ([layers."video.fc2"] in a settings file)' in said


def test_a_layer_left_float_is_one_of_many_bits(
    make_bundle: MakeBundle, data: Embeddings, found: Sensitivity, tmp_path: Path
) -> None:
    """Another build keeps the error that the advice promises."""
    file = with_layer(tmp_path, '[layers."video.fc2"]\nweight_bits = 12\n')
    better = sensitivity(make_bundle("better", settings=file).stages, data)
    promised = next(one.centred_rmse for one in found.settings if one.setting == "weight_bits")
    assert better.centred_rmse < 0.9 * found.centred_rmse
    assert better.centred_rmse < 1.2 * promised


def test_one_part_alone_by_hand(weak: Bundle, data: Embeddings, found: Sensitivity) -> None:
    """mu of the texts rounded, all else in real numbers."""
    programs = {stage.name: stage.program for stage in weak.stages}
    lowered = Simulator(programs["lowered"])
    text, video = (lowered.encode(m, getattr(data, m)) for m in ("text", "video"))
    exact = lowered.score(text, video)
    op = weak.program.text.by_name["mu_stored"].op
    codes = np.clip(np.floor(text["mu"] / op.scale + 0.5), op.lo, op.hi)  # type: ignore[attr-defined]
    mu, s = codes * op.scale, text["s"]  # type: ignore[attr-defined]
    ed_self = text["ed_self"] + (mu**2 - text["mu"] ** 2).sum(axis=1)
    vd_self = text["vd_self"] + 4 * ((mu**2 - text["mu"] ** 2) * s).sum(axis=1)
    rounded = {"mu": mu, "s": s, "ed_self": ed_self, "vd_self": vd_self}
    logits = lowered.score(rounded, video)
    part = by_name(found)["text.mu_stored"]
    assert part.alone_centred_rmse == pytest.approx(rmse(logits, exact), rel=1e-9)
    assert part.alone_top1 == top1_agreement(logits, exact)


def test_converters_are_a_setting_where_they_err(make_bundle: MakeBundle, data: Embeddings) -> None:
    found = sensitivity(make_bundle("few", target="isaac-rram-128", adc_bits=3).stages, data)
    assert found.worst.kind == "layer"
    rest = {one.setting: one.centred_rmse for one in found.settings}
    assert min(rest, key=lambda setting: rest[setting]) == "adc_bits"
    assert "try more adc_bits" in advice(found)


def test_only_the_first_rows_are_measured(weak: Bundle, data: Embeddings) -> None:
    again = sensitivity(weak.stages, data, rows=16)
    first = Embeddings(data.text[:16], data.video[:16], np.arange(16))
    assert again == sensitivity(weak.stages, first)
    assert (again.texts, again.videos) == (16, 16)


def test_blocks_of_rows_change_no_finding(
    weak: Bundle, data: Embeddings, found: Sensitivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hybrid, "block_height", lambda *_: 9)
    again = sensitivity(weak.stages, data)
    assert (again.costliest, again.texts, again.videos) == (
        found.costliest,
        found.texts,
        found.videos,
    )
    for one, other in zip(again.parts, found.parts, strict=True):
        assert one.part == other.part
        assert one.alone_centred_rmse == pytest.approx(other.alone_centred_rmse, rel=1e-6)
        assert one.left_float_centred_rmse == pytest.approx(other.left_float_centred_rmse, rel=1e-6)


def test_the_pairs_that_are_measured() -> None:
    rows = embeddings_of(many_texts(12, 3, 4))
    text, video = subset(rows, 5)
    right = set(rows.right[:5])
    assert text.tolist() == [0, 1, 2, 3, 4]
    assert len(video) == 5
    others = [v for v in range(12) if v not in right][: 5 - len(right)]
    assert video.tolist() == sorted([*right, *others])
    text, video = subset(rows, 100)
    assert (len(text), len(video)) == (36, 12)
    unknown = replace(rows, text_to_video=None)
    assert [index.tolist() for index in subset(unknown, 3)] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.thorough("a bundle more")
def test_a_score_in_the_memory_is_measured_in_its_digital_form(
    make_bundle: MakeBundle, data: Embeddings, tmp_path: Path
) -> None:
    digital = make_bundle("memory", target="isaac-rram-128", score_mapping="in-memory")
    items = tmp_path / "items.npz"
    np.savez(items, **pairs(40, seed=7))
    programmed = read_bundle(api.program(digital.folder, items).bundle.folder)
    assert programmed.stages[-1].name == IN_MEMORY
    layers = [n for n in programmed.program.score.nodes if isinstance(n.op, CrossbarMvm)]
    assert layers
    assert sensitivity(programmed.stages, data) == sensitivity(digital.stages, data)


def test_findings_become_plain_values(found: Sensitivity) -> None:
    values = json_values(found)
    assert values["costliest"] == "video.fc2"
    assert values["parts"][0]["part"] == "text.x.stored"
    assert set(values["settings"][0]) == {"setting", "centred_rmse"}


def sensible(kind: str, left_float: float, **others: object) -> Sensitivity:
    worst = Part("text.one", kind, 8, 0.9, 0.9, left_float, 0.95, "text")  # type: ignore[arg-type]
    made = Sensitivity(9, 9, 1.0, 0.9, (worst,), "text.one", ())
    return replace(made, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("input", "the rounding of the text input", "try input_bits above 8"),
        ("mu", "the rounding of text mu", "try feature_bits above 8"),
        ("s", "the rounding of text s", "try variance_bits above 8"),
        ("s_self", "the rounding of text s in sums", "no setting changes its bits"),
        ("score", "the arithmetic of the score", "no setting changes its bits"),
    ],
)
def test_the_setting_of_each_kind_of_part(kind: str, name: str, expected: str) -> None:
    said = advice(sensible(kind, 0.4))
    assert said.startswith(
        f"{name} costs most: without its error the centred logit RMSE would be 0.4 in "
    )
    assert said.endswith(expected)


def test_the_best_setting_of_a_layer_is_named() -> None:
    settings = (LeftFloat("activation_bits", 0.8), LeftFloat("weight_bits", 0.5))
    assert advice(sensible("layer", 0.4, settings=settings)).endswith(
        'try more weight_bits for it ([layers."text.one"] in a settings file): alone it could '
        "reach 0.5"
    )


def test_no_setting_is_named_where_no_part_dominates() -> None:
    assert "costs most" in advice(sensible("mu", 0.9))
    said = advice(sensible("mu", 0.901))
    assert said.startswith("no single part dominates the error")
    assert "feature_bits" not in said
    assert "no single part dominates" in advice(sensible("mu", 0.0, centred_rmse=0.0))
