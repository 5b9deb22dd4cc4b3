"""The library: what the command line does, with torch modules and arrays too."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.base.arrays import Array
from cimtool.base.errors import CheckFailed, CimError
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session
from cimtool.hardware.placement import placements
from cimtool.loading.polynomial import read_polynomial
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.towers import TwoTower


@pytest.fixture
def towers(small_trunk: DemoFiles) -> TwoTower:
    found = TwoTower(TrunkProjector(24, 32, 16), TrunkProjector(24, 32, 16))
    found.load_state_dict(torch.load(small_trunk.projectors, weights_only=True))
    return found.eval()


def arrays(file: Path) -> dict[str, Array]:
    with np.load(file) as held:
        return {name: held[name] for name in held.files}


def test_modules_and_arrays_compile_to_what_their_files_do(
    towers: TwoTower, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    of_files = api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="ideal",
        output=tmp_path / "files",
    )
    of_objects = api.compile(
        (towers.text_proj, towers.video_proj),
        read_polynomial(small_trunk.poly),
        calibration=arrays(small_trunk.calibration),
        drift="given",
        target="ideal",
        output=tmp_path / "objects",
    )
    for name in ("constants.safetensors", "text.onnx", "video.onnx", "score.onnx"):
        assert of_files.manifest["files"][name] == of_objects.manifest["files"][name]
    assert of_objects.manifest["inputs"] == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"batch": 1.5}, "batch is 1.5; expected an integer of at least 1"),
        ({"batch": True}, "batch is True; expected an integer of at least 1"),
        ({"gallery": 1e3}, "gallery is 1000.0; expected an integer of at least 1"),
        ({"gallery": True}, "gallery is True; expected an integer of at least 1"),
        ({"samples": "10"}, "samples is '10'; expected an integer of at least 1"),
    ],
)
def test_a_number_of_items_is_an_integer(
    small_bundle: Path, given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(CimError) as error:
        api.cost(small_bundle, **given)  # type: ignore[arg-type]
    assert str(error.value) == sentence


def test_prepare_writes_nothing(
    small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compilation = api.prepare(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="ideal",
    )
    assert compilation.folder == Path("exports/projectors@ideal")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["compile", "prepare", "tune", "fine_tune"])
def test_a_build_needs_a_target_in_python_as_on_the_command_line(name: str) -> None:
    given = {"calibration": {}} | {"output": "o", "data": {}, "budget": {}}
    taken = inspect.signature(getattr(api, name)).parameters
    with pytest.raises(TypeError, match=rf"{name}\(\): missing a required argument: 'target'"):
        getattr(api, name)("m.pth", **{key: given[key] for key in given if key in taken})


def test_settings_are_keywords(small_trunk: DemoFiles) -> None:
    compilation = api.prepare(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target="ideal",
        weight_bits=5,
        adc_bits=None,
    )
    assert compilation.settings.weight_bits == 5
    with pytest.raises(CimError, match=r"weight_bit; did you mean"):
        api.prepare(
            small_trunk.projectors,
            small_trunk.poly,
            calibration=small_trunk.calibration,
            target="ideal",
            weight_bit=5,
        )


def test_a_loaded_bundle_encodes_and_scores_in_parts(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    matcher = api.load(small_bundle)
    data = arrays(small_trunk.eval)
    text, video = matcher.encode_text(data["text"]), matcher.encode_video(data["video"])
    assert list(text) == ["mu", "s", "ed_self", "vd_self"]
    scores = matcher.score(text, video)
    assert (scores.dtype, scores.shape) == (np.float32, (40, 40))
    np.testing.assert_array_equal(scores, matcher.scores(data))
    few = matcher.score(matcher.encode_text(data["text"][3:5]), video)
    np.testing.assert_array_equal(few, scores[3:5])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 23), np.float32), r"shape \(2, 23\); projectors takes \[n, 24\]"),
        (np.zeros(24, np.float32), r"shape \(24,\)"),
        (np.full((2, 24), np.nan, np.float32), "row 0 of text holds nan"),
    ],
)
def test_rows_that_cannot_be_encoded(x: Array, message: str, small_bundle: Path) -> None:
    with pytest.raises(CimError, match=message):
        api.load(small_bundle).encode_text(x)


def test_features_may_be_as_narrow_as_the_onnx_files_return_them(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    matcher, data = api.load(small_bundle), arrays(small_trunk.eval)
    wide = matcher.encode_text(data["text"]), matcher.encode_video(data["video"])
    narrow = [
        Session(small_bundle / f"{modality}.onnx").run({"x": data[modality]})
        for modality in ("text", "video")
    ]
    assert {narrow[0][name].dtype for name in ("mu", "s")} == {np.dtype("i1"), np.dtype("u1")}
    np.testing.assert_array_equal(matcher.score(*narrow), matcher.score(*wide))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mu": None}, "text features: mu is missing; they hold s, ed_self, vd_self; expected mu,"),
        (
            {"s": np.ones((3, 15), int)},
            r"s is int64 \[3, 15\]; expected integers \[3, 16\], as enc",
        ),
        ({"ed_self": np.ones((3, 1), int)}, r"ed_self is int64 \[3, 1\]; .* \[3\]"),
        ({"vd_self": np.ones(2, int)}, r"vd_self is int64 \[2\]; expected integers \[3\]"),
        ({"mu": np.ones((3, 16))}, r"mu is float64 \[3, 16\]; expected integers"),
        ({"mu": np.full((3, 16), 200)}, "mu holds 200; expected -[0-9]+ to [0-9]+, as this bundle"),
    ],
)
def test_features_that_cannot_be_scored(
    change: dict[str, Array | None], message: str, small_bundle: Path, small_trunk: DemoFiles
) -> None:
    matcher, data = api.load(small_bundle), arrays(small_trunk.eval)
    text, video = matcher.encode_text(data["text"][:3]), matcher.encode_video(data["video"])
    changed = {name: x for name, x in {**text, **change}.items() if x is not None}
    with pytest.raises(CimError, match=message):
        matcher.score(changed, video)
    with pytest.raises(CimError, match="video features are given as ndarray; expected arrays by"):
        matcher.score(text, video["mu"])  # type: ignore[arg-type]
    assert matcher.score({**text, "name": "x"}, video).shape == (3, 40)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (np.zeros((2, 24)), "ndarray"),
        (3, "int"),
        ((np.zeros(24), np.zeros(24)), r"tuple \(ndarray, ndarray\)"),
        ((), r"tuple \(\)"),
    ],
)
def test_data_of_a_wrong_type(data: object, kind: str, small_bundle: Path) -> None:
    with pytest.raises(CimError, match=f"given as {kind}; expected a file, a pair of files"):
        api.load(small_bundle).scores(data)  # type: ignore[arg-type]


def test_a_bundle_of_a_wrong_type() -> None:
    with pytest.raises(CimError, match="a bundle is given as int; expected the path"):
        api.load(3)  # type: ignore[arg-type]
    with pytest.raises(CimError, match="a bundle is given as int; expected the path"):
        api.verify(3, {})  # type: ignore[arg-type]
    with pytest.raises(CimError, match="a bundle is given as int; expected the path"):
        api.compare([3, 4], {})  # type: ignore[list-item]


@pytest.mark.parametrize("a", [0.0, -0.1])
def test_the_teachers_slope_is_above_nothing(a: float, small_trunk: DemoFiles) -> None:
    with pytest.raises(CimError, match=r"a is .*; expected a number above 0"):
        api.prepare(
            small_trunk.projectors,
            small_trunk.poly,
            calibration=small_trunk.calibration,
            target="ideal",
            a=a,
        )


def test_simulate_without_output_only_returns(
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = arrays(small_trunk.eval)
    found = api.simulate(small_bundle, data, top=40)
    scores = api.simulate(small_bundle, data)["scores"]
    np.testing.assert_array_equal(
        np.take_along_axis(scores, found["top_index"], axis=1), found["top_score"]
    )
    assert list(tmp_path.iterdir()) == []


def test_equal_scores_keep_the_order_of_the_videos(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    data = arrays(small_trunk.eval)
    video = np.repeat(data["video"][:3], 4, axis=0)
    text_to_video = np.zeros(40, np.int64)
    inputs = {"text": data["text"], "video": video, "text_to_video": text_to_video}
    index = api.simulate(small_bundle, inputs, top=12)["top_index"]
    groups = index.reshape(40, 3, 4)
    np.testing.assert_array_equal(groups, groups[:, :, :1] + np.arange(4))


@pytest.mark.thorough("four reports; reports of arrays are in the first tier")
def test_verify_and_compare_take_arrays(small_bundle: Path, small_trunk: DemoFiles) -> None:
    data = arrays(small_trunk.eval)
    found = api.compare([small_bundle, small_bundle], data, samples=4)
    report = api.verify(small_bundle, data, samples=4)
    assert [one.checks.metrics for one in found.reports] == [report.checks.metrics] * 2
    with pytest.raises(CheckFailed, match="r1_loss is"):
        api.verify(small_bundle, data, samples=4, max_drift={"r1_loss": -1.0})


@pytest.mark.thorough("a report of the same by the command")
def test_many_texts_to_one_video(small_bundle: Path, small_trunk: DemoFiles) -> None:
    data = arrays(small_trunk.eval)
    inputs = {
        "text": data["text"],
        "image": data["video"][:8],
        "text_to_image": np.arange(40) // 5,
    }
    report = api.verify(small_bundle, inputs)
    assert (report.subject.data.texts, report.subject.data.videos) == (40, 8)
    assert not report.failures


def test_a_checkpoint_takes_its_polynomial_from_a_file(small_trunk: DemoFiles) -> None:
    polynomial = read_polynomial(small_trunk.poly)
    with pytest.raises(CimError, match="poly=PATH"):
        api.prepare(
            small_trunk.projectors, polynomial, calibration=small_trunk.calibration, target="ideal"
        )


def test_every_setting_of_a_layer_reaches_its_crossbar(small_trunk: DemoFiles) -> None:
    compilation = api.prepare(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target="isaac-rram-128",
        layers={"text.*": {"weight_bits": 4, "adc_bits": "lossless"}, "*.mu": {"weight_bits": 6}},
    )
    bits = {
        one.layer: (one.weight_bits, one.slices, one.adc_bits)
        for one in placements(compilation.stages[-1].program, compilation.settings)
    }
    assert bits["text.fc1"] == (4, 2, None)
    assert bits["text.mu"] == (6, 3, None)
    assert bits["video.mu"] == (6, 3, 8)
    assert bits["video.fc1"] == (8, 4, 8)
