"""Small bundles of every kind, and changes of them whose checksums are made anew."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from changes import MALFORMED, altered, onnx_value, tensors_value
from safetensors.numpy import load_file

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.json_files import values_digest
from cimtool.bundle import serial
from cimtool.bundle.bundle import (
    CONSTANTS,
    MANIFEST,
    PROGRAM,
    STAGE_CONSTANTS,
    STAGES,
    manifest_text,
)
from cimtool.ir.program import Graph
from cimtool.ir.types import Type, type_text

ROWS = "rows.npz"
WIDTH, HIDDEN, FEATURES, ROWS_OF_EACH = 6, 5, 4, 12

POLYNOMIAL = {"degree": 2, "coeff": [-1.0, 0.5, 0.1, -0.05, 0.02], "bias": 0.1} | {
    "a": 1.0,
    "b": 0.0,
    "K": 10,
}


def make_bundles(place: Path) -> None:
    """Write ROWS and a bundle of each kind into a folder, as the same bytes each time.

    Their kinds: a digital score by a polynomial, by a cosine on lossless arrays, a gallery in the
    arrays, one that was changed there, a shortlist by the arrays and by a memory beside them.
    """
    rng, model = np.random.default_rng(0), place / "model.pth"
    data = {
        side: rng.normal(size=(ROWS_OF_EACH, WIDTH)).astype(np.float32)
        for side in ("text", "video")
    }
    np.savez(place / ROWS, **data)
    torch.manual_seed(0)
    state: dict[str, Any] = {"activation": "relu"}
    for side in ("text_proj", "video_proj"):
        for name, shape in (("fc1", (HIDDEN, WIDTH)), ("mu", (FEATURES, HIDDEN))):
            state[f"{side}.{name}.weight"] = torch.randn(*shape)
            state[f"{side}.{name}.bias"] = torch.randn(shape[0]) * 0.1
        state[f"{side}.logvar.weight"] = torch.randn(FEATURES, HIDDEN) * 0.1
        state[f"{side}.logvar.bias"] = torch.randn(FEATURES) * 0.1 - 2
    torch.save(state, model)
    polynomial = place / "polynomial.json"
    polynomial.write_text(json.dumps(POLYNOMIAL), "utf-8")
    made = partial(api.compile, model, calibration=place / ROWS)
    made(polynomial, target="isaac-rram-128", output=place / "digital", adc_bits=4)
    made(target="ideal", head="cosine", output=place / "cosine")
    for mapping in ("in-memory", "hybrid"):
        made(
            target="isaac-rram-128",
            head="euclidean",
            score_mapping=mapping,
            output=place / f"{mapping}-empty",
        )
    items = {"video": data["video"]}
    for name in ("in-memory", "changed"):
        api.program(place / "in-memory-empty", items, output=place / name)
    api.change_gallery(place / "changed", remove=[2], add={"video": data["video"][:2]})
    api.program(place / "hybrid-empty", items, shortlist=4, output=place / "hybrid")
    api.program_cam(
        place / "hybrid-empty", items, "fefet-mcam", shortlist=4, output=place / "memory"
    )


KINDS = ("digital", "cosine", "in-memory", "changed", "hybrid", "memory", "hybrid-empty")
"""The folders of the bundles that are changed."""

CODE = (
    "\n#ifndef GO\n#define GO\nextern int system(const char *);\n"
    '__attribute__((constructor)) static void go(void) {{ if (system("touch {0}")) return; }}'
    "\n#endif\n"
)
"""C that makes the canary, wherever a text of it stands, and however often."""

RUNNING = (
    *(f"x */ {CODE} /*", f'x"; {CODE} //', f"x{CODE}//"),
    *("$(touch {0})", "`touch {0}`", "x; touch {0} #", "'; touch {0}; '", "$(shell touch {0})"),
    *("x\n\ttouch {0}\n", "../outside", "../../../outside", "{0}"),
)
"""Names that would run code in C, a shell or make, or leave a folder; {0} is the canary."""

BREAKING = (
    *('q", 1, 0, 0}}, {{"z', "x\\\ny", "#include <none.h>", "??/", "%n%s", "-rf", ".hidden"),
    *("a/b", "..", "a\0b", "\ud800", "x" * 300, "é" * 200, "]({0})"),
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "]]>"),
    *("\x1b[31mred", "\u202ered", "", " ", "|a|b|", "_", "9", "int", "main"),
)
"""Names that would break a text, or are taken for something else."""


def payload(rng: random.Random, canary: Path) -> str:
    """A hostile name; code of it makes the canary."""
    return rng.choice(rng.choice((RUNNING, BREAKING))).format(canary)


Forgery = Callable[[random.Random, Path, Path], None]
"""Changes one thing of the bundle in a folder; the last is the path of the canary."""


def read(file: Path) -> Any:
    return json.loads(file.read_bytes())


def write(file: Path, values: Any) -> None:
    """Write a JSON file in place of a link to that of the whole bundle."""
    replace_file(file, json.dumps(values).encode())


def replace_file(file: Path, content: bytes) -> None:
    """Write a file in place of a link to that of the whole bundle."""
    file.unlink()
    file.write_bytes(content)


def texts(values: Any) -> list[tuple[Any, Any]]:
    """The places of texts that are no digests, each a container and a key."""
    found = []
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in items:
        if isinstance(value, dict | list):
            found += texts(value)
        elif isinstance(value, str) and not re.fullmatch("[0-9a-f]{64}", value):
            found.append((values, key))
    return found


def manifest_name(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another text in the manifest: mostly the name of the model, or of its modalities."""
    values = read(folder / MANIFEST)
    model = values["model"]
    likely = [(model, "name"), (values["target"], "name"), (model, "called")]
    target, key = rng.choice(likely if rng.random() < 0.6 else texts(values))
    name = payload(rng, canary)
    target[key] = [name, name + "2"] if key == "called" else name
    write(folder / MANIFEST, values)


