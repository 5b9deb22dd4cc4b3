"""Ways to search a gallery on hardware, and the same features in faiss at equal bytes an item.

    pip install faiss-cpu
    python benchmarks/retrieval.py --demo DEMO --clip PAIRS.npz --classes ITEMS.npz -o DIR

For each set, head and target: the digital score, the score in the memory, a shortlist of whole
features, and one of few bits as `program --recall` chooses it; beside the first target shortlists
that content-addressable memories draw up. Queries and items are those that neither trained nor
calibrated. Of each way R@1 and the share of queries whose best item by the
digital score is found or shortlisted, with intervals of 95%; cells an item, conversions, energy and
latency a query, items a chip; and dies where the target has a noise model. Writes `retrieval.md`
with its pictures to DIR; the same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from budgets import class_case, clip_case, correlated, taken
from harness import use_threads

from cimtool import api
from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.simulate import nearest_items
from cimtool.costs.estimate import ScoredQuery, estimate
from cimtool.costs.totals import Cost
from cimtool.galleries.gallery_job import GalleryJob
from cimtool.hardware.configuration import Configuration
from cimtool.passes.gallery import ShortlistBits
from cimtool.reference.bootstrap import LEVEL, RESAMPLES, counted_share
from cimtool.report.charts import Points, curves
from cimtool.report.formats import ENERGIES, TIMES
from cimtool.report.svg import WIDTH, file_text
from cimtool.simulation.simulator import Simulator

TARGETS = ("isaac-rram-128", "hermes-pcm-14nm", "dcim-22nm-tsmc")
CAMS = ("fefet2-tcam-45nm", "fefet-mcam")
"""Memories that match words, of one bit and of two a cell."""

RECALL, MOST = 0.95, 50
"""Asked of a shortlist of few bits, and the longest that it may be."""

LENGTHS = (1, 10, 50)
OWN = "cimtool"
PQ = {4: "faiss PQ, 4 bits", 8: "faiss PQ, 8 bits"}
"""Kinds of coded items: ours, and faiss's product quantizers by the bits of a piece."""

DIES = 10
STORED = tuple((share, bits) for share in (16, 8, 4, 1) for bits in (1, 2, 4))
"""Shares of the dimensions, and bits of each, that are compared with faiss."""

LARGEST_PQ = 128
"""Pieces that faiss cuts a row into at 8 bits each: more take minutes to train."""

LEAST_DIMENSIONS = 16
"""Features of fewer dimensions are short as they are."""

Rows = Mapping[str, Array]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RetrievalCase:
    """A model, as options of `compile`, with the rows that it is asked about.

    `right` [n, m] tells the items that are right for a text.
    """

    name: str
    options: Mapping[str, Any]
    rows: Rows
    right: BoolArray

    @property
    def of_item(self) -> IntArray:
        """The item [n] of each text; of labelled rows, which have several, the text itself."""
        alone = self.right.sum(axis=1).max() == 1
        found: IntArray = self.right.argmax(axis=1) if alone else np.arange(len(self.right))
        return found


def demo_cases(place: Path, folder: Path) -> Iterator[RetrievalCase]:
    """The demo's model with its polynomial, and its means alone by their cosine."""
    with np.load(place / "eval.npz") as held:
        rows = {name: held[name] for name in ("text", "video")}
    options = {
        "projectors": place / "demo" / "model.pth",
        "poly": place / "poly.json",
        "calibration": place / "calibration.npz",
    }
    right = np.eye(len(rows["text"]), dtype=bool)
    yield RetrievalCase("demo, polynomial", options, rows, right)
    del options["poly"]
    yield RetrievalCase("demo, cosine", {**options, "head": "cosine"}, rows, right)


def clip_cases(place: Path, folder: Path) -> Iterator[RetrievalCase]:
    """CLIP's captions and images as they are, by their cosine."""
    case = clip_case(place)
    rows = taken(case.rest, np.arange(len(case.rest["video"])))
    width = rows["video"].shape[1]
    state: dict[str, Any] = {"head": "cosine", "activation": "none"}
    for side in ("text", "video"):
        state[f"{side}_proj"] = {"0.weight": torch.eye(width), "0.bias": torch.zeros(width)}
    torch.save(state, folder / "clip.pth")
    pairs = case.training["text_to_video"]
    calibration = {"text": case.training["text"], "video": case.training["video"][pairs]}
    right = rows["text_to_video"][:, None] == np.arange(len(rows["video"]))
    options = {"projectors": folder / "clip.pth", "calibration": calibration}
    yield RetrievalCase("captions, cosine", options, rows, right)


