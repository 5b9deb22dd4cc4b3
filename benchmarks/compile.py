"""Time and memory of compiling the full-size model, and the pass that takes most."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from harness import arguments, in_child, peak_bytes, report, use_threads
from model import compiled, full_size

from cimtool.demo.data import DemoFiles

SECONDS, GIGABYTES = 30, 4
"""Limits of a compilation."""

BUILDS: dict[str, dict[str, Any]] = {
    "ideal": {"target": "ideal"},
    "isaac-rram-128": {"target": "isaac-rram-128"},
    "isaac, adc 5": {"target": "isaac-rram-128", "adc_bits": 5},
    "hermes-pcm-14nm": {"target": "hermes-pcm-14nm"},
}


@dataclass(frozen=True)
class Run:
    """One compilation: seconds of each step, of the CPU in all, and peak memory in bytes."""

    steps: dict[str, float]
    cpu: float
    peak: int

    @property
    def seconds(self) -> float:
        return sum(self.steps.values())


def one(files: DemoFiles, name: str, choices: dict[str, Any]) -> Run:
    """Compile once."""
    use_threads()
    cpu = time.process_time()
    marks: list[tuple[str, float]] = []
    compiled(files, name, say=lambda text: marks.append((text, time.perf_counter())), **choices)
    ends = [start for _, start in marks[1:]] + [time.perf_counter()]
    steps = {text: end - start for (text, start), end in zip(marks, ends, strict=True)}
    return Run(steps, time.process_time() - cpu, peak_bytes())


def main() -> None:
    options = arguments(str(__doc__), rounds=1)
    rows, notes = [], []
    with full_size() as files:
        for name, choices in BUILDS.items():
            runs = [in_child(one, files, name, choices) for _ in range(options.rounds)]
            best = min(runs, key=lambda run: run.seconds)
            rows.append(
                {
                    "build": name,
                    "seconds": best.seconds,
                    f"of {SECONDS} s": f"{best.seconds / SECONDS:.0%}",
                    "CPU s": best.cpu,
                    "peak GB": best.peak / 1e9,
                    f"of {GIGABYTES} GB": f"{best.peak / 1e9 / GIGABYTES:.0%}",
                }
            )
            shares = sorted(best.steps.items(), key=lambda step: -step[1])[:4]
            slowest = ", ".join(f"{text.split('/')[0].strip()} {t:.1f} s" for text, t in shares)
            notes.append(f"{name}: {slowest}")
    report("compile", rows, options.json, notes)


if __name__ == "__main__":
    main()
