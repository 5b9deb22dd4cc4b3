"""An environment in which a process has AMX-INT8, carried out by `amx.c`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from llvmlite import binding

SOURCE = Path(__file__).with_name("amx.c")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def emulated_amx(folder: Path) -> dict[str, str]:
    """The variables of such a process; the compiled library goes to a folder."""
    library = folder / "amx.so"
    subprocess.run(["gcc", *FLAGS, str(SOURCE), "-o", str(library)], check=True)
    features = binding.get_host_cpu_features()
    features["amx-tile"] = features["amx-int8"] = True
    return {"LD_PRELOAD": str(library), "NUMBA_CPU_FEATURES": features.flatten()}