def node_name(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another name of a node, wherever it is named, in all stages; layers are the likelier."""
    program = read(folder / PROGRAM)
    nodes = [node for graph in program.values() for node in graph["nodes"]]
    layers = [node for node in nodes if "mvm" in node["op"]]
    old = rng.choice(layers if layers and rng.random() < 0.5 else nodes)["name"]
    new = payload(rng, canary)
    for name in (PROGRAM, STAGES):
        if (folder / name).exists():
            text = (folder / name).read_text("utf-8")
            replace_file(
                folder / name, text.replace(json.dumps(old), json.dumps(new)).encode("utf-8")
            )
    if rng.random() < 0.5:  # layers of this layout have any names
        values = read(folder / MANIFEST)
        values["model"]["layout"] = "onnx"
        write(folder / MANIFEST, values)


def program_part(rng: random.Random, folder: Path, canary: Path) -> None:
    """A node left out, twice, elsewhere, of another operation or wired otherwise; an output too."""
    values, all_stages = chosen_program(rng, folder)
    graph = rng.choice(list(values.values()))
    nodes, names = graph["nodes"], [node["name"] for node in graph["nodes"]]
    if not nodes:
        return
    place, known = rng.randrange(len(nodes)), [*graph["inputs"], *names]
    how = rng.randrange(7)
    if how == 0:
        nodes.pop(place)
    elif how == 1:
        nodes.insert(place, json.loads(json.dumps(nodes[place])) | {"name": "again"})
    elif how == 2:
        nodes.insert(rng.randrange(len(nodes)), nodes.pop(place))
    elif how == 3:
        nodes[place]["op"] = rng.choice(nodes)["op"]
    elif how == 4 and graph["outputs"]:
        graph["outputs"][rng.choice(list(graph["outputs"]))] = rng.choice(known)
    elif how == 5:
        twin = rng.choice(nodes)
        nodes[place] |= {"op": twin["op"], "fields": twin["fields"]}
    elif nodes[place]["inputs"]:
        inputs = nodes[place]["inputs"]
        inputs[rng.randrange(len(inputs))] = rng.choice(known)
    write(*all_stages)


def program_field(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another value of a field: an axis, a limit, a shift, a scale, the arrays of a layer."""
    values, all_stages = chosen_program(rng, folder)
    graph = rng.choice(list(values.values()))
    fields = [node["fields"] for node in graph["nodes"] if node["fields"]]
    if fields:
        target = rng.choice(fields)
        if rng.random() < 0.5:
            altered(rng, target)
        else:
            numbers(rng, target)
    write(*all_stages)


def numbers(rng: random.Random, values: Any) -> None:
    """Change one number below a value to one that may well be allowed."""
    places: list[tuple[Any, Any]] = []
    waiting = [values]
    while waiting:
        one = waiting.pop()
        for key, value in one.items() if isinstance(one, dict) else enumerate(one):
            if isinstance(value, dict | list):
                waiting.append(value)
            elif isinstance(value, int | float):
                places.append((one, key))
    if places:
        target, key = rng.choice(places)
        old = target[key]
        target[key] = rng.choice((0, 1, -1, 2, 7, 31, 62, 63, 64, -old, old + 1, old * 2, 1 << 40))


def program_shape(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another shape of an input of a graph, or other bounds."""
    values, all_stages = chosen_program(rng, folder)
    graph = rng.choice(list(values.values()))
    known = graph["inputs"][rng.choice(list(graph["inputs"]))]
    if rng.random() < 0.7:
        extents = ("n", "m", 1, 3, 4, WIDTH, "8n", "0n", 0, -1, 1 << 40, "", "999999999n")
        shape = known["shape"]
        if rng.random() < 0.5 or not shape:
            known["shape"] = [rng.choice(extents) for _ in range(rng.randrange(4))]
        else:
            shape[rng.randrange(len(shape))] = rng.choice(extents)
    else:
        altered(rng, known)
    write(*all_stages)


def chosen_program(rng: random.Random, folder: Path) -> tuple[Any, tuple[Path, Any]]:
    """The graphs of the program or of a stage, and the file and all that it holds."""
    if (folder / STAGES).exists() and rng.random() < 0.3:
        stages = read(folder / STAGES)
        return stages[rng.choice(list(stages))], (folder / STAGES, stages)
    program = read(folder / PROGRAM)
    return program, (folder / PROGRAM, program)


def constant(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another array of constants, of features, digests or writes."""
    files = sorted(folder.glob("*.safetensors"))
    weights = [2 if file.name in (CONSTANTS, STAGE_CONSTANTS) else 1 for file in files]
    (file,) = rng.choices(files, weights)
    replace_file(file, tensors_value(rng, file.read_bytes()))


def manifest_value(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another value in the manifest."""
    values = read(folder / MANIFEST)
    if rng.random() < 0.5:
        altered(rng, values)
    else:
        numbers(rng, values[rng.choice(("target", "settings", "model"))])
    write(folder / MANIFEST, values)


def ledger_value(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another value in a further JSON file, such as the ledger of writes."""
    files = [one for one in sorted(folder.glob("*.json")) if one.name != MANIFEST]
    file = rng.choice(files)
    values = read(file)
    altered(rng, values)
    write(file, values)


def file_name(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another name of a listed file."""
    values = read(folder / MANIFEST)
    old, new = rng.choice(list(values["files"])), payload(rng, canary)
    values["files"][new] = values["files"].pop(old)
    if new and "\0" not in new and "/" not in new and "\ud800" not in new and len(new) < 100:
        (folder / old).rename(folder / new)
    write(folder / MANIFEST, values)


def onnx_part(rng: random.Random, folder: Path, canary: Path) -> None:
    """Another part of an ONNX file."""
    file = rng.choice(sorted(folder.glob("*.onnx")))
    replace_file(file, onnx_value(rng, file.read_bytes()))


FORGERIES: tuple[tuple[Forgery, int], ...] = (
    (manifest_name, 5),
    (node_name, 5),
    (program_part, 5),
    (program_field, 5),
    (program_shape, 2),
    (constant, 4),
    (manifest_value, 4),
    (ledger_value, 1),
    (file_name, 1),
    (onnx_part, 1),
)
"""The changes, each with how often it comes."""


def forge(rng: random.Random, folder: Path, canary: Path) -> list[str]:
    """Change a bundle in one to three ways and make its checksums anew; the names of the ways."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        (forgery,) = rng.choices(*zip(*FORGERIES, strict=True))
        try:
            forgery(rng, folder, canary)
        except (*MALFORMED, OSError):
            break  # a change before has left nothing that this one knows
        done.append(forgery.__name__)
    if rng.random() < 0.8:
        retype(folder)
    sign(folder)
    return done


def retype(folder: Path) -> None:
    """Let each line of programs say the type that follows, as far as one does."""
    arrays = {}
    for constants, file in ((CONSTANTS, PROGRAM), (STAGE_CONSTANTS, STAGES)):
        try:
            arrays |= load_file(folder / constants)
            values = read(folder / file)
            programs = [values] if file == PROGRAM else list(values.values())
            for program in programs:
                for name, graph in program.items():
                    _retype(name, graph, serial.Constants(arrays))
            write(folder / file, values)
        except (CimError, OSError, *MALFORMED, ArithmeticError):
            return


def _retype(name: str, graph: dict[str, Any], constants: serial.Constants) -> None:
    inputs = {
        key: Type(**serial._fields(known, constants, key)) for key, known in graph["inputs"].items()
    }
    nodes = tuple(serial._node(line, constants, name) for line in graph["nodes"])
    types = Graph(name, inputs, nodes, {}).types
    for line in graph["nodes"]:
        line["type"] = type_text(types[line["name"]])


def sign(folder: Path) -> None:
    """Make the checksums of all files of a bundle anew, as far as its manifest lists them."""
    try:
        values = read(folder / MANIFEST)
        for name in values["files"]:
            if (folder / name).is_file():
                values["files"][name] = sha256(folder / name)
        values["sha256"] = values_digest(values)
        replace_file(folder / MANIFEST, manifest_text(values).encode())
    except MALFORMED:
        pass
