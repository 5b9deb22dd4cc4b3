"""The local functions of domain `cim` that integer files call: the steps of the hardware, by name.

Runtimes inline them; a viewer shows one node for each requantisation and each row group. Their
nodes are written as ONNX's own text, one a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from onnx import FunctionProto, TensorProto, parser

DOMAIN = "cim"
OPSET = 21
IR_VERSION = 10


def function(name: str, doc: str, lines: Iterable[str]) -> FunctionProto:
    """The function of these nodes; it returns the value of the last one.

    Its inputs are the names that are read before a node makes them, in the order of their use. If a
    name is made again, later nodes read the new value.
    """
    body = "\n".join(lines)
    made: FunctionProto = parser.parse_function(
        f'<domain: "{DOMAIN}", opset_import: ["": {OPSET}]> {name} () => () {{ {body} }}'
    )
    made.doc_string = doc
    latest: dict[str, str] = {}
    for position, node in enumerate(made.node):
        for read in node.input:
            if read not in latest:
                latest[read] = read
                made.input.append(read)
        node.input[:] = [latest[read] for read in node.input]
        for index, value in enumerate(node.output):
            latest[value] = f"{value}_{position}" if value in latest else value
            node.output[index] = latest[value]
        node.name = node.output[0]
    made.output.append(made.node[-1].output[0])
    return made


def cast_line(value: str, to: str) -> str:
    """The line of a Cast to a named ONNX element type, under the value's own name."""
    return f"{value} = Cast <to = {TensorProto.DataType.Value(to)}> ({value})"


REQUANT = function(
    "Requant",
    "Requantisation: (x * multiplier + 2^(shift-1)) >> shift, arithmetic shift, half up, per "
    "tensor or per channel. addend = period * 2^shift + 2^(shift-1) and period = 2^62 // 2^shift "
    "keep the value above zero, because BitShift takes unsigned integers only.",
    [
        "product = Mul (x, multiplier)",
        "lifted = Add (product, addend)",
        cast_line("lifted", "UINT64"),
        'shifted = BitShift <direction = "RIGHT"> (lifted, shift)',
        cast_line("shifted", "INT64"),
        "y = Sub (shifted, period)",
    ],
)

SHIFT_RIGHT_8 = function(
    "ShiftRight8",
    "Arithmetic shift of int64 right by one byte, for |x| < lift = 2^62: BitShift takes unsigned "
    "integers only, so the value is lifted above zero and lowered = 2^54 taken off.",
    [
        "lifted = Add (x, lift)",
        cast_line("lifted", "UINT64"),
        'shifted = BitShift <direction = "RIGHT"> (lifted, eight)',
        cast_line("shifted", "INT64"),
        "y = Sub (shifted, lowered)",
    ],
)


def row_group_mvm(inputs: int, weights: int, wide: bool) -> FunctionProto:
    """One row group without conversion, for a number of byte planes of inputs and of weights."""
    planes = "" if (inputs, weights) == (1, 1) else f"{inputs}x{weights}"
    return function(
        f"RowGroupMvm{planes}{'Wide' if wide else ''}",
        "One row group of a layer whose converters are lossless: slices and cycles merge into "
        "one integer product per byte plane. x: rows of inputs [n, K], cut to the group's; "
        "w: weights [rows, N]; both uint8 with their zero points.",
        row_group_product(inputs, weights, wide),
    )


def row_group_product(inputs: int, weights: int, wide: bool) -> Iterator[str]:
    """`sums`, the products of all byte planes over a group's rows: int32, or int64 if `wide`."""
    for i in range(inputs):
        yield f"driven{i} = Slice (x{i}, first, end, axis)"
    for i, j in product(range(inputs), range(weights)):
        term = "term" if i or j else "sums"
        yield f"{term} = MatMulInteger (driven{i}, w{j}, x{i}_zero, w{j}_zero)"
        if wide:
            yield cast_line(term, "INT64")
        if i or j:
            yield f"term = Mul (term, byte{i + j})"
            yield "sums = Add (sums, term)"
