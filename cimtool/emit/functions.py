"""The local functions of domain `cim` that integer files call: what the hardware does, by name.

Runtimes inline them; a viewer shows one node for each requantisation and each row group.
"""

from __future__ import annotations

from typing import Any

from onnx import FunctionProto, NodeProto, TensorProto, helper

DOMAIN = "cim"
OPSET = 21
IR_VERSION = 10


class Body:
    """Collects the nodes of one function; a node and its value have the same name."""

    def __init__(self, name: str, doc: str, inputs: tuple[str, ...] = ()):
        self.name = name
        self.doc = doc
        self.inputs = list(inputs)
        self.nodes: list[NodeProto] = []

    def input(self, name: str) -> str:
        """Declare an input, unless it is one already."""
        if name not in self.inputs:
            self.inputs.append(name)
        return name

    def add(self, value: str, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append one node that makes `value`."""
        self.nodes.append(helper.make_node(op_type, inputs, [value], value, **attributes))
        return value

    def split(self, value: str, whole: str, count: int) -> list[str]:
        """Append a Split of the last axis into `count` equal parts."""
        parts = [f"{value}{index}" for index in range(count)]
        self.nodes.append(
            helper.make_node("Split", [whole], parts, value, axis=-1, num_outputs=count)
        )
        return parts

    def split_last(self, value: str, last: str, whole: str, widths: str) -> tuple[str, str]:
        """Append a Split of the last axis into `value` and the column `last`, of these widths."""
        self.nodes.append(helper.make_node("Split", [whole, widths], [value, last], value, axis=-1))
        return value, last

    def cast(self, value: str, source: str, to: int) -> str:
        """Append a Cast to an ONNX element type."""
        return self.add(value, "Cast", source, to=to)

    def total(self, value: str, terms: list[str]) -> str:
        """Append a chain of Add (ReduceSum is not exact for integers in ONNX Runtime)."""
        so_far = terms[0]
        for index, term in enumerate(terms[1:], start=1):
            so_far = self.add(f"{value}_{index}", "Add", so_far, term)
        return so_far

    def function(self, output: str) -> FunctionProto:
        """The finished function, which returns `output`."""
        return helper.make_function(
            DOMAIN,
            self.name,
            self.inputs,
            [output],
            self.nodes,
            [helper.make_opsetid("", OPSET)],
            doc_string=self.doc,
        )


def requant() -> FunctionProto:
    """`(x * multiplier + 2^(shift-1)) >> shift` on int64, per tensor or per channel.

    ONNX shifts unsigned integers only: a multiple of 2^shift lifts the product above zero
    (`addend` holds it and the half), and `period` = 2^62 // 2^shift takes it off again.
    """
    body = Body(
        "Requant",
        "Requantisation: (x * multiplier + 2^(shift-1)) >> shift, arithmetic shift, half up. "
        "addend = period * 2^shift + 2^(shift-1) and period = 2^62 // 2^shift keep the value "
        "above zero, because BitShift takes unsigned integers only.",
        ("x", "multiplier", "addend", "shift", "period"),
    )
    product = body.add("product", "Mul", "x", "multiplier")
    lifted = body.cast("lifted", body.add("rounded", "Add", product, "addend"), TensorProto.UINT64)
    shifted = body.add("shifted", "BitShift", lifted, "shift", direction="RIGHT")
    wide = body.cast("wide", shifted, TensorProto.INT64)
    return body.function(body.add("y", "Sub", wide, "period"))


def shift_right_8() -> FunctionProto:
    """`x >> 8` on int64: what is above the low byte, for |x| < 2^62."""
    body = Body(
        "ShiftRight8",
        "Arithmetic shift of int64 right by one byte, for |x| < lift = 2^62: BitShift takes "
        "unsigned integers only, so the value is lifted above zero and lowered = 2^54 taken off.",
        ("x", "lift", "eight", "lowered"),
    )
    lifted = body.cast("lifted", body.add("above", "Add", "x", "lift"), TensorProto.UINT64)
    shifted = body.add("shifted", "BitShift", lifted, "eight", direction="RIGHT")
    wide = body.cast("wide", shifted, TensorProto.INT64)
    return body.function(body.add("y", "Sub", wide, "lowered"))


def row_group_mvm(inputs: int, weights: int, wide: bool) -> FunctionProto:
    """One row group without conversion: so many byte planes of inputs and of weights."""
    name = "RowGroupMvm"
    if (inputs, weights) != (1, 1):
        name += f"{inputs}x{weights}"
    body = Body(
        name + ("Wide" if wide else ""),
        "One row group of a layer whose converters are lossless: slices and cycles merge into "
        "one integer product per byte plane. x: rows of inputs [n, K], cut to the group's; "
        "w: weights [rows, N]; both uint8 with their zero points.",
    )
    return body.function(column_sums(body, inputs, weights, wide))


def column_sums(body: Body, inputs: int, weights: int, wide: bool) -> str:
    """Append the products of all byte planes over the group's rows: int32, or int64 if `wide`."""
    bounds = [body.input(name) for name in ("first", "end", "axis")]
    driven = [
        (body.add(f"driven{i}", "Slice", body.input(f"x{i}"), *bounds), body.input(f"x{i}_zero"))
        for i in range(inputs)
    ]
    cells = [(body.input(f"w{j}"), body.input(f"w{j}_zero")) for j in range(weights)]
    terms = []
    for i, (x, x_zero) in enumerate(driven):
        for j, (w, w_zero) in enumerate(cells):
            term = body.add(f"mvm{i}{j}", "MatMulInteger", x, w, x_zero, w_zero)
            if wide:
                term = body.cast(f"wide{i}{j}", term, TensorProto.INT64)
            if i or j:
                term = body.add(f"shifted{i}{j}", "Mul", term, body.input(f"byte{i + j}"))
            terms.append(term)
    return body.total("sums", terms)


FUNCTIONS = {"Requant": requant, "ShiftRight8": shift_right_8}
"""The functions that a file needs no details for."""
