"""The weights of each modality, read from a checkpoint for a layout.

A checkpoint may nest its keys and prefix them: nested keys are joined with dots. The first part
that names a modality (`text_proj`, `video`, `image_projector`, ...) tells the two projectors apart.
Wrappers (`state_dict`, `module`, ...) before and after this part are left out.

Torch can store a weight in another form. A weight norm's two tensors are multiplied out to the
weight, `g v / ||v||`, by the definition at
https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.parametrizations.weight_norm.html.
Spectral norms, pruning masks, other parametrizations and adapters are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import NAMES, TEXT_VIDEO, Modalities, name_of
from cimtool.base.named import nearest
from cimtool.ir.program import MODALITIES
from cimtool.loading.checkpoint import Checkpoint, is_float8, single
from cimtool.loading.dense_config import is_dense
from cimtool.loading.layer_map import NO_MAP, LayerMap, ModalityMap

WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "base_model")
TRANSPARENT = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Wrappers that torch.compile, FSDP and activation checkpoints put around any part of a model."""

_SUFFIX = r"(_proj|_projector|_projection|_head|_BayesCap)?(_state_dict)?"
_MODALITY = {
    "text": re.compile(rf"(text|txt){_SUFFIX}|txt_enc"),
    "video": re.compile(rf"(video|image|img){_SUFFIX}|img_enc"),
}
PROJECTION, MATRIX = "projection", "matrix"
"""The name of a modality's only layer, and of that layer's weight if it is stored as [in, out]."""

PROJECTIONS = {
    "text": ("text_projection", "text.text_projection", "text_proj", "text_model.head"),
    "video": ("visual.proj", "visual.head.proj", "visual_projection", "vision_proj"),
}
"""Keys of the matrices after CLIP's encoders, and of the Linears of BLIP, ALBEF and SigLIP."""

POOLED = "pooled"
POOLINGS = {"video": ("vision_model.head.mlp.fc2", "visual.trunk.attn_pool.mlp.fc2")}
"""The last layers of encoders that nothing projects, SigLIP's; POOLED names them, to be skipped."""

UNCERTAINTY = "uncertainty"
UNCERTAINTIES = {
    "text_projection": "uncertainty_text_projection",
    "text.text_projection": "text.text_uncertainty_projection",
    "visual.proj": "visual.uncertainty_proj",
}
"""The key of PCME++'s or ProLIP's second layer by the key of its first; UNCERTAINTY names it."""

SCALES = re.compile(r"\.(weight|input|output)_(scale|scale_inv|scale_2|zero_point)")
"""Endings of the keys of scales and zero points, which accompany quantized weights."""

TRAINED = {"weight", "bias", "running_mean", "running_var"}
"""Parameters that must be real numbers; integers here are codes of a quantized model."""

PARAMETERS = {*TRAINED, "num_batches_tracked", "eps"}


class UnknownLayers(ArgumentError):
    """Layers that no layout reads: `found` says which, `by_map` the way by a layer map."""

    def __init__(self, found: ArgumentError, by_map: ArgumentError):
        super().__init__("{}; {}", found, by_map)
        self.found, self.by_map = found, by_map


