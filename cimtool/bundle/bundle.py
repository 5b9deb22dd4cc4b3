"""The bundle: a folder with the compiled program, its ONNX files, and a checksum of each file.

A bundle is written completely or not at all: to a folder next to its place, which is then renamed.
A file whose bytes changed is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from cimtool import __version__
from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError, naming
from cimtool.base.escapes import require_name
from cimtool.base.files import (
    BUNDLE_BESIDE,
    TRAINED_MODEL,
    check_way,
    require_outside_bundles,
    sha256,
    unwritable,
    without_links,
)
from cimtool.base.files import CONSTANTS as CONSTANTS
from cimtool.base.files import MANIFEST as MANIFEST
from cimtool.base.folders import exchange
from cimtool.base.json_files import LARGEST, in_unicode, read_table, table_in, values_digest
from cimtool.base.partial import PARTIAL, partial_folder, partial_of
from cimtool.base.plugins import check_plugins, origins_of
from cimtool.base.toml_files import is_file_name, validated
from cimtool.base.typed_fields import made_of, table_of
from cimtool.base.untrusted import read_bounded
from cimtool.bundle.agreement import Difference, card_differences, program_differences
from cimtool.bundle.arrays_file import (
    DIGESTS,
    features_form,
    features_sha256,
    read_arrays,
    read_features,
)
from cimtool.bundle.ledger import ITEMS, LEDGER, LEDGER_ARRAYS, Ledger, read_ledger
from cimtool.bundle.serial import (
    Constants,
    ConstantTable,
    narrowed,
    program_of,
    program_text,
    read_program,
)
from cimtool.hardware.cam import Cam
from cimtool.hardware.crossbar import FAMILIES
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.keys import ScoreMapping
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.ir.program import Program, as_inputs, features_of, score_inputs
from cimtool.loading.layouts import Layout
from cimtool.loading.model import ModelCard
from cimtool.loading.provenance import Provenance
from cimtool.passes.gallery import ShortlistBits
from cimtool.passes.pipeline import Stage, require_in_step, stage_names
from cimtool.report.result import Result

FORMAT_VERSION = 9
LARGEST_MANIFEST = 1 << 22
"""Bytes of a manifest at most."""

PROGRAM = "program.json"
STAGES = "stages.json"
STAGE_CONSTANTS = "stages.safetensors"
QUERIES = "queries.safetensors"
"""Features of calibration pairs, to fit the converters of a gallery."""

CALIBRATION = "calibration.safetensors"
"""Digests of the calibration rows, `text` and `video`; these rows are not evaluated by default."""

TRAINING = "training.safetensors"
"""Digests of the rows that the model was trained on, if its checkpoint records them."""

GALLERY = "gallery.safetensors"
"""Features of a gallery's items: for the exact scores of a shortlist, and for later changes."""

SHORTLIST = "shortlist.onnx"
FLOAT_FILE = "float.onnx"
ONNX_FILES = ("text.onnx", "video.onnx", "score.onnx", FLOAT_FILE)
OF_STAGES = (STAGES, STAGE_CONSTANTS, FLOAT_FILE)
"""The files that only measuring reads; a bundle has all of them or none."""

WHOLE = (PROGRAM, CONSTANTS, CALIBRATION, *(one for one in ONNX_FILES if one != FLOAT_FILE))
"""The files that every bundle has."""

BESIDE = (MANIFEST, *BUNDLE_BESIDE)
"""The files of a bundle's folder that its manifest does not list."""

IN_MEMORY = "score in memory"
"""The stage of a program that holds a gallery; it follows the stages of the passes."""


