"""The fields of a hand-off's JSON files, by name, as FORMAT.md explains them.

A name in capitals stands for several: LAYER a layer, FILE a path, PART a subfolder, DIE a die.
"""

from __future__ import annotations

CROSSBAR = "the settings of its arrays, as the bundle has them; none is needed to read the files"

HANDOFF_FIELDS = {
    "format_version": "1; a reader refuses others",
    "parts": "the subfolders that were exported",
    "bundle": "the model's name",
    "manifest_sha256": "SHA-256 of the bundle's `manifest.json`",
    "target": "the target's parameters",
    "layers.LAYER.rows": "rows of its weights",
    "layers.LAYER.columns": "columns of its weights",
    "layers.LAYER.row_groups": "first row and last row + 1 of each row group",
    "layers.LAYER.lossless": "true if every conversion is proved to lose nothing",
    "layers.LAYER.crossbar": CROSSBAR,
    "dies": "how dies were drawn, with `bit_exact` false",
    "files.FILE": "SHA-256 of each file",
}

IMAGES_FIELDS = {
    "format_version": "1",
    "order": "the target's table `[image]`; Cells above says it in words",
    "array_rows": "word lines of an array",
    "array_columns": "cells of a word line",
    "layers.LAYER.rows": "rows of its weights",
    "layers.LAYER.columns": "columns of its weights",
    "layers.LAYER.array_rows": "rows of weights in an array",
    "layers.LAYER.array_columns": "weights side by side in an array",
    "layers.LAYER.encoding": "name of the weight code",
    "layers.LAYER.weight_bits": "bits of a weight",
    "layers.LAYER.cell_bits": "bits of a cell",
    "layers.LAYER.slices": "of each slice: its cells count `sign * factor << shift`; `signed`: in "
    "two's complement",
    "layers.LAYER.polarities": "2 if a digit is a pair of cells",
    "layers.LAYER.pairs": "`columns` or `rows`: where the cells of a pair lie side by side",
    "layers.LAYER.baseline": "what a cell of the digit 0 holds",
    "layers.LAYER.complement": "a flagged column holds this less its digits",
    "layers.LAYER.offset": "what digits of a weight count beyond the weight",
    "layers.LAYER.flips": "true if there are files of flags",
    "layers.LAYER.unit_column": "true if an array has a unit column",
    "layers.LAYER.reference_column": "true if an array has a reference column",
    "layers.LAYER.row_groups": "first row and last row + 1 of each row group",
    "layers.LAYER.weights_sha256": "SHA-256 of the weights, row by row, as little-endian integers "
    "of 64 bits",
    "layers.LAYER.arrays": "of each array: `name`; `number` in the order of placing and `core` of "
    "the chip; `rows` and `columns` of the layer that it holds; `row_sums` and `column_sums` of "
    "its cells, as word lines and places on them lie in the array",
}

TAPS_FIELDS = {
    "vectors.LAYER": "the names of its inputs, in their order",
    "ends.FILE": "`axes` and `shape` of a file of `text/`, `video/` or `score/`; the last axis "
    "runs fastest",
}

COVERAGE_FIELDS = {
    "LAYER.codes": "of each converter, by its converted slice `converter` and by `cycle`: its "
    "`codes`, those `reached_by_taps`, those `reached` by `taps/` and `directed/` together, those "
    "that are `missing`, and `why`",
    "LAYER.counts.rows": "the most rows that are driven together",
    "LAYER.counts.reached": "the numbers of rows that conduct in `counts.txt`, over slices and "
    "bits of cells",
    "LAYER.counts.largest_of_slice": "the largest number of rows of each slice",
    "LAYER.counts.why": "the reason that larger numbers are left out, if some are",
    "LAYER.inputs.vectors": "vectors of `make random` that step each row through its range",
    "LAYER.inputs.possible": "inputs that rows can get, over all rows",
    "LAYER.inputs.reached": "those that they get",
    "LAYER.inputs.why": "the reason that some rows do not get all, if so",
    "LAYER.carries.bits": "bits of the accumulator",
    "LAYER.carries.reached": "bits of the largest magnitude that `taps/` has in it",
    "LAYER.carries.proved_unreachable": "higher bits that no input within the proved ranges sets",
    "LAYER.carries.not_found": "bits that no vector sets and no proof excludes",
    "LAYER.carries.why": "the reason that vectors set no higher bits",
}

CAM_FIELDS = {
    "search": "the name of the search",
    "queries": "names of the queries, in their order; `text row N` is vector N of `taps/text`",
    "cam": "the memory, as its file has it",
}

DIES_FIELDS = {
    "what": "that dies are statistics",
    "trials": "dies that were drawn",
    "time": "age of the cells at reading, as it was asked for",
    "corner": "the corner of the noise model",
    "compensation": "of drift",
    "model": "the noise model that was asked for; null: the target's",
    "seed": "of the dies",
    "read": "the age at reading, and the corner",
    "layers.DIE": "of each die and layer: `lane_bits` of cells, sums and codes; `fraction_bits`, "
    "the binary places of cells and sums; `leak`, what an erased cell conducts in them",
}
