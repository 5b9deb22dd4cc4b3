"""The technology of a target, and the digital unit beside its arrays.

Both decide what is not published of a target: energies of digital operations are scaled to its
node and supply, and the unit's width and clock decide how long they take.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cimtool.base.toml_files import TomlTable
from cimtool.hardware.figures import Sourced, Volts
from cimtool.hardware.keys import AtLeastOne

Memory = Literal["sram", "rram", "pcm", "sonos"]
Nanometres = Annotated[float, Field(ge=7, le=180)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ProcessSpec(TomlTable):
    """The process of a chip; what is left out is assumed, and said to be."""

    node: Nanometres | None = Field(default=None, title="Technology node of the logic, in nm.")
    voltage: Volts | None = Field(
        default=None, title="Supply of the logic in V, if an operating point states none."
    )
    memory: Memory | None = Field(default=None, title="Memory of the cells.")


OperationName = Literal[
    "multiplications", "additions", "shifts", "limits", "registers", "sram", "dram", "wires",
    "links", "host", "normals", "sigmoids", "conversions", "cell_reads", "sram_writes",
    "rram_writes", "pcm_writes",
]  # fmt: skip
"""Operations that have a price."""


class Price(Sourced):
    """The energy in pJ of one operation of a `kind`, of this many `bits`, at a node and supply.

    Without a node it is of the target's own, and without a voltage at the nominal one.
    """

    kind: OperationName
    bits: AboveZero | None = None
    node: Nanometres | None = None
    voltage: Volts | None = None
    rule: str | None = None


class DigitalSpec(TomlTable):
    """The digital unit beside the arrays, and its memory; what is left out is assumed."""

    clock: AboveZero | None = Field(default=None, title="Clock of the digital unit, in MHz.")
    lanes: AtLeastOne | None = Field(
        default=None, title="Operations that the digital unit does in one cycle."
    )
    buffer: AtLeastOne | None = Field(
        default=None, title="Memory on the chip that holds a gallery's features, in KiB."
    )
    bandwidth: AboveZero | None = Field(
        default=None, title="Bandwidth of the DRAM that holds larger galleries, in GB/s."
    )
    prices: tuple[Price, ...] = Field(
        default=(),
        strict=False,
        title="Energies of digital operations, instead of the reference prices.",
    )


class DigitalFile(TomlTable):
    """A file of the digital unit: the tables `process` and `digital` of a target."""

    process: ProcessSpec = ProcessSpec()
    digital: DigitalSpec = DigitalSpec()
