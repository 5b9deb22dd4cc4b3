"""Wheels installed in clean environments, walked there, their size and time measured.

    python benchmarks/installation.py [PYTHON...] [--extra train ...] [--lowest] [--keep-cache]

builds the wheel, and for each interpreter makes a virtual environment of its own, installs the
wheel and what it asks for, and runs every command of the core there (`tests/kits/light_walk.py`).
With `--lowest` each dependency has the lowest version that `pyproject.toml` allows, else the
newest that there is. Status 1 where an installation or a command fails. It needs a package index.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WALK = ROOT / "tests" / "kits" / "light_walk.py"


@dataclass(frozen=True)
class Installed:
    """An environment: its size as `du -sm` of site-packages has it, and how the walk ended."""

    python: str
    what: str
    versions: str
    seconds: float
    megabytes: int
    failed: tuple[str, ...]


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; its output as text."""
    return subprocess.run(
        [str(one) for one in command], cwd=cwd, capture_output=True, text=True, check=False
    )


def checked(*command: str | Path, cwd: Path) -> str:
    """The output of a command; SystemExit with its errors where it fails."""
    done = call(*command, cwd=cwd)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built in an environment of its own."""
    checked(sys.executable, "-m", "venv", "builder", cwd=folder)
    python = folder / "builder" / "bin" / "python"
    checked(python, "-m", "pip", "wheel", "--no-deps", "-w", folder / "dist", ROOT, cwd=folder)
    (wheel,) = (folder / "dist").glob("cimtool-*.whl")
    return wheel


LOWEST = """
import re
from importlib.metadata import requires
for one in requires("cimtool"):
    needed, _, marker = one.partition(";")
    name, version = re.fullmatch(r"([\\w.-]+)>=([\\w.]+)", needed.strip()).groups()
    if not marker or any(f"'{extra}'" in marker.replace('"', "'") for extra in EXTRAS):
        print(f"{name}=={version}")
"""


def lowest(python: Path, wheel: Path, extras: list[str], folder: Path) -> list[str]:
    """Each direct dependency at its lowest version, as the wheel's metadata names it."""
    checked(python, "-m", "pip", "install", "--no-deps", wheel, cwd=folder)
    found = checked(python, "-c", f"EXTRAS = {extras!r}{LOWEST}", cwd=folder)
    return found.split()


def install(
    interpreter: str, wheel: Path, extras: list[str], low: bool, cached: bool, folder: Path
) -> Installed:
    """Make an environment, install the wheel into it, and walk in it."""
    checked(interpreter, "-m", "venv", "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    asked = f"cimtool[{','.join(extras)}]" if extras else "cimtool"
    pins = lowest(python, wheel, extras, folder) if low else []
    cache = () if cached else ("--no-cache-dir",)
    started = time.monotonic()
    source = f"{asked} @ {wheel.as_uri()}"
    checked(python, "-m", "pip", "install", *cache, source, *pins, cwd=folder)
    seconds = time.monotonic() - started
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    size = int(checked("du", "-sm", site, cwd=folder).split()[0])
    (folder / "walk").mkdir()
    walked = call(python, WALK, folder / "walk", cwd=folder)
    failed = [line for line in walked.stdout.splitlines() if line.startswith("FAILED")]
    if walked.returncode and not failed:
        failed = [f"the walk: {walked.stderr.strip().splitlines()[-1]}"]
    number = re.search(r"[\d.]+", checked(python, "--version", cwd=folder))
    version = number.group() if number else "?"
    return Installed(version, asked, "lowest" if low else "newest", seconds, size, tuple(failed))


def main() -> int:
    """Install and walk for each interpreter; print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="*", default=[sys.executable], help="interpreters")
    parser.add_argument("--extra", action="append", default=[], help="an extra; may repeat")
    parser.add_argument("--lowest", action="store_true", help="lowest versions")
    parser.add_argument("--keep-cache", action="store_true", help="let pip take from its cache")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print("| Python | installed | versions | s | MB | commands |")
    print("| --- | --- | --- | --- | --- | --- |")
    found = []
    with tempfile.TemporaryDirectory() as root:
        wheel = build_wheel(Path(root))
        for index, python in enumerate(options.python):
            folder = Path(root) / str(index)
            folder.mkdir()
            one = install(python, wheel, options.extra, options.lowest, options.keep_cache, folder)
            said = "; ".join(one.failed) or "all as they should"
            print(
                f"| {one.python} | {one.what} | {one.versions} | {one.seconds:.0f} "
                f"| {one.megabytes} | {said} |",
                flush=True,
            )
            found.append(one)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return 1 if any(one.failed for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
