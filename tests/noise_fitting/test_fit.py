"""Noise models fitted to measurements of synthetic chips hold what these were drawn from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval

from cimtool.base.errors import CimError
from cimtool.hardware.noise.spec import load_noise
from cimtool.noise_fitting.fit import NoiseFit, fit_noise

G_MAX, T0 = 20.0, 20.0
TRUTH = {
    "programming.sigma[0]": 0.3, "programming.sigma[1]": 1.1, "programming.sigma[2]": -0.5,
    "drift.mean[0]": 0.06, "drift.mean[1]": -0.03, "drift.sigma[0]": 0.01, "read.sigma": 0.02,
}  # fmt: skip
SIGMA, NU = [0.3, 1.1, -0.5], [0.06, -0.03]
DEVICES = "device,target,seconds,conductance\n"
SUMS = "target,rows,columns,mean,deviation\n"


def of_devices(seed: int, per: int = 100, times: int = 5) -> str:
    rng, x = np.random.default_rng(seed), np.repeat(np.linspace(0, 1, 5), per)
    g = np.maximum(G_MAX * x + polyval(x, SIGMA) * rng.normal(size=x.size), 0)
    nu = polyval(x, NU) + 0.01 * rng.normal(size=x.size)
    lines = [DEVICES]
    for t in T0 * 10.0 ** np.arange(times):
        read = g * (t / T0) ** -nu * (1 + 0.02 * rng.normal(size=x.size))
        lines += [f"{i},{20 * x[i]},{t},{read[i]}\n" for i in range(x.size)]
    return "".join(lines)


def of_sums(seed: int) -> str:
    rng, lines = np.random.default_rng(seed), [SUMS]
    for x in (0.25, 0.5, 0.75, 1.0):
        sums = G_MAX * x * 64 + polyval(x, SIGMA) * 8 * rng.normal(size=500)
        lines.append(f"{G_MAX * x},64,500,{sums.mean()},{sums.std(ddof=1)}\n")
    return "".join(lines)


def fitted(file: Path, content: str) -> NoiseFit:
    file.write_text(content)
    return fit_noise(file)


def missed(found: NoiseFit) -> list[str]:
    return [p.key for p in found.parameters if not p.low <= TRUTH[p.key] <= p.high]


def test_sums_below_zero_are_refused_and_far_means_told(tmp_path: Path) -> None:
    lines = [f"{t},64,500,{-64 * t},4\n" for t in (1, 5, 10, 25)]
    with pytest.raises(CimError, match="line 2: mean is -64; expected a sum of conductances"):
        fitted(tmp_path / "data.csv", "".join([SUMS, *lines]))
    near = [f"{t},64,500,{64 * t + 3},40\n" for t in (1, 5, 10, 25)]
    assert not any("farther" in n for n in fitted(tmp_path / "a.csv", "".join([SUMS, *near])).notes)
    far = [*near[:3], "25,64,500,1280,40\n"]
    (note,) = (n for n in fitted(tmp_path / "b.csv", "".join([SUMS, *far])).notes if "farther" in n)
    assert note.startswith("warning: 1 of 4 means are farther from their targets than columns ")
    assert "the mean for 25 uS is 20 uS per cell" in note


@pytest.mark.parametrize("kind", [of_devices, of_sums])
def test_intervals_hold_the_parameters_together(kind: Callable[[int], str], tmp_path: Path) -> None:
    found = [fitted(tmp_path / "data.csv", kind(seed)) for seed in range(10)]
    assert sum(bool(missed(one)) for one in found) <= 1
    assert {one.measurements for one in found} == {2500 if kind is of_devices else 2000}
    assert {p.key for p in found[0].parameters} == (
        set(TRUTH) if kind is of_devices else {key for key in TRUTH if "programming" in key}
    )


def test_the_file_is_a_noise_model(tmp_path: Path) -> None:
    found = fitted(tmp_path / "data.csv", of_devices(0))
    (tmp_path / "model.toml").write_text(found.text())
    model = load_noise(tmp_path / "model.toml")
    assert (model.g_max, model.t0) == (G_MAX, T0)
    assert [one.name for one in model.mechanisms] == ["programming", "drift", "read"]
    assert model == found.model
    alone = fitted(tmp_path / "data.csv", of_devices(0, times=1))
    assert [one.name for one in alone.model.mechanisms] == ["programming"]


def test_cells_at_zero_count_as_cut_off(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    reads = [(0.0, 0.5 * rng.normal(size=4000)), (20.0, 20 + 0.5 * rng.normal(size=100))]
    each = [(g, max(v, 0)) for g, values in reads for v in values]
    lines = [f"{i},{g:g},1,{v}\n" for i, (g, v) in enumerate(each)]
    first, second = fitted(tmp_path / "data.csv", DEVICES + "".join(lines)).parameters
    assert first.low < 0.5 < first.high
    assert first.high - first.low < 0.06
    assert second.low < 0.0 < second.high


@pytest.mark.filterwarnings("error")
def test_devices_that_are_as_programmed_have_no_error(tmp_path: Path) -> None:
    lines = [f"{i},{5 * (1 + i % 3)},1,{5 * (1 + i % 3)}\n" for i in range(150)]
    found = fitted(tmp_path / "data.csv", DEVICES + "".join(lines)).parameters
    assert {one.value for one in found} == {0.0}
    assert all(-1e-9 < one.low <= 0.0 <= one.high < 1e-9 for one in found)


def of_devices_with(sigma: float, drift: float, read: float, targets: int, seed: int) -> str:
    """Readings at five times of 60 devices of each target up to 20 uS, all at one sigma."""
    rng, g = np.random.default_rng(seed), np.repeat(np.linspace(0, 20, targets + 1)[1:], 60)
    start = g + sigma * rng.normal(size=g.size)
    nu = 0.05 + drift * rng.normal(size=g.size)
    lines = [DEVICES]
    for t in T0 * 10.0 ** np.arange(5):
        seen = start * (t / T0) ** -nu * (1 + read * rng.normal(size=g.size))
        lines += [f"{i},{g[i]},{t},{value}\n" for i, value in enumerate(seen.tolist())]
    return "".join(lines)


def test_sigma_below_read_noise_is_bound(tmp_path: Path) -> None:
    """Read noise of 2 uS at the largest target hides a programming error of 0.1 uS."""
    bound = 0
    for seed in range(6):
        found = fitted(tmp_path / "data.csv", of_devices_with(0.1, 0.01, 0.1, 7, seed))
        assert found.model is not None
        assert all(one.low <= one.value <= one.high for one in found.parameters)
        said = [note for note in found.notes if "programming.sigma without a bound is -" in note]
        bound += len(said)
        assert all(f"# {note}\n" in found.text() for note in found.notes)
    assert bound > 0


@pytest.mark.parametrize(
    ("sigma", "drift", "read"), [(1.0, 0.01, 0.0), (1.0, 0.0, 0.02), (0.0, 0.01, 0.02), (0, 0, 0)]
)
def test_intervals_of_parameters_that_are_zero_hold_it(
    sigma: float, drift: float, read: float, tmp_path: Path
) -> None:
    truth = {"programming.sigma[0]": sigma, "programming.sigma[1]": 0, "programming.sigma[2]": 0}
    truth |= {"drift.mean[0]": 0.05, "drift.mean[1]": 0}
    truth |= {"drift.sigma[0]": drift, "read.sigma": read}
    for seed in range(4):
        found = fitted(tmp_path / "data.csv", of_devices_with(sigma, drift, read, 5, seed))
        assert found.model is not None
        assert [p.key for p in found.parameters if not p.low <= truth[p.key] <= p.high] == []


def test_exact_sums_have_no_error(tmp_path: Path) -> None:
    lines = [f"{g},64,100,{64 * g},0\n" for g in (2.5, 5, 10, 20)]
    found = fitted(tmp_path / "data.csv", SUMS + "".join(lines))
    assert all(one.low <= 0 <= one.high for one in found.parameters)
    assert [one.value for one in found.parameters] == [0, 0, 0]


def test_three_targets_leave_no_freedom(tmp_path: Path) -> None:
    said = "warning: 3 targets leave programming.sigma no freedom: it meets each of them, and"
    (note,) = fitted(tmp_path / "data.csv", of_devices_with(1, 0.01, 0.02, 3, 0)).notes
    assert note.startswith(said)
    assert not fitted(tmp_path / "data.csv", of_devices_with(1, 0.01, 0.02, 4, 0)).notes
    two = fitted(tmp_path / "data.csv", of_devices_with(1, 0.01, 0.02, 2, 0)).notes
    assert [note.split(":")[1] for note in two] == [
        " 2 targets leave programming.sigma no freedom",
        " 2 targets leave drift.mean no freedom",
    ]


HOSTILE: dict[str, tuple[str, str]] = {
    "another table": ("a,b\n1,2\n", "line 1: has a column a; expected device, target, seconds"),
    "no line": (DEVICES, "has no line below its header; expected measurements"),
    "few devices": (DEVICES + "0,1,1,1\n", "1 device has the target 1; expected at least 10"),
    "two times": (of_devices(0, times=2), "has readings at 2 times, which cannot tell drift"),
    "a reading missing": (
        of_devices(0).rpartition("\n4")[0],
        "its devices are not all read at the same times",
    ),
    "no time": (DEVICES + "0,1,0,1\n", "line 2: seconds is 0; expected a number from 1e-09"),
    "no target": (DEVICES + "0,0,1,1\n" * 20, "has no target above 0; expected one"),
    "two targets": (DEVICES + "0,1,1,1\n0,2,2,1\n0,2,3,1\n", "gives a device two targets"),
    "no error of one target": (
        SUMS + "5,64,100,320,2\n10,64,100,640,0\n",
        "its targets or deviations are too far apart",
    ),
    "few columns": (SUMS + "1,64,9,64,1\n", "line 2: columns is 9; expected at least 10"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_fitted_is_one_sentence(name: str, tmp_path: Path) -> None:
    content, said = HOSTILE[name]
    with pytest.raises(CimError) as caught:
        fitted(tmp_path / "data.csv", content)
    assert str(caught.value).startswith(f"{tmp_path / 'data.csv'}: {said}")
