"""What was verified, and on which data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cimtool import __version__
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings


@dataclass(frozen=True)
class DataCard:
    """The data that was measured on."""

    file: str
    texts: int
    videos: int
    labelled: bool


@dataclass(frozen=True)
class Subject:
    """A bundle, its target and settings, where they come from, the data, and the seed of all draws.

    `fidelity` is the target's class.
    """

    bundle: str
    model: str
    target: str
    fidelity: str
    data: DataCard
    seed: int
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]


def subject_of(bundle: Bundle, data: Embeddings, seed: int) -> Subject:
    """Name what is verified."""
    manifest = ("cimtool_version", "inputs", "files", "notes")
    return Subject(
        bundle.name,
        bundle.model.name,
        bundle.target.name,
        bundle.target.class_,
        DataCard(data.file, len(data.text), len(data.video), data.labels is not None),
        seed,
        bundle.settings.to_json(),
        {"verified_with": __version__} | {name: bundle.manifest[name] for name in manifest},
    )
