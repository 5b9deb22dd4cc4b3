"""Changed bundles with checksums made anew: inspect, simulate, verify, cost, export in all formats.

    python tests/fuzz/resigned.py [--minutes 5] [--runs 5000] [--seed 0] [--finds FOLDER]
    python tests/fuzz/resigned.py --replay FOLDER

A run takes a small bundle (`forgeries.py`), changes names, nodes, shapes, wiring, constants or
attributes, makes its checksums anew, and gives it to one command in a process of its own; the C of
a hand-off is compiled and run by its `make check`. A find is status 70, a signal, more than SLOWEST
seconds or MOST_MEMORY, a file outside the output, code of the bundle's that ran, a control
character or markup of its in an exported text, exported C that does not pass its check, and what a
refused command left. The bundle of each kind of find is kept, with its command. Exit status 1 where
there is one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

from forgeries import KINDS, ROWS, forge, make_bundles

SLOWEST, MOST_MEMORY = 60.0, 2 << 20
"""Seconds of a run, and kilobytes of its process."""

NOISE = ("--noise", "--noise-model", "hermes-1-device", "--trials", "2")
DATA = ("--data", "{rows}", "--calibration-rows", "allow")
COMMANDS: dict[str, tuple[int, Sequence[str]]] = {
    "inspect": (20, ("inspect", "{bundle}")),
    "simulate": (20, ("simulate", "{bundle}", "--inputs", "{rows}", "-o", "{out}/scores.npz")),
    "cost": (14, ("cost", "{bundle}", "-o", "{out}")),
    "onnx": (10, ("export", "{bundle}", "--format", "onnx", "-o", "{out}")),
    "testvectors": (10, ("export", "{bundle}", "--format", "testvectors", "-o", "{out}")),
    "conductances": (8, ("export", "{bundle}", "--format", "conductances", "-o", "{out}")),
    "handoff": (10, ("export", "{bundle}", "--format", "handoff", "-o", "{out}")),
    "handoff of a gallery": (
        4,
        ("export", "{bundle}", "--format", "handoff", "-o", "{out}", "--gallery", *NOISE),
    ),
    "verify": (8, ("verify", "{bundle}", *DATA, "--report", "{out}", "--junit", "{out}/j.xml")),
}
"""The commands: the weight of each in the draw, and its words."""

CHECK = ("make", "check", "CFLAGS=-std=c99 -O0 -Wall -Wextra -pedantic -Wconversion -Werror")
MARKUP = {".html", ".svg", ".xml", ".md"}
TEXTS = {*MARKUP, ".c", ".h", ".sv", ".svh", ".txt", ".csv", ".toml", ""}
RAW = re.compile("[\0-\x08\x0b-\x1f\x7f\u202e]")
"""Characters that no exported text holds as they are."""

Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Place:
    """The folder of one run: outputs lie deep in it, so that what leaves them is found in it."""

    folder: Path

    @property
    def bundle(self) -> Path:
        """The changed bundle."""
        return self.folder / "in" / "bundle"

    @property
    def out(self) -> Path:
        """The place of the command's output."""
        return self.folder / "deep" / "deeper" / "deepest" / "out"

    @property
    def canary(self) -> Path:
        """The file that code of a bundle's would make."""
        return self.folder / "canary"

    @property
    def log(self) -> Path:
        """The text that the command prints."""
        return self.folder / "log"

    def made(self, whole: Path) -> None:
        """Make it anew, with a bundle of links to the files of a whole one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.out.parent.mkdir(parents=True)
        self.bundle.parent.mkdir()
        shutil.copytree(whole, self.bundle, copy_function=os.link)

    def files(self) -> set[Path]:
        """All that lies in it, beside the output and the log."""
        return {
            one
            for one in self.folder.rglob("*")
            if one not in (self.log, self.out) and self.out not in one.parents
        }


def commands() -> Run:
    """The command line of this process."""
    from cimtool import cli

    return cli.run


def in_a_process(work: Callable[[], int], log: Path) -> tuple[int, str | None]:
    """The status of work in a process of its own, and a complaint on how it ended, if any."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setsid()
            stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(stream, number)
            sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
            resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
            status = work()
            sys.stdout.flush()
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    until = time.monotonic() + SLOWEST
    while True:
        ended, how, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.wait4(child, 0)
            return -1, f"more than {SLOWEST:.0f} seconds"
        time.sleep(0.002)
    status = os.waitstatus_to_exitcode(how)
    if status < 0:
        return status, f"signal {signal.Signals(-status).name}"
    if used.ru_maxrss > MOST_MEMORY:
        return status, f"more memory than {MOST_MEMORY >> 10} MB"
    return status, None


