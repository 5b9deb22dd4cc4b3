"""Memory of a gallery: arrays and chips by hand, items a chip by trial, limits that refuse."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.costs.memory_use import StoredMatrix, check_chips, memory_use, most_items
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import Target, load_target
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import integer

D = 1024


def gallery(target: Target, items: int, bits: tuple[int, ...] = (8, 8, 15, 15)) -> Graph:
    """Four matrices [D, items] of so many bits, the first of them driven twice."""
    own = resolve(target, None, {})
    builder = Builder("score", {"text.mu": integer(("n", D), -127, 127, 1.0)})
    known = builder.types["text.mu"]
    for index, width in enumerate((bits[0], *bits)):
        value = (1 << width - 1) - 1 - (index > 1) * index
        weight = np.full((D, items), value, np.int64)
        crossbar = own.with_weights(width).crossbar(own.input_code(known))
        stored, steps = StoredWeights(weight, crossbar), crossbar.no_references
        op = CrossbarMvm(stored, np.zeros(items, np.int64), np.float64(1.0), steps)
        builder.add(f"product{index}", op, "text.mu")
    return Graph("score", builder.inputs, tuple(builder.by_name.values()), {})


def with_figures(target: Target, **values: float) -> SimpleNamespace:
    figures = [SimpleNamespace(quantity=k, value=v) for k, v in values.items()]
    return SimpleNamespace(array=target.array, hierarchy=target.hierarchy, figures=figures)


def test_a_hermes_chip_holds_1024_items_at_one_weight_a_value() -> None:
    target = load_target("hermes-pcm-14nm")
    use = memory_use(gallery(target, 300), resolve(target, None, {}), target)
    assert use.items_at_one_weight == 1024
    # 1024 rows are 4 tiles. An array has 256 columns of 8-bit weights, 128 of two slices each:
    # 64 arrays hold 16 columns of arrays, 2 for mu, 2 for s and 2 * 4 for the wide ones.
    assert use.items_per_chip == 640
    assert [matrix.arrays for matrix in use.matrices] == [8, 8, 12, 12]
    assert (use.arrays, use.chips, use.arrays_per_chip) == (40, 1, 64)
    assert [len(matrix.drives) for matrix in use.matrices] == [2, 1, 1, 1]
    assert use.cells == D * 300 * (2 + 2 + 4 + 4)


def test_what_a_target_does_not_give_is_not_known() -> None:
    target = load_target("ideal")
    use = memory_use(gallery(target, 3), resolve(target, None, {}), target)
    known = (use.arrays_per_chip, use.chips, use.items_per_chip, use.items_at_one_weight)
    assert known == (None,) * 4
    assert (use.arrays, use.writes, use.programmings) == (4, None, None)


def test_writes_against_endurance() -> None:
    target = load_target("hermes-pcm-14nm")
    figures = with_figures(target, write_pulses=20, endurance=1e6)
    use = memory_use(gallery(target, 2), resolve(target, None, {}), figures)  # type: ignore[arg-type]
    assert (use.writes, use.programmings) == (20 * use.cells, 50_000)
    figures = with_figures(target, endurance=1e6)
    use = memory_use(gallery(target, 2), resolve(target, None, {}), figures)  # type: ignore[arg-type]
    assert (use.writes, use.programmings) == (None, 1e6)


matrices = st.builds(
    StoredMatrix, rows=st.just(8), items=st.just(1), weight_bits=st.just(8),
    encoding=st.just("offset"), slices=st.just(4), cells_per_value=st.just(4),
    row_tiles=st.integers(1, 4), across=st.integers(1, 9), columns=st.integers(1, 4),
    drives=st.just(()),
)  # fmt: skip


@given(st.lists(matrices, min_size=1, max_size=4), st.integers(0, 60))
def test_most_items_is_the_last_that_fits(found: list[StoredMatrix], arrays: int) -> None:
    def needed(items: int) -> int:
        return sum(matrix.arrays_for(items) for matrix in found)

    most = most_items(found, arrays)
    assert most is not None
    assert most == 0 or needed(most) <= arrays
    assert needed(most + 1) > arrays


def test_a_gallery_that_does_not_fit_is_refused() -> None:
    target = load_target("hermes-pcm-14nm")
    use = memory_use(gallery(target, 1500), resolve(target, None, {}), target)
    check_chips(use, target, 3)
    with pytest.raises(
        CimError,
        match="gallery: 1,500 items take 144 arrays and 2 hermes-pcm-14nm chips have 128, which "
        "cannot be rewritten for each query; expected at most 1,280 items, or chips 3",
    ):
        check_chips(use, target, 2)
    check_chips(use, target.model_copy(update={"rewritable": "per-inference"}), 2)
    with pytest.raises(CimError, match="chips is 0; expected at least 1"):
        check_chips(use, target, 0)


def test_chips_of_a_target_without_a_size_cannot_be_counted() -> None:
    target = load_target("ideal")
    use = memory_use(gallery(target, 3), resolve(target, None, {}), target)
    with pytest.raises(CimError, match=r"target ideal does not say how many arrays a chip has"):
        check_chips(use, target, 1)
