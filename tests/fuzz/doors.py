"""Changed files at every door of the tool: each is read, or refused in one sentence.

    python tests/fuzz/doors.py --minutes 5 [--seed 0] [--count 50000] [--finds FOLDER]

Seeds are made by script: checkpoints, arrays, ONNX files, TOML, JSON and a bundle. A change flips,
cuts, repeats or inserts bytes, or alters one value of a structure; checksums of a bundle are made
anew, so that what is behind them is reached. A find is an error that is no CimError, more than 20
seconds, or more memory than 2 GB; its input is kept in FOLDER. Exit status 1 where there is one.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import io
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError, EncodeError
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save as save_safetensors

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.toml_files import read_toml
from cimtool.bundle.bundle import MANIFEST, PROGRAM, STAGES, manifest_digest, read_bundle
from cimtool.hardware.target import load_target
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.embeddings import read_embeddings, read_modality
from cimtool.loading.inspect import inspect
from cimtool.loading.layer_map import read_layer_map
from cimtool.loading.model import read_towers
from cimtool.loading.onnx_graph import read_onnx_graph
from cimtool.loading.onnx_rules import translate
from cimtool.loading.polynomial import read_polynomial

SLOWEST, MOST_MEMORY = 20.0, 2 << 20
"""Seconds of one input, and kilobytes of the process."""

MALFORMED = (
    *(ValueError, TypeError, RuntimeError, LookupError, OverflowError, EOFError, AttributeError),
    *(OSError, DecodeError, EncodeError, UnpicklingError, zipfile.BadZipFile, zlib.error),
)
"""Errors of a change that knows a structure where an earlier change has left none."""

Change = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Door:
    """A way in: the name of the file, seeds, a reader, and changes that know the structure."""

    file: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]
    changes: tuple[Change, ...] = ()


def flip(rng: random.Random, data: bytes) -> bytes:
    """Change up to eight bytes."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def cut(rng: random.Random, data: bytes) -> bytes:
    """Leave out a part."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:]


def repeat(rng: random.Random, data: bytes) -> bytes:
    """Write a part up to 50 times."""
    start = rng.randrange(len(data))
    part = data[start : start + rng.randint(1, 64)]
    return data[:start] + part * rng.randint(2, 50) + data[start:]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Insert what readers stumble over."""
    words = (b"\0", b"\xff" * 8, b"[" * 500, b"((((", b"9" * 5000, b"nan", b"-1", b"1e999", b"\xe9")
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.choice(words) + data[place:]


BYTES: tuple[Change, ...] = (flip, cut, repeat, insert)

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2, 64, 1 << 31, 1 << 63, 10**40, 0.5, -1e308, float("nan"), float("inf")),
    *("", "x", "é" * 100, [], [[]], {}, {"constant": "x"}, [1] * 1000, {"": 1}),
)