@dataclass(frozen=True)
class Weights:
    """Arrays of one projector by their key (`trunk.0.weight`), in the order of the file.

    `keys` gives the full key of each array in `file`, for messages. `named` has the user's map.
    `values` are the numbers and texts at the top of the file; the map's values replace them.
    `row_width` is the width of the data's rows, None without data. Each array named in `made` was
    computed from several tensors of the file. `read` are the full keys of all tensors that were
    taken.
    """

    file: str
    prefix: str
    arrays: Mapping[str, Array]
    keys: Mapping[str, str]
    ordered: bool = True
    named: ModalityMap = field(default_factory=ModalityMap)
    values: Mapping[str, Any] = field(default_factory=dict)
    row_width: int | None = None
    made: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers (`trunk.0`), in the order of the file."""
        return tuple(dict.fromkeys(key.rpartition(".")[0] for key in self.arrays))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """A remark if weights were made of several tensors: their keys may mean something else."""
        if not self.made:
            return ()
        return (
            f"{self.file}: weights have the keys of weight norms and were read as g v / ||v||; the "
            "keys do not show what else a module does to them. Compare the model with its own "
            "outputs",
        )

    def in_order(self, layers: Collection[str]) -> bool:
        """True if the order of layers is known: from the file, or from numbers in their names."""
        return self.ordered or len({re.sub(r"\d+", "#", layer) for layer in layers}) <= 1

    def layer(self, role: str) -> str:
        """The name of the layer with this role: from the map, or else the role itself."""
        return self.named.layers.get(role, role)

    def has(self, layer: str, parameter: str) -> bool:
        """True if the file holds this parameter of the layer."""
        return f"{layer}.{parameter}" in self.arrays

    def shape(self, layer: str, parameter: str) -> tuple[int, ...]:
        """The parameter's shape; CimError if it is missing."""
        return self.get(layer, parameter).shape

    def key(self, layer: str, parameter: str) -> str:
        """The full key of a parameter, for messages."""
        name = f"{layer}.{parameter}"
        if name in self.keys:
            return self.keys[name]
        for other, key in self.keys.items():
            beside, _, own = other.rpartition(".")
            if beside == layer:
                return f"{key.removesuffix(f'.{own}')}.{parameter}"
        return f"{self.prefix}.{name}" if self.prefix else name

    def place(self, key: str) -> str:
        """The file that gives a plain value: the map, or else the checkpoint."""
        return self.named.file if key in self.named.values else self.file

    def get(
        self, layer: str, parameter: str, shape: tuple[int | None, ...] | None = None
    ) -> FloatArray:
        """A parameter in float64; CimError if missing or not of `shape` (None: any extent)."""
        key = self.key(layer, parameter)
        if not self.has(layer, parameter):
            hint = nearest(key, self.keys.values())
            expected = f" (expected shape {_shape_text(shape)})" if shape else ""
            raise CimError(f"{self.file}: {key} is missing{expected}{hint}")
        array = self.arrays[f"{layer}.{parameter}"]
        if shape is not None and not _fits(array.shape, shape):
            raise CimError(
                f"{self.file}: {key} has shape {_shape_text(array.shape)}; "
                f"expected {_shape_text(shape)}"
            )
        return array.astype(np.float64)

    def among(self, is_chosen: Callable[[str], bool]) -> Weights:
        """The weights of the layers whose names are chosen, for example without an encoder's."""
        names = [name for name in self.arrays if is_chosen(name.rpartition(".")[0])]
        arrays = {name: self.arrays[name] for name in names}
        return replace(self, arrays=arrays, keys={name: self.keys[name] for name in names})

    def refuse_others(
        self, used: Sequence[str], layout: str, parameters: Collection[str] = PARAMETERS
    ) -> None:
        """Raise CimError for a parameter that the layout would not compute with."""
        known = set(used)
        for name, key in self.keys.items():
            layer, _, parameter = name.rpartition(".")
            if layer not in known or parameter not in parameters:
                raise CimError(
                    f'{self.file}: {key} is not part of layout "{layout}", which would ignore it; '
                    f"expected parameters of {', '.join(used)} only"
                )


def _fits(found: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(found) == len(expected) and all(
        extent in (None, own) for own, extent in zip(found, expected, strict=True)
    )


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("any" if extent is None else str(extent) for extent in shape) + "]"


def find_weights(
    checkpoint: Checkpoint,
    layer_map: LayerMap = NO_MAP,
    called: Callable[[], Modalities] = lambda: TEXT_VIDEO,
) -> tuple[Weights, Weights]:
    """Return the weights of text and video.

    `called` gives the data's names of both modalities; it is called only for an error message.
    Raises CimError if a modality is missing or ambiguous, a weight is not finite, or the map names
    a layer that does not exist.
    """
    arrays = flat(checkpoint.content)
    text, video = (_of_modality(checkpoint, arrays, m, layer_map[m], called) for m in MODALITIES)
    return text, video


def flat(content: Mapping[str, Any], above: str = "") -> dict[str, Array]:
    """All arrays of nested dictionaries, by their keys joined with dots."""
    found: dict[str, Array] = {}
    for key, value in content.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, np.ndarray):
            found[name] = value
        elif isinstance(value, Mapping):
            found |= flat(value, name)
    return found