def tried(place: Place, name: str, rows: Path, run: Run) -> tuple[str, str | None]:
    """Give the bundle to one command: how it ended, and what is wrong with that, if anything."""
    names = {"bundle": str(place.bundle), "rows": str(rows), "out": str(place.out)}
    words = [word.format(**names) for word in COMMANDS[name][1]]
    if "{out}/" in " ".join(COMMANDS[name][1]):
        place.out.mkdir()
    before = place.files()
    status, complaint = in_a_process(lambda: run(words), place.log)
    if complaint is None:
        complaint = _complaint(place, status, before)
    how = {0: "done", 1: "failed", 2: "refused"}.get(status, "fault")
    if complaint is None and status == 0 and name.startswith("handoff"):
        how = "checked"
        complaint = _check(place, before)
    return how, complaint


def _complaint(place: Place, status: int, before: set[Path]) -> str | None:
    said = place.log.read_text("utf-8", "replace")
    if status not in (0, 1, 2):
        return f"status {status}: {_signature(said)}"
    if status == 2 and (said.count("\n") != 1 or not said.startswith("cimtool: error: ")):
        return f"status 2 without one sentence: {said[:300]!r}"
    if place.canary.exists():
        return "code of the bundle ran"
    if outside := sorted(place.files() ^ before):
        return f"a file outside the output: {outside[0].relative_to(place.folder)}"
    left = [one for one in place.out.rglob("*") if one.is_file()] if place.out.exists() else []
    if status == 2 and left:
        return f"left by a refused command: {left[0].relative_to(place.out)}"
    if RAW.search(said):
        return f"a control character in what is said: {_signature(said)}"
    for file in left:
        if complaint := _text_complaint(file):
            return complaint
    return None


def _signature(said: str) -> str:
    """The end of what a command said, without the numbers and names of one run."""
    last = said.strip().splitlines()[-1:] or [""]
    return re.sub(r"/\S+|\d+", "*", last[0])[:200]


def _text_complaint(file: Path) -> str | None:
    """A complaint on an exported text, if there is one."""
    if file.suffix not in TEXTS:
        return None
    text = file.read_bytes().decode("utf-8", "replace")
    name = re.sub(r"\d+", "*", file.name)[:60]
    if RAW.search(text):
        return f"a control character in {name}"
    if file.suffix in MARKUP and re.search(r"<script>alert|<img src=x", text):
        return f"markup of a name in {name}"
    if file.suffix in (".svg", ".xml"):
        try:
            ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            return f"{name} is no XML: {re.sub('[0-9]+', '*', str(error))}"
    return None


def _check(place: Place, before: set[Path]) -> str | None:
    """Compile and run the C of a hand-off: what is wrong, if anything."""
    os.environ["MAKEFLAGS"] = ""

    def work() -> int:
        os.chdir(place.out)
        os.execvp(CHECK[0], CHECK)

    status, complaint = in_a_process(work, place.log)
    if place.canary.exists():
        return "code of the bundle ran in `make check`"
    if complaint is None and status:
        said = place.log.read_text("utf-8", "replace")
        errors = [line for line in said.splitlines() if "error:" in line or "Error " in line] or [
            said[-200:]
        ]
        complaint = f"`make check` ends with {status}: {_signature(errors[0])}"
    if complaint is None and (outside := sorted(place.files() ^ before)):
        complaint = f"a file outside the output: {outside[0].relative_to(place.folder)}"
    return complaint


