"""Dies of a bundle: its program on imperfect arrays, drawn as often as the user asks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from cimtool.base.errors import ArgumentError, CimWarning
from cimtool.base.options import DIR, OneName, Record, Switched, Topic, Word, option, optional
from cimtool.bundle.bundle import Bundle
from cimtool.hardware.noise.spec import Noise, load_noise, preset_names
from cimtool.hardware.target import Target
from cimtool.simulation.compensation import Compensation, ReadoutCost
from cimtool.simulation.die_program import Conditions, DieProgram, on_die

MOST_TRIALS = 100_000

MEDIAN: float = 50.0
WORST: float = 5.0
"""Percentiles over dies, for figures that are better when higher; for errors 50 and 95."""


class NoiseOptions(Record, kw_only=False):
    """Number and seed of the dies that are drawn, the time of reading, and drift compensation."""

    trials: int = option("Number of dies (10).", "N", default=10, topic=Topic.DIES)
    seed: int = option("Seed of the dies.", at_least=0, default=0, topic=Topic.DIES)
    time: str | None = optional(
        "Time after programming: 30s, 10m, 1h, 1d, 1y.", "TIME", topic=Topic.DIES
    )
    compensation: Compensation = option(
        "Factors against drift: none, one per layer (global), or one per column.",
        OneName(names=get_args(Compensation)),
        default="none",
        topic=Topic.DIES,
    )
    model: Path | str | None = optional(
        "A noise model to use instead of the target's own.",
        Word("NAME|TOML"),
        name="noise_model",
        topic=Topic.DIES,
    )
    corner: str | None = optional(
        "A corner of the noise model: ss, ff, nominal.", "NAME", topic=Topic.DIES
    )


class DrawnDies(Record):
    """Dies that are drawn."""

    noise: NoiseOptions | None = optional(
        "Draw dies with the target's noise.", Switched(record=NoiseOptions, about="dies")
    )


class DrawnOrMeasured(DrawnDies):
    """Dies that are drawn, or a measured one."""

    chip: Path | str | None = optional(
        "A measured chip to use instead of drawn dies.", DIR, topic=Topic.DIES
    )


def conditions_of(bundle: Bundle, options: NoiseOptions) -> Conditions:
    """The noise, time, compensation and seed of a bundle's dies.

    Raises CimError for less than one trial, a target without noise, and a time, a corner or a
    compensation that is not known.
    """
    check_trials(options.trials, options.seed)
    noise = noise_of(bundle.target, options.model).at_corner(options.corner)
    seconds = noise.seconds(options.time)
    return Conditions(noise, seconds, options.compensation, options.seed, options.corner)


def check_trials(trials: int, seed: int) -> None:
    """Raise CimError for less than one trial, more than MOST_TRIALS, or a seed below 0."""
    if not 1 <= trials <= MOST_TRIALS:
        raise ArgumentError("{trials} is {}; expected 1 to {} dies", trials, MOST_TRIALS)
    if seed < 0:
        raise ArgumentError("{seed} is {}; expected a number of at least 0", seed)


CONDUCTANCES = ("programming", "drift", "flicker")
"""Mechanisms of cells that are programmed to a conductance."""


def noise_of(target: Target, model: Path | str | None) -> Noise:
    """The noise model of a name or a file, else the target's; CimError if there is none.

    Warns of errors of programmed conductances on a target of SRAM cells.
    """
    noise = _noise_of(target, model)
    own = [one.name for one in noise.mechanisms if one.name in CONDUCTANCES]
    if own and re.search(r"\bSRAM$", target.technology):
        warnings.warn(
            f'target "{target.name}" has cells of {target.technology}, which have no conductance '
            f"to program, but its noise has errors of one ({', '.join(own)}); expected a noise "
            "model of these cells",
            CimWarning,
            stacklevel=2,
        )
    return noise


def _noise_of(target: Target, model: Path | str | None) -> Noise:
    if model is not None:
        return load_noise(model)
    if target.noise is None:
        raise ArgumentError(
            'target "{}" has no [noise], so {noise} has nothing to draw; name a noise model '
            "({noise_model} {}, or a file)",
            target.name,
            " or ".join(preset_names()),
        )
    return target.noise


def dies(bundle: Bundle, conditions: Conditions, trials: int) -> Iterator[DieProgram]:
    """Yield the bundle's program on dies 0 to `trials` - 1."""
    program, settings = bundle.program, bundle.settings
    return (on_die(program, settings, conditions, index) for index in range(trials))


def readout_sentence(compensation: str, readout: ReadoutCost) -> str:
    """The sentence on the readout that drift compensation needs."""
    return (
        f"Drift compensation ({compensation}) reads {readout.products} products of layers back on "
        f"each die, {readout.conversions:,} conversions"
    )
