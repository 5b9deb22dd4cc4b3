"""Tiles of column sums in a CPU's vector registers, for the compiled kernels.

A tile has `rows` rows of 2 vectors of 16 int32 lanes: rows are reads, lanes are columns. Most
operations are LLVM's vector operations, which every CPU can run. `dot_step` needs DOT_BITS, and
operations on 16-bit sums need SHORT_SUMS. Arithmetic wraps modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from cimtool.base.compiled import cpu_has

LANES = 16
VECTORS = 2
WIDTH = LANES * VECTORS
"""Columns of a tile."""

STORED_ROWS = 8
"""Rows of a tile of sums in memory. Often these are the cycles of one row of inputs."""

_I32 = ir.IntType(32)
_LANES = ir.VectorType(_I32, LANES)
_ZEROS = ir.Constant(_LANES, [0] * LANES)

HALF = 16
"""Bits of half a lane."""

_HALVES = ir.VectorType(ir.IntType(HALF), 2 * LANES)


def vnni_bits() -> int:
    """Width in bits of the CPU's dot product of unsigned and signed bytes (VNNI), or 0."""
    if cpu_has("avx512vnni"):
        return 512
    return 256 if cpu_has("avxvnni") else 0


def dot_bits() -> int:
    """Width in bits of the CPU's vectors for byte products, by VNNI or in several instructions.

    0 if the CPU has neither AVX2 nor AVX-512.
    """
    if VNNI_BITS:
        return VNNI_BITS
    if cpu_has("avx512bw"):
        return 512
    return 256 if cpu_has("avx2") else 0


VNNI_BITS = vnni_bits()
DOT_BITS = dot_bits()

SHORT_SUMS = DOT_BITS > 0 and (DOT_BITS == 256 or cpu_has("avx512bw"))
"""True if the CPU adds byte products in 16 bits, in vectors of DOT_BITS."""

BIT_ROWS, BYTE_ROWS = 4, 12 if DOT_BITS == 512 else 3 if VNNI_BITS else 2
"""Rows of a tile. Its sums and operands fill the registers: 32 with AVX-512, else 16."""

PAIR_ROWS = 6 if DOT_BITS == 512 else 2
"""Rows of a tile of 16-bit sums that hold two parts each."""

PART_BITS = 7
"""Bits of the lower part."""


class Tile(types.Type):  # type: ignore[misc]
    """The type of a tile in compiled code."""

    def __init__(self, rows: int):
        super().__init__(name=f"tile{rows}x{VECTORS}")
        self.rows = rows


@register_model(Tile)
class _TileModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Tile):
        super().__init__(manager, kind, ir.ArrayType(_LANES, kind.rows * VECTORS))


def splat(builder: Any, value: Any, lanes: int = LANES) -> Any:
    """A vector with this number in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, zeros)


def call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call LLVM's function of this name."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


class VectorPlaces:
    """The arrays among an operation's arguments: loads and stores at an element's index."""

    def __init__(self, context: Any, builder: Any, kinds: Sequence[Any]):
        self.context, self.builder, self.kinds = context, builder, kinds

    def pointer(self, args: Sequence[Any], i: int, index: Any, to: Any) -> Any:
        """The address of element `index` of the array in argument `i`."""
        kind = self.kinds[i]
        data = self.context.make_array(kind)(self.context, self.builder, args[i]).data
        return self.builder.bitcast(self.builder.gep(data, [index]), to.as_pointer())

    def scalar(self, args: Sequence[Any], i: int, index: Any) -> Any:
        """Element `index` of the int32 array in argument `i`, in every lane."""
        return splat(self.builder, self.builder.load(self.pointer(args, i, index, _I32)))

    def vectors(self, args: Sequence[Any], i: int, index: Any) -> list[Any]:
        """Load the vectors of a tile's row from element `index` on of the array in argument `i`."""
        builder = self.builder
        return [
            builder.load(self.pointer(args, i, self.after(index, v * LANES), _LANES), align=4)
            for v in range(VECTORS)
        ]

    def empty(self, args: Sequence[Any], i: int) -> Any:
        """True if the array in argument `i` has no elements."""
        size = self.context.make_array(self.kinds[i])(self.context, self.builder, args[i]).nitems
        return self.builder.icmp_signed("==", size, ir.Constant(size.type, 0))

    def after(self, index: Any, count: int) -> Any:
        """The index plus `count`."""
        return self.builder.add(index, ir.Constant(index.type, count))