@dataclass(frozen=True)
class Gallery:
    """The items that a bundle's arrays hold: their source, and how they are scored.

    `file` and `sha256` are of the gallery that was programmed first; it was changed `changes` times
    since. `features` is the SHA-256 of the items' integer features. `shortlist` is the length of a
    hybrid score's shortlist, and `bits` the few bits that it stores of an item, None if it stores
    all bits. `cam` stores what the shortlist compares, None if the target's arrays store that.
    """

    file: str
    sha256: str
    items: int
    mapping: ScoreMapping
    shortlist: int | None
    features: str
    bits: ShortlistBits | None = None
    changes: int = 0
    cam: Cam | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, for a manifest."""
        cam = None if self.cam is None else self.cam.to_json()
        return asdict(replace(self, cam=None)) | {"cam": cam}


BundleLike = Path | str | os.PathLike[str]
"""A bundle as the path of its folder, or as a Bundle or a Matcher."""


@dataclass(frozen=True, repr=False)
class Bundle(Result, shown_by="cimtool.bundle.render"):
    """A bundle on disk; every file was compared with the checksum in the manifest."""

    folder: Path
    manifest: Mapping[str, Any]
    model: ModelCard
    target: Target
    settings: Settings
    gallery: Gallery | None
    """The gallery in the bundle's arrays; None if there is none."""

    def __fspath__(self) -> str:
        """The folder, so that a function takes a bundle where it takes a bundle's path."""
        return str(self.folder)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def program(self) -> Program:
        """The compiled program: the bit-accurate model of the hardware."""
        file = self.folder / PROGRAM
        program = read_program(read_bounded(file, LARGEST), self._constants, str(file))
        differences = program_differences(self.model, self.settings, program, PROGRAM)
        require_agreement(self.folder / MANIFEST, differences)
        self._require_gallery(program)
        return program

    def _require_gallery(self, program: Program) -> None:
        """Raise CimError unless the manifest states the gallery that the program holds."""
        found, said = program.gallery_items, self.gallery
        if program.shortlist is not None:
            (listed,) = program.shortlist.outputs.values()
            found = int(program.shortlist.types[listed].shape[1])
        own = None if said is None else said.items
        file = self.folder / MANIFEST
        if own != found:
            raise CimError(
                f"{file}: gallery has {own or 'no'} items; expected {found or 'none'}, as in "
                f"{PROGRAM}; compile again"
            )
        if said is not None and (
            said.mapping != self.settings.score_mapping
            or (said.shortlist is None) != (program.shortlist is None)
        ):
            raise CimError(
                f"{file}: gallery.mapping is {said.mapping} with shortlist {said.shortlist}, and "
                f"settings.score_mapping {self.settings.score_mapping}, which contradicts "
                f"{PROGRAM}; compile again"
            )

    @cached_property
    def _constants(self) -> Constants:
        return Constants(read_arrays(self.folder / CONSTANTS))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The program after passes, from the trained model to the compiled program.

        A pass declares if its stage is kept; `verify` shows with these the cost of each pass.
        Raises CimError if the bundle was compiled without stages.
        """
        file = self.folder / STAGES
        if STAGES not in self.manifest["files"]:
            raise CimError(
                f"{self.folder}: was compiled without its stages, which verify, compare and "
                "evaluate read; compile again with them"
            )
        constants = self._constants.joined(read_arrays(self.folder / STAGE_CONSTANTS))
        programs = read_table(file, "compile")
        held = self.program.gallery_items is not None
        known = [stage_names(self.settings, optional) for optional in (False, True)]
        kept = [names if held else names[:-1] for names in known]
        if tuple(programs) not in kept:
            raise CimError(
                f"{file}: does not have the stages {', '.join(kept[0])} in this order; compile "
                "again"
            )
        last = IN_MEMORY if held else known[kept.index(tuple(programs))][-1]
        stages = [
            Stage(name, program_of(values, constants, f"{file}: {name}"))
            for name, values in programs.items()
        ]
        found = (*stages, Stage(last, self.program))
        try:
            require_in_step(found)
        except ValueError as error:
            raise CimError(f"{file}: {error}; compile again") from error
        return found

    @property
    def compiled_stages(self) -> tuple[Stage, ...]:
        """The stages before a gallery was programmed: the last stage has a digital score."""
        *earlier, last = self.stages
        if self.program.gallery_items is not None:
            return tuple(earlier)
        return (*earlier, replace(last, program=replace(last.program, shortlist=None)))

    @cached_property
    def gallery_features(self) -> dict[str, Array]:
        """Integer features of the gallery's items: rows [M, d], self terms [M].

        Raises CimError unless their SHA-256 is the manifest's.
        """
        assert self.gallery is not None
        program, file = self.program, self.folder / GALLERY
        types = features_of(program.video, score_inputs(program.text, program.video))
        features = read_features(file, types, features_form(types, self.gallery.items))
        if features_sha256(features) != self.gallery.features:
            raise CimError(
                f"{file}: does not hold the features of the {self.gallery.items} items that the "
                "manifest names; program the gallery again"
            )
        return features

    @cached_property
    def ledger(self) -> Ledger:
        """The writes of the gallery's cells; CimError if the file is not a ledger."""
        return read_ledger(self.folder / LEDGER)

    @cached_property
    def _ledger_arrays(self) -> dict[str, Array]:
        held = LEDGER_ARRAYS in self.manifest["files"]
        return read_arrays(self.folder / LEDGER_ARRAYS) if held else {}

    @property
    def items(self) -> IntArray:
        """The ids [M] of the gallery's items by column; row numbers if it never changed."""
        assert self.gallery is not None
        count = self.gallery.items
        if ITEMS not in self._ledger_arrays:
            return np.arange(count)
        held, following = self._ledger_arrays[ITEMS], self.ledger.next_item
        if held.dtype.kind not in "iu":
            raise CimError(
                f"{self.folder / LEDGER_ARRAYS}: {ITEMS} is of {held.dtype}; expected whole numbers"
            )
        ids = held.astype(np.int64)
        different = len({one for one in ids.ravel().tolist() if 0 <= one < following})
        if ids.shape != (count,) or different != count:
            raise CimError(
                f"{self.folder / LEDGER_ARRAYS}: {ITEMS} has shape {list(ids.shape)} and "
                f"{different} different ids below {following}; expected {count}"
            )
        return ids

    @property
    def write_counts(self) -> dict[str, Array]:
        """Writes of each cell by stored matrix; empty for a gallery that never changed."""
        return {name: value for name, value in self._ledger_arrays.items() if name != ITEMS}

    @cached_property
    def queries(self) -> dict[str, Array]:
        """Features of calibration texts (`text.mu`, ...), and of their videos if known.

        A bundle whose score is digital has none.
        """
        program = self.program
        types = score_inputs(program.text, program.video)
        whole = features_form(types, "queries")
        texts = as_inputs("text", features_of(program.text, whole))
        return read_features(self.folder / QUERIES, types, texts, whole)

    @cached_property
    def calibration(self) -> dict[str, Array]:
        """Digests of the rows that the bundle was calibrated on, uint64, sorted, by modality."""
        return read_arrays(self.folder / CALIBRATION, DIGESTS)

    @cached_property
    def training(self) -> Provenance | None:
        """The rows that the model was trained on; None if not known."""
        if TRAINING not in self.manifest["files"]:
            return None
        return Provenance(read_arrays(self.folder / TRAINING, DIGESTS))