def _of_modality(
    checkpoint: Checkpoint,
    arrays: Mapping[str, Array],
    modality: str,
    named: ModalityMap,
    called: Callable[[], Modalities],
) -> Weights:
    table = partial(_table, arrays, modality, named, called)
    keys = _keys_of(checkpoint, arrays, modality, named, table)
    chosen = {name: single(arrays[key]) for name, key in keys.items()}
    for name, array in chosen.items():
        coded = array.dtype.kind != "f" or is_float8(array)
        if coded and name.rpartition(".")[2] in (*TRAINED, MATRIX):
            raise CimError(
                f"{checkpoint.file}: {keys[name]} holds {array.dtype} numbers, whose scale is not "
                "known; expected floating point of 16 bits or more"
            )
        if not array.size:
            raise CimError(
                f"{checkpoint.file}: {keys[name]} has shape {_shape_text(array.shape)}, which is "
                "empty; expected numbers along each axis"
            )
        if not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].flat[0]
            raise CimError(f"{checkpoint.file}: {keys[name]} holds {bad}; expected finite weights")
    first, key = next(iter(keys.items()))
    key = _unwrapped_inside(key)
    prefix = key.removesuffix(f".{first}")
    if prefix == key:  # a projection, whose key does not end in its name here
        prefix = key.removesuffix(f".{first.rpartition('.')[2]}")
    read = frozenset(keys.values())
    found, keys = with_weights(chosen, keys, checkpoint.file)
    made = frozenset(found.keys() - chosen.keys())
    plain = {k: v for k, v in checkpoint.content.items() if isinstance(v, int | float | str)}
    values = {**plain, **named.values}
    weights = Weights(
        *(checkpoint.file, prefix, found, keys, checkpoint.ordered, named, values),
        made=made,
        read=read,
    )
    for role, layer in named.layers.items():
        if layer not in weights.layers:
            raise CimError(
                f'{named.file}: {named.table}.{role} = "{layer}" is not a layer under {prefix} of '
                f"{checkpoint.file}: {', '.join(weights.layers)}{nearest(layer, weights.layers)}"
            )
    return weights


def _table(
    arrays: Iterable[str], modality: str, named: ModalityMap, called: Callable[[], Modalities]
) -> str:
    """The name of a modality's table in a map: from the map, else the keys, else the data."""
    if named != ModalityMap(named.file, modality):
        return named.table
    pattern = _MODALITY[modality]
    parts = {part for key in arrays for part in key.split(".") if pattern.fullmatch(part)}
    if parts:
        is_image = all(part.startswith(("image", "img")) for part in parts)
        return "image" if is_image else modality
    name = name_of(modality, called())
    return name if name in NAMES[modality] else modality


def _keys_of(
    checkpoint: Checkpoint,
    arrays: Mapping[str, Array],
    modality: str,
    named: ModalityMap,
    table: Callable[[], str],
) -> dict[str, str]:
    """The full key of each parameter of a modality, by its key inside the modality.

    `table` gives the modality's name for the error if no prefix or several prefixes match.
    """
    if found := _projection(checkpoint, arrays, modality, named.prefix, table):
        return found
    prefixes: dict[str, dict[str, str]] = {}
    for key in arrays:
        parts = _unwrapped_inside(key).split(".")
        start = _start(parts, modality, named.prefix)
        if start is not None:
            names = prefixes.setdefault(".".join(parts[:start]), {})
            if (name := ".".join(parts[start:])) in names:
                raise _wrapped_twice(checkpoint, names[name], key)
            names[name] = key
    if len(prefixes) == 1:
        return next(iter(prefixes.values()))
    if prefixes:
        raise _ambiguous(checkpoint, table(), prefixes)
    tops = list(dict.fromkeys((unwrapped(key) or key).split(".")[0] for key in arrays))
    name = table()
    wanted = named.prefix or f"{name}_proj"
    raise UnknownLayers(
        ArgumentError(
            '{}: holds no weights under "{}."; its keys start with {}',
            checkpoint.file,
            wanted,
            ", ".join(tops[:8]) or "nothing (no tensors)",
        ),
        ArgumentError(
            'name them with {layer_map} ([{}] prefix = "{}"){}',
            name,
            _prefix_below(arrays, modality),
            nearest(wanted, tops) if named.prefix else "",
        ),
    )


def _prefix_below(arrays: Iterable[str], modality: str) -> str:
    """The prefix up to the part that names a modality; dots if there are none or several."""
    found = dict.fromkeys(
        ".".join(parts[: i + 1])
        for parts in (unwrapped(key).split(".") for key in arrays)
        for i, part in enumerate(parts[:-1])
        if _MODALITY[modality].fullmatch(part)
    )
    return next(iter(found)) if len(found) == 1 else "..."


