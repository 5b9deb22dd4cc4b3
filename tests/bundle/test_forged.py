"""Changed bundles: refused in one sentence, also where every checksum was made anew."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import Change, changed, sign
from safetensors.numpy import load_file, save

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import (
    CONSTANTS,
    MANIFEST,
    PROGRAM,
    STAGE_CONSTANTS,
    STAGES,
    read_bundle,
)
from cimtool.demo.data import DemoFiles
from cimtool.ir.arithmetic import Clip


@pytest.fixture(scope="module")
def written(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = small_trunk
    found = api.prepare(
        files.projectors,
        files.poly,
        calibration=files.calibration,
        drift="given",
        target="isaac-rram-128",
    )
    return found.write(tmp_path_factory.mktemp("bundles") / "model@isaac").folder


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


MANIFEST_CHANGES: dict[str, Change] = {
    "unit rows": lambda m: m["model"].update(unit_rows=True),
    "the teacher's a": lambda m: m["model"].update(a=2.5),
    "the teacher's b": lambda m: m["model"].update(b=-1.0),
    "a coefficient": lambda m: m["model"]["head"]["polynomial"]["coeff"].reverse(),
    "the bias": lambda m: m["model"]["head"]["polynomial"].update(bias=100.0),
    "the dimension": lambda m: m["model"].update(dimension=4),
    "a width": lambda m: m["model"].update(text_width=4),
    "the name": lambda m: m["model"].update(name="another"),
    "a warning": lambda m: m["model"].update(warnings=["well trained"]),
    "samples": lambda m: m["model"].update(samples=1),
    "the layout": lambda m: m["model"].update(layout="onnx"),
    "a setting": lambda m: m["settings"].update(weight_bits=4),
    "the calibrator": lambda m: m["settings"].update(calibrator="percentile"),
    "a figure of the target": lambda m: m["target"]["figures"].pop(),
    "rows of the target's arrays": lambda m: m["target"]["array"].update(rows=64),
    "a note": lambda m: m["notes"].append("nothing to see"),
    "an input": lambda m: m["inputs"].pop(),
    "a file that is listed": lambda m: m["files"].pop(STAGES),
    "a digest": lambda m: m["files"].update({PROGRAM: "0" * 64}),
    "a gallery": lambda m: m.update(gallery={"items": 3}),
    "a plug-in": lambda m: m.update(plugins=[]),
    "its own digest": lambda m: m.update(sha256="0" * 64),
    "no digest": lambda m: m.pop("sha256"),
    "the version of cimtool": lambda m: m.update(cimtool_version="9.9"),
    "another key": lambda m: m.update(trusted=True),
}


@pytest.mark.parametrize("name", MANIFEST_CHANGES)
def test_whatever_changes_in_a_manifest_is_refused(name: str, copied: Path) -> None:
    changed(copied, MANIFEST, MANIFEST_CHANGES[name], signed=False)
    with pytest.raises(CimError, match=r"manifest\.json: changed since it was compiled"):
        read_bundle(copied)


def node(values: dict[str, Any], name: str, graph: str = "text") -> dict[str, Any]:
    found: dict[str, Any] = next(n for n in values[graph]["nodes"] if n["name"] == name)
    return found


def crossbar(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = node(values, "mu")["fields"]["stored"]["crossbar"]
    return found


def retyped(values: dict[str, Any], name: str, graph: str, old: str, new: str) -> None:
    """Give a node's line a shape in place of the one that it has."""
    line = node(values, name, graph)
    assert old in line["type"]
    line["type"] = line["type"].replace(old, new)


def rows_for_columns(p: dict[str, Any]) -> None:
    """Terms of the videos as rows, which no sum of pairs takes."""
    node(p, "video.ed_self.rows", "score")["fields"].update(axis=1)
    retyped(p, "video.ed_self.rows", "score", "[1, m]", "[m, 1]")


