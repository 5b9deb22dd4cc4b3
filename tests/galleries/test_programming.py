"""Programmed bundles: written, read, simulated and verified like any other, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cimtool
from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.json_files import values_digest
from cimtool.bundle.bundle import IN_MEMORY, QUERIES, manifest_text, read_bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.bundle.simulate import hybrid_scores, recall
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session
from cimtool.galleries import programming as programmed
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.program import Program
from cimtool.simulation.simulator import Simulator

ITEMS = 40
LENGTH = 7


def compiled(files: DemoFiles, folder: Path, **flags: object) -> Path:
    api.compile(
        files.projectors, files.poly, calibration=files.calibration, output=folder, **flags  # type: ignore[arg-type]
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def made(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Bundles: compiled for the memory and for a hybrid score, and programmed with `eval`."""
    folder = tmp_path_factory.mktemp("programmed")
    flags = {"target": "isaac-rram-128", "adc_bits": 4, "calibrator": "minmax"}
    memory = compiled(small_trunk, folder / "memory", score_mapping="in-memory", **flags)
    hybrid = compiled(
        small_trunk, folder / "hybrid", score_mapping="hybrid", shortlist=LENGTH, **flags
    )
    return SimpleNamespace(
        files=small_trunk, folder=folder, memory=memory, hybrid=hybrid,
        in_memory=api.program(memory, small_trunk.eval),
        shortlisted=api.program(hybrid, small_trunk.eval),
    )  # fmt: skip


def digital(made: SimpleNamespace, folder: Path) -> np.ndarray:
    return api.simulate(folder, made.files.eval)["scores"]


def test_the_bundle_names_its_gallery(made: SimpleNamespace) -> None:
    found = made.in_memory
    assert found.bundle.folder == made.folder / "memory+eval"
    bundle = read_bundle(found.bundle.folder)
    assert bundle.gallery == found.gallery
    assert (found.gallery.file, found.gallery.items) == ("eval.npz", ITEMS)
    assert bundle.program.gallery_items == ITEMS
    assert [stage.name for stage in bundle.stages][-2:] == ["converters fitted", IN_MEMORY]
    before = read_bundle(made.memory)
    assert bundle.stages[-2].program.score.nodes[0].name == before.program.score.nodes[0].name
    assert QUERIES in before.manifest["files"]
    assert QUERIES in bundle.manifest["files"]
    assert [one["file"] for one in bundle.manifest["inputs"]][-1] == "eval.npz"


def test_a_digital_bundle_keeps_no_queries(small_bundle: Path) -> None:
    assert QUERIES not in read_bundle(small_bundle).manifest["files"]


