"""Changes of a gallery in the arrays: bit for bit programming anew, ids that stay, refusals."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.json_files import values_digest
from cimtool.bundle.bundle import GALLERY, Bundle, features_bytes, manifest_text, read_bundle
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.ledger import LEDGER, LEDGER_ARRAYS
from cimtool.demo.data import DemoFiles

ITEMS, LENGTH = 12, 5

WAYS = {
    "in-memory": {"score_mapping": "in-memory"},
    "hybrid": {"score_mapping": "hybrid", "shortlist": LENGTH},
    "few bits": {"score_mapping": "hybrid", "shortlist": LENGTH},
    "components": {"score_mapping": "hybrid", "shortlist": LENGTH},
}
BITS = {
    "few bits": {"shortlist_bits": 2, "query_bits": 4},
    "components": {"shortlist_bits": 3, "query_bits": 5, "shortlist_dimensions": 6},
}


@pytest.fixture(scope="module")
def made(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Compiled and programmed bundles by way, and all videos there are."""
    folder = tmp_path_factory.mktemp("changes")
    evaluation = np.load(small_trunk.eval)
    compiled, programmed = {}, {}
    for way, flags in WAYS.items():
        place = folder / way.replace(" ", "-")
        api.compile(
            small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
            target="isaac-rram-128", adc_bits=4, output=place, **flags,
        )  # fmt: skip
        bits = BITS.get(way, {})
        first = {"video": evaluation["video"][:ITEMS]}
        compiled[way] = place, bits
        programmed[way] = api.program(place, first, **bits).bundle.folder
    return SimpleNamespace(
        compiled=compiled, programmed=programmed, video=evaluation["video"],
        text=evaluation["text"],
    )  # fmt: skip


def anew(made: SimpleNamespace, way: str, rows: list[int], folder: Path) -> Bundle:
    place, bits = made.compiled[way]
    return api.program(place, {"video": made.video[rows]}, output=folder, **bits).bundle


def files_of(bundle: Bundle) -> dict[str, str]:
    ledgers = (LEDGER, LEDGER_ARRAYS)
    return {name: sha for name, sha in bundle.manifest["files"].items() if name not in ledgers}


@pytest.mark.thorough("other ways of a gallery; one is in the first tier", quick=("hybrid",))
@pytest.mark.parametrize("way", WAYS)
def test_a_change_is_bit_for_bit_programming_anew(
    way: str, made: SimpleNamespace, tmp_path: Path
) -> None:
    video = made.video
    changed = api.change_gallery(
        made.programmed[way],
        remove=[0, 11, 3, 7],
        replace=([5], {"video": video[30:31]}),
        add={"video": video[20:22]},
        output=tmp_path / "changed",
    )
    # Added ones take columns 0 and 3, the last item that stays takes column 7.
    columns = [20, 1, 2, 21, 4, 30, 6, 10, 8, 9]
    again = anew(made, way, columns, tmp_path / "anew")
    assert files_of(changed.bundle) == files_of(again)
    ids = [12, 1, 2, 13, 4, 5, 6, 10, 8, 9]
    bundle = read_bundle(changed.bundle.folder)
    assert bundle.items.tolist() == ids
    assert (bundle.gallery.changes, bundle.gallery.items) == (1, 10)  # type: ignore[union-attr]
    top = api.simulate(bundle.folder, {"text": made.text}, top=LENGTH)
    other = api.simulate(again.folder, {"text": made.text}, top=LENGTH)
    np.testing.assert_array_equal(top["top_index"], np.array(ids)[other["top_index"]])
    np.testing.assert_array_equal(top["top_score"], other["top_score"])
    assert not {0, 11, 3, 7} & set(top["top_index"].ravel().tolist())


@pytest.mark.thorough("more of the same kind")
@pytest.mark.parametrize("way", WAYS)
def test_changes_follow_one_another(way: str, made: SimpleNamespace, tmp_path: Path) -> None:
    place, video = tmp_path / "living", made.video
    change = api.change_gallery
    change(made.programmed[way], remove=[2, 3], output=place)
    before = read_bundle(place).ledger
    change(place, add={"video": video[12:15]})
    found = change(place, remove=[12], add={"video": video[20:21]})
    again = anew(made, way, [0, 1, 10, 11, 4, 5, 6, 7, 8, 9, 20, 13, 14], tmp_path / "anew")
    assert read_bundle(place).items.tolist() == [0, 1, 10, 11, 4, 5, 6, 7, 8, 9, 15, 13, 14]
    assert files_of(found.bundle) == files_of(again)
    assert found.ledger == read_bundle(place).ledger
    assert found.ledger.next_item == 16
    assert found.ledger.cells_written > before.cells_written
    assert (place.parent / "living.previous").is_dir()


