"""Bundles: whole or not at all, the same bytes for the same inputs, and none that was changed."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plugin_of import as_plugin

from cimtool import api
from cimtool.api import Compilation, load, prepare
from cimtool.base import plugins
from cimtool.base.errors import CimError
from cimtool.base.json_files import values_digest
from cimtool.bundle import bundle as bundle_module
from cimtool.bundle.bundle import (
    MANIFEST,
    OF_STAGES,
    PROGRAM,
    WHOLE,
    Bundle,
    check_place,
    manifest_text,
    read_bundle,
    replaced_folder,
    sha256,
)
from cimtool.bundle.serial import ConstantTable, program_text
from cimtool.demo.data import DemoFiles
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Node, Program, rewrite_each
from cimtool.passes import pipeline
from cimtool.passes.base import Job, Pass
from cimtool.passes.pipeline import passes_for
from cimtool.simulation.simulator import Simulator
from cimtool.verification.api import verify

ALL = (*WHOLE, *OF_STAGES)


@pytest.fixture(scope="module")
def compilation(small_trunk: DemoFiles) -> Compilation:
    files = small_trunk
    return prepare(
        files.projectors, files.poly, calibration=files.calibration, drift="given",
        target="isaac-rram-128", adc_bits=5,
    )  # fmt: skip


@pytest.fixture(scope="module")
def written(compilation: Compilation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "model@isaac"
    compilation.write(folder)
    return folder


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def stored(program: Program) -> tuple[str, dict[str, bytes]]:
    table = ConstantTable()
    text = program_text(program, table)
    return text, {name: array.tobytes() for name, array in table.arrays.items()}


def test_what_is_read_is_what_was_compiled(
    compilation: Compilation, written: Path, small_trunk: DemoFiles
) -> None:
    found = read_bundle(written)
    assert found.name == "model@isaac"
    assert stored(found.program) == stored(compilation.stages[-1].program)
    by_name = {stage.name: stage.program for stage in compilation.stages}
    assert [stage.name for stage in found.stages] == [
        *("trained", "folded", "lowered", "quantized", "tiled", "converters fitted")
    ]
    for stage in found.stages:
        assert stored(stage.program) == stored(by_name[stage.name])
    assert found.settings == compilation.settings
    assert found.target == compilation.target
    assert found.model.head == compilation.model.head
    assert (found.model.text_width, found.model.dimension) == (24, 16)
    with np.load(small_trunk.eval) as data:
        rows = data["text"], data["video"]
    expected = Simulator(compilation.stages[-1].program).scores(*rows)
    np.testing.assert_array_equal(Simulator(found.program).scores(*rows), expected)
    assert load(written).bundle.folder == written


def test_the_manifest_names_every_file_and_where_it_came_from(
    written: Path, small_trunk: DemoFiles
) -> None:
    manifest = json.loads((written / MANIFEST).read_text())
    assert manifest["files"] == {name: sha256(written / name) for name in ALL}
    assert {file.name for file in written.iterdir()} == {*ALL, MANIFEST}
    assert {"file": small_trunk.projectors.name, "sha256": sha256(small_trunk.projectors)} in (
        manifest["inputs"]
    )
    assert str(written.parent) not in (written / MANIFEST).read_text()


def test_compiling_again_gives_the_same_bytes(
    written: Path, tmp_path: Path, small_trunk: DemoFiles
) -> None:
    files = small_trunk
    again = prepare(
        files.projectors, files.poly, calibration=files.calibration, drift="given",
        target="isaac-rram-128", adc_bits=5,
    )  # fmt: skip
    again.write(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(written)


def test_without_its_stages_a_bundle_scores_the_same_and_is_not_verified(
    compilation: Compilation, written: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    lean, data = compilation.write(tmp_path / "lean", stages=False), small_trunk.eval
    assert {file.name for file in lean.folder.iterdir()} == {*WHOLE, MANIFEST}
    assert api.simulate(lean.folder, data)["scores"].tobytes() == (
        api.simulate(written, data)["scores"].tobytes()
    )
    assert api.cost(lean.folder).to_dict() == api.cost(written).to_dict()
    for measure in (api.verify, lambda bundle, data: api.evaluate(data, bundle)):
        with pytest.raises(CimError, match="lean: was compiled without its stages, which verify"):
            measure(lean.folder, data)
    assert {file.name for file in lean.folder.iterdir()} == {*WHOLE, MANIFEST}


def test_a_bundle_with_some_of_its_stages_is_not_whole(copied: Path) -> None:
    change_manifest(copied, lambda manifest: manifest["files"].pop(OF_STAGES[0]) and None)
    with pytest.raises(CimError, match=rf"names no {OF_STAGES[0]}; the bundle is incomplete"):
        read_bundle(copied)


def test_a_score_in_the_memory_keeps_its_stages(small_trunk: DemoFiles, tmp_path: Path) -> None:
    files = small_trunk
    made = prepare(
        files.projectors, files.poly, calibration=files.calibration,
        target="isaac-rram-128", score_mapping="in-memory",
    )  # fmt: skip
    with pytest.raises(
        CimError, match="stages is off, but programming the gallery of score_mapping in-memory"
    ):
        made.write(tmp_path / "memory", stages=False)
    assert not (tmp_path / "memory").exists()


@pytest.mark.parametrize("name", ALL)
def test_one_changed_byte_is_refused(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)
    with pytest.raises(CimError, match=rf"{name}: changed since it was compiled"):
        read_bundle(copied)


@pytest.mark.parametrize("name", ALL)
def test_a_missing_file_is_refused(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(CimError, match=rf"{name}: is missing from the bundle"):
        read_bundle(copied)


def change_manifest(folder: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    manifest = json.loads((folder / MANIFEST).read_text())
    changed = change(manifest)
    found = manifest if changed is None else changed
    if isinstance(found, dict):
        found["sha256"] = values_digest(found)
    (folder / MANIFEST).write_text(manifest_text(found))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update(format_version=99), "format_version = 99"),
        (lambda m: m["files"].pop(PROGRAM), f"names no {PROGRAM}"),
        (lambda m: m["files"].update({"../copy/../secret": "0"}), "is missing from the bundle"),
        (lambda m: m["files"].update({"/etc/hostname": "0"}), "is missing from the bundle"),
        (lambda m: m.update(files=3), "is not a bundle's manifest"),
        (lambda m: m.update(files=["program.json"]), "is not a bundle's manifest"),
        (lambda m: [m], "holds no table; compile again"),
        (lambda m: m.pop("files") and None, "is not a bundle's manifest"),
    ],
    ids=["version", "unlisted", "above", "absolute", "number", "list", "array", "without"],
)
def test_a_manifest_of_something_else_is_refused(copied: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    if says.startswith("names no"):
        change_manifest(copied, lambda m: m["files"].pop(PROGRAM) and None)
    else:
        change_manifest(copied, change)
    with pytest.raises(CimError, match=says):
        read_bundle(copied)


@pytest.mark.parametrize("text", ["", "{", "null", "\x00", "[1]"])
def test_a_broken_manifest_is_refused(copied: Path, text: str) -> None:
    (copied / MANIFEST).write_text(text)
    with pytest.raises(
        CimError, match=r"manifest\.json: (is not JSON|holds no table); compile again"
    ):
        read_bundle(copied)


def test_a_folder_without_manifest_and_no_folder_are_no_bundles(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CimError, match="is not a bundle"):
            read_bundle(place)


def test_a_file_of_a_bundle_is_not_its_folder(copied: Path) -> None:
    with pytest.raises(CimError, match="is a file; expected the folder of a bundle"):
        read_bundle(copied / MANIFEST)


def test_reports_beside_the_files_do_no_harm(copied: Path) -> None:
    (copied / "report.html").write_text("<html>")
    assert isinstance(read_bundle(copied), Bundle)


def test_an_earlier_bundle_is_moved_aside(compilation: Compilation, copied: Path) -> None:
    (copied / "report.md").write_text("first")
    compilation.write(copied)
    previous = copied.with_name("copy.previous")
    assert (previous / "report.md").read_text() == "first"
    assert not (copied / "report.md").exists()
    (copied / "report.md").write_text("second")
    compilation.write(copied)
    assert (previous / "report.md").read_text() == "second"
    assert sorted(p.name for p in copied.parent.iterdir()) == ["copy", "copy.previous"]


@pytest.mark.parametrize("name", ["copy", "copy.previous"])
@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_bundle_is_never_replaced(
    compilation: Compilation, tmp_path: Path, written: Path, name: str, kind: str
) -> None:
    place = tmp_path / name
    if kind == "folder":
        place.mkdir()
        (place / "thesis.tex").write_text("ten years")
    elif kind == "file":
        place.write_text("ten years")
    else:
        place.symlink_to(tmp_path / "nowhere")
    if name == "copy.previous":
        shutil.copytree(written, tmp_path / "copy")
    with pytest.raises(
        CimError, match=rf"{name}: exists and is not a bundle, so it is not replaced"
    ):
        compilation.write(tmp_path / "copy")
    assert place.is_symlink() or place.exists()
    if kind == "folder":
        assert (place / "thesis.tex").read_text() == "ten years"


@pytest.mark.parametrize("name", ["copy", "copy.previous"])
def test_a_bundle_with_files_of_others_is_not_replaced(
    compilation: Compilation, tmp_path: Path, written: Path, name: str
) -> None:
    for place in ("copy", "copy.previous"):
        shutil.copytree(written, tmp_path / place)
    own = tmp_path / name / "cal.npz"
    own.write_bytes(b"ten years")
    with pytest.raises(
        CimError, match=rf"{name}/cal.npz: is not a file of the bundle there and woul"
    ):
        compilation.write(tmp_path / "copy")
    assert own.read_bytes() == b"ten years"
    assert (tmp_path / "copy" / MANIFEST).is_file()


@pytest.mark.parametrize("name", ["copy", "copy.previous"])
def test_what_a_bundle_is_made_of_is_not_replaced_by_it(
    compilation: Compilation, tmp_path: Path, written: Path, name: str
) -> None:
    shutil.copytree(written, tmp_path / name)
    taken = tmp_path / name / "text.onnx"
    made = replace(compilation, inputs=((str(taken), ""),))
    with pytest.raises(
        CimError, match=rf"text.onnx: is in .*{name}, which would be replaced; expected an"
    ):
        made.write(tmp_path / "copy")
    assert taken.is_file()


class Stopped(BaseException):
    """As Ctrl-C."""


@pytest.mark.thorough(
    "a failure at each file; a diagonal is in the first tier",
    quick=("True-full-0", "True-stopped-4", "False-stopped-2", "False-full-8"),
)
@pytest.mark.parametrize("nth", range(9))
@pytest.mark.parametrize("failure", [OSError(28, "full"), Stopped()], ids=["full", "stopped"])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_failure_midway_leaves_what_was_there(
    compilation: Compilation,
    written: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nth: int,
    failure: BaseException,
    earlier: bool,
) -> None:
    place = tmp_path / "out" / "bundle"
    if earlier:
        shutil.copytree(written, place)
        before = contents(place)
    count = iter(range(1000))
    originals = {name: getattr(Path, name) for name in ("write_bytes", "write_text")}

    def failing(name: str) -> Callable[..., object]:
        def write(self: Path, *args: object, **kwargs: object) -> object:
            if next(count) == nth:
                originals[name](self, args[0][: len(args[0]) // 2])  # type: ignore[index, arg-type]
                raise failure
            return originals[name](self, *args, **kwargs)

        return write

    for name in originals:
        monkeypatch.setattr(Path, name, failing(name))
    if isinstance(failure, OSError):
        with pytest.raises(CimError, match=r"out/bundle: cannot be written \(No space left"):
            compilation.write(place)
    else:
        with pytest.raises(Stopped):
            compilation.write(place)
    assert next(count) == nth + 1
    if earlier:
        assert contents(place) == before
        assert [p.name for p in place.parent.iterdir()] == ["bundle"]
    else:
        assert list(place.parent.iterdir()) == []


def test_if_the_last_rename_fails_the_earlier_bundle_comes_back(
    compilation: Compilation, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = contents(copied), Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".partial-" in self.parent.name:
            raise OSError(13, "denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(CimError, match="cannot be written"):
        compilation.write(copied)
    assert contents(copied) == before
    assert [p.name for p in copied.parent.iterdir()] == ["copy"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_refused(
    compilation: Compilation, tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CimError, match="cannot be written"):
            compilation.write(tmp_path / "deep" / "bundle")
    finally:
        tmp_path.chmod(0o700)


def test_a_parent_that_is_a_file_is_refused(compilation: Compilation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CimError, match="cannot be written"):
        compilation.write(tmp_path / "file" / "bundle")


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    with replaced_folder(tmp_path / "new") as partial:
        (partial / "a").write_text("1")
        assert partial.parent.parent == tmp_path
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755
    assert bundle_module.previous_of(tmp_path / "new").name == "new.previous"


class TrimPass(Pass):
    """Moves every digital bias of the projectors."""

    name, doing = "trimmed", "trimming"
    requires = leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        def trimmed(builder: Builder, op: CrossbarMvm, node: Node, inputs: tuple[str, ...]) -> str:
            return builder.add(node.name, replace(op, bias=op.bias + 64), *inputs)

        projectors = (program.text, program.video)
        return program.with_projectors(*(rewrite_each(g, CrossbarMvm, trimmed) for g in projectors))


@pytest.mark.thorough("a compilation and a report with one more stage")
def test_a_pass_that_is_added_is_in_the_bundle_its_onnx_files_and_its_report(
    small_trunk: DemoFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pipeline, "passes_for", lambda settings: (*passes_for(settings), TrimPass())
    )
    files = small_trunk
    compilation = prepare(
        files.projectors, files.poly, calibration=files.calibration, drift="given",
        target="isaac-rram-128", adc_bits=5,
    )  # fmt: skip
    before, last = (stored(stage.program) for stage in compilation.stages[-2:])
    bundle = read_bundle(compilation.write(tmp_path / "trimmed").folder)
    assert [stage.name for stage in bundle.stages][-2:] == ["converters fitted", "trimmed"]
    assert [stored(stage.program) for stage in bundle.stages[-2:]] == [before, last]
    assert before != last
    report = verify(bundle.folder, files.eval)
    rows = [row.stage for row in report.drift.rows]
    assert rows[-3:] == ["converters fitted", "trimmed", "ONNX Runtime"]
    assert {count.differing for count in report.checks.bits} == {0}


def test_a_bundle_whose_plug_in_is_missing_or_broken_names_it(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "b"
    shutil.copytree(small_bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert "plugins" not in manifest
    manifest["target"]["noise"] = {"shot": 1}
    manifest |= {"plugins": ["zed-arrays 0.3"]}
    manifest["sha256"] = values_digest(manifest)
    (folder / "manifest.json").write_text(manifest_text(manifest), "utf-8")
    sentence = r"^.*manifest\.json: needs the plug-in zed-arrays 0\.3, which is "
    monkeypatch.setattr(plugins, "_loaded", [])
    with pytest.raises(CimError, match=f"{sentence}not installed; install it$"):
        read_bundle(folder)
    broken = plugins.Plugin("zed-arrays 0.4", 'plug-in "zed" (zed)', frozenset(), broken="why")
    monkeypatch.setattr(plugins, "_loaded", [broken])
    with pytest.raises(CimError, match=f"{sentence}broken; why$"):
        read_bundle(folder)
    as_plugin(monkeypatch, __name__, "zed-arrays 0.4", "zed")
    with pytest.raises(CimError, match=r"manifest\.json: target: "):
        read_bundle(folder)


def test_a_name_that_has_partial_in_it_is_a_users(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"files": {}}')
    (tmp_path / ".partial-x1").mkdir()
    check_place(tmp_path)
    (tmp_path / "my.partial-notes").write_text("mine")
    with pytest.raises(CimError, match=r"my\.partial-notes: is not a file of the bundle there"):
        check_place(tmp_path)


def test_what_a_run_is_removing_is_not_taken_for_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third content at a place removes the first one; another run begins meanwhile."""
    place, begun = tmp_path / "place", []
    remove = shutil.rmtree

    def slow(folder: Path, **options: object) -> None:
        monkeypatch.setattr(shutil, "rmtree", remove)
        with bundle_module.replaced_folder(place) as other:
            (other / "text").write_text("of another run")
        begun.append(folder)
        remove(folder, **options)

    with warnings.catch_warnings(action="error"):
        for text in ("first", "second", "third"):
            if text == "third":
                monkeypatch.setattr(shutil, "rmtree", slow)
            with bundle_module.replaced_folder(place) as partial:
                (partial / "text").write_text(text)
    assert len(begun) == 1
    assert (place / "text").read_text() == "of another run"
    assert (tmp_path / "place.previous/text").read_text() == "third"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["place", "place.previous"]