def test_scores_against_the_gallery(made: SimpleNamespace) -> None:
    folder = made.in_memory.bundle.folder
    exact, found = digital(made, made.memory), digital(made, folder)
    assert found.shape == exact.shape
    error = np.sqrt(np.square(found - exact).mean())
    assert 0 < error < 0.5 * exact.std()
    best = api.simulate(folder, made.files.eval, top=3)
    order = np.argsort(-found, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(best["top_index"], order)
    np.testing.assert_array_equal(best["top_score"], np.take_along_axis(found, order, axis=1))


def test_only_texts_are_looked_at(made: SimpleNamespace) -> None:
    folder = made.in_memory.bundle.folder
    text = np.load(made.files.eval)["text"]
    whole = digital(made, folder)
    alone = api.simulate(folder, {"text": text[:5]})["scores"]
    np.testing.assert_array_equal(alone, whole[:5])
    other = {"text": text[:5], "video": np.ones((3, 24), np.float32)}
    np.testing.assert_array_equal(api.load(folder).scores(other), whole[:5])
    matcher = api.load(folder)
    features = matcher.encode_text(text)
    np.testing.assert_array_equal(matcher.score(features), whole)
    with pytest.raises(CimError, match=r"holds its gallery in the memory; expected score\(text\)"):
        matcher.score(features, features)


def test_lossless_converters_change_no_bit(made: SimpleNamespace, tmp_path: Path) -> None:
    flags = {"target": "isaac-rram-128", "score_mapping": "in-memory"}
    folder = compiled(made.files, tmp_path / "b", **flags)
    found = api.program(folder, made.files.eval)
    assert (found.accuracy.logit_rmse, found.accuracy.top1_agreement) == (0, 1)
    np.testing.assert_array_equal(digital(made, found.bundle.folder), digital(made, folder))


def test_accuracy_is_that_on_the_queries(made: SimpleNamespace) -> None:
    calibration, evaluation = np.load(made.files.calibration), np.load(made.files.eval)
    data = {"text": calibration["text"][:64], "video": evaluation["video"]}
    exact = api.simulate(made.memory, data)["scores"].astype(float)
    found = api.simulate(made.in_memory.bundle.folder, data)["scores"]
    accuracy = made.in_memory.accuracy
    assert accuracy.queries == 64
    assert accuracy.logit_rmse == pytest.approx(np.sqrt(np.square(found - exact).mean()))
    assert accuracy.top1_agreement == np.mean(found.argmax(axis=1) == exact.argmax(axis=1))


@pytest.mark.thorough("other ways of a gallery; one is in the first tier", quick=("shortlisted",))
@pytest.mark.parametrize("which", ["in_memory", "shortlisted"])
def test_verify_finds_no_differing_bit(made: SimpleNamespace, which: str) -> None:
    folder = getattr(made, which).bundle.folder
    report = api.verify(folder, made.files.eval, samples=2)
    assert not report.failures
    stages = [row.stage for row in report.drift.rows]
    assert (IN_MEMORY in stages) == (which == "in_memory")
    if which == "in_memory":
        assert stages[-3:] == ["converters fitted", IN_MEMORY, "ONNX Runtime"]
        assert report.drift.rows[-2].metrics["step_rmse"] > 0
    else:
        outputs = [one.output for one in report.checks.bits]
        assert outputs.count("shortlist.ed") == 2
        assert any(note.startswith("hybrid score: ") for note in report.notes)


def test_verify_takes_the_gallery_alone(made: SimpleNamespace) -> None:
    data = dict(np.load(made.files.eval))
    data["video"] = data["video"][::-1]
    folder = made.in_memory.bundle.folder
    with pytest.raises(CimError, match=r"its 40 videos are not the gallery of 40 items that mem"):
        api.verify(folder, data)


def test_the_same_gallery_gives_the_same_bytes(made: SimpleNamespace, tmp_path: Path) -> None:
    again = api.program(made.memory, made.files.eval, output=tmp_path / "again")
    assert again.bundle.manifest["files"] == made.in_memory.bundle.manifest["files"]


def test_a_changed_file_is_refused(made: SimpleNamespace, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(made.shortlisted.bundle.folder, folder)
    (folder / "gallery.safetensors").write_bytes(b"")
    with pytest.raises(CimError, match=r"gallery\.safetensors: changed since it was compiled"):
        read_bundle(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["gallery.safetensors"]
    manifest["sha256"] = values_digest(manifest)
    (folder / "manifest.json").write_text(manifest_text(manifest))
    with pytest.raises(CimError, match=r"names no gallery\.safetensors; the bundle is incomplete"):
        read_bundle(folder)


def test_a_shortlist_is_scored_exactly(made: SimpleNamespace) -> None:
    folder = made.shortlisted.bundle.folder
    found = api.simulate(folder, made.files.eval)
    assert found["top_index"].shape == (ITEMS, LENGTH)
    exact = digital(made, made.hybrid)
    np.testing.assert_array_equal(
        np.take_along_axis(exact, found["top_index"], axis=1), found["top_score"]
    )
    assert (np.diff(found["top_score"], axis=1) <= 0).all()
    first = api.simulate(folder, made.files.eval, top=2)
    np.testing.assert_array_equal(first["top_index"], found["top_index"][:, :2])
    with pytest.raises(CimError, match="top is 8; expected 1 to 7, the items of a shortlist"):
        api.simulate(folder, made.files.eval, top=8)


def test_a_shortlist_of_all_items_is_the_digital_ranking(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    whole = api.program(made.hybrid, made.files.eval, output=tmp_path / "all", shortlist=ITEMS)
    assert (whole.accuracy.shortlist_top1, whole.accuracy.shortlist_top10) == (1, 1)
    found = api.simulate(whole.bundle.folder, made.files.eval)
    exact = digital(made, made.hybrid)
    order = np.argsort(-exact, axis=1, kind="stable")
    np.testing.assert_array_equal(found["top_index"], order)


def test_shortlists_are_the_nearest_in_the_memory(made: SimpleNamespace) -> None:
    bundle = read_bundle(made.shortlisted.bundle.folder)
    simulator = Simulator(bundle.program)
    text = simulator.encode("text", np.load(made.files.eval)["text"])
    ed = np.concatenate([block for _, block in simulator.iter_distances(text)])
    found = hybrid_scores(simulator, text, bundle.gallery_features, LENGTH, None)["top_index"]
    for row, items in zip(ed, found, strict=True):
        nearest = sorted(range(ITEMS), key=lambda item: (row[item], item))[:LENGTH]
        assert sorted(items) == sorted(nearest)
    session = Session(bundle.folder / "shortlist.onnx")
    np.testing.assert_array_equal(session.distances(text, ITEMS), ed)


def test_recall_counts_what_shortlists_hold() -> None:
    exact = np.array([[3.0, 2, 1, 0], [0, 1, 2, 3]])

    class Near:
        def iter_distances(self, text: object):  # type: ignore[no-untyped-def]
            yield slice(0, 1), np.array([[0, 1, 2, 3]])
            yield slice(1, 2), np.array([[0, 1, 2, 3]])

    assert recall(exact, Near(), {}, 2) == (0.5, 0.5)  # type: ignore[arg-type]


def test_the_export_holds_the_shortlist_too(made: SimpleNamespace, tmp_path: Path) -> None:
    bundle = read_bundle(made.shortlisted.bundle.folder)
    files = export_bundle(bundle, "onnx", tmp_path / "onnx")
    assert "shortlist.onnx" in {file.name for file in files}


def test_what_cannot_be_programmed_is_refused(
    made: SimpleNamespace, small_bundle: Path, tmp_path: Path
) -> None:
    evaluation = made.files.eval
    cases = [
        (small_bundle, {}, r"was compiled with score_mapping = digital, which keeps no gallery"),
        (made.in_memory.bundle.folder, {}, r"holds the gallery eval\.npz already; program the bun"),
        (made.hybrid, {"shortlist": 0}, "shortlist is 0; expected 1 to 40, the number of items"),
        (made.hybrid, {"shortlist": 41}, "shortlist is 41; expected 1 to 40"),
        (made.memory, {"shortlist": 5}, "shortlist is 5; memory was compiled with score_mapping"),
        (made.memory, {"chips": 1}, "target isaac-rram-128 does not say how many arrays a chip"),
        (tmp_path, {}, "is not a bundle"),
    ]
    for bundle, options, sentence in cases:
        with pytest.raises(CimError, match=sentence):
            api.program(bundle, evaluation, output=tmp_path / "out", **options)  # type: ignore[arg-type]
    wide = tmp_path / "wide.npz"
    np.savez(wide, video=np.ones((3, 25), np.float32))
    with pytest.raises(CimError, match=r"wide\.npz: video rows have 25 numbers; .* expects 24"):
        api.program(made.memory, wide)
    (tmp_path / "taken").mkdir()
    with pytest.raises(CimError, match="exists and is not a bundle, so it is not replaced"):
        api.program(made.memory, evaluation, output=tmp_path / "taken")


def test_a_gallery_beyond_onnx_is_refused(
    made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # An item is 16 values of each kind: mu and s of a byte, mu^2 and mu s of two.
    monkeypatch.setattr(programmed, "ONNX_LIMIT", 16 * (1 + 1 + 2 + 2) * ITEMS - 1)
    with pytest.raises(CimError, match=r"gallery: 40 items take .* in ONNX .* at most 39 items"):
        api.program(made.memory, made.files.eval, output=tmp_path / "out")
    # With two devices a value, and 3-bit converters that round, each digit takes a byte instead.
    coarse = compiled(
        made.files, tmp_path / "b", target="hermes-pcm-14nm", score_mapping="in-memory",
        adc_bits=3, cell_bits=4, calibrator="minmax",
    )  # fmt: skip
    monkeypatch.setattr(programmed, "ONNX_LIMIT", 16 * (2 + 2 + 4 + 4) * ITEMS - 1)
    with pytest.raises(CimError, match=r"gallery: 40 items take .* in ONNX .* at most 39 items"):
        api.program(coarse, made.files.eval, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_of_the_score_mapping() -> None:
    target = load_target("ideal")
    assert resolve(target, None, {}).score_mapping == "digital"
    with pytest.raises(CimError, match='score_mapping is "in-memori"; expected "digital"'):
        resolve(target, None, {"score_mapping": "in-memori"})
    with pytest.raises(CimError, match="shortlist is 0; expected an integer"):
        resolve(target, None, {"score_mapping": "hybrid", "shortlist": 0})
    with pytest.raises(CimError, match='shortlist = 5: score_mapping = "digital" uses none'):
        resolve(target, None, {"shortlist": 5})


def test_programs_without_a_gallery_take_videos(made: SimpleNamespace) -> None:
    program: Program = read_bundle(made.hybrid).program
    assert program.gallery_items is None
    with pytest.raises(TypeError, match="holds no gallery"):
        Simulator(program).score({"mu": np.zeros((1, 16), np.int64)})


def test_the_library_has_it(made: SimpleNamespace) -> None:
    assert cimtool.program is api.program


FORGED = {
    "items": (3, f"gallery has 3 items; expected {ITEMS}, as in program.json"),
    "mapping": ("hybrid", "gallery.mapping is hybrid .* settings.score_mapping in-memory"),
    "shortlist": (5, "gallery.mapping is in-memory with shortlist 5"),
}


@pytest.mark.parametrize("key", FORGED)
def test_a_signed_gallery_that_the_program_does_not_hold_is_refused(
    made: SimpleNamespace, tmp_path: Path, key: str
) -> None:
    value, sentence = FORGED[key]
    folder = Path(shutil.copytree(made.in_memory.bundle.folder, tmp_path / "copy"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["gallery"][key] = value
    for name in ("shortlist.onnx", "gallery.safetensors"):
        manifest["files"].setdefault(name, sha256(folder / "program.json"))
        if not (folder / name).exists():
            shutil.copy(folder / "program.json", folder / name)
    manifest["sha256"] = values_digest(manifest)
    (folder / "manifest.json").write_text(manifest_text(manifest))
    with pytest.raises(CimError, match=rf"manifest\.json: {sentence}"):
        _ = read_bundle(folder).program


def test_a_signed_gallery_of_videos_whose_mu_has_another_width_is_refused(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.in_memory.bundle.folder, tmp_path / "copy"))
    program = json.loads((folder / "program.json").read_text())
    program["video"]["nodes"] = program["video"]["nodes"][:1]
    program["video"]["outputs"] = dict.fromkeys(program["video"]["outputs"], "x.stored")
    (folder / "program.json").write_text(json.dumps(program))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["program.json"] = sha256(folder / "program.json")
    manifest["sha256"] = values_digest(manifest)
    (folder / "manifest.json").write_text(manifest_text(manifest))
    with pytest.raises(CimError, match=r"model\.head is .*; expected the head of its score"):
        read_bundle(folder)