def places(values: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys to every value in lists and tables."""
    if at:
        yield at
    if isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, inner in items:
            yield from places(inner, (*at, key))


def altered(rng: random.Random, values: Any) -> None:
    """Change one value somewhere: another, left out, or one of another place."""
    known = list(places(values))
    if not known:
        return
    *above, key = rng.choice(known)
    target = values
    for one in above:
        target = target[one]
    other = values
    for one in rng.choice(known):
        other = other[one]
    if rng.random() < 0.15:
        target.pop(key)
    else:
        target[key] = copy.deepcopy(other if rng.random() < 0.2 else rng.choice(VALUES))


def json_value(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a JSON file."""
    values = json.loads(data)
    altered(rng, values)
    return json.dumps(values).encode()


def checkpoint_value(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a checkpoint: another type, shape, stride or number."""
    content = torch.load(io.BytesIO(data), weights_only=True)
    tensors = (
        *(torch.tensor(3.0), torch.zeros(0, 4), torch.zeros(3, dtype=torch.int8), torch.tensor([])),
        *(torch.zeros(1).expand(10**9), torch.full((4, 4), torch.nan), torch.ones(2, 2).bool()),
        *(torch.zeros(2, 2, dtype=torch.complex64), torch.zeros(3, 3).half(), torch.zeros(2, 2, 2)),
    )
    known = list(places(content))
    *above, key = rng.choice(known)
    target = content
    for one in above:
        target = target[one]
    if isinstance(target, dict | list):
        target[key] = rng.choice((*tensors, *VALUES))
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=rng.random() < 0.7)
    return stream.getvalue()


def arrays_value(rng: random.Random, data: bytes) -> bytes:
    """Change one array of an archive."""
    with np.load(io.BytesIO(data)) as held:
        arrays = dict(held)
    name = rng.choice(list(arrays))
    old = arrays[name]
    arrays[rng.choice([name, name, "labels", "é", "text_to_video"])] = rng.choice(
        [
            *(old[:0], old.reshape(-1), old.astype(np.int8), old.astype("U3"), np.array(3)),
            *(old * np.nan, np.zeros((3, 0)), old.astype(complex), old[..., None], old * 1e300),
        ]
    )
    stream = io.BytesIO()
    save: Any = rng.choice([np.savez, np.savez_compressed])
    save(stream, **arrays)
    return stream.getvalue()


def onnx_value(rng: random.Random, data: bytes) -> bytes:
    """Change one part of an ONNX file."""
    model = onnx.load_model_from_string(data)
    graph = model.graph
    node = rng.choice(graph.node)
    how = rng.randrange(9)
    if how == 0:
        node.op_type = rng.choice(["Relu", "Softmax", "If", "Gemm", "Expand", "Gelu", "Split", ""])
    elif how == 1:
        node.input[rng.randrange(len(node.input))] = rng.choice([graph.input[0].name, "none", ""])
    elif how == 2:
        node.attribute.append(helper.make_attribute(rng.choice(["axis", "alpha"]), 1 << 40))
    elif how == 3:
        tensor = rng.choice(graph.initializer)
        tensor.data_type = rng.randrange(25)
    elif how == 4:
        tensor = rng.choice(graph.initializer)
        tensor.dims[:] = [rng.choice([0, -1, 3, 1 << 31, 1 << 62])] * rng.randint(0, 4)
    elif how == 5:
        model.opset_import[0].version = rng.choice([0, 1, 8, 11, 13, 18, 99])
    elif how == 6:
        graph.output[0].name = rng.choice(["none", "mu", graph.input[0].name])
    elif how == 7:
        del graph.node[rng.randrange(len(graph.node))]
    else:
        graph.input[0].type.tensor_type.elem_type = rng.randrange(20)
    return bytes(model.SerializeToString())


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


def doors(bundle: Path) -> dict[str, Door]:
    """Every door by name, with its seeds; `bundle` is a whole one, which a door changes."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 6)).astype(np.float32)
    plain = npz_of(text=rows, video=rows, text_to_video=np.arange(5))
    named = npz_of(rows=rows, labels=np.array(["a", "b", "a", "b", "c"]))
    state = {"text_proj.fc1.weight": torch.zeros(3, 3), "video_proj.fc1.weight": torch.ones(3, 3)}
    target = (
        b'name = "own"\ntitle = "Own"\nbase = "isaac-rram-128"\nfigures = []\n[adc]\nbits = 6\n'
    )
    terms = {"degree": 1, "coeff": [-1.0, 0.5], "bias": 0.1, "a": 1.0, "b": 0.0, "K": 10}
    layer_map = b'[text]\nprefix = "t"\nfc1 = "a.0"\n[video]\nprefix = "v"\n'
    data = {
        side: rng.normal(size=(2, width)).astype(np.float32)
        for side, width in widths(bundle).items()
    }

    def run(file: Path) -> object:
        return (
            api.simulate(file.parent, data)
            if file.name != STAGES
            else read_bundle(file.parent).stages
        )

    found = {
        "checkpoint": Door(
            "m.pth",
            seeds_of_checkpoints(),
            lambda file: read_towers(read_checkpoint(file)),
            (checkpoint_value,) * 4,
        ),
        "safetensors": Door("m.safetensors", (save_safetensors(state),), read_checkpoint),
        "npz": Door("e.npz", (plain, named), read_embeddings, (arrays_value,) * 3),
        "npy": Door("e.npy", (npy_of(rows),), lambda file: read_modality(file, "text")),
        "onnx": Door(
            "p.onnx",
            (seed_of_onnx(),),
            lambda file: translate(read_onnx_graph(file)),
            (onnx_value,) * 5,
        ),
        "target": Door("t.toml", (target,), load_target),
        "settings": Door(
            "s.toml", (b'weight_bits = 8\n[layers."text.fc1"]\nadc_bits = 5\n',), read_toml
        ),
        "map": Door("m.toml", (layer_map,), read_layer_map),
        "polynomial": Door(
            "p.json", (json.dumps(terms).encode(),), read_polynomial, (json_value,) * 3
        ),
        "inspect": Door("i.npz", (plain, named), inspect, (arrays_value,)),
    }
    for name in (MANIFEST, PROGRAM, STAGES):
        content = (bundle / name).read_bytes()
        found[f"bundle: {name}"] = Door(name, (content,), run, (json_value,) * 12)
    return found


def widths(bundle: Path) -> Mapping[str, int]:
    """The widths of a bundle's embeddings by modality."""
    card = read_bundle(bundle).model
    return {"text": card.text_width, "video": card.video_width}


def signed(folder: Path, name: str) -> None:
    """Make the checksums of a changed bundle anew, as far as its manifest can be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if name != MANIFEST:
            manifest["files"][name] = sha256(folder / name)
        manifest["sha256"] = manifest_digest(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    except (ValueError, TypeError, KeyError, AttributeError):
        pass


def one_input(door: Door, bundle: Path, rng: random.Random, folder: Path) -> Path:
    """Write one changed file, within a copy of the bundle where it is one of its files."""
    content = rng.choice(door.seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        try:
            content = rng.choice((*BYTES, *door.changes))(rng, content) or b"\0"
        except MALFORMED:
            break  # a change before has made this no structure to change
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    if (bundle / door.file).is_file():
        shutil.copytree(bundle, place)
    else:
        place.mkdir()
    (place / door.file).write_bytes(content)
    if (bundle / door.file).is_file():
        signed(place, door.file)
    return place / door.file


def tried(door: Door, file: Path) -> tuple[str, str | None]:
    """Read one file: it was `read` or `refused`, and what is wrong with that, if anything."""
    started = time.monotonic()
    complaint = None
    how = "read"
    try:
        door.read(file)
    except CimError as error:
        how = "refused"
        if "\n" in str(error).strip():
            complaint = f"a sentence of several lines: {error!s:.200}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        complaint = f"{type(error).__name__} at {where}: {error!s:.200}"
    seconds = time.monotonic() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if complaint is None and seconds > SLOWEST:
        complaint = f"{seconds:.0f} seconds"
    if complaint is None and memory > MOST_MEMORY:
        complaint = f"{memory >> 10} MB of memory"
    return how, complaint


def main() -> int:
    """Try changed inputs at all doors in turn, and say how many of each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--count", type=int, default=1 << 62, help="inputs at most")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--bundle", type=Path, required=True, help="a small bundle")
    options.add_argument("--finds", type=Path, default=Path("fuzz-finds"))
    given = options.parse_args()
    rng = random.Random(given.seed)
    warnings.simplefilter("ignore")
    ends: Counter[tuple[str, str]] = Counter()
    finds: dict[str, Path] = {}
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        every = doors(given.bundle)
        for number in range(given.count):
            if time.monotonic() > until:
                break
            door_name = list(every)[number % len(every)]
            file = one_input(every[door_name], given.bundle, rng, Path(name))
            faulthandler.dump_traceback_later(6 * SLOWEST, exit=True)
            how, complaint = tried(every[door_name], file)
            faulthandler.cancel_dump_traceback_later()
            ends[door_name, how if complaint is None else "found"] += 1
            if complaint is not None and complaint not in finds:
                kept = given.finds / f"{len(finds)}-{file.name}"
                given.finds.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, kept)
                finds[complaint] = kept
                print(f"{door_name}: {complaint}\n  kept as {kept}", flush=True)
    for door_name in every:
        counts = {how: ends[door_name, how] for how in ("read", "refused", "found")}
        print(f"{door_name:24}", *(f"{count:8,} {how}" for how, count in counts.items()))
    print(f"{sum(ends.values()):,} inputs, {len(finds)} kinds of finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
