"""An installed wheel is complete: every file of the package, and the targets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def python(*arguments: str | Path, cwd: Path, path: Path | None = None) -> str:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the built wheel was installed into."""
    dist, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", dist, ROOT, cwd=dist)
    (wheel,) = dist.glob("cimtool-*.whl")
    python("-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=dist)
    return site


def test_the_wheel_finds_its_targets(installed: Path, tmp_path: Path) -> None:
    program = (
        "from cimtool.base.plugins import targets_folder\n"
        "from cimtool.hardware.target import load_target, target_names\n"
        "print(targets_folder(), *(load_target(name).name for name in target_names()))"
    )
    folder, *names = python("-c", program, cwd=tmp_path, path=installed).split()
    assert Path(folder) == installed / "cimtool" / "targets"
    assert names == sorted(file.stem for file in (ROOT / "targets").glob("*.toml"))
    assert {"ideal", "isaac-rram-128", "hermes-pcm-14nm", "colonnade-65nm"} <= set(names)


def test_the_wheel_has_every_file_of_the_package(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path for path in root.rglob("*") if path.is_file())
        names = {path.relative_to(root).as_posix() for path in found}
        return {name for name in names if "__pycache__" not in name}

    assert files(ROOT / "cimtool") == {
        name for name in files(installed / "cimtool") if not name.startswith("targets/")
    }


def test_the_wheel_has_the_command_and_the_licence(installed: Path, tmp_path: Path) -> None:
    assert (installed / "bin" / "cimtool").exists()
    assert list(installed.glob("cimtool-*.dist-info/licenses/LICENSE"))
    said = python("-m", "cimtool", "targets", "list", cwd=tmp_path, path=installed)
    assert "isaac-rram-128" in said
