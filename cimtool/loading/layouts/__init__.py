"""The layouts, one class per file; importing this package registers them all."""

from __future__ import annotations

import re
from dataclasses import replace

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import nearest, register_modules
from cimtool.base.plugins import load_plugins, origin_of_module, unless_broken
from cimtool.loading.layer_map import OWN_KEYS, VALUES, LayerMap
from cimtool.loading.layout import Layout
from cimtool.loading.weights import UnknownLayers, Weights

__all__ = ["Layout", "recognise", "require_known_keys"]

register_modules(__name__, __path__)


def require_known_keys(layer_map: LayerMap) -> None:
    """Raise CimError for a key that is neither a general key of maps nor a layer of any layout."""
    for named in layer_map.values():
        for key in named.layers:
            if not _is_layer(key):
                known = [
                    *OWN_KEYS,
                    *VALUES,
                    *(one for f in Layout.family.values() for one in f.layers),
                ]
                layers = "; ".join(f"{n}: {', '.join(f.layers)}" for n, f in Layout.family.items())
                raise CimError(
                    f'{named.file}: unknown key "{key}" in [{named.table}]; expected '
                    f"{', '.join((*OWN_KEYS, *VALUES))}, or a layer of the checkpoint's layout "
                    f"({layers}){nearest(key, known)}"
                )


def _is_layer(key: str) -> bool:
    if not any(key in layout.layers for layout in Layout.family.values()):
        load_plugins()
    return any(key in layout.layers for layout in Layout.family.values())


def recognise(text: Weights, video: Weights) -> type[Layout]:
    """Return the layout of both projectors.

    Raises CimError if none fits or the two differ, and for a layer that the map names and the
    layout does not have.
    """
    found = [_recognised(weights) for weights in (text, video)]
    if found[0] is not found[1]:
        raise CimError(
            f'{text.file}: {text.prefix} has layout "{found[0].name}" and {video.prefix} has '
            f'"{found[1].name}"; expected one layout'
        )
    layout = found[0]
    for weights in (text, video):
        for role in weights.named.layers:
            if role not in layout.layers:
                first = re.split(r"[._]", role)[0]  # mu of mu_proj.0
                hint = nearest(role, layout.layers) or nearest(first, layout.layers)
                raise CimError(
                    f"{weights.named.file}: {weights.named.table}.{role} is not a layer of layout "
                    f'"{layout.name}", which {weights.file} has; expected '
                    f"{', '.join(layout.layers)}{hint}"
                )
    return layout


def _recognised(weights: Weights) -> type[Layout]:
    found = _recognising(weights)
    if not found:
        load_plugins()
        found = _recognising(weights)
    if len(found) > 1 and weights.named.layers:
        # If the map names layers of another layout, the error should name the file's layout.
        unnamed = replace(weights, named=replace(weights.named, layers={}))
        found = _recognising(unnamed) or found
    if len(found) == 1:
        return found[0]
    if found:
        marks = " and ".join(f'"{one.name}" ({one.description})' for one in found)
        raise CimError(
            f"{weights.file}: {weights.prefix} looks like layouts {marks} at once; expected layers "
            f"of one (its layers: {', '.join(weights.layers[:8])})"
        )
    raise UnknownLayers(
        ArgumentError(
            "{}: {} has no known layout (its layers: {})",
            weights.file,
            weights.prefix,
            ", ".join(weights.layers[:8]),
        ),
        ArgumentError(
            "say its activation or name its layers with {layer_map}, if it is of a layout ({})",
            ", ".join(Layout.family),
        ),
    )


def _recognising(weights: Weights) -> list[type[Layout]]:
    """The layouts that recognise weights; layouts for any names count only if no other fits.

    Layouts that read tokens go before all others: an encoder may have layers of any kind.
    """
    found = []
    for layout in Layout.family.values():
        with unless_broken(f'layout "{layout.name}"', origin_of_module(layout.__module__)):
            if layout.recognises(weights):
                found.append(layout)
    own = [layout for layout in found if layout.reads_tokens]
    return own or [layout for layout in found if not layout.any_names] or found