def class_cases(place: Path, folder: Path) -> Iterator[RetrievalCase]:
    """Articles in ten classes, a linear projector a side; an item of the same class is right."""
    case = class_case(place)
    options = correlated(case, folder)
    del options["target"]
    options["calibration"] = {side: case.training[side][:512] for side in ("text", "video")}
    labels = case.rest["labels"]
    rows = {side: case.rest[side] for side in ("text", "video")}
    yield RetrievalCase("articles, euclidean", options, rows, labels[:, None] == labels)


@dataclass(frozen=True, eq=False)
class Answers:
    """The items that a way found for each text, best first, [n, L], and what a query takes.

    `cells` are those of an item, `chip` how many items one holds; None where a target does not say.
    """

    way: str
    index: IntArray
    cost: Cost
    cells: int | None = None
    chip: int | None = None
    dies: tuple[FloatArray, FloatArray] | None = None

    def row(self, case: RetrievalCase, target: str, best: IntArray) -> Row:
        """A row of the table; `best` [n] are the best items by the digital score."""
        first = case.right[np.arange(len(best)), self.index[:, 0]]
        held = (self.index == best[:, None]).any(axis=1)
        return {
            "set": case.name,
            "target": target,
            "way": self.way,
            "R@1 %": _share(counted_share(int(first.sum()), len(first))),
            "best item %": _share(counted_share(int(held.sum()), len(held))),
            "L": self.index.shape[1],
            "cells an item": "-" if self.cells is None else f"{self.cells:,}",
            "items a chip": "-" if self.chip is None else f"{self.chip:,}",
            "conversions a query": f"{self.cost.conversions:,}",
            "energy a query": self.cost.energy_pj.text(ENERGIES),
            "latency a query": self.cost.latency_ns.text(TIMES),
            f"R@1, best item on {DIES} dies %": _of_dies(self.dies),
        }


def _share(one: Change) -> str:
    return f"{100 * one.value:.1f} ({100 * one.low:.1f} to {100 * one.high:.1f})"


def _of_dies(values: tuple[FloatArray, FloatArray] | None) -> str:
    """Median and 5th percentile of both."""
    if values is None:
        return "-"
    said = (f"{100 * np.median(v):.1f} ({100 * np.percentile(v, 5):.1f})" for v in values)
    return ", ".join(said)


def ways(case: RetrievalCase, target: str, cams: Sequence[str], folder: Path) -> Iterator[Row]:
    """A row for every way of a target, the digital one first; what cannot be is said and left."""
    options = {**case.options, "target": target, "accumulator_bits": 48}
    hybrid = api.compile(**options, score_mapping="hybrid", output=folder / "hybrid")
    best: IntArray = np.argmax(api.simulate(hybrid.folder, dict(case.rows))["scores"], axis=1)
    cost = _cost(hybrid, len(case.rows["video"]), None)
    yield Answers("digital", best[:, None], cost).row(case, target, best)
    memory = api.compile(**options, score_mapping="in-memory", output=folder / "in-memory")
    few_bits: Row = {"recall": RECALL, "shortlist": MOST}
    asked: dict[str, Callable[[Path], Answers]] = {
        "score in the memory": partial(_programmed, case, best, memory, {}),
        "shortlist of whole mu": partial(_programmed, case, best, hybrid, {"shortlist": 10}),
        "shortlist of few bits": partial(_programmed, case, best, hybrid, few_bits),
        **{cam: partial(_in_cam, case, hybrid, cam) for cam in cams},
    }
    for number, (way, found) in enumerate(asked.items()):
        try:
            answers = found(folder / str(number))
        except CimError as error:
            print(f"{case.name}, {target}, {way}: {error}", file=sys.stderr)
        else:
            yield replace(answers, way=way + answers.way).row(case, target, best)


