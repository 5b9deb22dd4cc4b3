"""Fixtures of all tests: small models, as trained numbers and data in files, and a browser.

What takes long to import is imported where it is used: the process that hands out the tests reads
this file too, and the workers wait for it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from programs import installed
from shared import made_once

if TYPE_CHECKING:
    from full_size import FullSize
    from playwright.sync_api import Browser, Page

    from cimtool.demo.data import DemoFiles

TRAINING, CALIBRATION, EVALUATION = 512, 96, 40
NOISE = 0.5
"""Noise that makes a video's row differ from its text's, beside a rotation of the space."""

Rows = np.ndarray


LONGEST = (
    "experiments/test_tune.py",
    "handoff/test_array.py",
    "handoff/test_serial_macro.py",
    "handoff/test_synthesis.py",
    "handoff/test_bench.py",
    "test_docs_commands.py",
    "handoff/test_own_macro.py",
    "loading/onnx/test_architectures.py",
    "test_every_target.py",
    "handoff/test_random_inputs.py",
    "handoff/test_kinds.py",
    "test_leaves.py",
    "cli/test_log.py",
    "cli/test_main.py",
    "handoff/test_gallery.py",
    "base/test_compiled.py",
    "emit/test_exactness.py",
    "cli/test_at_work.py",
    "handoff/test_faults.py",
    "galleries/test_gallery_sequences.py",
    "cli/test_cluster.py",
    "simulation/test_amx.py",
    "simulation/test_instruction_sets.py",
    "test_examples.py",
    "experiments/test_solved_bits.py",
    "handoff/c/test_operations.py",
    "test_same_integers.py",
    "cli/test_data_notes.py",
    "cli/test_images.py",
    "test_action.py",
    "experiments/test_sweep.py",
    "experiments/test_remarks.py",
    "test_trained_models.py",
    "handoff/test_format.py",
    "test_extension.py",
    "handoff/test_handoff.py",
    "cli/test_tune.py",
    "costs/test_crossings.py",
    "test_docs_site.py",
    "test_notebooks.py",
    "cli/test_interrupted.py",
    "galleries/test_gallery_kills.py",
    "verification/test_run.py",
    "fuzz/test_doors.py",
    "test_snapshots.py",
    "cli/test_commands.py",
    "handoff/test_directed.py",
    "experiments/test_verdict.py",
    "base/test_cluster.py",
    "galleries/test_search.py",
    "handoff/test_array_cocotb.py",
    "fuzz/test_resigned.py",
    "galleries/test_gallery_changes.py",
    "experiments/test_starts.py",
    "demo/test_walk.py",
    "passes/test_pipeline.py",
    "handoff/test_taps.py",
    "test_heads.py",
    "cli/test_digital_codes.py",
    "test_wheel.py",
    "reference/test_exact.py",
    "simulation/test_kernels.py",
    "test_house.py",
)
"""The files of tests that take ten seconds and more, about, the longest first."""


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples of properties in the first tier."""
    from drawn import load_profile

    load_profile(config.getoption("--quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the tiers."""
    parser.addoption("--quick", action="store_true", help="Leave out tests marked thorough.")
    parser.addoption("--rest", action="store_true", help="Run what --quick leaves out.")


def in_first_tier(item: pytest.Item) -> bool:
    """True for a test without the mark `thorough`, and for parameters that the mark calls quick."""
    mark = item.get_closest_marker("thorough")
    if mark is None:
        return True
    parameters = item.name.partition("[")[2]
    return any(one in parameters for one in mark.kwargs.get("quick", ()))


def in_second_tier(item: pytest.Item) -> bool:
    """True for a test that the first tier leaves out, or of which it draws fewer examples."""
    return not in_first_tier(item) or item.get_closest_marker("hypothesis") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first: one that begins last would leave a worker alone with it.

    With --quick only the first tier is left, with --rest only the second. Hypothesis marks its
    tests before.
    """
    for option, runs in (("--quick", in_first_tier), ("--rest", in_second_tier)):
        if config.getoption(option):
            left_out = [item for item in items if not runs(item)]
            items[:] = [item for item in items if runs(item)]
            config.hook.pytest_deselected(items=left_out)
    folder, places = Path(__file__).parent, {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.relative_to(folder).as_posix(), len(LONGEST)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let files without a test beyond the first tier be no failure of the second."""
    if session.config.getoption("--rest") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search tests and libraries for no garbage, now or later: most of all objects are theirs.

    What tests make is searched seldom: they leave few cycles, and many objects to look through.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(200_000, 50, 50)
        gc.enable()


@pytest.fixture(scope="session")
def small_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 24-32-32-16, trained for a second, with a degree-4 polynomial in a file."""
    return _trunk(tmp_path_factory, "small-trunk", (24, 32, 16), epochs=12)


@pytest.fixture(scope="session")
def narrow_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 28-16-16-8: few arrays, and still several of rows and of columns.

    For simulators of circuits, whose time grows with the cells that they read.
    """
    return _trunk(tmp_path_factory, "narrow-trunk", (28, 16, 8), epochs=12)


@pytest.fixture(scope="session")
def tiny_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 20-14-14-6: two groups of 12 rows, two of 8 columns, neither of them full.

    For simulators of circuits that run for each kind of array.
    """
    return _trunk(tmp_path_factory, "tiny-trunk", (20, 14, 6), epochs=12)


@pytest.fixture(scope="session")
def medium_trunk(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `trunk`, 256-512-512-256: wide enough for libraries to share work among threads."""
    return _trunk(tmp_path_factory, "medium-trunk", (256, 512, 256), epochs=1)


@pytest.fixture(scope="session")
def small_two_branch(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    """Layout `two-branch`, 16-32-16, rows of unit norm; the checkpoint holds its polynomial.

    Its statistics are ed/d and vd/d^2, and so are the polynomial's; there is no file at `poly`.
    """
    import torch

    from cimtool.training.models.two_branch import TwoBranchProjector

    torch.manual_seed(6)
    text, video = TwoBranchProjector(16, 32), TwoBranchProjector(16, 32)
    files = _files(tmp_path_factory.mktemp("small-two-branch"))
    _save_data(files, *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in _pairs(16)))
    # Nearly -a ed with a = 0.1.
    coeff = torch.tensor([-0.1 * 16, 0.05, *[0.0] * 12], dtype=torch.float64)
    content = {
        "text_proj": text.state_dict(),
        "video_proj": video.state_dict(),
        "poly": {"degree": 4, "coeff": coeff, "bias": 0.0, "fit_logit": True},
        "config": {"dim": 16},
        "epoch": 3,
        "loss": 0.5,
    }
    torch.save(content, files.projectors)
    return files


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DemoFiles], DemoFiles]:
    """Writes projectors as safetensors: a process that reads them loads no torch."""
    import torch
    from safetensors.torch import save_file

    def light(files: DemoFiles) -> DemoFiles:
        file = tmp_path_factory.mktemp("light") / "projectors.safetensors"
        save_file(torch.load(files.projectors, weights_only=True), file)
        return replace(files, projectors=file)

    return light


