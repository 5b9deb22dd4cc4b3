"""Content-addressable memories as data: words of cells that are compared with a query at once.

A CAM stores no weights. It is a second memory beside a target's arrays. It proposes the items of a
gallery whose exact scores are computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cimtool.base.plugins import known_files
from cimtool.base.toml_files import SourceText, TomlTable, is_path, known_file, read_toml, validated
from cimtool.hardware.cell_distance import DistanceName
from cimtool.hardware.figures import Figure, Status, check_conditions
from cimtool.hardware.keys import AtLeastOne
from cimtool.hardware.target import CAM_FOLDER, names_cam

BitsOfCell = Annotated[int, Field(ge=1, le=3)]


class WordArray(TomlTable):
    """One array: `words` rows of `cells` cells, each of which compares its value with a query's."""

    words: AtLeastOne = Field(title="Words of an array: rows that are compared at once.")
    cells: AtLeastOne = Field(title="Cells of a word.")
    cell_bits: BitsOfCell = Field(title="Bits of a cell: 1, or 2 and 3 of a multi-bit cell.")
    dont_care: bool = Field(title="A cell may store X, which differs from no value.")
    distance: DistanceName = Field(
        title="Distance of a cell: `hamming` (0 or 1), `l1` (levels apart) or `squared`."
    )


class WordSense(TomlTable):
    """The converter of a word's distance: `floor(distance / step)`, at most `levels - 1`."""

    step: AtLeastOne = Field(
        default=1, title="Smallest difference of distances that is told apart."
    )
    levels: Annotated[int, Field(ge=2)] | None = Field(
        default=None, title="Results of the converter; if left out, one per distance."
    )
    source: SourceText = Field(title="Where both come from.")
    status: Status = Field(title="As that of a figure.")


class Cam(TomlTable):
    """A content-addressable memory: its words, how their distances are sensed, its figures."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="a name of letters, digits, dots, dashes and underscores, at most 100",
    )
    title: str
    class_: Literal["match"] = Field(alias="class")
    technology: str
    simulated: bool
    array: WordArray
    sense: WordSense
    figures: tuple[Figure, ...] = Field((), strict=False)
    unconfirmed: tuple[str, ...] = Field((), strict=False)
    unmodelled: tuple[str, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        check_conditions((), self.figures)
        if self.array.dont_care and self.array.cell_bits != 1:
            raise ValueError(
                f"array.dont_care = true with cell_bits = {self.array.cell_bits}: only cells of "
                "one bit store X; expected false"
            )
        return self

    def figure(self, quantity: str) -> Figure | None:
        """The figure of a quantity, None if it is not given."""
        return next((one for one in self.figures if one.quantity == quantity), None)

    def cells_energy(self, cell: Figure) -> float:
        """Energy in pJ of a search in one array by the figure of a cell, in fJ."""
        return self.array.words * self.array.cells * cell.value / 1000

    @property
    def search_energy(self) -> float | None:
        """Energy in pJ of a search in one array, all cells compared; None if not given."""
        whole, cell = self.figure("search_energy"), self.figure("search_cell_energy")
        if whole is not None:
            return whole.value
        return None if cell is None else self.cells_energy(cell)

    @property
    def search_latency(self) -> float | None:
        """Time in ns of a search, in however many arrays; None if not given."""
        latency, clock = self.figure("search_latency"), self.figure("clock")
        if latency is not None:
            return latency.value
        return None if clock is None else 1000 / clock.value

    def to_json(self) -> dict[str, Any]:
        """Plain values, keys as in a file; `validated` reads them."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def cam_origins() -> dict[str, str]:
    """The origin of each CAM, by name: `cimtool`, or a plug-in's package and version."""
    return {name: origin for name, (_, origin) in sorted(known_files(CAM_FOLDER).items())}


def cam_origin(name_or_path: str) -> str:
    """The origin of a CAM that is given by name; of a file, its path."""
    if is_path(name_or_path):
        return name_or_path
    return known_file(name_or_path, "CAM", CAM_FOLDER)[1]


def is_cam(name_or_path: str) -> bool:
    """True for the name of a CAM, and for a file of one."""
    if not is_path(name_or_path):
        return names_cam(name_or_path)
    return read_toml(Path(name_or_path)).get("class") == "match"


def load_cam(name_or_path: str | Path) -> Cam:
    """Load a CAM by name, or a file by path (it has a separator or ends in .toml).

    CimError for an unknown name (with the nearest), a missing file, or a file that is not valid.
    """
    name = str(name_or_path)
    file = Path(name) if is_path(name) else known_file(name, "CAM", CAM_FOLDER)[0]
    return validated(Cam, read_toml(file), str(file))
