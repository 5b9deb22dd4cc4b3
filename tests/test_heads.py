"""Every head from float to bits: compiled, run by all implementations, verified, in the memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from c_tools import differing
from onnx import TensorProto, helper, numpy_helper

from cimtool import api, cli
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporters import export_bundle
from cimtool.emit.runtime import Session
from cimtool.ir.arithmetic import plus
from cimtool.ir.heads import Head
from cimtool.ir.heads.base import distance
from cimtool.ir.heads.points import Euclidean
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import L2Normalize
from cimtool.ir.types import Type
from cimtool.simulation.simulator import Simulator
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.models.two_branch import TwoBranchProjector
from cimtool.verification.report import Report

WIDTH, HIDDEN, D = 12, 24, 10
TARGETS = ("ideal", "isaac-rram-128", "hermes-pcm-14nm")
HEADS = {
    "csd": {"a": 0.1, "b": 0.5},
    "csd-ranking": {},
    "cosine": {},
    "euclidean": {},
    "probcosine": {"a": 10.0},
    "inclusion": {},
}
LAYOUTS = {"trunk": WIDTH, "two-branch": D}

each_head = pytest.mark.parametrize("head", HEADS)


def module(layout: str) -> torch.nn.Module:
    torch.manual_seed(3)
    made = TrunkProjector(WIDTH, HIDDEN, D) if layout == "trunk" else TwoBranchProjector(D, HIDDEN)
    return made.eval()


def rows(layout: str, count: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(count, LAYOUTS[layout]))
    video = text + 0.2 * rng.normal(size=text.shape)
    if layout == "two-branch":
        text, video = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (text, video))
    return {"text": text.astype(np.float32), "video": video.astype(np.float32)}


Compiled = Callable[..., Bundle]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    def make(
        head: str, layout: str = "trunk", target: str = "isaac-rram-128", **flags: Any
    ) -> Bundle:
        torch.set_num_threads(1)
        return api.compile(
            (module(layout), module(layout)),
            head=head,
            calibration=rows(layout, 64, 0),
            drift="given",
            target=target,
            output=tmp_path_factory.mktemp("heads") / head,
            **HEADS.get(head, {}),
            **flags,
        )

    return make


@pytest.mark.thorough("other compilers; gcc is in the first tier", quick=("csd-trunk",))
@pytest.mark.parametrize("layout", LAYOUTS)
@each_head
def test_no_value_of_the_c_model_differs(
    compiled: Compiled, head: str, layout: str, tmp_path: Path
) -> None:
    export_bundle(compiled(head, layout), "handoff", tmp_path / "handoff")
    compared, wrong = differing(tmp_path / "handoff")
    assert compared > 3_000
    assert wrong == 0


def test_layers_that_read_an_embedding_in_several_bits_are_handed_off(
    compiled: Compiled, tmp_path: Path
) -> None:
    """A row of codes has those of each store: of two layers, and of the sum past them."""
    settings = tmp_path / "settings.toml"
    settings.write_text('[layers."*.mu_proj.0"]\nactivation_bits = 11\n')
    bundle = compiled("csd", "two-branch", settings=settings)
    text = bundle.program.text
    stores = text.operations(Quantize)
    assert sorted(text.types[name].bits for name in stores) == [8, 11, 16]
    export_bundle(bundle, "handoff", tmp_path / "handoff")
    header = (tmp_path / "handoff" / "c" / "model.h").read_text()
    said = header.split("#define TEXT_UNITS {")[1].split("}")[0].replace("\\", "").split(",")
    units = [float.fromhex(one.strip().removesuffix("f")) for one in said]
    width = text.extent("x")
    known = [np.broadcast_to(op.scale, (width,)) for op in stores.values()]
    np.testing.assert_array_equal(units, np.concatenate(known))
    compared, wrong = differing(tmp_path / "handoff")
    assert compared > 3_000
    assert wrong == 0
    export_bundle(bundle, "testvectors", tmp_path / "vectors")
    found = {file.name for file in (tmp_path / "vectors").glob("text.codes*.npy")}
    assert found == {"text.codes.npy", "text.codes_2.npy", "text.codes_3.npy"}


@pytest.mark.thorough(
    "each target and layout; each head has one in the first tier",
    quick=(
        *("csd-trunk-isaac", "csd-ranking-two-branch-isaac", "cosine-trunk-isaac"),
        *("euclidean-two-branch-isaac", "probcosine-trunk-isaac", "inclusion-two-branch-isaac"),
    ),
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", LAYOUTS)
@each_head
def test_all_implementations_agree_and_are_near_the_float_score(
    compiled: Compiled, head: str, layout: str, target: str
) -> None:
    bundle, data = compiled(head, layout, target), rows(layout, 40, 7)
    matcher = api.load(bundle.folder)
    text, video = matcher.encode_text(data["text"]), matcher.encode_video(data["video"])
    scores = matcher.score(text, video)
    reference = Simulator(bundle.program, fast=False)
    for modality, features in (("text", text), ("video", video)):
        ran = Session(bundle.folder / f"{modality}.onnx").encode(data[modality])
        slow = reference.encode(modality, data[modality])
        assert list(ran) == list(features) == list(bundle.program.text.outputs)
        for name, values in features.items():
            np.testing.assert_array_equal(ran[name], values)
            np.testing.assert_array_equal(slow[name], values)
    np.testing.assert_array_equal(reference.score(text, video), scores)
    np.testing.assert_array_equal(Session(bundle.folder / "score.onnx").score(text, video), scores)
    wanted = Simulator(bundle.stages[0].program).scores(data["text"], data["video"])
    error = np.sqrt(np.square(scores - wanted).mean())
    assert 0 < error < 0.1 * wanted.std()


@pytest.fixture(scope="module")
def reports(compiled: Compiled) -> dict[str, Report]:
    data = rows("trunk", 40, 7)
    return {head: api.verify(compiled(head).folder, data) for head in HEADS}


@pytest.mark.thorough("a report a head")
@each_head
def test_a_report_speaks_of_the_head(reports: dict[str, Report], head: str) -> None:
    report = reports[head]
    assert not report.failures
    assert sum(count.differing for count in report.checks.bits) == 0
    names = [row.stage for row in report.drift.rows]
    if head == "csd":
        first = [
            "raw embeddings",
            "raw rows, int8",
            "csd",
            "exact",
            "Monte Carlo (K=10)",
            "float.onnx",
            "folded",
        ]
        assert names[: len(first)] == first
        assert (report.drift.score, report.drift.reference) == ("logit", "csd")
        assert "logit_rmse" in report.drift.rows[3].metrics
    else:
        names_of = {
            "euclidean": "euclidean score",
            "csd-ranking": "csd without the query's variance",
        }
        surrogate = names_of.get(head, head)
        first = ["raw embeddings", "raw rows, int8", surrogate, "float.onnx", "folded"]
        assert names[: len(first)] == first, "rows that cannot be known are left out"
        assert (report.drift.score, report.drift.reference, report.drift.scatter) == (
            "score",
            surrogate,
            None,
        )
        baseline, drift = report.headline.sentences[:2]
        # The variances of these projectors were not trained: they only hide the means.
        result = "as well" if head in ("cosine", "euclidean") else "BETTER"
        assert baseline.startswith(f"Raw embeddings retrieve {result}")
        assert f"(centred score RMSE) from the float {surrogate}" in drift
    assert report.drift.scatter is None
    assert not report.headline.surrogate_broken
    assert report.notes[0] == (
        f'head "{head}" is a score of its own, so drift is measured against the float '
        f"{report.drift.reference}"
    )
    assert "polynomial" not in json.dumps(
        [report.notes, report.headline.sentences, report.causes.advice]
    )
    statistics = {domain.statistic for domain in report.saturation.domains}
    others = {
        "cosine": {"cosine"},
        "probcosine": {"cosine", "variance"},
        "inclusion": {"inclusion"},
    }
    assert statistics == others.get(head, {"ed"})


def test_a_score_without_an_operation_of_its_own_has_no_statistics(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Head, "family", dict(Head.family))

    @dataclass(frozen=True)
    class Plain(Euclidean, name="plain"):
        """The distance, negative by an Add."""

        def score(self, inputs: Mapping[str, Type]) -> Graph:
            b = Builder("score", inputs)
            return b.graph({"logit": b.add("logit", plus(-1), distance(b))})

    bundle = compiled("plain")
    report = api.verify(bundle.folder, rows("trunk", 40, 7))
    assert bundle.stages[0].program.score.statistics == ()
    assert report.saturation.domains == ()
    assert sum(count.differing for count in report.checks.bits) == 0


def test_a_cosine_keeps_its_origin_and_a_distance_does_not(compiled: Compiled) -> None:
    def offsets(head: str) -> list[bool]:
        stages = {stage.name: stage.program for stage in compiled(head, "two-branch").stages}
        return ["mu_centred" in stages["folded"].text.by_name]

    assert (offsets("cosine"), offsets("euclidean"), offsets("csd")) == ([False], [True], [True])


def test_rows_of_a_cosine_are_normalised_once(compiled: Compiled) -> None:
    for layout in LAYOUTS:
        trained = compiled("cosine", layout).stages[0].program
        norms = [node for node in trained.text.nodes if isinstance(node.op, L2Normalize)]
        assert len(norms) == 1


@pytest.mark.thorough("each head; one is in the first tier", quick=("csd]",))
@each_head
def test_a_gallery_goes_into_the_memory(compiled: Compiled, head: str, tmp_path: Path) -> None:
    bundle, data = compiled(head, score_mapping="in-memory"), rows("trunk", 40, 7)
    done = api.program(bundle.folder, {"video": data["video"]}, output=tmp_path / "held")
    digital = api.load(bundle.folder).scores(data)
    held = api.load(done.bundle.folder).scores({"text": data["text"]})
    assert np.abs(held - digital).max() < 0.1 * digital.std()
    query = Session(tmp_path / "held" / "text.onnx").encode(data["text"])
    found = Session(tmp_path / "held" / "score.onnx").run(
        {f"text_{k}": v for k, v in query.items()}
    )
    np.testing.assert_array_equal(found["logit"], held)


@pytest.fixture
def points(tmp_path: Path) -> tuple[Path, Path]:
    """Two projectors of one layer, which give a point and no variance."""
    files = []
    for seed, name in enumerate(("text", "video")):
        weight = np.random.default_rng(seed).normal(size=(WIDTH, D)).astype(np.float32)
        ports = [
            helper.make_tensor_value_info(key, TensorProto.FLOAT, ["n", width])
            for key, width in (("x", WIDTH), ("mu", D))
        ]
        nodes = [helper.make_node("MatMul", ["x", "w"], ["mu"])]
        tensor = numpy_helper.from_array(weight, "w")
        graph = helper.make_graph(nodes, name, ports[:1], ports[1:], [tensor])
        opsets = [helper.make_opsetid("", 17)]
        files.append(tmp_path / f"{name}.onnx")
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(files[-1]))
    return files[0], files[1]


@pytest.mark.thorough("more of the same kind")
@pytest.mark.parametrize("head", ["cosine", "euclidean"])
def test_points_compile_and_verify(points: tuple[Path, Path], head: str, tmp_path: Path) -> None:
    bundle = api.compile(
        points, head=head, calibration=rows("trunk", 64, 0), drift="given", target="isaac-rram-128",
        output=tmp_path / "bundle",
    )  # fmt: skip
    report = api.verify(bundle.folder, rows("trunk", 40, 7), report=tmp_path / "report")
    assert sum(count.differing for count in report.checks.bits) == 0
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert report.drift.surrogate in page
    assert "polynomial" not in page


def test_points_need_a_head_for_points(points: tuple[Path, Path]) -> None:
    data = rows("trunk", 8, 0)
    with pytest.raises(CimError, match="no head is named; expected head cosine or euclidean"):
        api.prepare(points, calibration=data, drift="given", target="ideal")
    with pytest.raises(CimError, match='head "csd" needs a variance, and the text projector'):
        api.prepare(
            points, head="csd", a=0.1, b=0.0, calibration=data, drift="given", target="ideal"
        )


@pytest.mark.thorough("each head; one is in the first tier", quick=("csd]",))
@each_head
def test_what_else_reads_a_bundle_reads_this_one(
    compiled: Compiled, head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = compiled(head).folder
    assert api.cost(folder, gallery=50).query is not None
    assert cli.run(["inspect", str(folder), "--verbose"]) == 0
    assert f"name: {head}" in capsys.readouterr().out
    vectors = tmp_path / "vectors"
    assert cli.run(["export", str(folder), "--format", "testvectors", "-o", str(vectors)]) == 0
    stored = {file.stem for file in vectors.glob("text.*.npy")}
    assert {f"text.{name}" for name in compiled(head).program.text.outputs} <= stored


def test_an_inclusion_draws_up_no_shortlist(compiled: Compiled) -> None:
    with pytest.raises(CimError, match="score_mapping = hybrid: the score does not use ed, by"):
        compiled("inclusion", score_mapping="hybrid")


@pytest.mark.thorough("more of the same kind")
@pytest.mark.parametrize("head", [name for name in HEADS if name != "inclusion"])
def test_a_hybrid_score_shortlists_by_the_distance_of_every_head(
    compiled: Compiled, head: str, tmp_path: Path
) -> None:
    bundle = compiled(head, score_mapping="hybrid")
    gallery = rows("trunk", 60, 7)
    exact = api.simulate(bundle.folder, gallery)["scores"]
    for bits in (None, 2):
        made = api.program(
            bundle.folder, gallery, output=tmp_path / f"{bits}", shortlist=20, shortlist_bits=bits
        )
        assert not api.verify(made.bundle.folder, gallery, samples=2).failures
        found = api.simulate(made.bundle.folder, gallery)["top_index"][:, 0]
        assert np.mean(found == exact.argmax(axis=1)) > 0.95
