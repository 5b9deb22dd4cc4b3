"""Layers as a C program that computes them from cim.h, and compares every output."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from c_tools import STRICT, c_compiler

from cimtool.base.arrays import IntArray
from cimtool.handoff.c.operations import layer_definition
from cimtool.handoff.c.part import c_source
from cimtool.handoff.c.writer import ConstantTables
from cimtool.hardware.mvm import CrossbarMvm

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>

static int64_t numbers[NUMBERS], weights[WEIGHTS / 8 + 1];

int main(void) {
    FILE *file = fopen("numbers.bin", "rb");
    long compared = 0, differing = 0, at = 0;
    if (!file || fread(numbers, 8, NUMBERS, file) != NUMBERS)
        return 2;
    fclose(file);
    file = fopen("weights.bin", "rb");
    if (!file || fread(weights, 1, WEIGHTS, file) != WEIGHTS)
        return 2;
    fclose(file);
    for (int i = 0; i < LAYERS; i++)
        for (int row = 0; row < ROWS; row++) {
            const cim_layer *l = layers[i];
            int32_t *x = malloc(sizeof(int32_t) * (size_t)l->rows);
            int64_t *out = malloc(sizeof(int64_t) * (size_t)l->columns);
            if (!x || !out)
                return 2;
            for (int32_t r = 0; r < l->rows; r++)
                x[r] = (int32_t)numbers[at++];
            cim_mvm(weights, l, x, 0, l->columns, out);
            for (int32_t j = 0; j < l->columns; j++, compared++)
                if (out[j] != numbers[at++] && !differing++)
                    fprintf(stderr, "layer %d, row %d, column %ld\n", i, row, (long)j);
            free(x);
            free(out);
        }
    printf("%ld %ld\n", compared, differing);
    return 0;
}
"""


def compared(
    layers: Sequence[tuple[CrossbarMvm, IntArray, IntArray]],
    folder: Path,
    compiler: str,
    *flags: str,
) -> tuple[int, int]:
    """Count outputs of layers for inputs [rows, K], as compiled C has them, and those that differ.

    They are compared with the right outputs [rows, N], the last of each layer's.

    Raises CalledProcessError where the program is not clean, or ends with a fault.
    """
    tables, definitions, numbers = ConstantTables(), [], []
    for index, (op, x, right) in enumerate(layers):
        definitions.append(layer_definition(tables, f"l{index}", op.layer, wide_input=True))
        numbers.append(np.hstack([x, right]).reshape(-1))
    table = ", ".join(f"&l{index}_layer" for index in range(len(layers)))
    height = max(g.stop - g.start for op, _, _ in layers for g in op.stored.groups)
    places = "".join(f"    {name} = {place},\n" for name, _, place, _ in tables.items())
    flat = np.concatenate(numbers).astype("<i8")
    source = (
        f'#define CIM_GROUP_ROWS {height}\n#include "cim.h"\nenum {{\n{places}'
        f"    NUMBERS = {flat.size}, WEIGHTS = {tables.size}, LAYERS = {len(layers)}, "
        f"ROWS = {len(layers[0][1])}\n}};\n"
        + "\n".join(definitions)
        + f"static const cim_layer *const layers[] = {{{table}}};\n"
        + MAIN
    )
    (folder / "cim.h").write_text(c_source("cim.h"), "utf-8")
    (folder / "layers.c").write_text(source, "utf-8")
    (folder / "numbers.bin").write_bytes(flat.tobytes())
    content = b"".join(stored.tobytes() for _, _, _, stored in tables.items())
    (folder / "weights.bin").write_bytes(content)
    given = STRICT if compiler != "tcc" else ("-std=c99", "-Wall")
    command = [c_compiler(compiler), *given, *flags, "layers.c", "-o", "layers"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./layers"], cwd=folder, check=True, capture_output=True, text=True)
    count, differing = map(int, done.stdout.split())
    return count, differing