@pytest.mark.thorough("other ways of a gallery; one is in the first tier", quick=("hybrid",))
@pytest.mark.parametrize("way", WAYS)
def test_verify_finds_no_differing_bit(way: str, made: SimpleNamespace, tmp_path: Path) -> None:
    video = made.video
    changed = api.change_gallery(
        made.programmed[way], remove=[2, 4], add={"video": video[20:21]}, output=tmp_path / "out"
    )
    held = [0, 1, 20, 3, 11, 5, 6, 7, 8, 9, 10]
    data = {"text": made.text[held], "video": video[held]}
    assert not api.verify(changed.bundle.folder, data, samples=2).failures
    with pytest.raises(CimError, match="its 12 videos are not the gallery of 11 items"):
        api.verify(changed.bundle.folder, {"text": made.text[:12], "video": video[:12]})


def test_names_of_columns_of_scores(made: SimpleNamespace, tmp_path: Path) -> None:
    changed = api.change_gallery(made.programmed["in-memory"], remove=[1], output=tmp_path / "out")
    found = api.simulate(changed.bundle.folder, {"text": made.text})
    before = api.simulate(made.programmed["in-memory"], {"text": made.text})
    assert before["items"].tolist() == list(range(ITEMS))
    assert found["items"].tolist() == [0, 11, *range(2, 11)]
    assert found["scores"].shape == (len(made.text), ITEMS - 1)


def test_scores_of_dies_name_their_columns_too(made: SimpleNamespace, tmp_path: Path) -> None:
    changed = api.change_gallery(made.programmed["in-memory"], remove=[1], output=tmp_path / "out")
    columns = [0, 11, *range(2, 11)]
    data = {"text": made.text[columns], "video": made.video[columns]}
    noise = NoiseOptions(1, model="hermes-1-device")
    found = api.simulate(changed.bundle.folder, data, noise=noise)
    assert found["items"].tolist() == columns
    assert found["trial_scores"].shape == (1, 11, 11)


