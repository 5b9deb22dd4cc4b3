"""The largest numbers that the accumulators of a layer with lossy converters hold.

A cycle drives row r of a row group with a digit D[r]. Column n then gets

    sum over slices k of worth[k] * read[k](D @ cells[k]) + D @ ones * row_factor

For any slopes s[k] this is at most

    sum over k of max over sums S of (worth[k] * read[k](S) - s[k] * S)
    + sum over r of max over digits D of D * (sum over k of s[k] * cells[k][r] + row_factor)

because the second line adds what the first takes off. `largest_held` looks for slopes that make
this small; `carry_input` looks for digits that reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.stimuli import driven_ends, input_limits
from cimtool.hardware.contract import group_sums
from cimtool.hardware.converted_layer import ConvertedColumns
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.program import Graph, Node

SLOPES, SLOPE_BITS = 41, 4
"""Slopes that are tried of a slice, from 0 on, in 2^-SLOPE_BITS of its worth."""

SWEEPS = 4
"""Times that the slope of each slice is chosen anew."""

MOST_SUMS = 2048
"""Sums of a column that are told apart; more are taken together, at the ends of intervals."""

PAIRED = 64
"""Digits of which two are changed together, at most."""

TRIED = 3
"""Columns, at most, for which digits are searched."""

LOWEST = -(1 << 62)


def with_carries(
    graph: Graph, node: Node, op: CrossbarMvm, x: IntArray, names: list[str]
) -> tuple[IntArray, list[str]]:
    """Stimuli [n, K] of a layer and their names, with those that set further bits of accumulators.

    Only bits that no proof excludes are looked for, the lowest of them first.
    """
    bound, ends = carry_bound(graph, node, op), input_limits(graph, node, op)
    reached, held = carry_reached(_held(op, x)), None
    while (least := 1 << reached.bit_length()) <= bound:
        if held is None:
            held = largest_held(op, *ends, np.arange(op.weight.shape[1]))
        more = carry_input(op, *ends, least, held)
        if more is None:
            break
        x = np.concatenate([x, more[None]])
        names = [*names, f"carry into bit {least.bit_length() - 1}"]
        reached = carry_reached(_held(op, more[None]))
    return x, names


def _held(op: CrossbarMvm, x: IntArray) -> IntArray:
    """The additions [n, groups, N] of row groups for inputs [n, K], in 2^-places of a digit."""
    added: IntArray = np.stack(list(group_sums(x, op.layer)), axis=1)
    return added


def carry_reached(added: IntArray) -> int:
    """The largest magnitude of what row groups add [n, groups, N], alone or together."""
    return max(int(np.abs(added).max()), int(np.abs(added.sum(axis=1)).max()))


def carry_bound(graph: Graph, node: Node, op: CrossbarMvm) -> int:
    """The largest magnitude that a layer's accumulators provably hold, in 2^-places of a digit.

    Of all row groups together, or of one of them if that is further from 0.
    """
    lo, hi = input_limits(graph, node, op)
    if op.exact and not op.layer.cells.leak:
        return _product_bound(op, lo, hi)
    held = largest_held(op, lo, hi, np.arange(op.weight.shape[1]))
    known, places = graph.types[node.name], op.crossbar.places
    ends = [end - op.layer.bias << places for end in (known.hi, known.lo)]
    together = np.minimum(held.sum(axis=1), np.stack([ends[0], -ends[1]]))
    return max(int(held.max()), int(together.max()))


def _product_bound(op: CrossbarMvm, lo: IntArray, hi: IntArray) -> int:
    """The largest magnitude of a lossless layer's products, of all rows or of a row group alone.

    It is reached: rows get their inputs independently.
    """
    lo, hi, weight = lo.astype(np.int64), hi.astype(np.int64), op.weight.astype(np.int64)
    upward, downward = np.maximum(weight, 0), np.minimum(weight, 0)
    rows = [slice(None), *op.stored.groups]
    least = min(int((lo[r] @ upward[r] + hi[r] @ downward[r]).min()) for r in rows)
    most = max(int((hi[r] @ upward[r] + lo[r] @ downward[r]).max()) for r in rows)
    return max(-least, most) << op.crossbar.places


def largest_held(op: CrossbarMvm, lo: IntArray, hi: IntArray, columns: IntArray) -> IntArray:
    """Bounds [2, groups, n] of what row groups add to these columns, and of its negative.

    In 2^-places of a digit, for inputs within lo..hi [K].
    """
    crossbar, layer = op.crossbar, op.layer
    found = np.stack([layer.starts, -layer.starts])[:, :, columns]
    cycles = [(most, least) for most, _, least, _ in driven_ends(op, lo, hi)]
    for r, rows in enumerate(layer.cells.groups):
        known: dict[tuple[int, bytes], tuple[IntArray, IntArray]] = {}
        for c, (most, least) in enumerate(cycles):
            ends = least[rows, None], most[rows, None]
            alike = crossbar.reference_of(0, c), np.stack(ends).tobytes()
            if alike not in known:
                factors = layer.row_factors[r][columns]
                up, down = (
                    _of_cycle([*_lines(op, r, c, ends, columns, sign)], ends, sign * factors)
                    for sign in (1, -1)
                )
                known[alike] = up, down
            up, down = known[alike]
            factor = crossbar.cycles[c].factor
            if factor < 0:
                up, down = down, up
            found[:, r] += abs(factor) * np.stack([up, down])
    return found


def _of_cycle(
    lines: Sequence[tuple[IntArray, IntArray, IntArray]],
    ends: tuple[IntArray, IntArray],
    factors: IntArray,
) -> IntArray:
    """Bounds [n] of what a row group adds in a cycle, digits within ends [K, 1].

    `lines` are those of `_lines`, `factors` [n] what the sum of the digits counts.
    """
    every = np.arange(len(factors))
    chosen = [np.full(len(factors), 1 << SLOPE_BITS) for _ in lines]
    row = np.zeros_like(ends[0]) + factors
    for cells, slopes, _ in lines:
        row = row + slopes[1 << SLOPE_BITS] * cells

    def rows_add(one: IntArray) -> IntArray:
        added: IntArray = np.maximum(ends[0] * one, ends[1] * one).sum(axis=0)
        return added

    slices_add = [apart[at, every] for (_, _, apart), at in zip(lines, chosen, strict=True)]
    for _ in range(SWEEPS):
        for k, (cells, slopes, apart) in enumerate(lines):
            without = row - slopes[chosen[k], every] * cells
            tried = [apart[m] + rows_add(without + slopes[m] * cells) for m in range(SLOPES)]
            chosen[k] = np.argmin(tried, axis=0)
            slices_add[k] = apart[chosen[k], every]
            row = without + slopes[chosen[k], every] * cells
    bound: IntArray = np.sum(slices_add, axis=0) + rows_add(row)
    return bound


def _lines(
    op: CrossbarMvm,
    r: int,
    c: int,
    ends: tuple[IntArray, IntArray],
    columns: IntArray,
    sign: int,
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Yield each slice's cells [K, n], its slopes [SLOPES, n], and what reads add above each.

    Of `sign` times what a row group adds in a cycle, digits within ends [K, 1].
    """
    layer, crossbar = op.layer, op.crossbar
    idle = int(layer.cells.idle_sums[r, c])
    for one in layer.columns:
        if c not in one.cycles:
            continue
        held = np.broadcast_to(one.cells.digits, op.weight.shape)
        cells = held[layer.cells.groups[r]][:, columns].astype(np.int64)
        worth = sign * one.factors[r][columns].astype(np.int64)
        least = np.minimum(ends[0] * cells, ends[1] * cells).sum(axis=0)
        most = np.maximum(ends[0] * cells, ends[1] * cells).sum(axis=0)
        lowest, highest = int(least.min()), int(most.max())
        first = np.arange(lowest, highest + 1, -(-(highest + 1 - lowest) // MOST_SUMS))[:, None]
        last = np.append(first[1:] - 1, [[highest]], axis=0)

        above, below = (_read(op, one, r, sums + idle, columns) for sums in (last, first))
        values = worth * np.where(worth > 0, above, below)
        values = np.where((last < least) | (first > most), LOWEST, values)
        slopes = np.arange(SLOPES)[:, None] * (worth << crossbar.reference_bits) >> SLOPE_BITS
        apart = [(values - np.minimum(s * first, s * last)).max(axis=0) for s in slopes]
        yield cells, slopes, np.stack(apart)


def carry_input(
    op: CrossbarMvm, lo: IntArray, hi: IntArray, least: int, held: IntArray
) -> IntArray | None:
    """An input [K] within lo..hi [K] for which row groups add a magnitude of `least` or more.

    Of one of them or of all, in 2^-places of a digit. `held` are the bounds of all columns, of
    `largest_held`. None if the search finds none.
    """
    bounds = np.concatenate([held, held.sum(axis=1, keepdims=True)], axis=1)
    order = np.argsort(-bounds, axis=None)[:TRIED]
    for side, group, column in zip(*np.unravel_index(order, bounds.shape), strict=True):
        if bounds[side, group, column] < least:
            return None
        groups = [group] if group < held.shape[1] else [*range(held.shape[1])]
        x = _input_of(op, lo, hi, groups, int(column), 1 - 2 * int(side))
        added = np.stack(list(group_sums(x[None], op.layer)))[groups, 0, column].sum()
        if abs(added) >= least:
            return x
    return None


def _input_of(
    op: CrossbarMvm, lo: IntArray, hi: IntArray, groups: list[int], column: int, sign: int
) -> IntArray:
    """The input [K] of the digits that `_digits` finds for these row groups; others have 0."""
    crossbar = op.crossbar
    x: IntArray = np.clip(0, lo, hi)
    ends = [(least, most) for most, _, least, _ in driven_ends(op, lo, hi)]
    for r in groups:
        rows, known = op.layer.cells.groups[r], dict[tuple[int, int, bytes], IntArray]()
        whole = np.full(rows.stop - rows.start, -crossbar.inputs.lift)
        for c, cycle in enumerate(crossbar.cycles):
            limits = np.stack([end[rows] for end in ends[c]])
            wanted = sign if cycle.factor > 0 else -sign
            alike = wanted, crossbar.reference_of(0, c), limits.tobytes()
            if alike not in known:
                known[alike] = _digits(op, (r, c), limits, column, wanted)
            whole += cycle.factor * known[alike]
        x[rows] = np.clip(whole, lo[rows], hi[rows])
    return x


def _digits(
    op: CrossbarMvm, read: tuple[int, int], limits: IntArray, column: int, sign: int
) -> IntArray:
    """Digits [K] at their limits [2, K] for which a row group adds much to a column in a cycle.

    A search that changes one digit or two at a time; `sign` -1 makes the addition small.
    """
    weight = sign * op.weight[op.layer.cells.groups[read[0]], column]
    starts = np.stack([np.where(weight > 0, limits[1], limits[0]), limits[1], limits[0]])
    best: IntArray = starts[0]
    reached = LOWEST
    for start in starts:
        now, value = start, sign * int(_added(op, read, start[None], column)[0])
        while True:
            other = limits.sum(axis=0) - now
            tried = np.where(np.eye(len(now), dtype=np.bool_), other, now)
            gains = sign * _added(op, read, tried, column)
            if gains.max() <= value:
                likely = np.argsort(-gains)[:PAIRED]
                first, second = (likely[of] for of in np.triu_indices(len(likely), 1))
                tried = tried[first]
                tried[np.arange(len(second)), second] = other[second]
                gains = sign * _added(op, read, tried, column)
            if not len(tried) or gains.max() <= value:
                break
            now, value = tried[gains.argmax()], int(gains.max())
        if value > reached:
            best, reached = now, value
    return best


def _added(op: CrossbarMvm, read: tuple[int, int], digits: IntArray, column: int) -> IntArray:
    """The addition [n] of a row group to a column in a cycle, for digits [n, K]."""
    (r, c), layer = read, op.layer
    added: IntArray = digits.sum(axis=1) * layer.row_factors[r, column]
    for one in layer.columns:
        if c in one.cycles:
            held = one.cells.digits[layer.cells.groups[r], column % one.step.shape[1]]
            sums = digits @ held.astype(np.int64) + layer.cells.idle_sums[r, c]
            added = added + one.factors[r, column] * _read(op, one, r, sums, np.array(column))
    return added


def _read(
    op: CrossbarMvm, one: ConvertedColumns, r: int, sums: IntArray, columns: IntArray
) -> IntArray:
    """The values of sums [.., n] of some columns, after conversion and read-back."""
    fine = sums << op.crossbar.reference_bits
    if one.law is None:
        return fine
    step, offset = (part[r][columns % len(part[r])] for part in (one.step, one.offset))
    values: IntArray = one.law.values(one.law.codes(fine - offset, step), step) + offset
    return values
