"""What an exporter is: a class that writes a bundle's content for another tool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cimtool.base.named import Named
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings


@dataclass(frozen=True)
class Request:
    """What to export: layers whose name matches `layers`, and rows of embeddings to add."""

    layers: str = "*"
    inputs: Embeddings | None = None


class Exporter(Named):
    """Base of the exporters; a subclass in `cimtool/emit/exporters/` is found by itself."""

    takes_request: ClassVar[bool] = False
    """Whether it can be told which layers and which rows are exported."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names of files that an earlier export in `folder` may have, and no others."""
        raise NotImplementedError

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write the files into a new folder."""
        raise NotImplementedError
