"""Changed files at every door of the tool: each is read, or refused in one sentence.

    python tests/fuzz/doors.py --bundle BUNDLE --minutes 5 [--seed 0] [--count 50000]
        [--finds FOLDER] [--door NAME]

A door is a reader of a user's file: of models, data, hardware, bundles and galleries, and of what
earlier work left (hand-offs, chips, runs, sweeps). Seeds are made by script (folders of files by
`folders.py`), and each door reads one of its own as it is. A change (`changes.py`) flips, cuts,
repeats or inserts bytes, or alters one value of a structure; checksums of a folder are made anew,
so that what is behind them is reached. A find is an error that is no CimError, a warning of NumPy,
more than 20 seconds, or more memory than 2 GB; its input is kept in FOLDER. Exit status 1 where
there is one.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from changes import (
    BYTES,
    MALFORMED,
    Change,
    Door,
    Sign,
    arrays_value,
    checkpoint_value,
    json_value,
    onnx_value,
    tensors_value,
    text_line,
    text_value,
)
from folders import (
    WIDTH,
    Folders,
    make_folders,
    sign_bundle,
    sign_gallery,
    sign_handoff,
    sign_values,
    swept,
    trained,
    trained_grid,
)
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save as save_safetensors

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.folders import POINTS
from cimtool.base.plugins import targets_folder
from cimtool.bundle.bundle import (
    CONSTANTS,
    FLOAT_FILE,
    GALLERY,
    MANIFEST,
    PROGRAM,
    STAGE_CONSTANTS,
    STAGES,
    Bundle,
    read_bundle,
)
from cimtool.bundle.chip import CONVERTERS, DESCRIPTION, STUCK, chip_die
from cimtool.bundle.inspect import inspect
from cimtool.bundle.ledger import LEDGER, LEDGER_ARRAYS
from cimtool.bundle.outputs_check import check_outputs
from cimtool.emit.own_files import require_own_file, require_own_float_file
from cimtool.emit.runtime import Session
from cimtool.experiments.references import REFERENCES, SweepReferences
from cimtool.experiments.sweep import SWEEP
from cimtool.galleries.encoding import INDEX, shard_name
from cimtool.handoff.written import HANDOFF
from cimtool.hardware.cam import load_cam
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.imported import import_target
from cimtool.hardware.noise.spec import PRESETS, load_noise
from cimtool.hardware.target import CAM_FOLDER, load_target, with_digital
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.embeddings import embeddings_of, read_embeddings, read_modality, unit_rows
from cimtool.loading.layer_map import read_layer_map
from cimtool.loading.model import read_towers
from cimtool.loading.npy import map_npy
from cimtool.loading.onnx.graph import read_onnx_graph
from cimtool.loading.onnx.towers import translate
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.qrels import read_qrels
from cimtool.loading.source import ModelSource
from cimtool.noise_fitting.fit import fit_noise
from cimtool.passes.fold import FoldPass
from cimtool.passes.pipeline import stage_of
from cimtool.training.items import gaussian_items
from cimtool.training.teacher_file import read_teacher
from cimtool.training.trainer import BEST, LAST
from cimtool.verification.earlier import Earlier, read_earlier
from cimtool.verification.run import verify_bundle

FOLDERS = 3
"""Rounds in which a door of a folder has one turn."""

QUANTIZED = Path(__file__).resolve().parents[1] / "golden" / "quantized"
"""Graphs of others' quantizers."""

SLOWEST, MOST_MEMORY = 20.0, 2 << 10
"""Seconds of one input, and megabytes of the process."""


def seeds_of_checkpoints() -> tuple[bytes, ...]:
    """State dictionaries of two layouts, and one of another program."""
    torch.manual_seed(0)
    made: list[dict[str, Any]] = []
    for names in (("mu", "logvar"), ("fc",)):
        state: dict[str, Any] = {"activation": "relu", "epoch": 3}
        for side in ("text_proj", "video_proj"):
            state[side] = {
                f"{name}.{part}": torch.randn(*shape)
                for name in ("fc1", *names)
                for part, shape in (("weight", (6, 6)), ("bias", (6,)))
            }
        made.append(state)
    made.append({"state_dict": {"a.weight": torch.zeros(2, 2)}, "optimizer": [{"lr": 0.1}, None]})
    streams = [io.BytesIO() for _ in made]
    for state, stream in zip(made, streams, strict=True):
        torch.save(state, stream)
    return tuple(stream.getvalue() for stream in streams)


