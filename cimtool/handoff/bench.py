"""The test bench in SystemVerilog: its sources, and the parameters of the macro that it drives."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cimtool.handoff.faults import COLUMN, FAULTS, MACRO, OUTPUT, faulty, layer_facts
from cimtool.handoff.kinds import macro_kinds
from cimtool.handoff.layers import HandoffPart, HandoffSource

COCOTB = "column_cocotb.py"
DEVICE = (COLUMN, MACRO, OUTPUT)
SOURCES = (*DEVICE, "tb_macro.sv", "tb_converter.svh", "waivers.vlt", "bench.sh")
VERILATOR_SETTINGS = "OPTIMIZE='$(OPTIMIZE)' VERILATED='$(VERILATED)'"
FAULTY, NOWHERE = "faulty", "none"


def write_bench(source: HandoffSource, folder: Path) -> None:
    """Write the sources, those with faults, and `kindN/parameters.svh` for each kind of macro."""
    kinds = macro_kinds(source.layers)
    for kind in kinds:
        (folder / kind.name).mkdir()
        parameters = kind.parameters(source.lanes)
        signed = f"bit [{parameters['SLICES'] - 1}:0] SIGNED_CELLS"
        lines = [
            f"localparam {'bit' if isinstance(n, bool) else 'int'} {name} = {int(n)};"
            for name, n in parameters.items()
        ]
        text = "\n".join([*lines, "localparam int LANES = WEIGHTS * SLICES;\n"])
        text = text.replace("int SIGNED_CELLS", signed)
        (folder / kind.name / "parameters.svh").write_text(text, "utf-8")
    for name in SOURCES:
        (folder / name).write_text(_source(name), "utf-8")
    # Not a module of this package: it runs in a hand-off's folder.
    (folder / COCOTB).write_text(_source(f"{COCOTB}.in"), "utf-8")
    (folder / FAULTY).mkdir()
    for name in DEVICE:
        (folder / FAULTY / name).write_text(faulty(name, _source(name)), "utf-8")
    facts = {kind.name: set[str]().union(*map(layer_facts, kind.layers)) for kind in kinds}
    listed = []
    for number, one in enumerate(FAULTS, 1):
        where = ",".join(name for name, held in facts.items() if one.shows in held)
        listed.append(f"{number}\t{one.tap}\t{where or NOWHERE}\t{one.name}\n")
    (folder / "faults.txt").write_text("".join(listed), "utf-8")


def _source(name: str) -> str:
    return (files(__package__) / "sv" / name).read_text("utf-8")


BENCH_PART = HandoffPart(
    folder="sv",
    title="The bench in SystemVerilog, and a macro, the reference device, that takes all arrays of "
    "a kind",
    write=write_bench,
    files={
        COLUMN: "a column and its converter, the analog part: replace it by your own, "
        "`make icarus COLUMN=...`",
        MACRO: "the array of columns, and its digital periphery: cycles, shift-and-add",
        OUTPUT: "row groups and bias, requantisation",
        "tb_macro.sv": "programs each array, reads it as `steps.txt` says, and compares every tap",
        "tb_converter.svh": "a column by itself, with the sums of `directed/`",
        COCOTB: "the same in cocotb, with the references of each converter from `constants/`",
        "kindN/parameters.svh": "the widths and extents of the macro that takes the layers of kind "
        "N in `steps.txt`",
        "waivers.vlt": "rules of Verilator's lint that the bench, not the macro, does not keep",
        "bench.sh": "builds and runs it for each kind, in Icarus Verilog or Verilator, and with "
        "faults",
        "faults.txt": "the faults, a line each: its number, the tap that must find it, the kinds "
        f"of macro in which a number shows it, or {NOWHERE}, and its name",
        f"{FAULTY}/*.sv": "the macro with these faults, each chosen at run time",
    },
    uncovered=(
        "`make icarus`, `make verilator` and `make mutants` need the simulators of their names, "
        "`make cocotb` Icarus Verilog and cocotb 2",
    ),
    goals={
        "icarus": ("@sh sv/bench.sh icarus '$(COLUMN)'",),
        "verilator": (f"@{VERILATOR_SETTINGS} sh sv/bench.sh verilator '$(COLUMN)'",),
        "cocotb": ("@PYTHON='$(PYTHON)' sh sv/bench.sh cocotb '$(COLUMN)'",),
        "mutants": (f"@{VERILATOR_SETTINGS} sh sv/bench.sh mutants",),
    },
    settings={
        "COLUMN": f"sv/{COLUMN}",
        "PYTHON": "python3",
        "OPTIMIZE": "-O1",
        "VERILATED": "build/verilated",
    },
)