def score_of(shape: str) -> Change:
    """A score whose logit is another value, of this shape, in float32."""

    def change(p: dict[str, Any]) -> None:
        source = {"[n]": "text.ed_self", "[n, 1]": "text.ed_self.rows", "[m]": "video.ed_self"}
        made = {
            **{"name": "made", "op": "dequantize", "inputs": [source[shape]]},
            **{"fields": {"scale": {"number": 1.0}}, "type": f"real {shape}"},
        }
        nodes = {one["name"]: one for one in (*p["score"]["nodes"], made)}
        read, left = set(), ["made"]
        while left:
            name = left.pop()
            if name in nodes and name not in read:
                read.add(name)
                left += nodes[name]["inputs"]
        p["score"]["nodes"] = [one for name, one in nodes.items() if name in read]
        p["score"]["outputs"] = {"logit": "made"}

    return change


PROGRAM_CHANGES: dict[str, Change] = {
    "terms that do not meet": rows_for_columns,
    "a node that nothing reads": lambda p: p["text"]["nodes"].append(
        node(p, "mu") | {"name": "again"}
    ),
    "a score a text": score_of("[n]"),
    "a score a text, in a column": score_of("[n, 1]"),
    "a score a video": score_of("[m]"),
    "a score of another name": lambda p: p["score"].update(
        outputs={"score": p["score"]["outputs"]["logit"]}
    ),
    "an input of another name": lambda p: p["text"].update(
        json.loads(json.dumps(p["text"]).replace('"x"', '"y"'))
    ),
    "rows of tokens": lambda p: p["text"].update(
        json.loads(
            json.dumps(p["text"]).replace('["n", ', '["8n", ').replace('"int [n', '"int [8n')
        )
    ),
    "an unknown operation": lambda p: node(p, "mu").update(op="jump"),
    "another operation": lambda p: node(p, "mu_squared").update(op="matmul"),
    "an unknown input": lambda p: node(p, "mu_stored").update(inputs=["nothing"]),
    "a later input": lambda p: node(p, "mu").update(inputs=["mu_stored"]),
    "one input too few": lambda p: node(p, "mu_squared")["inputs"].pop(),
    "one input too many": lambda p: node(p, "mu_sum_squares")["inputs"].append("mu_stored"),
    "inputs that are no names": lambda p: node(p, "mu").update(inputs=[3]),
    "a node twice": lambda p: p["text"]["nodes"].append(node(p, "mu")),
    "a node left out": lambda p: p["text"]["nodes"].remove(node(p, "mu_stored")),
    "no nodes": lambda p: p["text"].pop("nodes"),
    "nodes that are a number": lambda p: p["text"].update(nodes=3),
    "a name that is no text": lambda p: node(p, "mu").update(name=None),
    "a field too many": lambda p: node(p, "mu")["fields"].update(gain=1),
    "a field left out": lambda p: node(p, "mu_stored")["fields"].pop("shift"),
    "a field of another type": lambda p: node(p, "mu_stored")["fields"].update(hi="255"),
    "a truth for a number": lambda p: node(p, "mu_stored")["fields"].update(hi=True),
    "a number of 100 bits": lambda p: node(p, "mu_stored")["fields"].update(hi=1 << 100),
    "a wider limit": lambda p: node(p, "mu_stored")["fields"].update(hi=1 << 12),
    "another constant": lambda p: node(p, "mu_stored")["fields"].update(
        multiplier=node(p, "mu_stored")["fields"]["shift"]
    ),
    "an unknown constant": lambda p: node(p, "mu")["fields"].update(bias={"constant": "none"}),
    "another type": lambda p: node(p, "mu").update(type="int [n, 16] 9 bits 0..1 unit 1"),
    "an output of nothing": lambda p: p["text"]["outputs"].update(mu="nothing"),
    "an output that is another": lambda p: p["text"]["outputs"].update(mu="ed_self"),
    "a projector without mu": lambda p: p["video"].update(outputs={"constant": "x"}),
    "a score of no output": lambda p: p["score"].update(outputs={}),
    "a score of two outputs": lambda p: p["score"]["outputs"].update(
        ed=p["score"]["nodes"][0]["name"]
    ),
    "outputs that are a text": lambda p: p["text"].update(outputs=""),
    "a limit beyond all integers": lambda p: next(
        n for n in p["score"]["nodes"] if n["op"] == "clip"
    )["fields"].update(hi={"number": -1e308}),
    "a constant that overflows": lambda p: node(p, "mu_squared").update(
        op="add", fields={"factors": [{"number": 1e308}], "offset": {"number": 1e308}}
    ),
    "a narrower input": lambda p: p["text"]["inputs"]["x"].update(shape=["n", 3]),
    "a score of other features": lambda p: p["score"]["inputs"].update(
        {"text.mu": p["score"]["inputs"]["text.ed_self"]}
    ),
    "bits of an input": lambda p: crossbar(p)["inputs"].update(bits=1 << 40),
    "bits of a cell": lambda p: crossbar(p)["weights"].update(cell_bits=0),
    "an unknown weight code": lambda p: crossbar(p)["weights"].update(name="magic"),
    "an unknown converter": lambda p: crossbar(p)["converter"].update(name="magic"),
    "a height of none": lambda p: crossbar(p)["tiling"].update(height=0),
    "references left out": lambda p: node(p, "mu")["fields"].update(references=[]),
    "a number that is a list": lambda p: node(p, "mu")["fields"].update(scale=[1, 2]),
    "an axis that is none": lambda p: node(p, "text.ed_self.rows", "score")["fields"].update(
        axis=8
    ),
    "a graph too many": lambda p: p.update(audio=p["text"]),
    "a graph left out": lambda p: p.pop("score"),
    "a graph of another": lambda p: p.update(video=p["score"]),
}