def _parts(builder: Any, tile: Any) -> list[Any]:
    return [builder.extract_value(tile, i) for i in range(tile.type.count)]


def _tile(builder: Any, parts: Sequence[Any]) -> Any:
    tile = ir.Constant(ir.ArrayType(_LANES, len(parts)), ir.Undefined)
    for i, part in enumerate(parts):
        tile = builder.insert_value(tile, part, i)
    return tile


def _zeros(rows: int) -> Any:
    kind = Tile(rows)

    @intrinsic
    def zeros(typing):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return _tile(builder, [ir.Constant(_LANES, [0] * LANES)] * (rows * VECTORS))

        return kind(), emit

    return zeros


bit_tile = _zeros(BIT_ROWS)
byte_tile = _zeros(BYTE_ROWS)
pair_tile = _zeros(PAIR_ROWS)


@intrinsic
def store_tile(typing, sums, out, at):  # type: ignore[no-untyped-def]
    """Write a tile to out[at + 32 r + j], int32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        for i, part in enumerate(_parts(builder, args[0])):
            place = arrays.pointer(args, 1, arrays.after(args[2], i * LANES), _LANES)
            builder.store(part, place, align=4)
        return context.get_dummy_value()

    return types.void(sums, out, types.int64), emit


def _load(rows: int) -> Any:
    """Make an operation that loads a tile from the int32 elements of `values` from `at` on."""

    @intrinsic
    def load(typing, values, at):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
            arrays = VectorPlaces(context, builder, signature.args)
            places = (arrays.after(args[1], r * WIDTH) for r in range(rows))
            parts = [part for place in places for part in arrays.vectors(args, 0, place)]
            return _tile(builder, parts)

        return Tile(rows)(values, types.int64), emit

    return load


load_line = _load(1)


def _step(product: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """Make an operation that adds x of the row times w of the column to each sum.

    Row r takes int32 element `at + r * stride` of x. Columns take 32 elements of w from `of` on.
    """

    @intrinsic
    def step(typing, sums, x, at, stride, w, of):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
            arrays = VectorPlaces(context, builder, signature.args)
            parts = _parts(builder, args[0])
            columns = arrays.vectors(args, 4, args[5])
            for r in range(sums.rows):
                row = builder.add(args[2], builder.mul(args[3], ir.Constant(args[3].type, r)))
                driven = arrays.scalar(args, 1, row)
                for v in range(VECTORS):
                    i = r * VECTORS + v
                    parts[i] = product(builder, parts[i], driven, columns[v])
            return _tile(builder, parts)

        return sums(sums, x, types.int64, types.int64, w, types.int64), emit

    return step


def _popcount(builder: Any, total: Any, x: Any, w: Any) -> Any:
    return builder.add(total, call(builder, "llvm.ctpop.v16i32", _LANES, builder.and_(x, w)))


PAIRS = {256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}
"""By width: products of signed 16-bit numbers, neighbours added in 32 bits."""

BYTE_PAIRS = {256: "llvm.x86.avx2.pmadd.ub.sw", 512: "llvm.x86.avx512.pmaddubs.w.512"}
"""By width: products of unsigned and signed bytes, neighbours added in 16 bits, saturating."""


def _in_pieces(product: Callable[..., Any]) -> Callable[..., Any]:
    """Make a product of 16-lane vectors from a product of vectors of DOT_BITS."""
    lanes = DOT_BITS // 32

    def whole(builder: Any, *operands: Any) -> Any:
        pieces = []
        for start in range(0, LANES, lanes):
            own = ir.Constant(ir.VectorType(_I32, lanes), list(range(start, start + lanes)))
            pieces.append(product(builder, *(builder.shuffle_vector(a, a, own) for a in operands)))
        if len(pieces) == 1:
            return pieces[0]
        return builder.shuffle_vector(*pieces, ir.Constant(_LANES, list(range(LANES))))

    return whole


@_in_pieces
def _dot(builder: Any, total: Any, x: Any, w: Any) -> Any:
    kind = total.type
    if VNNI_BITS:
        return call(builder, f"llvm.x86.avx512.vpdpbusd.{VNNI_BITS}", kind, total, x, w)
    halves = ir.VectorType(ir.IntType(HALF), 2 * kind.count)
    byte, low = (ir.Constant(halves, [n] * halves.count) for n in (8, 255))
    x, w = (builder.bitcast(a, halves) for a in (x, w))
    even = builder.and_(x, low), builder.ashr(builder.shl(w, byte), byte)
    odd = builder.lshr(x, byte), builder.ashr(w, byte)
    for pair in (even, odd):
        total = builder.add(total, call(builder, PAIRS[DOT_BITS], kind, *pair))
    return total


@_in_pieces
def _short_dot(builder: Any, total: Any, x: Any, w: Any) -> Any:
    kind = total.type
    halves = ir.VectorType(ir.IntType(HALF), 2 * kind.count)
    some = ir.VectorType(ir.IntType(8), 4 * kind.count)
    pairs = (builder.bitcast(a, some) for a in (x, w))
    added = call(builder, BYTE_PAIRS[DOT_BITS], halves, *pairs)
    return builder.bitcast(builder.add(builder.bitcast(total, halves), added), kind)


def _whole(builder: Any, short: Any) -> Any:
    return short


def _low(builder: Any, short: Any) -> Any:
    mask = ir.Constant(short.type, [(1 << PART_BITS) - 1] * short.type.count)
    return builder.and_(short, mask)


def _high(builder: Any, short: Any) -> Any:
    return builder.lshr(short, ir.Constant(short.type, [PART_BITS] * short.type.count))


popcount_step = _step(_popcount)
"""Add the number of bits that are set in both words."""

dot_step = _step(_dot)
"""Add the products of four unsigned bytes of x and four signed bytes of w; needs DOT_BITS."""

short_dot_step = _step(_short_dot)
"""As `dot_step`, in the two 16-bit halves of a lane; sums must fit. Needs SHORT_SUMS."""


def _adding(part: Callable[[Any, Any], Any]) -> Any:
    """Make an operation that adds part of both halves of each lane of `short_dot_step`'s sums."""

    @_in_pieces
    def added(builder: Any, total: Any, short: Any) -> Any:
        halves = ir.VectorType(ir.IntType(HALF), 2 * total.type.count)
        ones = ir.Constant(halves, [1] * halves.count)
        own = part(builder, builder.bitcast(short, halves))
        return builder.add(total, call(builder, PAIRS[DOT_BITS], total.type, own, ones))

    @intrinsic
    def add(typing, sums, short):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
            pairs = zip(*(_parts(builder, tile) for tile in args), strict=True)
            return _tile(builder, [added(builder, total, one) for total, one in pairs])

        return sums(sums, short), emit

    return add