def loaded(made: Path, place: Place) -> None:
    """Import what the commands import, so that no run takes seconds of imports.

    They are run in a process of their own: this one has no threads, which a child would lack.
    """
    names = place.folder.with_name("modules.json")

    def work() -> int:
        run = commands()
        for name, (_, words) in COMMANDS.items():
            place.made(made / "in-memory")
            if "{out}/" in " ".join(words):
                place.out.mkdir()
            given = {"bundle": place.bundle, "rows": made / ROWS, "out": place.out}
            status = run([word.format(**given) for word in words])
            if status:
                print(f"{name} of the whole bundle ends with {status}")
                return 1
        names.write_text(json.dumps(sorted(sys.modules)), "utf-8")
        return 0

    log = place.folder.with_name("loaded")
    if in_a_process(work, log) != (0, None):
        raise SystemExit(log.read_text("utf-8"))
    for name in json.loads(names.read_text("utf-8")):
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # of a module that another one makes


def forged(place: Place, made: Path, seed: int, number: int) -> tuple[str, list[str]]:
    """Make the bundle of a run in its place; the command of that run, and the changes."""
    rng = random.Random(f"{seed} {number}")
    (name,) = rng.choices(list(COMMANDS), [often for often, _ in COMMANDS.values()])
    place.made(made / rng.choice(KINDS))
    return name, forge(rng, place.bundle, place.canary)


def keep(place: Place, finds: Path, facts: dict[str, object]) -> Path:
    """Keep the bundle of a find and what it is of; returns its folder."""
    finds.mkdir(parents=True, exist_ok=True)
    kept = finds / f"resigned-{len(list(finds.glob('resigned-*')))}"
    shutil.copytree(place.bundle, kept / "bundle")
    (kept / "find.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    return kept


def main() -> int:
    """Try changed bundles at all commands, and say how many of each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=1e9)
    options.add_argument("--runs", type=int, default=1 << 62, help="runs at most")
    options.add_argument("--first", type=int, default=0, help="number of the first run")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--finds", type=Path, default=Path("fuzz-finds"))
    options.add_argument("--replay", type=Path, help="a folder of a find: run its command again")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        made, place = Path(name) / "made", Place(Path(name) / "run")
        made.mkdir()

        def prepare() -> int:
            make_bundles(made)
            return 0

        log = Path(name) / "prepared"
        if in_a_process(prepare, log) != (0, None):
            raise SystemExit(log.read_text("utf-8"))
        if given.replay:
            facts = json.loads((given.replay / "find.json").read_text("utf-8"))
            place.made(given.replay / "bundle")
            how, complaint = tried(place, facts["command"], made / ROWS, commands())
            print(place.log.read_text("utf-8", "replace"), f"{how}: {complaint}", sep="\n")
            return 1 if complaint else 0
        loaded(made, place)
        return fuzz(given, made, place)


def fuzz(given: argparse.Namespace, made: Path, place: Place) -> int:
    """Run as many as are asked for; the exit status."""
    ends: Counter[tuple[str, str]] = Counter()
    seconds: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    finds: Counter[str] = Counter()
    run, until = commands(), time.monotonic() + 60 * given.minutes
    for number in count(given.first):
        if time.monotonic() > until or number == given.first + given.runs:
            break
        command, done = forged(place, made, given.seed, number)
        changes.update(done)
        began = time.monotonic()
        how, complaint = tried(place, command, made / ROWS, run)
        seconds[command] += time.monotonic() - began
        ends[command, how if complaint is None else "found"] += 1
        if complaint is not None:
            finds[complaint] += 1
            if finds[complaint] == 1:
                facts = {"command": command, "seed": given.seed, "run": number, "changes": done}
                kept = keep(place, given.finds, facts | {"complaint": complaint})
                print(f"{command}: {complaint}\n  kept as {kept}", flush=True)
    for command in COMMANDS:
        counts = {how: ends[command, how] for how in ENDS}
        told = [f"{number:6,} {how}" for how, number in counts.items()]
        print(f"{command:22}", *told, f"{seconds[command]:8.1f} s")
    print("changes:", ", ".join(f"{number:,} {kind}" for kind, number in changes.most_common()))
    print(f"{sum(ends.values()):,} runs, {len(finds)} kinds of finds in {sum(finds.values())} runs")
    return 1 if finds else 0


ENDS = ("done", "checked", "failed", "refused", "found")

if __name__ == "__main__":
    sys.exit(main())