def _ambiguous(checkpoint: Checkpoint, table: str, places: Iterable[str]) -> ArgumentError:
    return ArgumentError(
        '{}: weights of {} are found under {}; say which with {layer_map} ([{}] prefix = "...")',
        checkpoint.file,
        table,
        " and under ".join(places),
        table,
    )


def _wrapped_twice(checkpoint: Checkpoint, key: str, other: str) -> CimError:
    return CimError(
        f"{checkpoint.file}: {key} and {other} are the same parameter if wrappers in their names "
        f"({', '.join(TRANSPARENT)}) are left out; expected one of them: the state_dict of the "
        "module, or of the wrapper around it"
    )


def _projection(
    checkpoint: Checkpoint,
    arrays: Mapping[str, Array],
    modality: str,
    prefix: str | None,
    table: Callable[[], str],
) -> dict[str, str]:
    """The full keys of a modality's only layer: at one of its known places, or at the prefix.

    Raises CimError if copies of it stand behind several wrappers.
    """
    places = PROJECTIONS[modality] if prefix is None else (prefix.strip("."),)
    copies: dict[str, list[str]] = {}
    for key in arrays:
        # A prefix with wrappers can choose one of several copies.
        for name in {unwrapped(key), key} if prefix is not None else {unwrapped(key)}:
            copies.setdefault(name, []).append(key)
    for place in places:
        names = _parameters(place)
        own = [name for name in copies if name == place or name.startswith(f"{place}.")]
        scale = next((name for name in own if SCALES.fullmatch(name[len(place) :])), None)
        if scale is not None and f"{place}.weight" in own:
            raise CimError(
                f"{checkpoint.file}: {copies[scale][0]} belongs to a quantized weight; expected "
                f"{place}.weight in floating point of 16 bits or more, without a scale"
            )
        if (own and set(own) <= {place}) or (f"{place}.weight" in own and set(own) <= set(names)):
            read = {f"{PROJECTION}.{names[name]}": copies[name] for name in own}
            if prefix is None and (beside := UNCERTAINTIES.get(place)) is not None:
                read |= {
                    f"{UNCERTAINTY}.{parameter}": copies[key]
                    for key, parameter in _parameters(beside).items()
                    if key in copies
                }
            if several := next((keys for keys in read.values() if len(keys) > 1), None):
                if len(set(map(_unwrapped_inside, several))) < len(several):
                    raise _wrapped_twice(checkpoint, *several[:2])
                raise _ambiguous(checkpoint, table(), several)
            return {name: key for name, (key,) in read.items()}
    if prefix is None:
        for place in POOLINGS.get(modality, ()):
            if len(keys := copies.get(f"{place}.weight", [])) == 1:
                return {f"{POOLED}.weight": keys[0]}
        if is_dense(copies):  # one layer for both modalities
            return {name: keys[0] for name, keys in copies.items()}
    return {}


def _parameters(place: str) -> dict[str, str]:
    """The parameter under each key that a matrix or a Linear at `place` may have."""
    return {place: MATRIX, f"{place}.weight": "weight", f"{place}.bias": "bias"}


def unwrapped(key: str) -> str:
    """A key without the leading wrappers, and without the wrappers that may stand anywhere."""
    parts = _unwrapped_inside(key).split(".")
    return ".".join(parts[_wrappers(parts) :])


def _unwrapped_inside(key: str) -> str:
    """A key without the wrappers around parts of a model."""
    return ".".join(part for part in key.split(".") if part not in TRANSPARENT)


def _wrappers(parts: Sequence[str]) -> int:
    return next((i for i, part in enumerate(parts) if part not in WRAPPERS), len(parts))


def _start(parts: list[str], modality: str, prefix: str | None) -> int | None:
    """The number of parts before the layer; None if the key belongs to another modality."""
    if prefix is not None:
        wanted = _unwrapped_inside(prefix.strip(".")).split(".")
        ends = [start + len(wanted) for start in (0, _wrappers(parts))]
        start = next((end for end in ends if parts[end - len(wanted) : end] == wanted), len(parts))
    else:
        start = _wrappers(parts) + 1
        if start > len(parts) or not _MODALITY[modality].fullmatch(parts[start - 1]):
            return None
    while start < len(parts) and parts[start] in WRAPPERS:
        start += 1
    return start if start < len(parts) else None


WEIGHT_NORMS = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)
"""Endings of the keys of a weight norm's lengths and directions, in torch's new and old form."""