add_short, add_low, add_high = _adding(_whole), _adding(_low), _adding(_high)
"""They add to the sums: all bits of the short sums; their lowest PART_BITS; the bits above."""


@intrinsic
def add_scaled(typing, sums, other, factor):  # type: ignore[no-untyped-def]
    """sums + other * factor, with one int32 factor."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        factor = splat(builder, args[2])
        pairs = zip(_parts(builder, args[0]), _parts(builder, args[1]), strict=True)
        return _tile(builder, [builder.add(a, builder.mul(b, factor)) for a, b in pairs])

    return sums(sums, other, types.int32), emit


@intrinsic
def add_outer(typing, sums, rows, at, factor, columns, of):  # type: ignore[no-untyped-def]
    """sums + rows[at + r] * factor + columns[of + j]."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        parts, factor = _parts(builder, args[0]), splat(builder, args[3])
        added = arrays.vectors(args, 4, args[5])
        for r in range(sums.rows):
            row = builder.mul(arrays.scalar(args, 1, arrays.after(args[2], r)), factor)
            for v in range(VECTORS):
                i = r * VECTORS + v
                parts[i] = builder.add(parts[i], builder.add(row, added[v]))
        return _tile(builder, parts)

    return sums(sums, rows, types.int64, types.int32, columns, types.int64), emit