def require_agreement(file: Path, differences: Iterable[Difference]) -> None:
    """Raise CimError for the first value of a manifest that differs from another place."""
    for one in differences:
        said, expected = (_as_json(value) for value in (one.said, one.expected))
        raise CimError(
            f"{file}: {one.key} is {said}; expected {expected}, as {one.place}; compile again"
        )


def _as_json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def gallery_of(manifest: Mapping[str, Any]) -> Gallery | None:
    """The gallery that a manifest names, if any."""
    values = manifest.get("gallery")
    if values is None:
        return None
    values = table_of(values, "gallery")
    bits, cam = values.get("bits"), values.get("cam")
    parts = {
        "bits": None if bits is None else made_of(ShortlistBits, bits),
        "cam": None if cam is None else validated(Cam, table_of(cam, "gallery.cam"), "gallery.cam"),
    }
    return made_of(Gallery, {**values, **parts})


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The text of a manifest; `read_bundle` refuses any other spelling of the same values."""
    return json.dumps(manifest, indent=1) + "\n"


def features_bytes(features: Mapping[str, Array]) -> bytes:
    """Integer features as a file's bytes; each array has the narrowest type that holds it."""
    content: bytes = save({n: np.ascontiguousarray(narrowed(v)) for n, v in features.items()})
    return content


