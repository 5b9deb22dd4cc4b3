"""An installed wheel is complete: every file of the package, and the targets."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cimtool
from cimtool.demo.data import DemoFiles

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
    """A folder that the wheel was installed into, which was built from the sdist."""
    dist, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    python("-m", "build", "--no-isolation", "--outdir", dist, ROOT, cwd=dist)
    assert len(list(dist.glob("cimtool-*.tar.gz"))) == 1
    (wheel,) = dist.glob("cimtool-*.whl")
    python("-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=dist)
    return site


@pytest.mark.thorough("builds a wheel")
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


@pytest.mark.thorough("builds a wheel")
def test_the_wheel_has_every_file_of_the_package(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path for path in root.rglob("*") if path.is_file())
        names = {path.relative_to(root).as_posix() for path in found}
        return {name for name in names if "__pycache__" not in name}

    assert files(ROOT / "cimtool") == {
        name for name in files(installed / "cimtool") if not name.startswith("targets/")
    }


@pytest.mark.thorough("builds a wheel")
def test_the_wheel_has_the_command_and_the_licence(installed: Path, tmp_path: Path) -> None:
    assert (installed / "bin" / "cimtool").exists()
    assert list(installed.glob("cimtool-*.dist-info/licenses/LICENSE"))
    said = python("-m", "cimtool", "targets", "list", cwd=tmp_path, path=installed)
    assert "isaac-rram-128" in said


def readme_walk() -> list[list[str]]:
    """The commands of the README that the wheel brings."""
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("    cimtool ")]


@pytest.mark.thorough("builds a wheel")
def test_the_readmes_walk_runs_from_the_wheel(
    installed: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """In an empty folder, with nothing of the checkout on the path."""
    for name, source in (
        ("model.pth", small_trunk.projectors),
        ("poly.json", small_trunk.poly),
        ("rows.npz", small_trunk.calibration),
        ("held-out.npz", small_trunk.eval),
    ):
        (tmp_path / name).symlink_to(source)
    walk = readme_walk()
    assert [command[1] for command in walk] == ["compile", "verify"]
    for command, *arguments in walk:
        python(installed / "bin" / command, *arguments, cwd=tmp_path, path=installed)
    assert (tmp_path / "exports/model@isaac-rram-128/report.html").exists()


USER = """
from pathlib import Path

import cimtool
from cimtool import CimError


def worst(folder: Path, data: Path) -> float:
    bundle = cimtool.compile("m.safetensors", "p.json", calibration=data, target="ideal")
    report = cimtool.verify(bundle.folder, data, max_drift={"r1_loss": 0.01})
    print(report.to_markdown(), report.plot("survival").save(folder / "a.svg"))
    estimate = cimtool.cost(bundle.folder, gallery=100)
    try:
        scores = cimtool.simulate(bundle.folder, data)["scores"]
    except CimError as error:
        raise SystemExit(error.exit_status) from error
    reveal_type(scores)
    reveal_type(estimate)
    return max(report.checks.metrics.values())


cimtool.verify("bundle", 3)
cimtool.evaluate("data.npz").scores[0].nothing
"""


@pytest.mark.thorough("builds a wheel")
def test_a_users_program_is_typed_by_the_wheel(installed: Path, tmp_path: Path) -> None:
    """The library's types are known, its two mistakes are found, and there are no other ones."""
    (tmp_path / "user.py").write_text(USER)
    python("-m", "venv", "--without-pip", "env", cwd=tmp_path)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    (site / "wheel.pth").write_text(f"{installed}\n")
    (site / "numpy").symlink_to(Path(np.__file__).parent)  # the only types that are not its own
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "user.py"]
    done = subprocess.run(
        [*command, "--python-executable", str(tmp_path / "env" / "bin" / "python")],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    first, second, third, fourth, last = done.stdout.splitlines()
    assert 'Revealed type is "numpy.ndarray' in first
    assert 'Revealed type is "cimtool.costs.bundle_cost.BundleCost"' in second
    assert "[arg-type]" in third
    assert 'has no attribute "nothing"' in fourth
    assert last.startswith("Found 2 errors")


@pytest.mark.thorough("builds a wheel")
def test_help_lists_the_functions_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = python("-m", "pydoc", "cimtool", cwd=tmp_path, path=installed)
    names = python("-c", "import cimtool; print(*cimtool.API)", cwd=tmp_path, path=installed)
    for name in names.split():
        assert f"\n    {name}(" in said or f"class {name}(" in said, name
    assert "Measure what each stage of a bundle cost" in said


def test_the_stub_has_the_public_names() -> None:
    lines = (ROOT / "cimtool" / "__init__.pyi").read_text().splitlines()
    stubbed = {line.split(" as ")[1] for line in lines if " as " in line}
    assert stubbed == {*cimtool.API, "CimError", "CheckFailed"}
