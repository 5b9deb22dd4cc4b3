"""The kind and contents of a file, as plain data and as lines of text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.hub_names import fetched_by
from cimtool.base.json_files import LARGEST, parse_json
from cimtool.base.modality_names import item_names
from cimtool.base.named import Named
from cimtool.base.toml_files import read_toml
from cimtool.base.untrusted import read_bounded
from cimtool.hardware.target import load_target, target_names
from cimtool.ir.heads import dimension
from cimtool.ir.heads.base import VARIANCE
from cimtool.ir.program import Graph
from cimtool.ir.surrogate import Polynomial, terms
from cimtool.loading.checkpoint import (
    EXPORTED_SUFFIX,
    PICKLED_SUFFIXES,
    Checkpoint,
    read_checkpoint,
    read_torch,
    require_suffix,
)
from cimtool.loading.embeddings import (
    UNIT_TOLERANCE,
    Embeddings,
    embeddings_of,
    read_embeddings,
)
from cimtool.loading.item_arrays import ALONE, LABELS, OF_ALONE, TEXT, VIDEO
from cimtool.loading.layer_map import read_layer_map
from cimtool.loading.layout import TOKENS, Layout, remarks
from cimtool.loading.layouts import recognise, require_known_keys
from cimtool.loading.npy import read_npy, read_npz
from cimtool.loading.polynomial import (
    COEFFICIENTS,
    parse_polynomial,
    polynomial_values,
    read_polynomial,
)
from cimtool.loading.projectors import ProjectorFile
from cimtool.loading.provenance import provenance_of
from cimtool.loading.score import INNER_HEAD, inner_polynomial
from cimtool.loading.unread import unread
from cimtool.loading.weights import MATRIX, POOLED, Weights, find_weights
from cimtool.reference.truth import Classes

MANIFEST, LEDGER = "manifest.json", "ledger.json"
MANIFEST_KEYS = ("format_version", "cimtool_version", "model", "target", "settings", "inputs")

TEACHER = ("ed", "vd", "y")
"""The arrays that identify an `.npz` as a teacher: statistics of pairs, and their labels."""

Facts = dict[str, Any]


class Described(Named):
    """Base of classes that each describe a kind of folder, recognised by a file in it."""

    file: ClassVar[str]
    """The name of the file by which the folder is recognised."""

    @classmethod
    @abstractmethod
    def facts(cls, folder: Path) -> Facts:
        """The contents of a folder as plain data with its `kind`; CimError if incomplete."""


def inspect(path: Path) -> Facts:
    """Describe a checkpoint, polynomial, data, target, settings, ONNX file, bundle or hand-off.

    The result is plain data; `kind` names the kind. Raises CimError if the file is missing, broken,
    or of another kind, and if a hand-off differs from its export.
    """
    for folder in Described.every().values():
        if (path / folder.file).is_file():
            return {"file": str(path), **folder.facts(path)}
    if path.is_dir():
        return {"file": str(path), **_bundle(path)}
    readers: dict[str, Callable[[Path], Facts]] = {
        ".toml": _toml,
        ".json": _json,
        ".npz": _npz,
        ".npy": lambda file: _array(read_npy(file)),
        ".safetensors": lambda file: describe_checkpoint(read_checkpoint(file)),
    } | dict.fromkeys(PICKLED_SUFFIXES, _torch)
    if not path.exists():
        known = str(path) in target_names()
        named = f"; a target's keys are what `cimtool targets show {path}` tells" if known else ""
        raise CimError(f"{path}: there is no such file or folder{named}{fetched_by(path)}")
    if path.suffix == EXPORTED_SUFFIX:
        require_suffix(path, "a checkpoint", PICKLED_SUFFIXES)
    if path.suffix not in readers:
        readers |= {suffix: kind.describe for suffix, kind in ProjectorFile.every().items()}
    if path.suffix not in readers:
        raise CimError(
            f"{path}: its suffix does not say what it holds; expected a bundle's folder or one of "
            f"{', '.join(sorted(readers))}"
        )
    facts = readers[path.suffix](path)
    return {"file": str(path), **facts, "bytes": path.stat().st_size, "sha256": sha256(path)}


def format_facts(facts: Mapping[str, Any]) -> list[str]:
    """Lines of text: one per fact, with its name; tables are indented below their name."""
    others = {key: value for key, value in facts.items() if key not in ("file", "kind")}
    return [f"{facts['file']}: {facts['kind']}", *_lines(others, 1)]


def brief_facts(facts: Mapping[str, Any], width: int) -> list[str]:
    """Lines of at most `width` columns, one per fact: of a table only the first values."""
    others = {key: value for key, value in facts.items() if key not in ("file", "kind")}
    lines = [f"{key}: {_brief(value)}" for key, value in others.items()]
    cut = [one if len(one) <= width else f"{one[: width - 3]}..." for one in lines]
    return [f"{facts['file']}: {facts['kind']}", *(f"  {line}" for line in cut)]


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
        return ", ".join(f"{k} {_brief(v)}" for k, v in plain.items()) or f"{len(value)}"
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return f"{len(value)}"
    return _value_text(value)


def _lines(facts: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for key, value in facts.items():
        label = "  " * depth + key
        if isinstance(value, Mapping):
            inner = _lines(value, depth + 1)
            lines += [label, *inner] if inner else [f"{label}: none"]
        elif isinstance(value, list) and value and not isinstance(value[0], int | float):
            lines += [label, *("  " * (depth + 1) + str(entry) for entry in value)]
        else:
            lines.append(f"{label}: {_value_text(value)}")
    return lines


def _value_text(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return str(value) if value else "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _torch(path: Path) -> Facts:
    content = read_torch(path)
    if isinstance(content, np.ndarray):
        return _array(content)
    if not isinstance(content, dict):
        raise CimError(f"{path}: holds a {type(content).__name__}; expected a dictionary or tensor")
    if any(key in content for key in COEFFICIENTS):
        return describe_polynomial(parse_polynomial(content, str(path)))
    arrays = {key: value for key, value in content.items() if isinstance(value, np.ndarray)}
    if any(key in arrays for key in (*TEXT, *VIDEO)) and not _has_both(arrays):
        return describe_modalities(arrays)
    if any(key in arrays for key in (*TEXT, *VIDEO, ALONE)):
        return describe_embeddings(embeddings_of(content, str(path)))
    return describe_checkpoint(Checkpoint(str(path), content))


def _npz(path: Path) -> Facts:
    names = list(read_npz(path, ()))
    if any(key in names for key in COEFFICIENTS):
        return describe_polynomial(read_polynomial(path))
    if set(TEACHER) <= set(names):  # its `text` and `video` are row numbers, not rows
        values = read_npz(path, TEACHER)
        arrays = {name: _array_text(values[name]) for name in TEACHER}
        others = [name for name in names if name not in TEACHER]
        return {"kind": "teacher", "arrays": arrays, "other_arrays": others}
    if any(key in names for key in (*TEXT, *VIDEO)) and not _has_both(names):
        return describe_modalities(read_npz(path))
    if any(key in names for key in (*TEXT, *VIDEO, ALONE)):
        read = read_embeddings(path)
        return {**describe_embeddings(read), "other_arrays": list(read.unread)}
    return {"kind": "arrays", "arrays": {k: _array_text(v) for k, v in read_npz(path).items()}}


def _has_both(names: Collection[str]) -> bool:
    return all(any(key in names for key in keys) for keys in (TEXT, VIDEO))


def describe_modalities(arrays: Mapping[str, Array]) -> Facts:
    """Shapes and norms of each modality, for data without text and video, and other arrays."""
    others = (*LABELS, *OF_ALONE)
    rows = {
        name: array
        for name, array in arrays.items()
        if array.ndim == 2 and array.dtype.kind == "f" and name not in others
    }
    return {
        "kind": "embeddings",
        **{name: {"shape": list(array.shape), **_rows(array)} for name, array in rows.items()},
        "pairs": "of two of these, which are then taken as text and video",
        "other_arrays": [name for name in arrays if name not in rows],
    }


def _array(array: Array) -> Facts:
    facts: Facts = {"kind": "array", "dtype": str(array.dtype), "shape": list(array.shape)}
    return facts | (_rows(array) if array.ndim == 2 and array.dtype.kind == "f" else {})


def _json(path: Path) -> Facts:
    if path.name == MANIFEST:
        return _bundle(path.parent)
    if not set(COEFFICIENTS) & set(polynomial_values(path)):
        names = ", ".join(COEFFICIENTS)
        raise CimError(f"{path}: is not a polynomial ({names}); of a bundle, give the folder")
    return describe_polynomial(read_polynomial(path))


def _toml(path: Path) -> Facts:
    """A target has a name or base, a layer map only tables of modalities, a project a bundle.

    All others are settings.
    """
    values = read_toml(path)
    if "name" in values or "base" in values:
        return {"kind": "target", **load_target(path.absolute()).to_json()}
    if values and set(values) <= {*TEXT, *VIDEO}:
        require_known_keys(read_layer_map(path))
        return {"kind": "layer map", **values}
    return {"kind": "project" if "bundle" in values else "settings", **values}


def _bundle(folder: Path) -> Facts:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise CimError(f"{folder}: is not a bundle: there is no {MANIFEST}")
    try:
        values = parse_json(read_bounded(manifest, LARGEST))
        facts = {key: values[key] for key in MANIFEST_KEYS}
        facts |= {"plugins": values["plugins"]} if "plugins" in values else {}
        if "gallery" in values:
            facts["gallery"] = values["gallery"]
        if LEDGER in values["files"]:
            facts["ledger"] = _ledger(folder / LEDGER)
        listed = list(values["files"])
    except KeyError as error:
        raise CimError(f"{manifest}: {error.args[0]} is missing") from None
    except (ValueError, TypeError, AttributeError):
        raise CimError(f"{manifest}: is not a bundle's manifest") from None
    files = {name: _size(folder / name) for name in listed}
    return {"kind": "bundle", **facts, "files": files}


def _ledger(file: Path) -> Facts:
    """The writes of a gallery's cells, in total and by stored matrix."""
    written, most = "cells_written", "most_written"
    try:
        values = parse_json(read_bounded(file, LARGEST))
        matrices = {
            name: {
                "arrays": len(arrays),
                written: sum(one[written] for one in arrays),
                most: max(one[most] for one in arrays),
            }
            for name, arrays in values["matrices"].items()
        }
        totals = {key: values[key] for key in ("next_item", written, most)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CimError(f"{file}: is not a gallery's ledger") from error
    return {**totals, "matrices": matrices}


def _size(file: Path) -> str:
    return f"{file.stat().st_size:,} bytes" if file.is_file() else "missing"


def describe_polynomial(polynomial: Polynomial) -> Facts:
    """Degree, bias, the coefficient of each term, scales and teacher."""
    return {
        "kind": "polynomial",
        "degree": polynomial.degree,
        "bias": polynomial.bias,
        "coefficients": dict(zip(terms(polynomial.degree), polynomial.coeff, strict=True)),
        "scale_ed": polynomial.scale_ed,
        "scale_vd": polynomial.scale_vd,
        "of": "its layout's ed and vd (two-branch: ed/d and vd/d^2), divided by these scales",
        "predicts": "logit" if polynomial.fit_logit else "p",
        "teacher": {"a": polynomial.a, "b": polynomial.b, "K": polynomial.K},
    }


def describe_embeddings(embeddings: Embeddings) -> Facts:
    """Shapes, norms, the pairs of texts and videos, and the classes if known."""
    text, video = embeddings.called
    return {
        "kind": "embeddings",
        text: {"shape": list(embeddings.text.shape), **_rows(embeddings.text)},
        video: {"shape": list(embeddings.video.shape), **_rows(embeddings.video)},
        "pairs": _pairs(embeddings),
        **_classes(embeddings.labels),
    }


def _classes(labels: Classes | None) -> Facts:
    """The number of classes; if a text may have several, also the average per text."""
    if labels is None:
        return {"classes": None}
    if labels.ndim == 1:
        return {"classes": len(np.unique(labels))}
    return {"classes": labels.shape[1], "classes of a text": float(labels.sum(axis=1).mean())}


def _pairs(embeddings: Embeddings) -> str:
    texts, videos = len(embeddings.text), len(embeddings.video)
    right = embeddings.text_to_video
    if embeddings.alone:
        return f"{texts} items of one modality"
    if right is None:
        key = "_to_".join(embeddings.called)
        return f"not known for {embeddings.counted} ({key} is missing)"
    if texts == videos and np.array_equal(right, np.arange(texts)):
        return "row i to row i"
    first, second = item_names(embeddings.called)
    return f"{texts:,} {first} to {len(np.unique(right)):,} of {videos:,} {second}"


def _rows(rows: Array) -> Facts:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    finite = bool(np.isfinite(norms).all())
    facts: Facts = {"finite": finite}
    if len(rows) and finite:
        facts["norms"] = [round(float(norm), 6) for norm in (norms.min(), norms.max())]
        facts["unit_rows"] = bool((np.abs(norms - 1) <= UNIT_TOLERANCE).all())
    return facts


def describe_checkpoint(checkpoint: Checkpoint) -> Facts:
    """Layout, sizes and precision; if no layout fits, the reason and the shape of each array."""
    facts: Facts = {"kind": "checkpoint"}
    try:
        text, video = find_weights(checkpoint)
        layout = recognise(text, video)
        text_tower, video_tower = (layout.tower(_of_tokens(one, 1)) for one in (text, video))
    except CimError as error:
        said = error.sentence(lambda name: "a layer map" if name == "layer_map" else name)
        reason = said.removeprefix(f"{checkpoint.file}: ")
        return facts | {"layout": None, "reason": reason, "arrays": _shapes(checkpoint.content)}
    facts |= {"layout": layout.name, "expects_unit_rows": layout.unit_rows}
    for modality, weights, tower in (("text", text, text_tower), ("video", video, video_tower)):
        facts[modality] = {
            "prefix": weights.prefix,
            "input": _input(layout, weights, tower),
            "dimensions": dimension(tower),
            **_counts(weights),
        }
    ed, vd = layout.statistics(dimension(text_tower))
    if (ed, vd) != (1.0, 1.0):
        facts["polynomial_of"] = f"ed/{ed:g} and vd/{vd:.10g}"
    known_score = {**layout.score(checkpoint.content), **checkpoint.content}
    if isinstance(head := known_score.get(INNER_HEAD), str):
        facts["head"] = head
    if (known := provenance_of(checkpoint.content, checkpoint.file)) is not None:
        facts["trained_on"] = {
            **{name: len(digests) for name, digests in known.rows.items()},
            "ancestors": list(known.ancestors),
            "complete": known.complete,
        }
    has_variance = any(VARIANCE in tower.outputs for tower in (text_tower, video_tower))
    left = unread(layout, checkpoint.content, (text, video), has_variance)
    if warnings := (*remarks(layout, checkpoint.content, (text, video)), *left.remarks):
        facts["warnings"] = list(warnings)
    if (inner := inner_polynomial(checkpoint.file, checkpoint.content)) is not None:
        facts["polynomial"] = describe_polynomial(inner)
    return facts


def _of_tokens(weights: Weights, count: int) -> Weights:
    """The weights with `count` tokens, unless the checkpoint gives a number."""
    return replace(weights, values={TOKENS: count, **weights.values})


def _input(layout: type[Layout], weights: Weights, tower: Graph) -> int | str:
    """The numbers in a row, or per token if the number of tokens is free; `tower` has one token."""
    width = tower.extent("x")
    if not layout.reads_tokens or TOKENS in weights.values:
        return width
    each = layout.tower(_of_tokens(weights, 2)).extent("x") - width
    return f"{width - each} and {each} a token" if width > each else f"{each} a token"


def _counts(weights: Weights) -> Facts:
    arrays = {} if weights.layers == (POOLED,) else weights.arrays  # no layer of it is read
    trained = [k for k in arrays if k.endswith(("weight", "bias", MATRIX))]
    norms = [layer for layer in weights.layers if weights.has(layer, "running_mean")]
    return {
        "parameters": sum(arrays[key].size for key in trained),
        "batch_norm": len(norms),
        "dtype": ", ".join(sorted({str(arrays[key].dtype) for key in trained})),
        "layers": [
            f"{key}: {_array_text(arrays[key])}" for key in trained if not key.endswith("bias")
        ],
    }


def _shapes(content: Mapping[str, Any]) -> Facts:
    return {
        key: _array_text(value) if isinstance(value, np.ndarray) else _shapes(value)
        for key, value in content.items()
        if isinstance(value, np.ndarray | Mapping)
    }


def _array_text(array: Array) -> str:
    return f"{array.dtype} {list(array.shape)}"