@intrinsic
def convert(typing, sums, one, two, three, four, five, addends, of, entries, table):  # type: ignore[no-untyped-def]
    """Convert every sum p. If there are no addends, the ADC counts from zero:

        clip((p + one + ((p >> two) & three)) >> two, four, five)

    Otherwise the code is a quotient by the reciprocal of `fused.reciprocal`, an unsigned product:

        ((clip((p << one) + addends[of + j], 0, two) >> three) * four) >> five

    If `table` is not negative, the quotient is a place i, and the result is entries[table + i].
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        parts, codes = _parts(builder, args[0]), _Codes(arrays, args, 1, [_ZEROS] * VECTORS)

        def converted(code: Code) -> list[Any]:
            return [code(p, i % VECTORS) for i, p in enumerate(parts)]

        # Choose per vector: a choice between whole tiles would go through memory.
        return _tile(builder, codes.each(converted))

    i32, i64 = types.int32, types.int64
    return sums(sums, i32, i32, i32, i32, i32, addends, i64, entries, i64), emit


Code = Callable[[Any, int], Any]
"""Converts a vector of sums; the number says which of the tile's vectors of columns it is."""


class _Codes:
    """The conversions of sums plus `columns`, which has a vector for each vector of a tile's row.

    The operation's arguments from `first` on are the arguments of `convert` from `one` on.
    """

    def __init__(self, arrays: VectorPlaces, args: Sequence[Any], first: int, columns: list[Any]):
        self.arrays, self.builder, self.args = arrays, arrays.builder, args
        self.first, self.columns = first, columns
        self.numbers = args[first : first + 5]

    def each(self, made: Callable[[Code], list[Any]]) -> list[Any]:
        """Call `made` for each kind of conversion, in separate branches, and join the vectors."""
        builder, args, addends = self.builder, self.args, self.first + 5
        even, table = self.numbers[2], args[addends + 3]
        from_zero = self.arrays.empty(args, addends)
        floor = builder.icmp_signed("==", even, ir.Constant(_I32, 0))
        coded = builder.icmp_signed("<", table, ir.Constant(table.type, 0))

        def choice(condition: Any, *kinds: Callable[[], list[Any]]) -> list[Any]:
            with builder.if_else(condition) as branches:
                found = []
                for branch, kind in zip(branches, kinds, strict=True):
                    with branch:
                        found.append((kind(), builder.block))
            (some, before), (others, behind) = found
            return _either(builder, some, before, others, behind)

        return choice(
            from_zero,
            lambda: choice(floor, lambda: made(self._plain()), lambda: made(self._to_even())),
            lambda: choice(coded, lambda: made(self._quotient()), lambda: made(self._level())),
        )

    def splats(self) -> list[Any]:
        """The five numbers as vectors."""
        return [splat(self.builder, a) for a in self.numbers]

    def _plain(self) -> Code:
        builder, (addend, step, _, lo, hi) = self.builder, self.splats()
        moved = [builder.add(column, addend) for column in self.columns]
        return lambda p, v: _limited(builder, builder.ashr(builder.add(p, moved[v]), step), lo, hi)

    def _to_even(self) -> Code:
        builder, (addend, step, even, lo, hi) = self.builder, self.splats()

        def code(p: Any, v: int) -> Any:
            x = builder.add(p, self.columns[v])
            tie = builder.and_(builder.ashr(x, step), even)
            rounded = builder.add(builder.add(x, addend), tie)
            return _limited(builder, builder.ashr(rounded, step), lo, hi)

        return code

    def _quotient(self) -> Code:
        builder, (rise, top, down, factor, shift) = self.builder, self.splats()
        added = self.arrays.vectors(self.args, self.first + 5, self.args[self.first + 6])
        moved = [
            builder.add(builder.shl(column, rise), addend)
            for column, addend in zip(self.columns, added, strict=True)
        ]

        def code(p: Any, v: int) -> Any:
            x = builder.add(builder.shl(p, rise), moved[v])
            x = builder.lshr(_limited(builder, x, _ZEROS, top), down)
            return builder.lshr(builder.mul(x, factor), shift)

        return code

    def _level(self) -> Code:
        builder, place = self.builder, self._quotient()
        pointer = self.arrays.pointer(self.args, self.first + 7, self.args[self.first + 8], _I32)
        pointers = ir.VectorType(ir.PointerType(), LANES)
        undefined = ir.Constant(pointers, ir.Undefined)
        one = builder.insert_element(undefined, pointer, ir.Constant(_I32, 0))
        # With one base for all lanes, the gather uses 32-bit indices.
        base = builder.shuffle_vector(one, undefined, _ZEROS)
        every = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [1] * LANES)
        align, name = ir.Constant(_I32, 4), "llvm.masked.gather.v16i32.v16p0"

        def code(p: Any, v: int) -> Any:
            places = builder.gep(base, [place(p, v)], source_etype=_I32)
            return call(builder, name, _LANES, places, align, every, _ZEROS)

        return code


