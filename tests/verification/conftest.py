from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.models.two_branch import TwoBranchProjector
from cimtool.verification.options import DriftOptions
from cimtool.verification.references import References
from cimtool.verification.report import Report
from cimtool.verification.run import verify_bundle

WIDTH, HIDDEN, D = 12, 24, 10
POLYNOMIAL = Polynomial(2, (-0.1, 0.001, 0.0001, 0.0, 0.0), 0.05, a=0.1, b=0.0, K=10)

MakeBundle = Callable[..., Bundle]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def trunk() -> torch.nn.Module:
    torch.manual_seed(3)
    module = TrunkProjector(WIDTH, HIDDEN, D)
    torch.nn.init.normal_(module.mu.weight, std=1.5)
    return module.eval()


def two_branch() -> torch.nn.Module:
    torch.manual_seed(4)
    return TwoBranchProjector(D, HIDDEN).eval()


def pairs(n: int, width: int = WIDTH, seed: int = 0, noise: float = 0.1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(n, width))
    video = text + noise * rng.normal(size=(n, width))
    return {"text": text.astype(np.float32), "video": video.astype(np.float32)}


def many_texts(videos: int, each: int, width: int, seed: int = 1) -> dict[str, Any]:
    """`each` texts to one video, rows of unit norm, in an order that is not the videos'."""
    rng = np.random.default_rng(seed)
    right = rng.permutation(np.repeat(np.arange(videos), each))
    video = rng.normal(size=(videos, width))
    text = video[right] + 0.2 * rng.normal(size=(len(right), width))
    rows = {
        name: (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
        for name, x in (("text", text), ("video", video))
    }
    return rows | {"text_to_video": right}


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    def make(
        name: str,
        polynomial: Polynomial = POLYNOMIAL,
        module: Callable[[], torch.nn.Module] = trunk,
        calibration: dict[str, Any] | None = None,
        target: str = "ideal",
        **flags: Any,
    ) -> Bundle:
        return api.compile(
            (module(), module()),
            polynomial,
            calibration=pairs(64) if calibration is None else calibration,
            drift="given",
            target=target,
            output=tmp_path_factory.mktemp("bundles") / name,
            **flags,
        )

    return make


@pytest.fixture(scope="session")
def bundle(make_bundle: MakeBundle) -> Bundle:
    return make_bundle("small")


@pytest.fixture(scope="session")
def data() -> Embeddings:
    return embeddings_of(pairs(40, seed=7), "pairs")


def changed(report: Report, **values: Any) -> Report:
    """The report with other values, each in the record that has a field of its name."""
    for record in ("subject", "drift", "checks", "saturation", "causes"):
        held = getattr(report, record)
        own = {name: value for name, value in values.items() if name in held.__dataclass_fields__}
        report = replace(report, **{record: replace(held, **own)})
    return report


def of_target(report: Report, **values: Any) -> Report:
    """The report of a target with other values."""
    return replace(report, target=replace(report.target, **values))


def rewritten(bundle: Bundle, folder: Path) -> Bundle:
    """The same bundle at another place, where its files may be changed."""
    folder.mkdir()
    for file in bundle.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return replace(bundle, folder=folder)


@pytest.fixture(scope="session")
def report(bundle: Bundle, data: Embeddings) -> Report:
    return verify_bundle(bundle, data, options=DriftOptions(max_drift={"logit_rmse": 1.0}))


@pytest.fixture(scope="session")
def sampled_report(bundle: Bundle, data: Embeddings) -> Report:
    """Against Monte Carlo."""
    return verify_bundle(bundle, data, References("mc"))


@pytest.fixture(scope="session")
def noisy_report(bundle: Bundle, data: Embeddings) -> Report:
    """With two dies at two times."""
    return verify_bundle(
        bundle, data, options=DriftOptions(noise=NoiseOptions(trials=2, model="neurram", time="1d"))
    )


@pytest.fixture(scope="session")
def unknown_report(make_bundle: MakeBundle, data: Embeddings) -> Report:
    """Of a teacher whose a and b are not known."""
    return verify_bundle(make_bundle("unknown", replace(POLYNOMIAL, a=None, b=None)), data)