def test_what_cannot_be_changed_is_refused(made: SimpleNamespace, tmp_path: Path) -> None:
    memory, hybrid = made.programmed["in-memory"], made.programmed["hybrid"]
    one, wide = {"video": made.video[:1]}, {"video": np.ones((2, 25), np.float32)}
    cases = [
        (memory, {"remove": [12]}, r"remove names item 12, which .* does not hold; expected ids "
         "of its 12 items, from 0 to 11"),
        (memory, {"remove": [-1]}, "remove names item -1"),
        (memory, {"replace": ([40], one)}, "replace names item 40"),
        (memory, {"remove": [3, 3]}, "remove names item 3 a second time; expected each once"),
        (memory, {"remove": [3], "replace": ([3], one)}, "replace names item 3 a second time"),
        (memory, {"replace": ([3, 4], one)}, "replace names 2 items and arrays has 1 row;"),
        (memory, {"remove": range(12)}, "remove names all 12 items of .*; keep at least one"),
        (memory, {"add": wide}, "embeddings: video rows have 25 numbers; .* expects 24"),
        (memory, {"add": one, "shortlist": 3}, "shortlist is 3; .* which draws up no shortlist"),
        (hybrid, {"remove": range(8)}, "its shortlist is 5 items long but the gallery would have "
                                       "4; give shortlist with the change, 1 to 4"),
        (hybrid, {"add": one, "shortlist": 14}, "shortlist is 14; expected 1 to 13"),
        (hybrid, {"add": one, "shortlist": 0}, "shortlist is 0; expected 1 to 13"),
        (made.compiled["hybrid"][0], {"add": one}, "holds no gallery to change; prog"),
    ]  # fmt: skip
    for bundle, options, sentence in cases:
        with pytest.raises(CimError, match=sentence):
            api.change_gallery(bundle, output=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_shortlist_may_change_with_its_gallery(made: SimpleNamespace, tmp_path: Path) -> None:
    found = api.change_gallery(
        made.programmed["hybrid"], remove=range(8), shortlist=4, output=tmp_path / "out"
    )
    assert found.gallery.shortlist == 4
    top = api.simulate(found.bundle.folder, {"text": made.text})["top_index"]
    assert np.sort(top, axis=1).tolist() == [[8, 9, 10, 11]] * len(made.text)


ENDURING = """
base = "isaac-rram-128"
name = "enduring"
title = "Enduring"
[[figures]]
quantity = "endurance"
unit = "1"
value = 40
scope = "array"
source = "a test"
status = "assumed"
[[figures]]
quantity = "write_pulses"
unit = "1"
value = 10
scope = "array"
source = "a test"
status = "assumed"
"""


def programmed_for(target: str, files: DemoFiles, video: np.ndarray, folder: Path) -> Path:
    """A gallery in the arrays of a target of its own."""
    (folder / "own.toml").write_text(target)
    api.compile(
        files.projectors, files.poly, calibration=files.calibration,
        target=str(folder / "own.toml"), score_mapping="in-memory", output=folder / "compiled",
    )  # fmt: skip
    return api.program(folder / "compiled", {"video": video}).bundle.folder


def test_cells_that_are_written_once_stay(
    small_trunk: DemoFiles, made: SimpleNamespace, tmp_path: Path
) -> None:
    target = 'base = "isaac-rram-128"\nname = "once"\ntitle = "Once"\nrewritable = "factory"\n'
    place = programmed_for(target, small_trunk, made.video[:ITEMS], tmp_path)
    with pytest.raises(CimError, match='target once has rewritable = "factory", so its cells are'):
        api.change_gallery(place, remove=[1])


@pytest.mark.thorough("more of the same kind")
def test_a_change_beyond_endurance_is_refused(
    small_trunk: DemoFiles, made: SimpleNamespace, tmp_path: Path
) -> None:
    place = programmed_for(ENDURING, small_trunk, made.video[:ITEMS], tmp_path)
    for row, most in ((20, 2), (21, 3), (22, 4)):
        found = api.change_gallery(place, replace=([3], {"video": made.video[row : row + 1]}))
        assert found.ledger.most_written == most
        assert found.ledger.to_json()["most_written"] == most
    kept = read_bundle(place).manifest
    with pytest.raises(
        CimError,
        match=r"^score\.\S+: a cell of array r0\.c\d would be written 5 times; expected at most 4, "
        r"by endurance = 40 and write_pulses = 10 of enduring; program a fresh chip$",
    ):
        api.change_gallery(place, replace=([3], {"video": made.video[23:24]}))
    assert read_bundle(place).manifest == kept


def with_file(folder: Path, name: str, content: bytes) -> Path:
    """A bundle whose manifest is right about a file with another content."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    manifest["sha256"] = values_digest(manifest)
    (folder / "manifest.json").write_text(manifest_text(manifest))
    return folder


@pytest.mark.thorough("more of the same kind")
def test_a_ledger_that_is_none_is_refused(made: SimpleNamespace, tmp_path: Path) -> None:
    place = tmp_path / "place"
    changed = api.change_gallery(made.programmed["hybrid"], remove=[1], output=place)
    features = changed.bundle.gallery_features
    ids, counts = changed.bundle.items, changed.bundle.write_counts["shortlist.mu.mu"]
    said = re.sub(rb'"next_item": \d+', b'"next_item": %s', (place / LEDGER).read_bytes())
    far = with_file(shutil.copytree(place, tmp_path / "far"), LEDGER, said % b"1000000000000000000")
    assert read_bundle(far).items.tolist() == ids.tolist()
    cases: list[tuple[str, bytes, str]] = [
        (LEDGER, said % b"1e999", r"ledger\.json: is not a gallery's ledger"),
        (LEDGER, b"{}", r"ledger\.json: is not a gallery's ledger; program the gallery again"),
        (LEDGER_ARRAYS, save({"items": ids[:3]}), r"items has shape \[3\] and 3 different ids "
         "below 12; expected 11"),
        (LEDGER_ARRAYS, save({"items": np.full(11, np.nan, np.float32)}), "items is of float32"),
        (LEDGER_ARRAYS, save({"items": ids + 5}), "and 6 different ids below 12; expected 11"),
        (LEDGER_ARRAYS, save({"items": ids, "shortlist.mu.mu": counts[0]}),
         r"ledger\.safetensors: shortlist\.mu\.mu counts writes of arrays \["),
        (LEDGER_ARRAYS, save({"items": ids, "shortlist.mu.mu": counts.reshape(-1, 1, 1, 1)}),
         "expected the arrays of the gallery"),
        (GALLERY, save({"mu": np.zeros((3, 16), np.int8)}),
         r"gallery\.safetensors: has arrays mu; expected ed_self, mu, s, vd_self"),
        (GALLERY, features_bytes({k: v[1:] for k, v in features.items()}),
         r"gallery\.safetensors: ed_self has shape \[10\]; expected \[11\]"),
        (GALLERY, features_bytes({k: v[::-1] for k, v in features.items()}),
         r"gallery\.safetensors: does not hold the features of the 11 items that the manifest na"),
    ]  # fmt: skip
    for number, (name, content, sentence) in enumerate(cases):
        broken = with_file(shutil.copytree(place, tmp_path / str(number)), name, content)
        with pytest.raises(CimError, match=sentence):
            api.change_gallery(broken, remove=[2])
        if name == GALLERY:  # compared as a bundle is opened
            with pytest.raises(CimError, match=sentence):
                read_bundle(broken)
        else:
            assert read_bundle(broken).gallery == changed.gallery
    (place / LEDGER).write_bytes((place / LEDGER).read_bytes() + b" ")
    with pytest.raises(CimError, match=r"ledger\.json: changed since it was compiled"):
        read_bundle(place)


def test_a_bundle_of_an_earlier_version_is_programmed_again(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    place = tmp_path / "earlier"
    shutil.copytree(made.programmed["in-memory"], place)
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["files"][LEDGER]
    (place / LEDGER).unlink()
    manifest["sha256"] = values_digest(manifest)
    (place / "manifest.json").write_text(manifest_text(manifest))
    assert api.simulate(place, {"text": made.text})["items"].tolist() == list(range(ITEMS))
    with pytest.raises(CimError, match=r"has no ledger\.json, which earlier versions did not kee"):
        api.change_gallery(place, remove=[1])