@pytest.mark.parametrize("name", PROGRAM_CHANGES)
@pytest.mark.parametrize("signed", [False, True])
def test_whatever_changes_in_a_program_is_refused(name: str, signed: bool, copied: Path) -> None:
    changed(copied, PROGRAM, PROGRAM_CHANGES[name], signed)
    with pytest.raises(CimError) as caught:
        _ = read_bundle(copied).program
    said = str(caught.value)
    assert (
        "is not a program that this version" in said if signed else "changed since it was" in said
    )
    assert "\n" not in said


@pytest.mark.parametrize("shape", ["[n]", "[n, 1]", "[m]"])
def test_a_score_is_a_number_a_pair(shape: str, copied: Path) -> None:
    changed(copied, PROGRAM, score_of(shape), signed=True)
    said = f"score returns {shape}: of no texts and items"
    with pytest.raises(CimError, match=re.escape(said)):
        _ = read_bundle(copied).program


def test_an_operation_gives_what_it_infers(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its `infer` leaves out: it is tried on a few rows."""
    run = Clip.run
    monkeypatch.setattr(Clip, "run", lambda self, x: run(self, x)[:, :1])
    said = r"is not a program that this version .*gives int64 \[2, 1\] for int \[n, 16\]"
    with pytest.raises(CimError, match=said):
        _ = read_bundle(copied).program


def test_what_is_written_is_read(copied: Path) -> None:
    for file in (MANIFEST, PROGRAM, STAGES):
        changed(copied, file, lambda values: None, signed=True)
    assert read_bundle(copied).stages


def test_a_stage_of_real_numbers_with_integers_in_it_is_refused(copied: Path) -> None:
    def change(stages: dict[str, Any]) -> None:
        node(stages["trained"], "ed_self")["fields"]["factors"][1] = {"number": 1}

    changed(copied, STAGES, change, signed=True)
    said = r"stages\.json: trained: .*text\.ed_self\.factors is of int64; expected real numbers"
    with pytest.raises(CimError, match=said):
        _ = read_bundle(copied).stages


@pytest.mark.parametrize("name", ["a node left out", "a wider limit", "no nodes"])
def test_a_forged_stage_is_refused(name: str, copied: Path) -> None:
    changed(copied, STAGES, lambda stages: PROGRAM_CHANGES[name](stages["quantized"]), signed=True)
    with pytest.raises(CimError, match=r"stages\.json: quantized: is not a program"):
        _ = read_bundle(copied).stages


CARD_CHANGES: dict[str, Change] = {
    "a width": lambda m: m["model"].update(text_width=4),
    "a dimension": lambda m: m["model"].update(dimension=4),
    "a width that is a text": lambda m: m["model"].update(text_width="24"),
    "unit rows that are a number": lambda m: m["model"].update(unit_rows=1),
    "a norm of 0": lambda m: m["model"].update(row_norms=[0.0, 1.0]),
    "one norm": lambda m: m["model"].update(row_norms=[1.0]),
    "norms that are texts": lambda m: m["model"].update(row_norms=["1", "2"]),
    "a head that is a text": lambda m: m["model"].update(head="cosine"),
    "an unknown head": lambda m: m["model"]["head"].update(name="magic"),
    "coefficients that are texts": lambda m: m["model"]["head"]["polynomial"].update(coeff="abc"),
    "a key too many": lambda m: m["model"].update(trusted=True),
    "a model that is a list": lambda m: m.update(model=[]),
    "a gallery that is a number": lambda m: m.update(gallery=3),
    "a gallery that lacks all": lambda m: m.update(gallery={}),
    "files that are a list": lambda m: m.update(files=[1]),
    "settings that are a number": lambda m: m.update(settings=3),
    "a target that is a text": lambda m: m.update(target="isaac"),
    "plug-ins that are numbers": lambda m: m.update(plugins=[1]),
    "plug-ins that are nothing": lambda m: m.update(plugins=None),
    "plug-ins that are lists": lambda m: m.update(plugins=[["a"]]),
    "inputs that are a number": lambda m: m.update(inputs=5),
    "inputs without a digest": lambda m: m.update(inputs=[{"file": "a"}]),
    "inputs that are not texts": lambda m: m.update(inputs=[{"file": 3, "sha256": "a"}]),
    "no inputs": lambda m: m.pop("inputs"),
    "notes that are a number": lambda m: m.update(notes=5),
    "notes that are numbers": lambda m: m.update(notes=[5]),
    "names that are one": lambda m: m["model"].update(called=["text", "text"]),
    "names that are nothing": lambda m: m["model"].update(called=["", "image"]),
    "names that are nested": lambda m: m["model"].update(called=[["a"], "image"]),
    "modalities that are a number": lambda m: m["model"].update(modalities=3),
    "warnings that are a number": lambda m: m["model"].update(warnings=3),
    "warnings that are numbers": lambda m: m["model"].update(warnings=[3]),
    "a head of no polynomial": lambda m: m["model"]["head"].pop("polynomial"),
    "a polynomial that is a list": lambda m: m["model"]["head"].update(polynomial=[]),
    "coefficients that are a number": lambda m: m["model"]["head"]["polynomial"].update(coeff=3),
    "a degree beyond all": lambda m: m["model"]["head"]["polynomial"].update(degree=9),
    "a model that lacks its name": lambda m: m["model"].pop("name"),
    "a target that is a list": lambda m: m.update(target=[]),
    "a memory that is a number": lambda m: m.update(gallery={"cam": 3}),
    "bits that are a list": lambda m: m.update(gallery={"bits": []}),
    "layers that are a number": lambda m: m["settings"].update(layers=3),
    "a part of a target that is a number": lambda m: m["target"].update(array=3),
    "no notes": lambda m: m.pop("notes"),
    "a version that is a number": lambda m: m.update(cimtool_version=5),
}


@pytest.mark.parametrize("name", CARD_CHANGES)
def test_a_signed_manifest_of_other_types_is_refused(name: str, copied: Path) -> None:
    changed(copied, MANIFEST, CARD_CHANGES[name], signed=True)
    with pytest.raises(CimError, match=rf"^{copied}/manifest\.json: ") as caught:
        _ = read_bundle(copied).program
    assert not re.search(PYTHONS, str(caught.value))
    assert "\n" not in str(caught.value)


PYTHONS = r"object|indices|iterable|argument|__init__|attribute"
"""Words of Python's own messages on values of other types."""


def said(*path: str, value: Any) -> Change:
    """The change that sets one value of a table."""

    def change(values: dict[str, Any]) -> None:
        for key in path[:-1]:
            values = values[key]
        assert values[path[-1]] != value
        values[path[-1]] = value

    return change


FORGED: dict[str, tuple[Change, str]] = {
    "unit rows": (said("model", "unit_rows", value=True), "unit_rows is true; expected false"),
    "the layout": (
        said("model", "layout", value="two-branch"),
        "unit_rows is false; expected true",
    ),
    "an unknown layout": (
        said("model", "layout", value="magic"),
        "layout is magic; expected onnx or",
    ),
    "the layout of unit rows": (
        lambda m: m["model"].update(layout="two-branch", unit_rows=True),
        "layout is two-branch; expected that of fc1, fc2",
    ),
    "a width": (said("model", "text_width", value=4), "text_width is 4; expected 24"),
    "the other width": (said("model", "video_width", value=4), "video_width is 4; expected 24"),
    "the dimension": (said("model", "dimension", value=4), "dimension is 4; expected"),
    "coefficients": (
        lambda m: m["model"]["head"]["polynomial"]["coeff"].reverse(),
        "head is pcme-poly, .* expected a score of",
    ),
    "a coefficient": (
        lambda m: m["model"]["head"]["polynomial"]["coeff"].__setitem__(0, 0.0),
        "head is pcme-poly, .* expected a score of",
    ),
    "the bias": (
        lambda m: m["model"]["head"]["polynomial"].update(bias=1.0),
        "head is pcme-poly, .* expected a score of",
    ),
    "a scale": (
        lambda m: m["model"]["head"]["polynomial"].update(scale_ed=3.0),
        "head is pcme-poly, .* expected a score of",
    ),
    "a domain without its line": (
        lambda m: m["model"]["head"]["polynomial"].update(
            coeff=[5.0] * len(m["model"]["head"]["polynomial"]["coeff"]), domain=None
        ),
        "head is pcme-poly, .* expected the head of its score",
    ),
    "another line": (
        lambda m: m["model"]["head"]["polynomial"]["domain"].update(vd_line=[0.0, 2.0]),
        "head is pcme-poly, .* expected another line of vd",
    ),
    "another head": (
        said("model", "head", value={"name": "euclidean"}),
        "head is euclidean, .* expected the head of its score",
    ),
    "a head of points": (
        lambda m: m["model"].update(head={"name": "cosine"}, a=None, b=None),
        "head is cosine, .* expected the head of its score",
    ),
    "the teacher's a": (said("model", "a", value=2.5), "model.a is 2.5; expected"),
    "the a of its polynomial": (
        lambda m: m["model"]["head"]["polynomial"].update(a=2.5),
        "model.a is .*; expected 2.5, as model.head has it",
    ),
    "samples": (said("model", "samples", value=3), "model.samples is 3; expected"),
    "weight bits": (
        said("settings", "weight_bits", value=4),
        "weights.bits of text.fc1 is 4; expected 8",
    ),
    "input bits": (
        said("settings", "input_bits", value=7),
        "input_bits is 7; expected 8 for text.x",
    ),
    "activation bits": (
        said("settings", "activation_bits", value=7),
        "settings.* is 7; expected 8",
    ),
    "feature bits": (said("settings", "feature_bits", value=7), "feature_bits is 7; expected"),
    "converters": (said("settings", "adc_bits", value=3), "converter.bits of text.fc1 is 3"),
    "rows of an array": (said("settings", "rows", value=64), "tiling.height of text.fc1 is 64"),
    "rounding": (
        said("settings", "rounding", value="floor"),
        "converter.rounding of text.fc1 is floor; expected half-up",
    ),
    "a layer's own bits": (
        said("settings", "layers", value=[{"pattern": "text.mu", "adc_bits": 3}]),
        "converter.bits of text.mu is 3; expected",
    ),
    "a score in the arrays": (
        lambda m: m.update(gallery=GALLERY_SAID),
        "gallery has 3 items; expected none, as in program.json",
    ),
}
GALLERY_SAID = {
    "file": "a.npz",
    "sha256": "0",
    "items": 3,
    "mapping": "in-memory",
    "shortlist": None,
    "features": "0",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_signed_manifest_that_its_program_contradicts_is_refused(name: str, copied: Path) -> None:
    change, sentence = FORGED[name]
    changed(copied, MANIFEST, change, signed=True)
    with pytest.raises(CimError, match=rf"manifest\.json: .*{sentence}") as caught:
        read_bundle(copied)
    assert str(caught.value).endswith("; compile again")
    assert "\n" not in str(caught.value)


ARRAY_CHANGES: dict[str, Callable[[Any], Any]] = {
    "flat": lambda a: a.reshape(-1),
    "one row less": lambda a: a[:-1],
    "transposed": lambda a: np.ascontiguousarray(a.T),
    "empty": lambda a: a[:0],
    "real": lambda a: a.astype(np.float32),
    "wider": lambda a: np.concatenate([a, a], axis=1),
}


@pytest.mark.parametrize("name", ARRAY_CHANGES)
def test_signed_weights_of_another_form_are_refused(name: str, copied: Path) -> None:
    arrays = load_file(copied / CONSTANTS)
    key = next(key for key, array in arrays.items() if array.ndim == 2)
    arrays[key] = ARRAY_CHANGES[name](arrays[key])
    (copied / CONSTANTS).write_bytes(save(arrays))
    sign(copied, CONSTANTS)
    with pytest.raises(CimError, match="is not a program that this version"):
        _ = read_bundle(copied).program


NO_NUMBERS = [np.nan, np.inf, -np.inf, 1e300]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("key", ["trained/video.fc2.bias", "trained/video.bn2.gamma"])
def test_signed_constants_that_are_no_numbers_name_the_bundle_and_not_the_data(
    key: str, value: float, copied: Path
) -> None:
    arrays = load_file(copied / STAGE_CONSTANTS)
    arrays[key] = arrays[key].astype(np.float64)
    arrays[key][1] = value
    (copied / STAGE_CONSTANTS).write_bytes(save(arrays))
    sign(copied, STAGE_CONSTANTS)
    opened = read_bundle(copied)
    name = key.removeprefix("trained/").replace(".", r"\.")
    said = (
        rf"stages\.json: trained: is not a program .*\({name}\.?\w* holds {value:.4g}; expected n"
    )
    with pytest.raises(CimError, match=said.replace("+", r"\+")):
        _ = opened.stages


@pytest.mark.parametrize("value", ["nan", "inf", 1e300])
def test_signed_numbers_of_a_stage_that_are_none_name_the_bundle(
    value: float | str, copied: Path
) -> None:
    def change(stages: dict[str, Any]) -> None:
        node(stages["trained"], "ed_self")["fields"]["factors"][1] = {"number": value}

    changed(copied, STAGES, change, signed=True)
    with pytest.raises(CimError, match=r"stages\.json: trained: .*text\.ed_self\.factors\.1 holds"):
        _ = read_bundle(copied).stages


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_lower_bound_may_be_below_all_numbers_alone(value: float, copied: Path) -> None:
    arrays = load_file(copied / STAGE_CONSTANTS)
    key = next(name for name in arrays if name.endswith(".lo") and np.isinf(arrays[name]).all())
    arrays[key] = arrays[key].astype(np.float64)
    arrays[key][0] = value
    (copied / STAGE_CONSTANTS).write_bytes(save(arrays))
    sign(copied, STAGE_CONSTANTS)
    with pytest.raises(
        CimError, match=rf"lo holds {value:.4g}; expected numbers".replace("+", r"\+")
    ):
        _ = read_bundle(copied).stages


STAGE_CHANGES: dict[str, Change] = {
    "none": lambda stages: stages.clear(),
    "one less": lambda stages: stages.pop("lowered"),
    "one more": lambda stages: stages.update(other=stages["tiled"]),
    "in another order": lambda stages: [
        stages.update({name: stages.pop(name)}) for name in reversed(list(stages))
    ],
}


@pytest.mark.parametrize("name", STAGE_CHANGES)
def test_other_stages_than_those_of_the_passes_are_refused(name: str, copied: Path) -> None:
    changed(copied, STAGES, STAGE_CHANGES[name], signed=True)
    with pytest.raises(CimError, match=r"stages\.json: does not have the stages trained, folded, "):
        _ = read_bundle(copied).stages


@pytest.mark.parametrize("stage", ["lowered", "quantized", "tiled", "converters fitted"])
def test_a_layer_of_another_name_in_one_stage_is_refused(stage: str, copied: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        text = json.dumps(values.get(stage, values))
        renamed = json.loads(text.replace('"fc2"', '"layer"'))
        values.update({stage: renamed} if stage in values else renamed)

    changed(copied, PROGRAM if stage == "converters fitted" else STAGES, change, signed=True)
    said = (
        r"stages\.json: \w+ and [\w ]+ are not the same model at text\.(fc2|layer); compile again"
    )
    with pytest.raises(CimError, match=said):
        _ = read_bundle(copied).stages


def test_an_unlisted_file_is_refused(copied: Path) -> None:
    (copied / "weights.bin").write_bytes(b"more")
    with pytest.raises(CimError, match=r"weights\.bin: is not listed in manifest\.json"):
        read_bundle(copied)


RESPELT: dict[str, Callable[[bytes], bytes]] = {
    "spaces": lambda text: text + b"\n",
    "a mark of the order of bytes": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16"),
    "a number": lambda text: re.sub(rb'("a": [0-9.]+)', rb"\g<1>00", text, count=1),
    "an escape": lambda text: text.replace(b'"target"', b'"t\\u0061rget"'),
    "a key that comes twice": lambda text: text.replace(b"{", b'{"model": 5,', 1),
}


@pytest.mark.parametrize("name", RESPELT)
def test_a_manifest_that_says_the_same_in_another_spelling_is_refused(
    name: str, copied: Path
) -> None:
    file = copied / MANIFEST
    content = file.read_bytes()
    other = RESPELT[name](content)
    assert other != content
    file.write_bytes(other)
    with pytest.raises(CimError, match=r"it is not written as cimtool writes these values"):
        read_bundle(copied)


def test_a_manifest_of_many_tables_is_refused_before_it_is_read(copied: Path) -> None:
    (copied / MANIFEST).write_bytes(b"[" + b'{"":0},' * 600_000 + b"0]")
    with pytest.raises(CimError, match=r"has 4,200,003 bytes; expected at most 4,194,304"):
        read_bundle(copied)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".", "..", "a" * 300, "\ud800", "a\0", ""])
def test_a_listed_name_that_is_none_of_the_folder_is_refused(name: str, copied: Path) -> None:
    (copied.parent / "x").write_bytes(b"")
    changed(copied, MANIFEST, lambda m: m["files"].update({name: "0" * 64}), signed=True)
    with pytest.raises(CimError, match=r"is missing from the bundle; c|it is not written as"):
        read_bundle(copied)


def test_a_file_that_is_a_device_is_refused(copied: Path) -> None:
    (copied / STAGES).unlink()
    (copied / STAGES).symlink_to("/dev/zero")
    with pytest.raises(CimError, match=r"stages\.json: is missing from the bundle"):
        read_bundle(copied)