@dataclass(frozen=True)
class BundleContent:
    """The values of a bundle's manifest, and the stages of its program.

    `inputs` are the names of all files read, each with its SHA-256.
    """

    model: ModelCard
    target: Target
    settings: Settings
    stages: tuple[Stage, ...]
    inputs: Iterable[tuple[str, str]]
    notes: Iterable[str]
    gallery: Gallery | None = None


def write_bundle(
    folder: Path, content: BundleContent, files: Mapping[str, bytes], with_stages: bool = True
) -> Bundle:
    """Write a bundle to `folder`, completely or not at all.

    An earlier bundle there becomes `<name>.previous`. `files` are the bytes of all files except the
    program, the stages and their constants, by name. Without stages, the files of OF_STAGES are
    left out. Raises CimError if `folder` holds something else or cannot be written.
    """
    model, target, settings = content.model, content.target, content.settings
    check_place(folder)
    with replaced_folder(folder) as partial:
        _write_program(partial, content.stages)
        for name, bytes_ in files.items():
            (partial / name).write_bytes(bytes_)
        if not with_stages:
            for name in OF_STAGES:
                (partial / name).unlink()
        manifest = {
            "format_version": FORMAT_VERSION,
            "cimtool_version": __version__,
            "model": model.to_json(),
            "target": target.to_json(),
            "settings": settings.to_json(),
            "inputs": [{"file": name, "sha256": digest} for name, digest in content.inputs],
            "notes": list(content.notes),
            "files": {file.name: sha256(file) for file in sorted(partial.iterdir())},
        }
        if plugins := origins_of(_kinds(model, target, settings, content.stages)):
            manifest["plugins"] = plugins
        if content.gallery is not None:
            manifest["gallery"] = content.gallery.to_json()
        manifest = in_unicode(manifest)
        manifest["sha256"] = values_digest(manifest)
        (partial / MANIFEST).write_text(manifest_text(manifest), "utf-8")
    return Bundle(folder, manifest, model, target, settings, content.gallery)


def _kinds(
    model: ModelCard, target: Target, settings: Settings, stages: tuple[Stage, ...]
) -> Iterator[type[Any]]:
    """Yield the registered classes that are needed to read a bundle."""
    yield type(model.head)
    if (layout := Layout.family.get(model.layout)) is not None:
        yield layout
    for keys in (target.keys, settings):
        yield from (type(keys.weight_code), type(keys.converter))
        for name in (keys.input_encoding, keys.unsigned_encoding):
            yield InputCode.named(name, "encoding")
    if target.noise is not None:
        yield from map(type, target.noise.mechanisms)
    for graph in (graph for stage in stages for graph in stage.program.graphs):
        for node in graph.nodes:
            yield type(node.op)
            if isinstance(node.op, CrossbarMvm):
                yield from (type(getattr(node.op.crossbar, family)) for family in FAMILIES)


def _write_program(folder: Path, all_stages: tuple[Stage, ...]) -> None:
    """Write the stages that a bundle keeps; the last stage is its program."""
    final = ConstantTable()
    *earlier_stages, last = all_stages
    (folder / PROGRAM).write_text(program_text(last.program, final), "utf-8")
    # Python writes the file: safetensors' writer raises no OSError if the disk is full.
    (folder / CONSTANTS).write_bytes(save(final.arrays))
    earlier = ConstantTable(final.names)
    texts = [
        f"{json.dumps(stage.name)}: "
        f"{program_text(stage.program, earlier, f'{stage.name}/').rstrip()}"
        for stage in earlier_stages
        if stage.kept
    ]
    (folder / STAGES).write_text("{\n" + ",\n".join(texts) + "\n}\n", "utf-8")
    (folder / STAGE_CONSTANTS).write_bytes(save(earlier.arrays))


