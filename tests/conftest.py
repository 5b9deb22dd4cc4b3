"""What every test may use: small models, as trained numbers and data in files, and a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, sync_playwright

from cimtool import api
from cimtool.training.demo_data import DemoFiles
from cimtool.training.fit import fit_polynomial, save_polynomial
from cimtool.training.loop import TrainSettings, encode, save_projectors, train
from cimtool.training.models.two_branch import TwoBranch, two_branch_checkpoint
from cimtool.training.teacher import Sigmoid, mixed_pairs, teacher_labels
from cimtool.training.towers import TwoTower

TRAINING, CALIBRATION, EVALUATION = 512, 96, 40
NOISE = 0.5
"""What makes a video's row differ from its text's, beside a rotation of the space."""

Rows = np.ndarray


@pytest.fixture(scope="session")
def small_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 24-32-32-16, trained for a second, with a degree-4 polynomial in a file."""
    return _trunk(tmp_path_factory.mktemp("small-trunk"), 24, 32, 16, epochs=12)


@pytest.fixture(scope="session")
def medium_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 256-512-512-256: wide enough for libraries to share work among threads."""
    return _trunk(tmp_path_factory.mktemp("medium-trunk"), 256, 512, 256, epochs=1)


@pytest.fixture(scope="session")
def small_two_branch(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `two-branch`, 16-32-16, rows of unit norm; the checkpoint holds its polynomial.

    Its statistics are ed/d and vd/d^2, and so are the polynomial's; there is no file at `poly`.
    """
    torch.manual_seed(6)
    towers = TwoTower(TwoBranch(16, 32), TwoBranch(16, 32)).eval()
    files = DemoFiles.under(tmp_path_factory.mktemp("small-two-branch"))
    _save_data(files, *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in _pairs(16)))
    coeff = (-0.1 * 16, 0.05, *[0.0] * 12)  # nearly -a ed with a = 0.1
    config = {"dim": 16}
    torch.save(two_branch_checkpoint(towers, coeff, 0.0, 4, config, 3, 0.5), files.projectors)
    return files


def _trunk(folder: Path, width_in: int, hidden: int, width: int, epochs: int) -> DemoFiles:
    text, video = _pairs(width_in)
    options = TrainSettings(
        epochs, batch=32, hidden=hidden, width=width, learning_rate=3e-3, seed=5
    )
    towers = train(text[:TRAINING], video[:TRAINING], options, lambda line: None)
    files = DemoFiles.under(folder)
    save_projectors(towers, files.projectors)
    items = encode(towers, text, video)
    i, j = mixed_pairs(len(text), 1000)
    sigmoid = Sigmoid()
    labels = teacher_labels(items[0][i], items[1][j], sigmoid)
    save_polynomial(fit_polynomial(labels, sigmoid), files.poly)
    _save_data(files, text, video)
    return files


def _pairs(width: int) -> tuple[Rows, Rows]:
    rng = np.random.default_rng(width)
    text = rng.normal(size=(TRAINING + EVALUATION, width)).astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    video = text @ turn + NOISE * rng.normal(size=text.shape)
    return text, video.astype(np.float32)


def _save_data(files: DemoFiles, text: Rows, video: Rows) -> None:
    np.savez(files.train, text=text[:TRAINING], video=video[:TRAINING])
    np.savez(files.calibration, text=text[:CALIBRATION], video=video[:CALIBRATION])
    np.savez(files.eval, text=text[TRAINING:], video=video[TRAINING:])


@pytest.fixture(scope="session")
def small_bundle(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small_trunk` compiled for `isaac-rram-128` with converters too coarse to be lossless."""
    folder = tmp_path_factory.mktemp("bundles") / "small@isaac-rram-128"
    api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target="isaac-rram-128",
        output=folder,
        adc_bits=4,
    )
    return folder


BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def installed(program: str) -> str:
    """Path of a program that tests of pages need.

    Without it they are skipped, or fail where CIMTOOL_REQUIRE_BROWSER is set, as in `.ci/run`.
    """
    path = shutil.which(program)
    if path is None:
        missing = pytest.fail if os.environ.get("CIMTOOL_REQUIRE_BROWSER") else pytest.skip
        missing(f"there is no {program}")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The installed Chromium without a window.

    A browser for each file of tests: as long as Playwright is started, its event loop counts as
    running in this thread, where tests of other files call `asyncio.run`.
    """
    program = installed("chromium")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=BROWSER_FLAGS) as browser,
    ):
        yield browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page in light colours, with a profile of its own."""
    with chromium.new_page(viewport={"width": 1280, "height": 900}) as page:
        yield page


@pytest.fixture
def events(page: Page) -> list[str]:
    """Requests, console messages, errors and dialogs of `page` so far, in their order.

    A page in one file that does nothing wrong leaves one event, `request` and its own address.
    """
    seen: list[str] = []
    page.on("request", lambda request: seen.append(f"request {request.url}"))
    page.on("console", lambda message: seen.append(f"{message.type} {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error {error}"))
    page.on("dialog", lambda dialog: (seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
    return seen


@pytest.fixture
def pdftotext() -> str:
    """The path of Poppler's `pdftotext`."""
    return installed("pdftotext")
