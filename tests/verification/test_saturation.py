from __future__ import annotations

import numpy as np
import pytest

from cimtool.bundle.bundle import Bundle
from cimtool.ir.arithmetic import scalar
from cimtool.ir.integer import Quantize, Requant
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.reference.surrogate import Polynomial
from cimtool.simulation.simulator import Simulator
from cimtool.verification.saturation import Domain, clipped_count, domains, stored_values
from cimtool.verification.stages import encode

from .conftest import MakeBundle, pairs

LIMITED = {"ed": "ed", "vd": "vd"}


def lowered(bundle: Bundle) -> Simulator:
    return Simulator(next(s.program for s in bundle.stages if s.name == "lowered"))


def test_pairs_outside_the_domain_are_counted(bundle: Bundle) -> None:
    wide = pairs(9, seed=5)
    wide["text"][0] *= 40  # one text far from all videos, its right one too
    data = embeddings_of(wide)
    simulator = lowered(bundle)
    features = encode(simulator, data)
    ed, vd = domains(simulator, "lowered", features, data.truth, LIMITED)
    parts = [v["ed"] for _, v in simulator.iter_score(*features.values(), ["ed"])]
    values = np.concatenate(parts)
    outside = (values < ed.lo) | (values > ed.hi)
    assert (ed.statistic, vd.statistic) == ("ed", "vd")
    assert outside[0].all()
    assert ed.outside == outside.mean()
    assert ed.right_outside == np.count_nonzero(np.diag(outside)) >= 1
    assert (ed.seen_lo, ed.seen_hi) == (pytest.approx(values.min()), pytest.approx(values.max()))


def test_the_compiled_program_has_the_same_domain(bundle: Bundle, data: Embeddings) -> None:
    found = []
    for simulator in (lowered(bundle), Simulator(bundle.program)):
        found.append(domains(simulator, "any", encode(simulator, data), data.truth, LIMITED))
    for real, integer in zip(*found, strict=True):
        span = real.hi - real.lo
        for end in ("lo", "hi"):
            assert getattr(integer, end) == pytest.approx(getattr(real, end), abs=1e-4 * span)
        for end in ("seen_lo", "seen_hi"):
            assert getattr(integer, end) == pytest.approx(getattr(real, end), abs=0.05 * span)


def test_a_right_pair_that_saturates_is_a_warning() -> None:
    assert Domain("lowered", "ed", 0, 1, -1, 2, 0.5, 0, 10).warning() is None
    warning = Domain("lowered", "ed", 0, 1, -1, 2, 0.5, 3, 10).warning()
    assert warning is not None
    assert "lowered: 3 of 10 right pairs have ed outside [0, 1]" in warning


def test_clipped_elements_are_counted() -> None:
    rows = np.float32([[0.25, 9.0, -9.0, 1.0]])
    assert np.divide(*clipped_count(Quantize(scalar(0.25), -7, 7), rows)) == 0.5
    one, two = np.array(2**15), np.array(16)  # divides by two
    values = np.array([[-20, 6, 16, 40]])
    signed = Requant(one, two, -8, 7, scalar(1.0))
    unsigned = Requant(one, two, 0, 7, scalar(1.0))
    assert np.divide(*clipped_count(signed, values)) == 0.75
    assert np.divide(*clipped_count(unsigned, values)) == 0.5  # what ReLU cuts is not clipped


def test_every_stored_value_is_listed(bundle: Bundle, data: Embeddings) -> None:
    found = stored_values(lowered(bundle).program, Simulator(bundle.program), data)
    assert {(one.value, one.role) for one in found} >= {
        ("text.x.stored", "input"),
        ("video.relu1.stored", "activation"),
        ("text.mu_stored", "mu"),
    }
    assert all(0 <= one.clipped < 0.1 for one in found)
    far = embeddings_of({name: 100 * rows for name, rows in pairs(8).items()})
    worst = stored_values(lowered(bundle).program, Simulator(bundle.program), far)
    assert max(one.clipped for one in worst) > 0.5


def test_a_statistic_that_the_polynomial_does_not_use_has_no_domain(
    make_bundle: MakeBundle, data: Embeddings
) -> None:
    simulator = lowered(make_bundle("ed-only", Polynomial(1, (-0.1, 0.0), 0.0, a=0.1, b=0.0)))
    features = encode(simulator, data)
    found = domains(simulator, "lowered", features, data.truth, LIMITED)
    assert [domain.statistic for domain in found] == ["ed"]