def _limited(builder: Any, value: Any, lo: Any, hi: Any) -> Any:
    above = call(builder, "llvm.smax.v16i32", _LANES, value, lo)
    return call(builder, "llvm.smin.v16i32", _LANES, above, hi)


def _either(
    builder: Any, some: Sequence[Any], before: Any, others: Sequence[Any], behind: Any
) -> list[Any]:
    """The vectors of the branch that was taken."""
    chosen = [builder.phi(_LANES) for _ in some]
    for phi, one, other in zip(chosen, some, others, strict=True):
        phi.add_incoming(one, before)
        phi.add_incoming(other, behind)
    return chosen


@intrinsic
def accumulate(typing, codes, rows, at, owners, first, columns, of, total, to):  # type: ignore[no-untyped-def]
    """Add codes * rows[at + r] * columns[of + j] to total[to + owners[first + r] * 32 + j].

    If all rows have one owner, they are added up before the memory is written.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        parts, scales = _parts(builder, args[0]), arrays.vectors(args, 5, args[6])
        of_rows = []
        for r in range(codes.rows):
            factor = arrays.scalar(args, 1, arrays.after(args[2], r))
            own = parts[r * VECTORS : (r + 1) * VECTORS]
            of_rows.append([builder.mul(part, factor) for part in own])
        places = [arrays.after(args[4], r) for r in range(codes.rows)]
        held = [builder.load(arrays.pointer(args, 3, place, _I32)) for place in places]

        def add(owner: Any, values: Sequence[Any]) -> None:
            index = builder.zext(owner, args[8].type)
            start = builder.add(args[8], builder.mul(index, ir.Constant(index.type, WIDTH)))
            for v, value in enumerate(values):
                place = arrays.pointer(args, 7, arrays.after(start, v * LANES), _LANES)
                added = builder.mul(value, scales[v])
                builder.store(builder.add(builder.load(place, align=4), added), place, align=4)

        same = ir.Constant(ir.IntType(1), 1)
        for owner in held[1:]:
            same = builder.and_(same, builder.icmp_signed("==", owner, held[0]))
        with builder.if_else(same) as (one_owner, several):
            with one_owner:
                add(held[0], [_sum(builder, column) for column in zip(*of_rows, strict=True)])
            with several:
                for owner, values in zip(held, of_rows, strict=True):
                    add(owner, values)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(codes, rows, i64, owners, i64, columns, i64, total, i64), emit


def _sum(builder: Any, values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = builder.add(total, value)
    return total


@intrinsic
def convert_stored(  # type: ignore[no-untyped-def]
    typing, p, at, one, two, three, four, five, addends, of, entries, table,
    columns, column, values, value, together, narrow, signs, total, to,
):  # fmt: skip
    """Convert 8 rows of sums p[at + 32 r + j] and add the weighted codes to a total.

    columns[column + j] is added to the sums. The arguments from `one` to `table` are as for
    `convert`. If the rows belong `together`, the codes of row r times values[value + r] are added
    to total[to + j]. Otherwise codes times values[value] are added to total[to + 32 r + j]. In both
    cases they are multiplied by signs[column + j]. If `narrow` (see `Epilogue`), two rows are
    converted in one vector.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        rows = _StoredRows(VectorPlaces(context, builder, signature.args), args)
        with builder.if_else(args[16]) as (in_pairs, one_by_one):
            with in_pairs:
                rows.count_pairs(_Pairs(rows.codes))
            with one_by_one:
                rows.codes.each(rows.count)
        return context.get_dummy_value()

    i32, i64, flag = types.int32, types.int64, types.boolean
    numbers = (i32, i32, i32, i32, i32, addends, i64, entries, i64)
    counts = (columns, i64, values, i64, flag, flag, signs, total, i64)
    return types.void(p, i64, *numbers, *counts), emit


