"""This machine, as Linux describes it: its CPU and its free memory."""

from __future__ import annotations

from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")


def cpu_name() -> str:
    """The CPU's name, "this CPU" if it is not known."""
    return next((name for name in _values(CPU_INFO, "model name") if name), "this CPU")


def free_memory() -> int | None:
    """Bytes that a process can still take; None if they are not known."""
    kibibytes = [value.removesuffix("kB").strip() for value in _values(MEMORY_INFO, "MemAvailable")]
    return next((int(one) << 10 for one in kibibytes if one.isdecimal()), None)


def _values(file: Path, key: str) -> list[str]:
    """The values of the lines `key : value`; none if the file cannot be read."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    parts = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in parts if name.strip() == key]