def _trunk(
    factory: pytest.TempPathFactory, name: str, widths: tuple[int, int, int], epochs: int
) -> DemoFiles:
    """A model that is trained once in the whole run; tests only read its files."""
    return _files(made_once(factory, name, lambda folder: _train_trunk(folder, widths, epochs)))


def _train_trunk(folder: Path, widths: tuple[int, int, int], epochs: int) -> None:
    import torch

    from cimtool import api

    (width_in, hidden, width), files = widths, _files(folder)
    text, video = _pairs(width_in)
    _save_data(files, text, video)
    run = api.train(
        files.train,
        folder / "run",
        validation=files.eval,
        epochs=epochs,
        batch=32,
        learning_rate=3e-3,
        seed=5,
        options={"model.hidden": hidden, "model.width": width, "model.linear": False},
    )
    # The last epoch, which `eval` has not chosen, as a plain state dict.
    last = torch.load(run.folder / "last.pth", weights_only=True)
    sides = {side: last[side] for side in ("text_proj", "video_proj")}
    state = {f"{side}.{key}": tensor for side, own in sides.items() for key, tensor in own.items()}
    torch.save(state, files.projectors)
    rows = {"text": text, "video": video}
    teacher = api.teacher(
        files.projectors, rows, labels="mc", pairs=4000, matched=0.5, a=0.1, b=0.0
    )
    api.fit(teacher, degree=4, output=files.poly)


def _files(folder: Path) -> DemoFiles:
    from cimtool.demo.data import DemoFiles

    files, projectors = DemoFiles.under(folder), folder / "projectors.pth"
    return replace(files, teacher=projectors, projectors=projectors, few=files.eval)


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
    from cimtool import api

    folder = tmp_path_factory.mktemp("bundles") / "small@isaac-rram-128"
    api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="isaac-rram-128",
        output=folder,
        adc_bits=4,
    )
    return folder


@pytest.fixture(scope="session")
def full_size() -> FullSize:
    """Makes programs of the size that the project is about."""
    from full_size import FullSize

    return FullSize()


BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The installed Chromium without a window.

    A browser for each file of tests: as long as Playwright is started, its event loop counts as
    running in this thread, where tests of other files call `asyncio.run`.
    """
    from playwright.sync_api import sync_playwright

    program = installed("chromium", "CIMTOOL_REQUIRE_BROWSER")
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
    return installed("pdftotext", "CIMTOOL_REQUIRE_BROWSER")
