"""Folders for fuzzing, made by script: bundles, galleries, hand-offs, runs, grids and sweeps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cimtool.bundle.exporters  # noqa: F401  the hand-off is one of them
from cimtool import api
from cimtool.base.files import sha256
from cimtool.base.json_files import values_digest
from cimtool.bundle.bundle import CONSTANTS, MANIFEST, Bundle, manifest_text
from cimtool.bundle.chip import CONVERTERS, DESCRIPTION, STUCK, ChipFile
from cimtool.bundle.exporter import Request, export_bundle
from cimtool.galleries.encoding import INDEX
from cimtool.handoff.written import HANDOFF

WIDTH = 8
"""Numbers of a row of the data that a small model trains on."""


@dataclass(frozen=True)
class Folders:
    """Whole folders by what they hold, and the embeddings `data` of the trained ones."""

    data: Path
    run: Path
    grid: Path
    sweep: Path
    programmed: Path
    gallery: Path
    handoff: Path
    chip: Path


TRAINING: dict[str, Any] = {
    "epochs": 1,
    "batch": 16,
    "model": "trunk",
    "loss": "info-nce",
    "options": {"model.width": 4},
}


def trained(data: Path, folder: Path, resume: bool = False) -> object:
    """A small model trained into a folder, or gone on with."""
    return api.train(data, folder, resume=resume, **TRAINING)


def trained_grid(data: Path, folder: Path) -> object:
    """A grid of one point trained into a folder, or gone on with."""
    return api.train_grid(data, folder, grid={"seed": [0]}, **TRAINING)


def swept(projectors: Path, data: Path, folder: Path) -> object:
    """A sweep of one point into a folder, or gone on with."""
    return api.sweep(
        projectors,
        calibration=data,
        data=data,
        target="ideal",
        head="cosine",
        grid={"weight_bits": [4]},
        output=folder,
        calibration_rows="allow",
    )


def make_folders(bundle: Bundle, place: Path) -> Folders:
    """Make all of them within `place`; those of a compiled model are of `bundle`."""
    rng = np.random.default_rng(0)

    def rows(count: int, width: int) -> Any:
        return rng.normal(size=(count, width)).astype(np.float32)

    made = Folders(
        *(place / name for name in ("data.npz", "run", "grid", "sweep", "programmed")),
        *(place / name for name in ("gallery", "handoff", "chip")),
    )
    np.savez(made.data, text=rows(48, WIDTH), video=rows(48, WIDTH))
    trained(made.data, made.run)
    trained_grid(made.data, made.grid)
    model = made.run / "model.pth"
    swept(model, made.data, made.sweep)
    compiled = api.compile(
        model,
        calibration=made.data,
        target="isaac-rram-128",
        head="euclidean",
        score_mapping="in-memory",
        output=place / "compiled",
    )
    api.program(compiled.folder, {"video": rows(6, WIDTH)}, output=made.programmed)
    api.change_gallery(made.programmed, add={"video": rows(2, WIDTH)})
    items = place / "items.npz"
    np.savez(items, video=rows(6, bundle.model.video_width))
    api.encode(bundle.folder, items, output=made.gallery, items_per_shard=3)
    export_bundle(bundle, "handoff", made.handoff, Request(layers="text.mu"))
    made.chip.mkdir()
    for name, text in chip_texts(bundle).items():
        (made.chip / name).write_text(text, "utf-8")
    return made


def chip_texts(bundle: Bundle) -> dict[str, str]:
    """The files of a measured chip: some cells of a layer, a stuck one, thresholds."""
    constants = bundle.manifest["files"][CONSTANTS]
    thresholds = (f"3,0,{code},{code - 0.5}" for code in range(1, 16))
    return {
        DESCRIPTION: ChipFile(bundle=bundle.name, constants=constants, g_max=20.0).text(),
        "text.mu.csv": "array,row,column,conductance\n3,0,0,1.5\n3,0,1,3\n3,1,0,19.5\n",
        STUCK: "array,row,column,state\n3,0,0,on\n3,2,1,off\n",
        CONVERTERS: "\n".join(["array,converter,code,threshold", *thresholds, ""]),
    }


def sign_bundle(folder: Path, name: str) -> None:
    """Make the checksums of a changed bundle anew, as far as its manifest can be read."""
    _signed(folder, MANIFEST, name, lambda m, digest: m["files"].update({name: digest}))


def sign_gallery(folder: Path, name: str) -> None:
    """Make the checksum of a changed shard anew."""
    _signed(folder, INDEX, name, lambda m, digest: m["shards"].__setitem__(0, digest))


def sign_handoff(folder: Path, name: str) -> None:
    """Make the checksum of a changed file of a hand-off anew."""
    _signed(folder, HANDOFF, name, lambda m, digest: m["files"].update({name: digest}))


def sign_values(folder: Path, name: str) -> None:
    """Make the checksum of a changed file anew that has its own in it."""
    _signed(folder, name, name, lambda values, digest: None)


def _signed(folder: Path, list_name: str, name: str, update: Any) -> None:
    try:
        listed = json.loads((folder / list_name).read_bytes())
        if name != list_name:
            update(listed, sha256(folder / name))
        if "sha256" in listed:
            listed["sha256"] = values_digest(listed)
        (folder / list_name).unlink()  # a link to that of the whole folder
        (folder / list_name).write_text(manifest_text(listed), "utf-8")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        pass
