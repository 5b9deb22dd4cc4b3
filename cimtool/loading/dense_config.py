"""The file beside a Dense module of sentence-transformers, which names its activation.

A module is a folder `2_Dense` with the layer as `linear.weight` [out, in] and `linear.bias` in
`model.safetensors`, and with `config.json`, whose `activation_function` is a class of torch
(https://github.com/UKPLab/sentence-transformers, `models/Dense.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cimtool.base.errors import CimError
from cimtool.base.json_files import read_json
from cimtool.base.named import unknown

DENSE = "linear"
DENSE_KEYS = (f"{DENSE}.weight", f"{DENSE}.bias")

CONFIG, ACTIVATION_FUNCTION = "config.json", "activation_function"

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
}
"""The activation of a layer map by the class of torch."""


def is_dense(keys: Collection[str]) -> bool:
    """True for the keys of a Dense module alone; its bias may be left out."""
    return DENSE_KEYS[0] in keys and set(keys) <= set(DENSE_KEYS)


def config_beside(path: Path) -> Path | None:
    """The module's `config.json` beside its weights; None if there is none."""
    file = path.with_name(CONFIG)
    return file if file.exists() else None


def read_dense_activation(config: Path) -> str:
    """The activation that a `config.json` names; CimError if it names none or another one."""
    values = read_json(config)
    said = values.get(ACTIVATION_FUNCTION) if isinstance(values, dict) else None
    if not isinstance(said, str):
        raise CimError(
            f"{config}: {ACTIVATION_FUNCTION} is {said}; expected the class of a Dense module's "
            "activation, as sentence-transformers writes it"
        )
    if said not in ACTIVATIONS:
        raise unknown(f"{config}: {ACTIVATION_FUNCTION}", said, tuple(ACTIVATIONS))
    return ACTIVATIONS[said]