OR_EXPORT = "or both projectors as ONNX (torch.onnx.export)"

OTHER_FORMS = (
    (
        r"\.(weight)_u$|\.parametrizations\.(\w+)\.\d+\._u$",
        "belongs to a spectral norm; expected the {part} itself: "
        "torch.nn.utils.remove_spectral_norm(layer), or "
        'torch.nn.utils.parametrize.remove_parametrizations(layer, "{part}"), before it is saved',
    ),
    (
        r"\.(weight|bias)_mask$",
        "is the mask of a pruned layer; expected its {part}: "
        'torch.nn.utils.prune.remove(layer, "{part}") before it is saved',
    ),
    (
        r"\.parametrizations\.(\w+)\.",
        "belongs to a parametrized {part}; expected the {part} itself: "
        'torch.nn.utils.parametrize.remove_parametrizations(layer, "{part}") before it is saved',
    ),
    (
        r"\.(lora_\w+|base_layer)\b",
        "belongs to an adapter (LoRA) beside its layer; expected it merged: "
        "model.merge_and_unload() of peft before it is saved",
    ),
)
"""Other forms: a pattern of their keys, and a sentence that says how to save the parameter."""


def with_weights(
    arrays: Mapping[str, Array], keys: Mapping[str, str], file: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and their full keys by name, with each weight norm multiplied out to [out, in].

    Raises CimError if a direction is all zeros, the weight exceeds float32, or the file also holds
    the weight in another form.
    """
    found, full = dict[str, Array](), dict[str, str]()
    pairs = {name: pair for name in arrays if (pair := _weight_norm(name, arrays)) is not None}
    directions = {f"{layer}{end}" for layer, (_, end) in pairs.values()}
    for name, array in arrays.items():
        if name in pairs:
            layer, (length, direction) = pairs[name]
            made, of = f"{layer}.weight", f"{layer}{direction}"
            if made in arrays or made in found:
                raise CimError(
                    f"{file}: {keys[name].removesuffix(length)}.weight is there in two forms; "
                    "expected one of them"
                )
            found[made] = _normed_weight(array, arrays[of], f"{file}: {keys[of]}")
            full[made] = keys[name].removesuffix(length) + ".weight"
        elif name not in directions:
            found[name], full[name] = array, keys[name]
    return found, full


def require_weights(keys: Mapping[str, str], file: str) -> None:
    """Raise CimError if a key belongs to a weight in another form; `keys` are full keys by name."""
    for pattern, sentence in OTHER_FORMS:
        for name, key in keys.items():
            if found := re.search(pattern, f".{name}"):
                said = sentence.format(part=next(filter(None, found.groups())))
                raise CimError(f"{file}: {key} {said}, {OR_EXPORT}")


def _weight_norm(name: str, arrays: Mapping[str, Array]) -> tuple[str, tuple[str, str]] | None:
    """The layer and the key endings of a weight norm, if `name` is its lengths; else None."""
    for length, direction in WEIGHT_NORMS:
        layer = name.removesuffix(length)
        v = arrays.get(f"{layer}{direction}")
        if layer != name and v is not None and _are_lengths(arrays[name], v):
            return layer, (length, direction)
    return None


def _are_lengths(g: Array, v: Array) -> bool:
    """True if `g` has a single length, or a length per index along one axis of `v`."""
    long = [axis for axis, extent in enumerate(g.shape) if extent > 1]
    one_axis = g.ndim == v.ndim and len(long) < 2 and all(g.shape[a] == v.shape[a] for a in long)
    real = g.dtype.kind == v.dtype.kind == "f"
    return real and v.ndim > 1 and (one_axis or g.ndim == 0)


def _normed_weight(g: Array, v: Array, where: str) -> Array:
    axes = tuple(axis for axis in range(v.ndim) if g.ndim == 0 or g.shape[axis] == 1)
    directions = v.astype(np.float64)
    largest = np.abs(directions).max(axis=axes, keepdims=True)
    if not largest.all():
        raise CimError(f"{where} has a direction of zeros, and a weight norm cannot divide by 0")
    directions /= largest  # so that no square overflows or vanishes
    weight = directions * (g / np.sqrt(np.square(directions).sum(axis=axes, keepdims=True)))
    if np.abs(weight).max() > np.finfo(np.float32).max:
        raise CimError(f"{where} makes weights beyond float32; expected a norm that float32 holds")
    single: Array = weight.astype(np.float32)
    return single
