"""Interrupted commands: Ctrl-C and a full disk leave nothing; threads change nothing."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool import __main__
from cimtool.bundle import bundle
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles

Run = Callable[..., Any]

INTERRUPTIBLE = """
import signal, sys, time
from cimtool import cli
from cimtool.bundle import bundle

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's ignores it

def slowly(file):
    print(f"half written: {len(list(file.parent.iterdir()))} files", flush=True)
    time.sleep(60)

bundle.sha256 = slowly  # of every file for the manifest, which is the last to be written
sys.exit(cli.run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def light_trunk(
    small_trunk: DemoFiles, without_torch: Callable[[DemoFiles], DemoFiles]
) -> DemoFiles:
    """`small_trunk` for commands that run as processes."""
    return without_torch(small_trunk)


def arguments(compiling: Run, files: DemoFiles, place: Path, **options: object) -> list[str]:
    return [str(part) for part in compiling(files, place, **options)]


@pytest.mark.thorough("starts many whole processes")
def test_ctrl_c_in_the_middle_of_writing_leaves_nothing(
    compiling: Run, light_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "made" / "bundle"
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments(compiling, light_trunk, place)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half written: 9 files\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "cimtool: error: interrupted\n")
    assert list(place.parent.iterdir()) == []


@pytest.mark.thorough("a process that is stopped in the middle")
def test_ctrl_c_keeps_the_earlier_bundle(
    cimtool: Run, compiling: Run, light_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "bundle"
    assert cimtool(*compiling(light_trunk, place)).status == 0
    before = read_bundle(place).manifest
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments(compiling, light_trunk, place)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert read_bundle(place).manifest == before
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


FILE_LIMIT = 20_000
"""Bytes: more than the first file of a small bundle takes, less than others do."""


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))


@pytest.mark.thorough("starts many whole processes")
def test_a_file_that_cannot_grow_leaves_nothing(
    compiling: Run, light_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = tmp_path / "made" / "bundle"
    command = [sys.executable, "-m", "cimtool", *arguments(compiling, light_trunk, place)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limit_files
    )
    assert (done.returncode, done.stdout) == (2, "")
    reason = os.strerror(errno.EFBIG)
    expected = f"cimtool: error: {place}: cannot be written ({reason}); nothing was left there\n"
    assert done.stderr == expected
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize("full_after", range(4))
def test_a_disk_that_is_full_at_any_file_leaves_nothing(
    full_after: int,
    cimtool: Run,
    compiling: Run,
    small_trunk: DemoFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, written = Path.write_bytes, []

    def until_full(path: Path, data: bytes) -> int:
        if len(written) == full_after:
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", until_full)
    place = tmp_path / "made" / "bundle"
    ran = cimtool(*compiling(small_trunk, place))
    assert (ran.status, ran.out) == (2, "")
    expected = f"{place}: cannot be written (No space left on device); nothing was left there"
    assert ran.sentence == expected
    assert list(place.parent.iterdir()) == []


def test_a_full_disk_leaves_no_scores_and_keeps_the_earlier_ones(
    cimtool: Run,
    small_bundle: Path,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    # So that compiled kernels are kept already: they are files too.
    whole = tmp_path / "whole" / "scores.npz"
    assert cimtool("simulate", small_bundle, "--inputs", small_trunk.eval, "-o", whole).status == 0
    file = tmp_path / "full" / "scores.npz"
    file.parent.mkdir()
    file.write_bytes(b"the earlier scores")
    # 40 x 40 float32 are 6,400 bytes.
    command = [
        sys.executable, "-m", "cimtool", "simulate", small_bundle, "--inputs", small_trunk.eval,
        "-o", file,
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    reason = os.strerror(errno.EFBIG)
    expected = f"cimtool: error: {file}: cannot be written ({reason}); nothing was left there\n"
    assert done.stderr == expected
    assert file.read_bytes() == b"the earlier scores"
    assert [path.name for path in file.parent.iterdir()] == ["scores.npz"]


def test_a_failing_export_leaves_nothing(
    cimtool: Run, small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, place: Path) -> None:
        place.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shutil.copyfile", fail)
    ran = cimtool("export", small_bundle, "--format", "onnx", "-o", tmp_path / "made" / "onnx")
    assert ran.status == 2
    assert "No space left on device" in ran.sentence
    assert list((tmp_path / "made").iterdir()) == []


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_inputs_give_the_same_bytes(
    cimtool: Run, compiling: Run, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    places = tmp_path / "one", tmp_path / "two"
    for place in places:
        options = {"target": "isaac-rram-128", "adc_bits": 4}
        assert cimtool(*compiling(small_trunk, place, **options)).status == 0
    assert contents(places[0]) == contents(places[1])
    assert bundle.MANIFEST in contents(places[0])


@pytest.mark.thorough("more threads than a quiet core has")
def test_the_number_of_threads_changes_no_byte(
    compiling: Run,
    medium_trunk: DemoFiles,
    without_torch: Callable[[DemoFiles], DemoFiles],
    tmp_path: Path,
) -> None:
    files = without_torch(medium_trunk)
    for threads in ("1", "2"):
        options = {"target": "isaac-rram-128", "adc_bits": 5}
        command = arguments(compiling, files, tmp_path / threads, **options)
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, threads)
        subprocess.run(
            [sys.executable, "-m", "cimtool", *command],
            env=environment, capture_output=True, timeout=300, check=True,
        )  # fmt: skip
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_ctrl_c_while_the_command_line_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "cimtool.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "cimtool.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "cimtool: error: interrupted\n")


@pytest.mark.thorough("starts many whole processes")
@pytest.mark.filterwarnings("always::cimtool.base.errors.CimWarning")
def test_what_a_killed_compile_leaves_is_removed_by_the_next_one(
    cimtool: Run, compiling: Run, light_trunk: DemoFiles, tmp_path: Path
) -> None:
    place, other = tmp_path / "bundle", tmp_path / "other"
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments(compiling, light_trunk, place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (hidden,) = tmp_path.iterdir()
        assert hidden.name.startswith(".bundle.partial-")
        # Two at once: the second takes nothing from the first.
        assert cimtool(*compiling(light_trunk, place)).status == 0
        assert hidden.is_dir()
        process.kill()
    assert cimtool(*compiling(light_trunk, other)).status == 0
    assert hidden.is_dir()
    ran = cimtool(*compiling(light_trunk, place))
    assert ran.status == 0
    assert f"warning: {hidden}: was left by a run that was killed, and is removed now" in ran.out
    assert sorted(os.listdir(tmp_path)) == ["bundle", "bundle.previous", "other"]
    again = cimtool("simulate", place, "--inputs", light_trunk.eval, "-o", tmp_path / "s.npz")
    assert "was left" not in again.out
