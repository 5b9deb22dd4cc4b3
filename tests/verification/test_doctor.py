"""The verdict on an installation: faults that are put in are found, with a way out."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from cimtool import cli
from cimtool.base import compiled, machine
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.emit.runtime import Session
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.simulation.kernels import tiles
from cimtool.simulation.simulator import Features
from cimtool.verification import doctor, self_test
from cimtool.verification.bits import ONNX, BitCount

RIGHT = self_test.SelfTest((BitCount(ONNX, "logit", 4096, 0),), 1.5, ())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A self-test that was right, no device, and memory enough."""
    monkeypatch.setattr(self_test, "self_test", lambda: RIGHT)
    monkeypatch.setattr(doctor, "_cuda", lambda: "none")
    monkeypatch.setattr(doctor, "free_memory", lambda: 8 << 30)


def run(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    status = cli.run(["doctor", *options])
    return (status, *capsys.readouterr())


def test_the_small_model_gives_the_same_bits_everywhere() -> None:
    found = self_test.self_test()
    assert (found.differing, found.warnings) == (0, ())
    assert {one.implementation for one in found.bits} == {"ONNX Runtime", "the NumPy reference"}
    assert {one.output for one in found.bits} >= {"text.mu", "video.mu", "logit"}


def test_its_converters_round(tmp_path: Path) -> None:
    """Else no kernel of converters would be tested."""
    bundle = self_test._small_bundle(tmp_path, self_test.TARGET, adc_bits=self_test.ADC_BITS)
    layers = bundle.program.text.operations(CrossbarMvm).values()
    assert layers
    assert not any(layer.exact for layer in layers)


def test_a_value_that_differs_is_broken_with_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    wrong = replace(RIGHT.bits[0], differing=3, first_index=(1, 2), simulator_value=1.0,
                    other_value=2.0)  # fmt: skip
    monkeypatch.setattr(self_test, "self_test", lambda: replace(RIGHT, bits=(wrong,)))
    status, out, err = run(capsys)
    assert status == 1
    first, second = out.splitlines()[:2]
    assert first.endswith(" is broken:")
    assert second.startswith("* logit: 3 of 4096 values differ between the simulator and ONNX")
    assert "cimtool does not work here: logit: 3 of 4096 values differ" in err


def test_onnx_runtime_that_computes_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Session.score

    def off(session: Session, text: Features, video: Features) -> Array:
        logits = plain(session, text, video)
        logits[3, 4] = np.nextafter(logits[3, 4], np.float32(np.inf))
        return logits

    monkeypatch.setattr(Session, "score", off)
    assert self_test.self_test().differing == 1


def test_the_verdict_is_the_first_line_and_facts_follow(
    capsys: pytest.CaptureFixture[str], quick: None
) -> None:
    status, out, err = run(capsys, "-v")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(
        " works: 0 of 4,096 values differ between kernels, readable reference and ONNX Runtime "
        "(1.5 s)"
    )
    assert [line for line in lines if line.endswith(":")] == [
        "kernels:", "versions:", "machine:", "compilers:"
    ]  # fmt: skip
    status, out, _ = run(capsys, "--json")
    found = json.loads(out)
    assert (found["works"], found["differing"], found["failures"]) == (True, 0, [])
    assert found["versions"]["numpy"] == np.__version__


def test_what_only_slows_works_but(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(compiled, "kept_in", lambda kernel: None)
    monkeypatch.setattr(tiles, "DOT_BITS", 0)
    monkeypatch.setattr(doctor, "free_memory", lambda: 300_000_000)
    status, out, _ = run(capsys)
    assert status == 0
    first, *rest = out.splitlines()
    assert " works, but: 0 of 4,096 values differ" in first
    assert [line[:24] for line in rest[:3]] == [
        "* kernels are slower: th", "* every command compiles", "* only 300 MB are free f"
    ]  # fmt: skip
    assert "set NUMBA_CACHE_DIR to a folder that can" in rest[1]


def test_a_package_that_is_missing_or_a_test_that_cannot_run_is_broken(
    monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    def version(name: str) -> str:
        if name == "safetensors":
            raise PackageNotFoundError(name)
        return "1.0"

    def refused() -> self_test.SelfTest:
        raise CimError("/tmp: is full; expected 2 MB")

    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy>=1", "safetensors>=0.4", "a; x"])
    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(self_test, "self_test", refused)
    assert doctor.examine().failures == [
        "the self-test could not run: /tmp: is full; expected 2 MB",
        "the package safetensors is missing; expected `pip install safetensors`",
    ]


def test_free_memory_is_that_of_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n", "utf-8")
    monkeypatch.setattr(machine, "MEMORY_INFO", file)
    assert machine.free_memory() == 2 << 20
    file.unlink()
    assert machine.free_memory() is None


@pytest.mark.thorough("compiles the kernels of two targets in new processes")
def test_warm_leaves_nothing_to_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    said: list[str] = []
    self_test.warm(said.append, ["ideal", "isaac-rram-128"])
    assert said[-1] == "kernels: 3 of 3 parts are kept"
    kept = set(tmp_path.rglob("*.nbc"))
    assert len(kept) > 20
    self_test.warm(targets=["isaac-rram-128"])
    assert set(tmp_path.rglob("*.nbc")) == kept
