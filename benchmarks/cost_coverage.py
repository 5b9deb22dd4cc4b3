"""Coverage of costs on every target: one inference, and a query whose gallery is in three places.

    python benchmarks/cost_coverage.py [--items 100000] [--targets isaac-rram-128,hermes-pcm-14nm]

Projectors of 1024-2048-2048-1024 with random weights, a polynomial of degree 2 in ed and vd. The
score in the memory is programmed with a few items, and its cost taken as many times as there are.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.totals import Cost
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target, target_names
from cimtool.ir.arithmetic import Clip, Mvm
from cimtool.ir.heads import TowerBuilder, assemble
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.program import Graph, Program
from cimtool.ir.surrogate import Polynomial
from cimtool.passes.base import Job
from cimtool.passes.converters import FitConvertersPass
from cimtool.passes.gallery import distance_graph, program_gallery
from cimtool.passes.pipeline import passes_for, run_passes
from cimtool.report.formats import ENERGIES, TIMES, coverage
from cimtool.simulation.simulator import Simulator

WIDTHS, HELD, ROWS, SHORTLIST = (1024, 2048, 2048, 1024), 50, 16, 1000
MAPPINGS = ("digital", "in-memory", "hybrid")


def tower(rng: np.random.Generator) -> Graph:
    builder, value = TowerBuilder(WIDTHS[0]), "x"
    for index in (1, 2):
        value = builder.add(f"fc{index}", layer(rng, *WIDTHS[index - 1 : index + 1]), value)
        value = builder.add(f"relu{index}", Clip(np.asarray(0.0), np.asarray(np.inf)), value)
    mu, logvar = (builder.add(name, layer(rng, *WIDTHS[2:]), value) for name in ("mu", "logvar"))
    return builder.tower(mu, logvar)


def layer(rng: np.random.Generator, rows: int, columns: int) -> Mvm:
    return Mvm(rng.normal(size=(rows, columns)) / np.sqrt(rows), np.zeros(columns))


def compiled(target: Target, mapping: str, model: Program, data: np.ndarray) -> Estimate:
    # 40 bits: products of a wide gallery do not fit 32 on every target.
    bits = max(target.keys.accumulator_bits, 48)
    settings = resolve(target, None, {"score_mapping": mapping, "accumulator_bits": bits})
    job = Job(settings, data[:ROWS], data[ROWS : 2 * ROWS], silent)
    passes = [one for one in passes_for(settings) if not isinstance(one, FitConvertersPass)]
    program = run_passes(passes, model, job, silent)[-1].program
    if mapping != "digital":
        stored = Simulator(program).encode("video", data[:HELD])
        score = program.score if mapping == "in-memory" else distance_graph(program.score)
        held = program_gallery(score, stored, settings)
        where = "score" if mapping == "in-memory" else "shortlist"
        program = replace(program, **{where: held})
    items = HELD if mapping != "digital" else None
    query = ScoredQuery(WIDTHS[3], 10, items, HELD if mapping == "hybrid" else None)
    return estimate(program, Configuration(target, settings), query)


def query(found: Estimate, items: int) -> Cost:
    """A query against so many items, by the cost of those that are held."""
    if found.program.gallery_items is None and found.program.shortlist is None:
        cost = found.with_gallery(items).query
        assert cost is not None
        return cost
    graph = found.program.shortlist or found.program.score
    one = found.walk(graph, HELD)
    parts = {
        name: replace(share, energy=share.energy.times(items / HELD))
        for name, share in one.parts.items()
    }
    many = replace(
        one, macs=one.macs * items // HELD, conversions=one.conversions * items // HELD,
        shift_adds=one.shift_adds * items // HELD, digital=one.digital.times(items // HELD),
        cells_written=one.cells_written * items // HELD, known=one.known * items // HELD,
        parts=parts,
    )  # fmt: skip
    total = found.text + many
    if found.program.shortlist is not None:
        total += found.with_gallery(items).walk(found.program.score, SHORTLIST)
    return total


def row(cost: Cost) -> str:
    energy = cost.energy_pj
    value = "-" if energy.value is None else energy.full_text(ENERGIES)
    missing = f"; without {', '.join(energy.missing)}" if energy.missing else ""
    return f"{coverage(cost.coverage)} ({coverage(cost.own_share)} own) {value}{missing}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--targets", default=",".join(target_names()))
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    head = PcmePoly(Polynomial(2, (-0.1, 0.005, 1e-4, 1e-5, 1e-6), 0.0, 8.0, 16.0))
    model = assemble(tower(rng), tower(rng), head)
    data = rng.normal(size=(HELD, WIDTHS[0])).astype(np.float32)
    warnings.simplefilter("ignore")
    for name in asked.targets.split(","):
        target = load_target(name)
        for mapping in MAPPINGS:
            try:
                found = compiled(target, mapping, model, data)
            except CimError as error:
                print(f"{name} | {mapping} | {error}", flush=True)
                continue
            if mapping == "digital":
                time, sampled = (
                    found.text.latency_ns,
                    found.with_gallery(asked.items).montecarlo,
                )
                assert sampled is not None
                lacks = f" without {', '.join(time.missing)}" if time.missing else ""
                print(f"{name} | one text | {row(found.text)} | {time.text(TIMES)}{lacks}")
                energy = sampled.stored.energy_pj.full_text(ENERGIES)
                print(f"{name} | Monte Carlo | {energy}")
            print(f"{name} | {mapping} | {row(query(found, asked.items))}", flush=True)


if __name__ == "__main__":
    main()
