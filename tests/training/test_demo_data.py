from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.loading.calibration_rows import row_digests
from cimtool.training.demo_data import DemoFiles, Pair, write_embeddings

VERBS = ("parse", "sort", "merge", "open", "close", "count", "hash", "split", "join", "scale")
NOUNS = ("matrix", "socket", "buffer", "thread", "vector", "kernel", "header", "window")
PAIRS = [
    Pair(f"{verb} every {noun}", f"for {noun} in {noun}s: {verb}({noun})")
    for verb in VERBS
    for noun in NOUNS
]


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return dict(held)


def test_the_files_hold_rows_of_both_sides(tmp_path: Path) -> None:
    files = DemoFiles.under(tmp_path)
    assert write_embeddings(PAIRS, files, 8, eval_rows=10, calibration_rows=20) == 70
    for path, rows in ((files.train, 70), (files.calibration, 20), (files.eval, 10)):
        found = arrays(path)
        assert {key: found[key].shape for key in found} == {"text": (rows, 8), "video": (rows, 8)}
        assert {found[key].dtype for key in found} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(
        arrays(files.calibration)["text"], arrays(files.train)["text"][:20]
    )


def test_no_row_that_evaluates_is_trained_on(tmp_path: Path) -> None:
    """Functions that differ in punctuation alone are two pairs with the same rows."""
    twins = [Pair(f"{pair.text}!", f"{pair.code};") for pair in PAIRS]
    files = DemoFiles.under(tmp_path)
    count = write_embeddings([*PAIRS, *twins], files, 8, eval_rows=10, calibration_rows=999)
    assert 140 <= count < 150
    for path in (files.train, files.calibration):
        found, held = arrays(path), arrays(files.eval)
        assert len(found["text"]) == len(found["video"]) == count
        for name in ("text", "video"):
            assert not np.isin(row_digests(found[name]), row_digests(held[name])).any()


def test_too_few_functions(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="80 pairs; expected more than 80"):
        write_embeddings(PAIRS, DemoFiles.under(tmp_path), 8, eval_rows=80, calibration_rows=1)
