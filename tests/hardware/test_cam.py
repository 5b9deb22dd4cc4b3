"""CAMs as data: files of their own beside targets, with sourced figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.base.plugins import targets_folder
from cimtool.cli.commands.targets import describe_cam
from cimtool.hardware.cam import cam_origins, is_cam, load_cam
from cimtool.hardware.target import load_target, target_names
from cimtool.report.terminal import terminal

TCAM = "fefet2-tcam-45nm"


def edited(folder: Path, old: str, new: str) -> Path:
    text = (targets_folder() / "cam" / f"{TCAM}.toml").read_text()
    assert old in text
    file = folder / "own.toml"
    file.write_text(text.replace(old, new))
    return file


def test_every_cam_is_valid_and_no_target() -> None:
    names = set(cam_origins())
    assert {"fefet2-tcam-45nm", "cmos16t-tcam-45nm", "fefet-mcam"} <= names
    assert not names & set(target_names())
    for name in names:
        assert load_cam(name).name == name
        assert is_cam(name)
    assert not is_cam("ideal")


def test_a_description_names_every_source() -> None:
    cam = load_cam(TCAM)
    text = terminal(describe_cam(cam), wrap=False, verbose=True)
    for figure in cam.figures:
        assert f"[{figure.status}: {figure.source}]" in text
    assert "sense.levels" in text


def test_energy_and_time_follow_from_cells_and_clock() -> None:
    assert load_cam(TCAM).search_energy == 1.5
    assert load_cam("cmos16t-tcam-45nm").search_energy == pytest.approx(64 * 64 * 0.59e-3)
    assert load_cam("cmos16t-tcam-45nm").search_latency is None
    assert load_cam("rram-l1-sapiens").search_energy is None
    assert load_cam("rram-l1-sapiens").search_latency == 5


def test_a_cam_is_refused_as_a_target(tmp_path: Path) -> None:
    said = (
        "is a content-addressable memory, which holds no weights; expected it in `cimtool program "
        "--gallery NPZ --cam`, beside the target of a hybrid score"
    )
    with pytest.raises(CimError, match=re.escape(f'target "{TCAM}": {said}')):
        load_target(TCAM)
    file = edited(tmp_path, "words = 64", "words = 32")
    with pytest.raises(CimError, match=re.escape(f"{file}: {said}")):
        load_target(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cell_bits = 1", "cell_bits = 2", "only cells of one bit store X; expected false"),
        ("cell_bits = 1", "cell_bits = 4", "array.cell_bits = 4: must be an integer from 1 to 3"),
        ('"hamming"', '"cosine"', 'must be "hamming" | "l1" | "squared"'),
        ("step = 4", "step = 0", "sense.step = 0: must be an integer of at least 1"),
        ("levels = 16", "levels = 1", "sense.levels = 1: must be an integer of at least 2"),
        ('"search_latency"', '"search_time"', 'quantity "search_time" is not known'),
    ],
)
def test_a_file_that_is_not_valid(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(CimError, match=re.escape(said)):
        load_cam(edited(tmp_path, old, new))


def test_an_unknown_cam_names_the_nearest() -> None:
    with pytest.raises(CimError, match=r'CAM "fefet-tcam" is not known: .*did you mean'):
        load_cam("fefet-tcam")