def _in_cam(case: RetrievalCase, bundle: Bundle, cam: str, place: Path) -> Answers:
    found = api.program_cam(bundle.folder, dict(case.rows), cam, output=place, shortlist=MOST)
    index = api.simulate(place, dict(case.rows))["top_index"]
    return Answers("", index, found.score, found.use.cells // found.use.items)


def _programmed(
    case: RetrievalCase, best: IntArray, compiled: Bundle, options: Row, place: Path
) -> Answers:
    found = api.program(compiled.folder, dict(case.rows), output=place, **options)
    bundle, length = found.bundle, found.gallery.shortlist
    noise = NoiseOptions(trials=DIES) if bundle.target.noise is not None else None
    answers = api.simulate(bundle.folder, dict(case.rows), noise=noise)
    trials: Array | None
    if length is None:
        index = np.argmax(answers["scores"], axis=1)[:, None]
        trials = answers.get("trial_scores")
        trials = None if trials is None else np.argmax(trials, axis=2)[:, :, None]
    else:
        index, trials = answers["top_index"], answers.get("trial_index")
    dies = None
    if trials is not None:
        rows = np.arange(len(index))
        first = np.array([case.right[rows, one[:, 0]].mean() for one in trials])
        dies = first, (trials == best[None, :, None]).any(axis=2).mean(axis=1)
    use, cost = found.use, _cost(bundle, len(case.rows["video"]), length)
    chosen = "" if found.search is None else f": {found.search.chosen.bits}"
    return Answers(chosen, index, cost, use.cells // use.items, use.items_per_chip, dies)


def _cost(bundle: Bundle, items: int, shortlist: int | None) -> Cost:
    query = ScoredQuery(bundle.model.dimension, 1, items, shortlist)
    found = estimate(bundle.program, Configuration(bundle.target, bundle.settings), query)
    assert found.score is not None
    return found.score


@dataclass(frozen=True, eq=False)
class CodedItems:
    """Items in so many bytes each, by some method, and the `near` [n, L] that they tell.

    `shared` are bytes that all items share: a map to fewer dimensions, or codebooks. `kind` is the
    line of the picture that it stands on, None for what is not drawn.
    """

    method: str
    kind: str | None
    bytes: float
    shared: float
    near: IntArray

    def held(self, best: IntArray, length: int) -> BoolArray:
        """The queries [n] whose best item is among the first `length`."""
        found: BoolArray = (self.near[:, :length] == best[:, None]).any(axis=1)
        return found

    def row(self, case: RetrievalCase, best: IntArray) -> Row:
        """A row of the table."""
        found: Row = {"set": case.name, "method": self.method, "bytes an item": self.bytes}
        found["shared bytes, an item's part"] = self.shared / len(case.rows["video"])
        for length in LENGTHS:
            held = self.held(best, length)
            found[f"L = {length} %"] = _share(counted_share(int(held.sum()), len(held)))
        return found


def against_faiss(case: RetrievalCase, found: Sequence[CodedItems], best: IntArray) -> list[Row]:
    """Each of ours beside faiss's best product quantizer of the nearest size, same queries."""
    rows: list[Row] = []
    quantizers = [one for one in found if one.kind in PQ.values()]
    for own in (one for one in found if one.kind == OWN):
        sizes = [one.bytes for one in quantizers]
        size = sizes[nearest_size(sizes, own.bytes)]
        other = max(
            (one for one in quantizers if one.bytes == size),
            key=lambda one: [one.held(best, length).mean() for length in (LENGTHS[1], LENGTHS[0])],
        )
        row: Row = {"set": case.name, "ours": own.method, "bytes": own.bytes}
        row |= {"beside": other.method, "its bytes": other.bytes}
        for length in LENGTHS[:2]:
            more = own.held(best, length).astype(int) - other.held(best, length)
            one = mean_of(more, case.of_item)
            said = "won" if one.low > 0 else "lost" if one.high < 0 else "open"
            row[f"L = {length}, points"] = f"{said}: {_share(one)}"
        rows.append(row)
    return rows


def nearest_size(sizes: Sequence[float], size: float) -> int:
    """The place of the size whose ratio to another is nearest to 1; of two the smaller one's."""
    return min(range(len(sizes)), key=lambda k: (abs(np.log(sizes[k] / size)), sizes[k]))


def mean_of(values: IntArray, of_item: IntArray) -> Change:
    """The mean of a measurement of queries, its interval by draws of their items."""
    items = int(of_item.max()) + 1
    draws = np.random.default_rng(0).multinomial(items, np.full(items, 1 / items), RESAMPLES)
    counts = draws[:, of_item]
    low, high = np.quantile(
        counts @ values / counts.sum(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    )
    return Change(float(values.mean()), float(low), float(high))


def coded(case: RetrievalCase, folder: Path) -> tuple[list[CodedItems], IntArray]:
    """Shortlists of few bits and faiss on the same `mu`, and the best items [n] of the score."""
    bundle = open_bundle(
        api.compile(
            **case.options,
            target="ideal",
            score_mapping="hybrid",
            accumulator_bits=48,
            output=folder / "coded",
        ).folder
    )
    simulator = Simulator(bundle.program)
    text, video = (simulator.encode(side, case.rows[side]) for side in ("text", "video"))
    best = np.argmax(simulator.score(text, video), axis=1)
    job = GalleryJob(bundle, video, simulator)
    own = list(_own(job, text, simulator.program.score.inputs["text.mu"].bits))
    units = [float(bundle.program.score.inputs[f"{side}.mu"].unit) for side in ("text", "video")]
    rows = [
        (values["mu"] * unit).astype(np.float32)
        for values, unit in zip((text, video), units, strict=True)
    ]
    product = bundle.model.head.name == "cosine"
    sizes = sorted({one.bytes for one in own})
    kept = [*job.queries["mu"] * units[0], *job.right["mu"] * units[1]]
    training = np.concatenate([rows[1], np.array(kept, np.float32)])
    return [*own, *_faiss(rows[0], rows[1], training, product, sizes)], best


def _own(job: GalleryJob, text: Mapping[str, Array], query_bits: int) -> Iterator[CodedItems]:
    width = job.video["mu"].shape[1]
    most = job.few_bits.principal.most
    for share, bits in STORED:
        dimensions = None if share == 1 else width // share
        if dimensions is not None and not LEAST_DIMENSIONS <= dimensions <= most:
            continue
        make = job.maker(ShortlistBits(bits, query_bits, dimensions))
        graph = make(job.video)
        simulator = Simulator(job.program_with(graph))
        near = [nearest_items(ed, max(LENGTHS)) for _, ed in simulator.iter_distances(text)]
        # Beside its codes an item has its factor and its constant.
        constant = graph.by_name["ed"].op
        numbers = (*constant.factors, constant.offset)  # type: ignore[attr-defined]
        beside = sum(int(np.ptp(one)).bit_length() for one in numbers)
        size = ((dimensions or width) * bits + beside) / 8
        name = f"{OWN}: {bits} bit{'s' * (bits > 1)} of {dimensions or 'all'}"
        shared = (dimensions or 0) * width
        yield CodedItems(name, OWN, size, shared, np.concatenate(near))


def _faiss(
    text: Array, video: Array, training: Array, product: bool, sizes: Sequence[float]
) -> Iterator[CodedItems]:
    """Faiss's indexes, trained on the items and the calibration rows that ours is fitted on.

    Of product quantizers those nearest to ours in bytes.
    """
    import faiss

    faiss.omp_set_num_threads(1)
    width = video.shape[1]
    metric = faiss.METRIC_INNER_PRODUCT if product else faiss.METRIC_L2
    names: dict[str, str | None] = {"Flat": None, "SQ8": "faiss SQ", "SQ4": "faiss SQ"}
    names["RaBitQ"] = "faiss RaBitQ"
    books = {}
    for bits, most in ((4, width), (8, LARGEST_PQ)):
        counts = [m for m in range(1, most + 1) if width % m == 0]
        wanted = {counts[nearest_size([m * bits / 8 for m in counts], size)] for size in sizes}
        # Faiss asks for 39 rows a centroid; with less than 4 most are copies of a row.
        for m in sorted(wanted) if len(training) >= 4 << bits else ():
            names[f"PQ{m}x{bits}"] = PQ[bits]
            # A codebook of a piece has a float a dimension and code.
            books[f"PQ{m}x{bits}"] = 4 * width << bits
    for name, kind in names.items():
        index = faiss.index_factory(width, name, metric)
        index.train(training)
        index.add(video)
        _, near = index.search(text, max(LENGTHS))
        size = 4 * width if name == "Flat" else index.sa_code_size()
        yield CodedItems(f"faiss {name}", kind, size, books.get(name, 0), near)


def picture(case: RetrievalCase, found: Sequence[CodedItems], best: IntArray) -> str:
    """The share of best items among the first ten by the bytes that an item takes."""
    length = LENGTHS[1]
    lines = []
    for name in dict.fromkeys(one.kind for one in found if one.kind):
        kind = [one for one in found if one.kind == name]
        own = sorted((one.bytes, float(one.held(best, length).mean())) for one in kind)
        lines.append(Points(name, own))
    label = f"best item among the first {length}"
    drawn = curves(lines, "bytes an item", label, f"{label} by bytes an item")
    return file_text(WIDTH, HEIGHT, case.name, label, [drawn])


HEIGHT = 310.0
"""Units that a picture is high."""


def table(rows: Sequence[Row]) -> str:
    """Rows of equal keys as a Markdown table."""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[f"{v:,.1f}" if isinstance(v, float) else str(v) for v in r.values()] for r in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(sections: Sequence[str]) -> str:
    """The page: what was measured, then a section a set."""
    return "\n\n".join(
        [
            "# Retrieval",
            "Written by `benchmarks/retrieval.py`. Shares have intervals of 95% (Clopper and "
            "Pearson); *best item* is that of the digital score, found or on the shortlist of L; "
            "of dies the median and the 5th percentile. Energy and latency are those of one "
            "encoded text against all items. Bytes of codes are compared with faiss's: its "
            "codebooks, and our maps to components, are shared by all items and counted apart. "
            "Differences from its product quantizer of the nearest size, the better one of 4 and "
            f"of 8 bits a piece (of 8 up to {LARGEST_PQ} pieces), are of the same queries "
            f"(bootstrap of {RESAMPLES} draws by item).",
            *sections,
        ]
    )


def main() -> int:
    """Measure every set that is given, and write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--demo", type=Path, metavar="DIR", help="a demo's cache")
    options.add_argument("--clip", type=Path, metavar="FILE", help="captions and images")
    options.add_argument("--classes", type=Path, metavar="FILE", help="items with classes")
    options.add_argument("--targets", default=",".join(TARGETS), metavar="NAME,NAME")
    options.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    given = options.parse_args()
    use_threads()
    given.output.mkdir(parents=True, exist_ok=True)
    makers = ((demo_cases, given.demo), (clip_cases, given.clip), (class_cases, given.classes))
    sections = []
    for make, place in makers:
        with tempfile.TemporaryDirectory() as name:
            for case in () if place is None else make(place, Path(name)):
                sections.append(section(case, given.targets.split(","), Path(name), given.output))
                # A run takes long: what is measured is written at once.
                (given.output / "retrieval.md").write_text(page(sections) + "\n", "utf-8")
    return 0


def section(case: RetrievalCase, targets: Sequence[str], folder: Path, output: Path) -> str:
    """The part of one set: a table of ways, one of bytes, and its picture."""
    texts, items = case.right.shape
    rows = []
    for target in targets:
        own = folder / f"{case.name}-{target}"
        own.mkdir()
        for row in ways(case, target, CAMS if target == targets[0] else (), own):
            rows.append(row)
            print(f"{case.name}, {target}: {row['way']}", file=sys.stderr)
    parts = [f"## {case.name}: {texts:,} texts, {items:,} items", table(rows)]
    found, best = coded(case, folder)
    if case.rows["video"].shape[1] > LEAST_DIMENSIONS:
        name = f"recall-{case.name.replace(', ', '-')}.svg"
        (output / name).write_text(picture(case, found, best), "utf-8")
        parts += [f"![Recall by bytes]({name})"]
    ordered = sorted(found, key=lambda one: one.bytes)
    parts += [table([one.row(case, best) for one in ordered])]
    beside = against_faiss(case, found, best)
    return "\n\n".join([*parts, table(beside)] if beside else parts)


if __name__ == "__main__":
    sys.exit(main())