def seed_of_onnx() -> bytes:
    """A projector of a layer, a normalisation, an activation and two outputs."""
    rng = np.random.default_rng(0)
    weights = {"w": (6, 4), "b": (4,), "g": (4,), "v": (4, 3)}
    made = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "g", "b"], ["n"]),
        helper.make_node("Tanh", ["n"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["mu"]),
        helper.make_node("MatMul", ["n", "v"], ["logvar"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
        for name, width in (("x", 6), ("mu", 3), ("logvar", 3))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return bytes(model.SerializeToString())


def npy_of(values: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def npz_of(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def doors(bundle: Bundle, made: Folders) -> dict[str, Door]:
    """Every door by name, with its seeds; those of folders change a file within a copy of one."""
    return {
        **doors_of_models(),
        **doors_of_data(bundle),
        **doors_of_hardware(bundle),
        **doors_of_bundles(bundle.folder, made),
        **doors_of_work(bundle, made),
    }


def doors_of_models() -> dict[str, Door]:
    """Checkpoints, ONNX files, layer maps and polynomials."""
    state = {"text_proj.fc1.weight": torch.zeros(3, 3), "video_proj.fc1.weight": torch.ones(3, 3)}
    terms = {"degree": 1, "coeff": [-1.0, 0.5], "bias": 0.1, "a": 1.0, "b": 0.0, "K": 10}
    layer_map = b'[text]\nprefix = "t"\nfc1 = "a.0"\n[video]\nprefix = "v"\n'
    stream = io.BytesIO()
    torch.save(terms, stream)
    checkpoints = seeds_of_checkpoints()
    return {
        "checkpoint": Door(
            "m.pth",
            checkpoints,
            lambda file: read_towers(read_checkpoint(file)),
            (checkpoint_value,) * 4,
        ),
        "safetensors": Door(
            "m.safetensors", (save_safetensors(state),), read_checkpoint, (tensors_value,) * 2
        ),
        "onnx": Door(
            "p.onnx",
            (seed_of_onnx(), *(file.read_bytes() for file in sorted(QUANTIZED.glob("*.onnx")))),
            lambda file: translate(read_onnx_graph(file)),
            (onnx_value,) * 5,
        ),
        "map": Door("m.toml", (layer_map,), read_layer_map, TEXT),
        "polynomial": Door(
            "p.json", (json.dumps(terms).encode(),), read_polynomial, (json_value,) * 3
        ),
        "polynomial.pt": Door(
            "p.pt", (stream.getvalue(),), read_polynomial, (checkpoint_value,) * 3
        ),
        "inspect .onnx": Door("i.onnx", (seed_of_onnx(),), inspect, (onnx_value,) * 3),
        "inspect .pth": Door("i.pth", checkpoints, inspect, (checkpoint_value,) * 2),
    }


def doors_of_data(bundle: Bundle) -> dict[str, Door]:
    """Embeddings, teachers, judgements, and what evaluates them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 6)).astype(np.float32)
    ids = {"text_ids": np.array(list("abcde")), "video_ids": np.array(list("vwxyz"))}
    plain = npz_of(text=rows, video=rows, text_to_video=np.arange(5), **ids)
    named = npz_of(rows=rows, labels=np.array(["a", "b", "a", "b", "c"]))
    known = embeddings_of({"text": rows, "video": rows}, "e.npz")
    qrels = b"".join(b"%d 0 %d %d\n" % (i, (i * 2) % 5, i % 3) for i in range(5))
    labels = rng.uniform(0.1, 0.9, (2, 20))
    ed, vd = rng.uniform(1, 9, (2, 20))
    teacher = npz_of(
        ed=ed,
        vd=vd,
        y=np.log(labels[0]) - np.log1p(-labels[0]),
        log_p=np.log(labels[0]),
        log_1mp=np.log1p(-labels[0]),
        a=1.0,
        b=0.0,
        K=10,
    )
    gaussians = npz_of(
        **{f"{way}_{kind}": rows for way in ("text", "video") for kind in ("mu", "logvar")}
    )
    return {
        "npz": Door("e.npz", (plain, named), read_embeddings, (arrays_value,) * 3),
        "npy": Door("e.npy", (npy_of(rows),), lambda file: read_modality(file, "text")),
        "npy, mapped": Door("e.npy", (npy_of(rows),), map_npy),
        "inspect .npz": Door("i.npz", (plain, named, teacher), inspect, (arrays_value,)),
        "evaluate": Door(
            "e.npz",
            (plain, named),
            lambda file: api.evaluate(file, head="cosine", resamples=3),
            (arrays_value,) * 3,
        ),
        "qrels": Door("q.qrels", (qrels,), lambda file: read_qrels(file, known), TEXT),
        "teacher": Door("t.npz", (teacher,), read_teacher, (arrays_value,) * 3),
        "gaussians": Door("g.npz", (gaussians,), gaussian_items, (arrays_value,) * 3),
        "queries": Door(
            "e.npz",
            (npz_of(**{side: rng.normal(size=(2, 16)) for side in ("text", "video")}),),
            lambda file: api.simulate(bundle.folder, file),
            (arrays_value,) * 3,
        ),
    }


def doors_of_hardware(bundle: Bundle) -> dict[str, Door]:
    """Targets, settings, memories, noise models, measurements, parameters of other simulators."""
    target = (
        b'name = "own"\ntitle = "Own"\nbase = "isaac-rram-128"\nfigures = []\n[adc]\nbits = 6\n'
    )
    settings = b'weight_bits = 8\nadc_bits = 7\n[layers."text.fc1"]\nadc_bits = 5\n'
    own = targets_folder()
    cams, models = (sorted((own / folder).glob("*.toml")) for folder in (CAM_FOLDER, PRESETS))
    digital = b"[process]\nnode = 65\n[digital]\nclock = 100\nlanes = 8\n"
    foreign = {
        "core": {
            **{"style": 2, "rows_max": 128, "cols_max": 64, "weight_bits": 8},
            **{"bit_sliced": {"style": 3, "num_slices": 4}, "offset": {"style": 1}},
        },
        "xbar": {
            "device": {"cell_bits": 2, "Rmin": 1e5, "Rmax": 1e6, "time": 0},
            "adc": {"mvm": {"model": "QuantizerADC", "bits": 7, "adc_per_ibit": True}},
            "dac": {"mvm": {"bits": 8, "signed": True, "input_bitslicing": True, "slice_size": 2}},
        },
    }
    devices = [
        f"{device + 10 * level},{level},{seconds},{level + 0.1 * device - 0.01 * seconds}"
        for device in range(10)
        for level in (5, 10)
        for seconds in (1, 10, 100)
    ]
    readings = "\n".join(["device,target,seconds,conductance", *devices]).encode()
    sums = b"target,rows,columns,mean,deviation\n5,64,100,320,2\n10,64,100,640,3\n"
    return {
        "target": Door("t.toml", (target,), load_target, TEXT),
        "settings": Door(
            "s.toml",
            (settings,),
            lambda file: Configuration.of("isaac-rram-128", file, {}),
            TEXT,
        ),
        "cam": Door("c.toml", tuple(one.read_bytes() for one in cams), load_cam, TEXT),
        "noise model": Door("n.toml", tuple(one.read_bytes() for one in models), load_noise, TEXT),
        "digital": Door("d.toml", (digital,), lambda file: with_digital(bundle.target, file), TEXT),
        "import": Door(
            "i.json",
            (json.dumps(foreign).encode(),),
            lambda file: import_target(file, "own"),
            (json_value,) * 3,
        ),
        "measurements": Door("m.csv", (readings, sums), lambda file: fit_noise(file).model, TEXT),
    }


def doors_of_bundles(bundle: Path, made: Folders) -> dict[str, Door]:
    """Every file of a bundle, of one that holds a gallery that was changed, and of shards."""
    rng = np.random.default_rng(0)
    data = {side: rng.normal(size=(2, 16)).astype(np.float32) for side in ("text", "video")}
    queries = {"text": rng.normal(size=(2, WIDTH)).astype(np.float32)}

    def run(file: Path) -> object:
        return api.simulate(file.parent, data)

    def stages(file: Path) -> object:
        return read_bundle(file.parent).stages

    def programmed(file: Path) -> object:
        found = read_bundle(file.parent)
        ledger = found.ledger, found.items, found.write_counts, found.gallery_features
        return ledger, api.simulate(file.parent, queries), inspect(file.parent)

    readers = {MANIFEST: run, PROGRAM: run, CONSTANTS: run, STAGES: stages, STAGE_CONSTANTS: stages}
    found = {
        f"bundle: {name}": _in_folder(bundle, name, read, sign_bundle)
        for name, read in readers.items()
    }
    opened = read_bundle(bundle)
    folded = stage_of(opened.stages, FoldPass).program

    def text_file(file: Path) -> object:
        require_own_file(file, opened.program.text)
        return Session(file).encode(data["text"])

    def float_file(file: Path) -> object:
        require_own_float_file(file, folded)
        return Session(file).score_rows(data["text"], data["video"])

    for name, computed in {"text.onnx": text_file, FLOAT_FILE: float_file}.items():
        found[f"bundle: {name}"] = Door(
            name,
            ((bundle / name).read_bytes(),),
            computed,
            (onnx_value,) * 5,
            bundle,
        )
    for name in (MANIFEST, PROGRAM, LEDGER, LEDGER_ARRAYS, GALLERY):
        if (made.programmed / name).exists():
            found[f"programmed: {name}"] = _in_folder(
                made.programmed, name, programmed, sign_bundle
            )
    for name in (INDEX, shard_name(0)):
        found[f"shards: {name}"] = _in_folder(
            made.gallery,
            name,
            lambda file: api.search(bundle, file.parent, data, top=2),
            sign_gallery,
        )
    return found


def doors_of_work(bundle: Bundle, made: Folders) -> dict[str, Door]:
    """Hand-offs and chips read back, what new work is compared with, and work that goes on."""
    found = doors_of_comparisons(bundle, made)
    found |= {
        f"hand-off: {name}": _in_folder(
            made.handoff, name, lambda file: inspect(folder_with(file, HANDOFF)), sign_handoff
        )
        for name in (HANDOFF, "images/images.json", _largest(made.handoff / "images"))
    }
    for name in (DESCRIPTION, "text.mu.csv", STUCK, CONVERTERS):
        found[f"chip: {name}"] = _in_folder(
            made.chip, name, lambda file: chip_die(bundle, file.parent)
        )
    found[f"run: {LAST}"] = _in_folder(
        made.run, LAST, lambda file: trained(made.data, file.parent, resume=True)
    )
    found["grid: points"] = _in_folder(
        made.grid,
        f"{POINTS}/{next((made.grid / POINTS).glob('*.json')).name}",
        lambda file: trained_grid(made.data, file.parents[1]),
        sign_values,
    )
    truth = read_embeddings(made.data).truth
    found["sweep: .safetensors"] = _in_folder(
        made.sweep, REFERENCES, lambda file: SweepReferences.of_file("exact", truth, file)
    )
    for name in (SWEEP.file, f"{POINTS}/{next((made.sweep / POINTS).iterdir()).name}"):
        found[f"sweep: {name.split('/')[0]}"] = _in_folder(
            made.sweep,
            name,
            lambda file: swept(made.run / BEST, made.data, folder_with(file, SWEEP.file)),
        )
    return found


def doors_of_comparisons(bundle: Bundle, made: Folders) -> dict[str, Door]:
    """Outputs that a model is checked against, and the report of an earlier run."""
    model, data = ModelSource(made.run / BEST, head="cosine").load(), read_embeddings(made.data)
    rows = {"text": data.text, "video": data.video}
    outputs = {}
    for (side, given), tower in zip(rows.items(), model.towers, strict=True):
        x = unit_rows(given, side) if model.unit_rows else given
        outputs[f"{side}_mu"] = tower.run({"x": x.astype(np.float64)})["mu"]
    rng = np.random.default_rng(2)
    pairs = {side: rng.normal(size=(8, 16)).astype(np.float32) for side in ("text", "video")}
    asked = embeddings_of(pairs, "pairs.npz")
    report = verify_bundle(bundle, asked)

    def beside(file: Path) -> object:
        earlier = Earlier(read_earlier(file), {})
        earlier.check(asked, True)
        return earlier.beside(report.drift, report.to_json()["sections"], asked.truth, 0)

    return {
        "check outputs": Door(
            "o.npz",
            (npz_of(**rows, **outputs),),
            lambda file: check_outputs(model, file),
            (arrays_value,) * 3,
        ),
        "report.json": Door(
            "report.json", (report.json_text().encode(),), beside, (json_value,) * 6
        ),
    }


TEXT: tuple[Change, ...] = (text_value, text_value, text_value, text_line)
CHANGES: dict[str, tuple[Change, ...]] = {
    ".json": (json_value,) * 12,
    ".safetensors": (tensors_value,) * 6,
    ".pth": (checkpoint_value,) * 4,
}


def _in_folder(
    whole: Path, name: str, read: Callable[[Path], object], sign: Sign | None = None
) -> Door:
    content, changes = (whole / name).read_bytes(), CHANGES.get(Path(name).suffix, TEXT)
    return Door(name, (content,), read, changes, whole, sign)


def _largest(folder: Path) -> str:
    """The path of the largest file below a folder, from the folder that holds this."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".json"]
    return max(files, key=lambda file: file.stat().st_size).relative_to(folder.parent).as_posix()


def folder_with(file: Path, name: str) -> Path:
    """The folder around a file that holds another."""
    return next(place for place in file.parents if (place / name).exists() or place.name == "input")


def one_input(door: Door, rng: random.Random, folder: Path) -> tuple[Path, list[str]]:
    """Write one changed file, within a copy of its folder where it has one; and its changes."""
    content = rng.choice(door.seeds)
    kinds = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice((*BYTES, *door.changes))
        try:
            content = change(rng, content) or b"\0"
        except MALFORMED:
            break  # a change before has made this no structure to change
        kinds.append(change.__name__)
    return write_input(door, content, folder), kinds


def write_input(door: Door, content: bytes, folder: Path) -> Path:
    """Write the file of a door, within a copy of its folder where it has one."""
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    if door.whole is None:
        place.mkdir()
    else:
        shutil.copytree(door.whole, place, copy_function=os.link)
    (place / door.file).unlink(missing_ok=True)
    (place / door.file).write_bytes(content)
    if door.sign is not None:
        door.sign(place, door.file)
    return place / door.file


def tried(door: Door, file: Path) -> tuple[str, str | None]:
    """Read one file: it was `read` or `refused`, and what is wrong with that, if anything."""
    started = time.monotonic()
    complaint = None
    how = "read"
    said: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True, action="always") as said:
            door.read(file)
    except CimError as error:
        how = "refused"
        if "\n" in str(error).strip():
            complaint = f"a sentence of several lines: {error!s:.200}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        complaint = f"{type(error).__name__} at {where}: {error!s:.200}"
    for one in said:
        if complaint is None and issubclass(one.category, RuntimeWarning):
            where = f"{Path(one.filename).name}:{one.lineno}"
            complaint = f"{one.category.__name__} at {where}: {one.message!s:.200}"
    seconds = time.monotonic() - started
    memory = most_memory()
    if complaint is None and seconds > SLOWEST:
        complaint = f"{seconds:.0f} seconds"
    if complaint is None and memory > MOST_MEMORY:
        complaint = f"{memory} MB of memory"
    return how, complaint


def in_turn(every: Mapping[str, Door]) -> Iterator[str]:
    """Yield the doors in turn; those of folders, which take longer, once in FOLDERS rounds."""
    for number in count():
        for place, (name, door) in enumerate(every.items()):
            if door.whole is None or (number + place) % FOLDERS == 0:
                yield name


def most_memory() -> int:
    """The most megabytes that this program has had in memory.

    `ru_maxrss` would not do: a process has its parent's as its own until it has had more.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def main() -> int:
    """Try changed inputs at all doors in turn, and say how many of each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--count", type=int, default=1 << 62, help="inputs at most")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--bundle", type=Path, required=True, help="a small bundle")
    options.add_argument("--finds", type=Path, default=Path("fuzz-finds"))
    options.add_argument("--door", help="doors whose names contain this alone")
    given = options.parse_args()
    rng = random.Random(given.seed)
    warnings.simplefilter("ignore")
    ends: Counter[tuple[str, str]] = Counter()
    changes: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    finds: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as name:
        bundle = read_bundle(given.bundle)
        every = doors(bundle, make_folders(bundle, Path(name)))
        every = {key: one for key, one in every.items() if (given.door or "") in key}
        for key, door in every.items():
            tries = [tried(door, write_input(door, seed, Path(name))) for seed in door.seeds]
            if ("read", None) not in tries:
                raise SystemExit(f"{key}: none of its seeds is read as it is: {tries}")
        turns = in_turn(every)
        until = time.monotonic() + 60 * given.minutes
        for _ in range(given.count):
            if time.monotonic() > until:
                break
            door_name = next(turns)
            file, kinds = one_input(every[door_name], rng, Path(name))
            changes.update(kinds)
            began, before = time.monotonic(), most_memory()
            faulthandler.dump_traceback_later(6 * SLOWEST, exit=True)
            how, complaint = tried(every[door_name], file)
            faulthandler.cancel_dump_traceback_later()
            seconds[door_name] += time.monotonic() - began
            memory[door_name] += most_memory() - before
            ends[door_name, how if complaint is None else "found"] += 1
            if complaint is not None and complaint not in finds:
                kept = given.finds / f"{len(finds)}-{file.name}"
                given.finds.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, kept)
                finds[complaint] = kept
                print(f"{door_name}: {complaint}\n  kept as {kept}", flush=True)
    for door_name in every:
        counts = {how: ends[door_name, how] for how in ("read", "refused", "found")}
        told = [f"{count:8,} {how}" for how, count in counts.items()]
        print(f"{door_name:32}", *told, f"{seconds[door_name]:8.1f} s {memory[door_name]:+6} MB")
    print("changes:", ", ".join(f"{count:,} {kind}" for kind, count in changes.most_common()))
    print(
        f"{sum(ends.values()):,} inputs, {len(finds)} kinds of finds, {most_memory():,} MB at most"
    )
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
