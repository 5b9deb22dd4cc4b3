"""Layer maps: files that name the layers of a checkpoint.

TOML, one table per modality. Every key is optional; missing keys are recognised as usual:

    [text]
    prefix = "txt_tower"    # where this projector's keys begin, without the final dot
    eps = 1e-3              # epsilon of the norms, if it was not torch's 1e-5
    fc1 = "net.0"           # layer of the layout = layer of the file, below the prefix
    logvar = "head_b"

    [video]                 # or [image]
    ...

If the checkpoint does not state its activation, the map can: activation (a text) and
negative_slope (a number), and output_activation for layout `perceptron`. For a layout that reads
tokens, `tokens` gives their number if it differs from the data's rows. `alpha_max` and `beta_min`
limit the generalised Gaussians of layout `probvlm`.

The layers are, by layout (names with dots need the quotes):

    trunk               fc1, bn1, fc2, bn2, mu, logvar
    two-branch          "mu_proj.0", "mu_proj.3", "logvar_proj.0", "logvar_proj.3"
    perceptron          mu, logvar
    cross-attention     attn, "attn.out_proj", ln
    others              the names in the public code
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError, naming
from cimtool.base.modality_names import NAMES, spellings
from cimtool.base.named import nearest, one_of
from cimtool.base.toml_files import read_toml
from cimtool.ir.program import MODALITIES

EPS = 1e-5
"""Default epsilon of BatchNorm and LayerNorm, as in torch."""

OWN_KEYS = ("prefix", "eps")
"""Keys of a map that do not depend on the layout."""

VALUES = (
    *("activation", "output_activation", "negative_slope", "tokens"),
    *("alpha_max", "beta_min"),
)
"""Keys of a map for values, not layers: the weights do not show these values."""


@dataclass(frozen=True)
class ModalityMap:
    """The entries of `file` for one projector, from the table called `table`.

    `layers` maps the layout's layers to the checkpoint's. `values` are numbers and texts that a
    checkpoint may also hold at its top.
    """

    file: str = ""
    table: str = ""
    prefix: str | None = None
    eps: float = EPS
    layers: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


LayerMap = Mapping[str, ModalityMap]
"""The entries of a map for both projectors, by modality."""

NO_MAP: LayerMap = {modality: ModalityMap(table=modality) for modality in MODALITIES}
"""An empty map."""


def read_layer_map(path: Path) -> LayerMap:
    """Read a map; CimError, which names file and key, if it is not a map."""
    tables = read_toml(path)
    known = [name for names in NAMES.values() for name in names]
    for name in tables:
        if name not in known:
            raise CimError(
                f'{path}: unknown key "{name}"; expected the tables {" and ".join(MODALITIES)}'
                f"{nearest(name, known)}"
            )
    with naming(path):
        given = {m: one_of(tables, spellings(m)) or m for m in MODALITIES}
    return {m: _modality(path, name, tables.get(name, {})) for m, name in given.items()}


def _modality(path: Path, name: str, table: Any) -> ModalityMap:
    if not isinstance(table, dict):
        raise CimError(f"{path}: {name} = {table!r}: must be a table")
    values = dict(table)
    eps = values.pop("eps", EPS)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < math.inf:
        raise CimError(f"{path}: {name}.eps = {eps!r}: must be a number above 0")
    own = ("eps", *VALUES)
    said = {key: values.pop(key) for key in VALUES if key in values}
    for key, value in values.items():
        if key == "prefix" and isinstance(value, str) and not value.strip("."):
            raise CimError(
                f"{path}: {name}.prefix = {value!r}: must be the start of this projector's keys; "
                "expected one that the other projector's keys lack, or no prefix"
            )
        if not isinstance(value, str) or not value:
            if key == "prefix":
                raise CimError(f"{path}: {name}.prefix = {value!r}: must be a text")
            raise CimError(
                f"{path}: {name}.{key} = {value!r}: must be the name of a layer; other keys are "
                f"{', '.join(own)}{nearest(key, own)}"
            )
    prefix = values.pop("prefix", None)
    for layer in values.values():
        if len(roles := [role for role, own in values.items() if own == layer]) > 1:
            raise CimError(
                f"{path}: {name}.{roles[0]} and {name}.{roles[1]} both name {layer}; expected a "
                "layer for each"
            )
    return ModalityMap(str(path), name, prefix, float(eps), values, said)
