"""Parts of a hand-off: each writes one subfolder, and says what lies there and what checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cimtool.base.arrays import IntArray
from cimtool.base.progress import Countdown
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporter import Request
from cimtool.handoff.layers import DrivenLayer, Lanes, driven_layers
from cimtool.handoff.requantiser import requantiser_inputs, requantiser_range


@dataclass(frozen=True, eq=False)
class HandoffSource:
    """A bundle, what is asked of it, and the layers that this is about."""

    bundle: Bundle
    request: Request

    @cached_property
    def layers(self) -> list[DrivenLayer]:
        """The layers that the request names, with their stimuli; CimError where there is none."""
        request = self.request
        return driven_layers(self.bundle, request.layers, request.inputs, request.gallery)

    def layers_told(self, work: str) -> Iterator[DrivenLayer]:
        """Yield the layers, and tell each when the `work` on it is done."""
        countdown, total = Countdown(self.request.say), len(self.layers)
        for count, layer in enumerate(self.layers, 1):
            yield layer
            countdown.tell(f"{work}: {layer.name}, layer {count} of {total}", count, total)

    @cached_property
    def directed(self) -> dict[str, IntArray]:
        """The directed inputs [DIRECTED, N] of each requantisation of the layers, by its place."""
        return {
            place: requantiser_inputs(after, *requantiser_range(layer, after))
            for layer in self.layers_told("directed numbers")
            for place, after in layer.requantisations.items()
        }

    @cached_property
    def lanes(self) -> Lanes:
        """The bits of the lanes of these layers."""
        return Lanes.of(self.layers)


@dataclass(frozen=True)
class HandoffPart:
    """One subfolder of a hand-off.

    `write(source, folder)` fills the new folder, or raises CimError. `files` says what
    each file is, by name or pattern; `uncovered` what the part leaves out, in sentences. `checks`
    are the commands of the goal `check`, and `goals` those of the part's own, run in the hand-off's
    folder; `settings` are variables that they read, with their defaults.
    A part is written where it is `asked` for.
    """

    folder: str
    title: str
    write: Callable[[HandoffSource, Path], None]
    files: Mapping[str, str]
    uncovered: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    goals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    asked: Callable[[Request], bool] = lambda request: True
