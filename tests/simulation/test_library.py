"""The library's product gives the integers of the readable one, and is taken where it is faster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.simulation.kernels import library
from cimtool.simulation.kernels.products import Factor, weight_product
from cimtool.simulation.kernels.tiles import VNNI_BITS

K, N = 300, 257

pytestmark = pytest.mark.skipif(not VNNI_BITS, reason="this CPU has no VNNI: never taken")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No choice of another test."""
    caches = library._faster, library._right, library._warn
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Extents of the products that the library is asked for."""
    found: list[int] = []
    made = library.product

    def product(weight, *rest):
        found.append(len(weight))
        return made(weight, *rest)

    monkeypatch.setattr(library, "product", product)
    return found


def drawn(lo: int, hi: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.integers(lo, hi, (70, K), endpoint=True)
    x[0], x[1] = lo, hi
    weight = rng.integers(-128, 127, (K, N), endpoint=True)
    weight[:, 0], weight[:, 1] = -128, 127
    return x, weight, rng.integers(-9999, 9999, N)


@pytest.mark.parametrize(
    ("lo", "hi", "kind"),
    [(0, 255, np.uint8), (-127, 127, np.int8), (-128, 127, np.int64), (-3, 200, np.int16)],
)
@pytest.mark.parametrize("name", [library.OWN, library.LIBRARY])
def test_both_give_the_integers_of_the_readable_product(
    monkeypatch: pytest.MonkeyPatch, taken: list[int], name: str, lo: int, hi: int, kind: type
) -> None:
    monkeypatch.setenv(library.LOSSLESS, name)
    x, weight, bias = drawn(lo, hi)
    known = Factor(np.full(K, lo), np.full(K, hi))
    for made in (np.int32, np.int64):
        run = weight_product(weight, bias, known, made)
        found = run(x.astype(kind))
        np.testing.assert_array_equal(found, x @ weight + bias)
        assert found.dtype == made
        assert run(x[:0].astype(kind)).shape == (0, N)
    assert (K in taken) == (name == library.LIBRARY)


SMALL, WIDE = "fewer than 256 inputs or outputs", "inputs or weights of more than 8 bits"


@pytest.mark.parametrize(
    ("weight", "limits", "reason"),
    [
        (np.full((K, N), 128), (0, 255), WIDE),
        (np.zeros((K, N), int), (-1, 255), WIDE),
        (np.zeros((255, 2048), int), (0, 255), SMALL),
        (np.zeros((0, N), int), (0, 255), SMALL),
    ],
)
def test_wider_numbers_and_small_layers_are_not_for_it(
    monkeypatch: pytest.MonkeyPatch, weight: np.ndarray, limits: tuple[int, int], reason: str
) -> None:
    monkeypatch.setenv(library.LOSSLESS, library.LIBRARY)
    with pytest.warns(RuntimeWarning, match=f"^CIMTOOL_LOSSLESS is onnxruntime, but .*{reason}"):
        assert not library.takes(weight, limits)
    with warnings.catch_warnings(action="error"):
        assert not library.takes(weight, limits)  # said once
    monkeypatch.delenv(library.LOSSLESS)
    library._warn.cache_clear()
    with warnings.catch_warnings(action="error"):
        assert not library.takes(weight, limits)


def test_a_product_of_wider_inputs_says_that_the_library_is_not_used(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    monkeypatch.setenv(library.LOSSLESS, library.LIBRARY)
    wide = Factor(np.full(K, -(1 << 19)), np.full(K, 1 << 19))
    with pytest.warns(RuntimeWarning, match=WIDE):
        weight_product(np.ones((K, N), int), np.zeros(N, int), wide)
    assert not taken


def test_a_cpu_without_vnni_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.LOSSLESS, library.LIBRARY)
    monkeypatch.setattr(library, "VNNI_BITS", 0)
    with pytest.warns(RuntimeWarning, match="no VNNI, or it is switched off; own is used there"):
        assert not library.takes(np.zeros((K, N), int), (0, 255))


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.LOSSLESS, "torch")
    with pytest.raises(CimError, match="CIMTOOL_LOSSLESS is torch; expected own or onnxruntime"):
        library.takes(np.zeros((K, N), int), (0, 255))


def test_it_is_measured_once_for_extents_of_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def faster(key: str, measure: object) -> bool:
        asked.append(key)
        return True

    monkeypatch.delenv(library.LOSSLESS, raising=False)
    monkeypatch.setattr(library, "faster", faster)
    for rows in (K, K + 50):
        assert library.takes(np.zeros((rows, N), int), (0, 255))
    (key,) = asked
    assert key.startswith("onnxruntime")
    assert key.endswith(", 256x256")


def test_a_library_whose_sums_saturate_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturating(weight, bias, limits):
        return lambda x: np.clip(x.astype(np.int64) @ weight + bias, -(1 << 15), (1 << 15) - 1)

    monkeypatch.setenv(library.LOSSLESS, library.LIBRARY)
    monkeypatch.setattr(library, "product", saturating)
    with pytest.warns(RuntimeWarning, match="ONNX Runtime product"):
        assert not library.takes(np.zeros((K, N), int), (0, 255))


def test_the_measurement_runs() -> None:
    assert library._measured(256, 256) > 0