class _StoredRows:
    """The rows of sums in the arguments of `convert_stored`, and the weights of their codes."""

    def __init__(self, arrays: VectorPlaces, args: Sequence[Any]):
        self.arrays, self.builder, self.args = arrays, arrays.builder, args
        column = args[12]
        self.codes = _Codes(arrays, args, 2, arrays.vectors(args, 11, column))
        self.signs = arrays.vectors(args, 17, column)

    def count(self, code: Code) -> list[Any]:
        """Add the weighted codes of every row to the total; returns no vectors."""
        builder = self.builder
        with builder.if_else(self.args[15]) as (one_row, a_row_each):
            with one_row:
                total = [_ZEROS] * VECTORS
                for r in range(STORED_ROWS):
                    value = splat(builder, self._value(r))
                    for v, p in enumerate(self._sums(r)):
                        total[v] = builder.add(total[v], builder.mul(code(p, v), value))
                self._add_signed(total)
            with a_row_each:
                factors = self._factors()
                for r in range(STORED_ROWS):
                    for v, p in enumerate(self._sums(r)):
                        counted = builder.mul(code(p, v), factors[v])
                        place, old = self._total(r, v)
                        builder.store(builder.add(old, counted), place, align=4)
        return []

    def count_pairs(self, pairs: _Pairs) -> None:
        """Add the weighted codes to the total, two rows at a time."""
        builder, starts = self.builder, range(0, STORED_ROWS, 2)
        with builder.if_else(self.args[15]) as (one_row, a_row_each):
            with one_row:
                total = [_ZEROS] * VECTORS
                for r in starts:
                    low, high = (splat(builder, self._value(i)) for i in (r, r + 1))
                    values = pairs.both(low, high)
                    for v, (p, q) in enumerate(self._pairs(r)):
                        total[v] = pairs.add_products(total[v], pairs.codes(p, q, v), values)
                self._add_signed(total)
            with a_row_each:
                factors = [pairs.apart(factor) for factor in self._factors()]
                for r in starts:
                    for v, (p, q) in enumerate(self._pairs(r)):
                        made = pairs.codes(p, q, v)
                        for i, factor in enumerate(factors[v]):
                            place, old = self._total(r + i, v)
                            added = pairs.add_products(old, made, factor)
                            builder.store(added, place, align=4)

    def _sums(self, r: int) -> list[Any]:
        return self.arrays.vectors(self.args, 0, self.arrays.after(self.args[1], r * WIDTH))

    def _pairs(self, r: int) -> list[tuple[Any, Any]]:
        return list(zip(self._sums(r), self._sums(r + 1), strict=True))

    def _value(self, r: int) -> Any:
        index = self.arrays.after(self.args[14], r)
        return self.builder.load(self.arrays.pointer(self.args, 13, index, _I32))

    def _factors(self) -> list[Any]:
        """The factors of codes in each column, if all rows have the first row's value."""
        value = splat(self.builder, self._value(0))
        return [self.builder.mul(sign, value) for sign in self.signs]

    def _total(self, r: int, v: int) -> tuple[Any, Any]:
        """The address of vector v of the total's row r, and its content."""
        index = self.arrays.after(self.args[19], r * WIDTH + v * LANES)
        place = self.arrays.pointer(self.args, 18, index, _LANES)
        return place, self.builder.load(place, align=4)

    def _add_signed(self, counted: Sequence[Any]) -> None:
        for v, (value, sign) in enumerate(zip(counted, self.signs, strict=True)):
            place, old = self._total(0, v)
            added = self.builder.add(old, self.builder.mul(value, sign))
            self.builder.store(added, place, align=4)