def check_place(folder: Path) -> None:
    """Raise CimError if `folder` holds something that a bundle must not replace."""
    if folder.name in ("", ".."):
        raise CimError(f"{folder}: is not a name for a bundle; expected a new folder")
    require_outside_bundles(folder)
    check_way(folder, folder.absolute().parent)
    for place in (folder, previous_of(folder)):
        if (place.exists() or place.is_symlink()) and not (place / MANIFEST).is_file():
            raise CimError(
                f"{place}: exists and is not a bundle, so it is not replaced; expected a new place "
                "or an earlier bundle"
            )
        for found in _unlisted(place, _listed(place)) if place.exists() else ():
            raise CimError(
                f"{found}: is not a file of the bundle there and would be lost with it; expected a "
                "new place, or a bundle with no other files"
            )


def _listed(folder: Path) -> Collection[str]:
    """The files that a folder's manifest names; none if it cannot be read."""
    try:
        return set(dict(read_table(folder / MANIFEST, "compile", LARGEST_MANIFEST)["files"]))
    except (CimError, ValueError, KeyError, TypeError):
        return ()


def _unlisted(folder: Path, listed: Collection[str]) -> Iterator[Path]:
    """Yield what a folder holds except the listed files and the files that commands add."""
    for found in sorted(folder.iterdir()):
        if found.name not in (*listed, *BESIDE) and not (
            found.match(f"{PARTIAL}*") and found.is_dir()
        ):
            yield found


def check_inputs_apart(folder: Path, inputs: Iterable[str]) -> None:
    """Raise CimError if an input lies in `folder` or its previous place and would be lost."""
    places = [without_links(place) for place in (folder, previous_of(folder))]
    for text in inputs:
        if Path(text).is_file() and without_links(Path(text)).parent in places:
            raise CimError(
                f"{text}: is in {Path(text).parent}, which would be replaced; expected an input "
                "elsewhere"
            )


