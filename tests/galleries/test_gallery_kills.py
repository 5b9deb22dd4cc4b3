"""Changes of a gallery that are killed, each a real process: the old one is left, or the new."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimWarning
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles

ITEMS = 6

CHANGES = """
import os, shutil, signal, sys
from pathlib import Path
from cimtool import api
from cimtool.galleries import gallery_changes

pristine, new, trials = map(Path, sys.argv[1:])
write = gallery_changes.write_programmed


def killed_at(number):
    # Python tells what it does with files, and of calls into C, before it does it.
    left = [number]

    def event(name, arguments):
        if name.startswith(("open", "os.", "shutil.", "ctypes.")):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return event


def written(*arguments, **options):
    # The integers are the same each time; only the writing is killed.
    for number in range(1, 1000):
        folder = trials / str(number)
        shutil.copytree(pristine, folder, symlinks=True)
        process = os.fork()
        if process == 0:
            sys.addaudithook(killed_at(number))
            write(folder / "living", *arguments[1:], **options)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0:
            break
    return write(*arguments, **options)


gallery_changes.write_programmed = written
place = pristine / "living"
api.change_gallery(place, remove=[0, 4], replace=([2], new), add=new, output=trials / "new")
"""

IN_A_LOOP = """
import sys
from cimtool import api

place, new = sys.argv[1:]
print("ready", flush=True)
while True:
    found = api.change_gallery(place, add=new)
    print("added", flush=True)
    api.change_gallery(place, remove=[found.ledger.next_item - 1])
    print("removed", flush=True)
"""


@pytest.fixture(scope="module")
def made(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A gallery that was changed before, so that there is an earlier bundle too; a new item."""
    folder = tmp_path_factory.mktemp("kills")
    compiled, place = folder / "compiled", folder / "pristine" / "living"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="ideal", score_mapping="hybrid", shortlist=3, output=compiled,
    )  # fmt: skip
    video = np.load(small_trunk.eval)["video"]
    api.program(compiled, {"video": video[:ITEMS]}, output=place)
    api.change_gallery(place, remove=[5], add={"video": video[10:11]})
    new = folder / "new.npz"
    np.savez(new, video=video[20:21])
    return SimpleNamespace(folder=folder, pristine=place.parent, new=new, text=small_trunk.eval)


def files_of(folder: Path) -> dict[str, str]:
    files: dict[str, str] = read_bundle(folder).manifest["files"]
    return files


@pytest.mark.thorough("kills a process at every file")
def test_a_change_that_is_killed_at_any_file_leaves_the_old_or_the_new(
    made: SimpleNamespace,
) -> None:
    trials = made.folder / "trials"
    command = [sys.executable, "-c", CHANGES, str(made.pristine), str(made.new), str(trials)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    old, new = files_of(made.pristine / "living"), files_of(trials / "new")
    assert old != new
    folders = sorted(
        (one for one in trials.iterdir() if one.name != "new"), key=lambda f: int(f.name)
    )
    *killed, whole = folders
    assert len(killed) > 40
    left = [files_of(folder / "living") for folder in folders]
    assert all(files in (old, new) for files in left)
    kept = [files == old for files in left[:-1]]
    # The new one is there from one moment on: the exchange.
    assert kept == sorted(kept, reverse=True)
    assert kept[0]
    assert not kept[-1]
    assert [one.name for one in sorted(whole.iterdir())] == ["living", "living.previous"]
    # What a kill leaves is in nobody's way.
    for folder in (killed[len(killed) // 2], killed[-1]):
        hidden = [one.name for one in folder.iterdir() if ".partial-" in one.name]
        told = [pytest.warns(CimWarning, match=f"{one}: was left by a run") for one in hidden]
        with ExitStack() as stack:
            for one in told:
                stack.enter_context(one)
            again = api.change_gallery(folder / "living", remove=[1]).bundle
        assert not [one for one in folder.iterdir() if ".partial-" in one.name]
        assert files_of(again.folder)["ledger.json"] not in (old["ledger.json"], new["ledger.json"])


@pytest.mark.thorough("kills whole processes")
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.45, 0.8])
def test_a_loop_of_changes_that_is_killed_leaves_one_of_its_galleries(
    seconds: float, made: SimpleNamespace, tmp_path: Path
) -> None:
    place = tmp_path / "living"
    shutil.copytree(made.pristine / "living", place)
    command = [sys.executable, "-c", IN_A_LOOP, str(place), str(made.new)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for expected in ("ready", "added", "removed"):
            assert process.stdout.readline() == f"{expected}\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
    bundle = read_bundle(place)
    ids = bundle.items.tolist()
    assert ids[:ITEMS] == [0, 1, 2, 3, 4, 6]
    assert ids[ITEMS:] in ([], [bundle.ledger.next_item - 1])
    found = api.simulate(place, made.text)["top_index"]
    assert set(found.ravel().tolist()) <= set(ids)