class _Pairs:
    """16-bit codes that count from zero. The halves of a lane hold the codes of two rows."""

    def __init__(self, codes: _Codes):
        self.builder = builder = codes.builder
        addend, self.step, _, lo, hi = codes.splats()
        self.rise = builder.sub(_every(HALF), self.step)
        self.moved = [builder.add(column, addend) for column in codes.columns]
        self.lo, self.hi = (self._halves(self.both(limit, limit)) for limit in (lo, hi))

    def both(self, low: Any, high: Any) -> Any:
        """Join the low halves of two vectors: `low` stays low, `high` moves to the high halves."""
        return self._joined(low, self.builder.shl(high, _every(HALF)))

    def apart(self, value: Any) -> tuple[Any, Any]:
        """The low halves in two vectors, once kept low and once moved high, beside zeros."""
        low, half = _every((1 << HALF) - 1), _every(HALF)
        return self.builder.and_(value, low), self.builder.shl(value, half)

    def codes(self, p: Any, q: Any, v: int) -> Any:
        """The codes of sums p in the low halves, and of sums q in the high halves."""
        builder = self.builder
        low, high = (builder.add(one, self.moved[v]) for one in (p, q))
        x = self._joined(builder.ashr(low, self.step), builder.shl(high, self.rise))
        above = call(builder, "llvm.smax.v32i16", _HALVES, self._halves(x), self.lo)
        limited = call(builder, "llvm.smin.v32i16", _HALVES, above, self.hi)
        return builder.bitcast(limited, _LANES)

    def add_products(self, total: Any, codes: Any, factors: Any) -> Any:
        """The total plus the products of the low halves and of the high halves."""
        builder, half = self.builder, _every(HALF)
        if VNNI_BITS == 512:
            return call(builder, "llvm.x86.avx512.vpdpwssd.512", _LANES, total, codes, factors)
        low = [builder.ashr(builder.shl(x, half), half) for x in (codes, factors)]
        high = [builder.ashr(x, half) for x in (codes, factors)]
        return _sum(builder, [total, builder.mul(*low), builder.mul(*high)])

    def _joined(self, low: Any, high: Any) -> Any:
        """Join the low halves of one vector and the high halves of another."""
        mask = (1 << HALF) - 1
        kept = self.builder.and_(low, _every(mask)), self.builder.and_(high, _every(mask << HALF))
        return self.builder.or_(*kept)

    def _halves(self, value: Any) -> Any:
        return self.builder.bitcast(value, _HALVES)


def _every(number: int) -> Any:
    return ir.Constant(_LANES, [number] * LANES)


@intrinsic
def cut_line(typing, x, at, lift, shift, mask, signs, lowest, out, to):  # type: ignore[no-untyped-def]
    """Write the digits of 64 int32 inputs x[at + k], less the lowest, as bytes out[to + k].

        (x + lift) >> shift & mask

    If `signs` is -1 and not 0, the magnitude of x + lift is cut, and the digit gets its sign.
    Returns the sum of the digits.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        lift, shift, mask, signs, lowest = (splat(builder, one) for one in args[2:7])
        few = ir.VectorType(ir.IntType(8), LANES)
        total = _ZEROS
        for start in range(0, 4 * LANES, LANES):
            place = arrays.pointer(args, 0, arrays.after(args[1], start), _LANES)
            value = builder.add(builder.load(place, align=4), lift)
            sign = builder.and_(builder.ashr(value, _every(31)), signs)
            size = builder.sub(builder.xor(value, sign), sign)
            digit = builder.and_(builder.ashr(size, shift), mask)
            digit = builder.sub(builder.xor(digit, sign), sign)
            total = builder.add(total, digit)
            made = builder.trunc(builder.sub(digit, lowest), few)
            to = arrays.pointer(args, 7, arrays.after(args[8], start), few)
            builder.store(made, to, align=1)
        return call(builder, "llvm.vector.reduce.add.v16i32", _I32, total)

    i32, i64 = types.int32, types.int64
    return i32(x, i64, i32, i32, i32, i32, i32, out, i64), emit


@intrinsic
def bits(typing, values, at, plane):  # type: ignore[no-untyped-def]
    """Bit `plane` of the int32 elements at..at+31 of `values` as one word; the first is lowest."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        one, zero = (ir.Constant(_LANES, [n] * LANES) for n in (1, 0))
        plane = builder.shl(one, splat(builder, args[2]))
        word = ir.Constant(_I32, 0)
        for v in range(2):
            place = arrays.pointer(args, 0, arrays.after(args[1], v * LANES), _LANES)
            lanes = builder.and_(builder.load(place, align=4), plane)
            mask = builder.bitcast(builder.icmp_unsigned("!=", lanes, zero), ir.IntType(LANES))
            part = builder.shl(builder.zext(mask, _I32), ir.Constant(_I32, v * LANES))
            word = builder.or_(word, part)
        return word

    return types.int32(values, types.int64, types.int32), emit