def previous_of(folder: Path) -> Path:
    """The place that earlier content of `folder` is moved to."""
    return folder.with_name(f"{folder.name}.previous")


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` at the end; on an error it leaves no trace.

    Earlier content of `folder` is moved to `<name>.previous`. The new folder, and content to be
    removed, are inside a locked folder next to the place; the lock shows that they are in use.
    """
    require_outside_bundles(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(folder.parent, partial_of(folder.name)) as beside:
            partial = beside / folder.name
            partial.mkdir()
            yield partial
            partial.chmod(0o755)
            _take_place(partial, folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def _take_place(partial: Path, folder: Path) -> None:
    """Rename `partial` to `folder`; earlier content moves aside, and back if that fails.

    If the system can exchange two folders, `folder` exists at every moment, earlier or new.
    """
    if not folder.exists():
        partial.rename(folder)
    elif exchange(partial, folder):
        previous = previous_of(folder)
        try:
            if previous.exists():
                exchange(partial, previous)
            else:
                partial.rename(previous)
        except BaseException:
            exchange(partial, folder)
            raise
    else:
        _take_place_in_two_steps(partial, folder)


def _take_place_in_two_steps(partial: Path, folder: Path) -> None:
    previous = previous_of(folder)
    if previous.exists():
        shutil.rmtree(previous)
    folder.rename(previous)
    try:
        partial.rename(folder)
    except BaseException:
        previous.rename(folder)
        raise


@dataclass(frozen=True)
class Origin:
    """The part of a manifest that states the inputs of a bundle, and the software that made it."""

    cimtool_version: str
    inputs: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]
    plugins: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Origin:
        """Read it; TypeError for a value of another kind, KeyError for a missing value."""
        lists = {"inputs": manifest["inputs"], "notes": manifest["notes"]}
        lists["plugins"] = manifest.get("plugins", [])
        for name, value in lists.items():
            if not isinstance(value, list):
                raise TypeError(f"{name} cannot be a {type(value).__name__}")
        version, parts = manifest["cimtool_version"], {k: tuple(v) for k, v in lists.items()}
        found = made_of(cls, {"cimtool_version": version, **parts})
        for one in found.inputs:
            if set(one) != {"file", "sha256"}:
                raise TypeError("an input has a file and its sha256")
        return found


def read_bundle(folder: Path) -> Bundle:
    """Open a bundle: check every file against the manifest, and the manifest against the program.

    Raises CimError if the folder is not a bundle or has another format, if a file is missing,
    changed or not listed in the manifest, or if the program differs from the manifest.
    """
    file = folder / MANIFEST
    if folder.is_file():
        raise CimError(f"{folder}: is a file; expected the folder of a bundle")
    if not file.is_file():
        trained = folder / TRAINED_MODEL
        if trained.is_file():
            raise CimError(
                f"{folder}: is not a bundle but a folder of training; expected {trained}, or the "
                "bundle that `cimtool compile` makes of it"
            )
        raise CimError(
            f"{folder}: is not a bundle (it has no {MANIFEST}); make one with `cimtool compile`"
        )
    content = read_bounded(file, LARGEST_MANIFEST)
    manifest = table_in(content, file, "compile")
    try:
        version, files = manifest["format_version"], dict(manifest["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise CimError(f"{file}: is not a bundle's manifest; compile again") from error
    if version != FORMAT_VERSION:
        raise CimError(
            f"{file}: format_version = {version}; expected {FORMAT_VERSION}, compile again"
        )
    if manifest.get("sha256") != values_digest(manifest):
        raise CimError(
            f"{file}: changed since it was compiled (its SHA-256 differs from the one in it), so "
            "the bundle is not run; compile again"
        )
    if content != manifest_text(manifest).encode():
        raise CimError(
            f"{file}: changed since it was compiled (it is not written as cimtool writes these "
            "values), so the bundle is not run; compile again"
        )
    try:
        origin = Origin.of(manifest)
    except (TypeError, KeyError) as error:
        raise CimError(f"{file}: is not a bundle's manifest ({error}); compile again") from error
    with naming(file):
        check_plugins(origin.plugins)
    try:
        with naming(file):
            model = ModelCard.from_json(table_of(manifest["model"], "model"))
            gallery = gallery_of(manifest)
        target, settings = (table_of(manifest[key], key) for key in ("target", "settings"))
    except KeyError as error:
        raise CimError(f"{file}: lacks {error}; the bundle is incomplete, compile again") from error
    except (TypeError, ValueError) as error:
        raise CimError(f"{file}: is not a bundle's manifest ({error}); compile again") from error
    _require_names(file, model, target.get("name"))
    require_agreement(file, card_differences(model))
    hybrid = (SHORTLIST, GALLERY) if gallery is not None and gallery.mapping == "hybrid" else ()
    staged = OF_STAGES if any(name in files for name in OF_STAGES) else ()
    for name in (*WHOLE, *staged, *hybrid):
        if name not in files:
            raise CimError(f"{file}: names no {name}; the bundle is incomplete, compile again")
    for name, digest in files.items():
        _check_file(folder, name, digest)
    for found in _unlisted(folder, files):
        raise CimError(
            f"{found}: is not listed in {MANIFEST}; a bundle holds only its own files and reports, "
            "so remove it"
        )
    bundle = Bundle(
        folder,
        manifest,
        model,
        validated(Target, target, f"{file}: target"),
        validated(Settings, settings, f"{file}: settings"),
        gallery,
    )
    # Read now, which checks the widths of the model's card before rows are compared with them.
    _ = bundle.program
    if gallery is not None and GALLERY in files:
        _ = bundle.gallery_features
    return bundle


def _require_names(file: Path, model: ModelCard, target: object) -> None:
    """Raise CimError if the name of a model, of its modalities or of a target is not valid."""
    said = {"model.name": model.name, "target.name": target}
    for key in ("modalities", "called"):
        said |= {f"model.{key}[{i}]": one for i, one in enumerate(getattr(model, key) or ())}
    for key, name in said.items():
        require_name(name, f"{file}: {key}")


def _check_file(folder: Path, name: str, digest: str) -> None:
    file = folder / name
    if not is_file_name(name) or not file.is_file():
        raise CimError(f"{file}: is missing from the bundle; compile again")
    if sha256(file) != digest:
        raise CimError(
            f"{file}: changed since it was compiled (its SHA-256 differs from the manifest's), so "
            "it is not run; compile again"
        )
