from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.training.arguments import TrainingOptions
from cimtool.training.job import TrainingJob, make_job, read_start
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.models.two_branch import TwoBranchModel
from cimtool.training.options import Optimisation

TEXT = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
ROWS = {"text": TEXT, "video": TEXT[:, :5]}
LABELLED = ROWS | {"labels": np.arange(80) % 4}
POLY = '{"degree": 1, "coeff": [-0.1, 0.0], "bias": 0}'


def job(rows: dict[str, Array] = ROWS, **wanted: Any) -> TrainingJob:
    options: Any = {"batch": 16, **wanted}
    return make_job(rows, None, TrainingOptions(**options))


@pytest.fixture
def poly(tmp_path: Path) -> Path:
    path = tmp_path / "poly.json"
    path.write_text(POLY)
    return path


@pytest.fixture
def start(tmp_path: Path) -> Path:
    path = tmp_path / "start.pth"
    torch.save(TrunkModel(hidden=8, width=4).build(6, 5).state_dict(), path)
    return path


def test_what_is_not_said_is_the_losss_own(poly: Path) -> None:
    usual = make_job(ROWS, None, TrainingOptions())
    assert (usual.model.name, usual.loss.name) == ("trunk", "info-nce")
    on_poly = make_job(ROWS, None, TrainingOptions(poly=poly))
    assert on_poly.loss.name == "info-nce-poly"
    assert on_poly.optimisation == Optimisation(10, 64, 5e-6, 1e-4)
    assert on_poly.settings["loss.tau"] == 0.07
    assert on_poly.settings["loss.variance"] == 0.001


def test_settings_tell_data_apart() -> None:
    other = ROWS | {"video": TEXT[:, 1:]}
    assert job().settings["data"] == job().settings["data"] != job(other).settings["data"]


def test_a_start_says_model_and_widths(start: Path) -> None:
    found = job(start=start)
    assert found.model == TrunkModel(hidden=8, width=4)
    assert job(start=start, options={"model.logvar_start": -1.0}).model.hidden == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"model": "trunc"}, 'did you mean "trunk"?'),
        ({"loss": "info-nse"}, 'loss "info-nse" is not known'),
        ({"loss": "info-nce-poly"}, 'loss "info-nce-poly" needs a polynomial; expected poly'),
        ({"options": {"loss.tao": 1}}, 'did you mean "tau"'),
        ({"batch": 81}, "batch is 81, but only 72 pairs are for training; expected at most that"),
        ({"batch": 1}, "batch is 1; expected an integer of at least 2"),
        ({"epochs": -1}, "epochs is -1; expected an integer of at least 0"),
        ({"epochs": 10_001}, "epochs is 10001; expected at most 10,000"),
        ({"learning_rate": 0.0}, "learning_rate is 0; expected more than 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1; expected 0 or more"),
        ({"seed": -1}, "seed is -1; expected 0 to 2^63 - 1"),
        ({"seed": 2**63}, "seed is 9223372036854775808; expected 0 to 2^63 - 1"),
        ({"device": "tpu"}, 'device is "tpu"; expected cpu, cuda or cuda:N'),
        ({"device": "cuda:99"}, 'device is "cuda:99"; this machine has'),
        ({"held_out": 0.0}, "held_out is 0; expected a share between 0 and 1"),
        ({"test": 1.0}, "test is 1; expected a share between 0 and 1"),
        ({"test": 0.6, "held_out": 0.5}, "held_out 0.5 and test 0.6 leave no pair to train on"),
        ({"optimizer": "adam"}, 'optimizer "adam" is not known: adamw, sgd'),
    ],
)
def test_bad_settings(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(CimError) as error:
        job(**wanted)
    assert message in str(error.value)


def test_one_modality_with_other_rows(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="80 texts and 79 videos, and text_to_video is missing"):
        job(ROWS | {"video": TEXT[:79]})


def test_a_polynomial_that_the_loss_has_no_use_for(poly: Path) -> None:
    with pytest.raises(CimError, match='poly is given, but loss "info-nce" has no polynomial'):
        job(loss="info-nce", poly=poly)


def test_validation_and_held_out() -> None:
    for name in ("held_out", "test"):
        wanted: Any = {name: 0.1, "batch": 16}
        with pytest.raises(CimError, match=f"{name} and validation are both given"):
            make_job(ROWS, ROWS, TrainingOptions(**wanted))
    other = {name: rows + 1 for name, rows in ROWS.items()}
    assert len(make_job(ROWS, other, TrainingOptions(batch=16)).held) == 80


def trained(path: Path, settings: Mapping[str, Any], **content: Any) -> Path:
    towers = TrunkModel(hidden=8, width=4).build(6, 5).state_dict()
    torch.save({"model": towers, "config": dict(settings), **content}, path)
    return path


def test_the_part_that_a_start_held_out_stays_held_out(tmp_path: Path) -> None:
    before = job(seed=5, held_out=0.2)
    on = job(start=trained(tmp_path / "on.pth", before.settings), seed=1)
    assert torch.equal(on.held.text, before.held.text)
    assert not torch.equal(on.held.text, job(seed=1, held_out=0.2).held.text)
    further = job(start=trained(tmp_path / "further.pth", on.settings), seed=2, held_out=0.2)
    assert torch.equal(further.held.text, before.held.text)
    with pytest.raises(CimError, match=r"held_out is 0.1, and .*on.pth held out 0.2 of the same"):
        job(start=tmp_path / "on.pth", held_out=0.1)
    other = ROWS | {"video": TEXT[:, 1:]}
    assert torch.equal(
        job(other, start=tmp_path / "on.pth", seed=1).held.text, job(seed=1).held.text
    )


def test_of_one_file_parts_train_validate_and_are_set_aside(tmp_path: Path) -> None:
    found = job(test=0.1)
    assert found.test is not None
    parts = [found.pairs.text.numpy(), found.held.text.numpy(), found.test.text]
    assert [len(part) for part in parts] == [64, 8, 8]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 80
    assert found.provenance.trained_rows(found.test.text, found.test.video).texts == 0
    on = job(start=trained(tmp_path / "on.pth", found.settings), seed=1)
    assert on.test is not None
    assert np.array_equal(on.test.text, found.test.text)
    assert torch.equal(on.held.text, found.held.text)
    with pytest.raises(CimError, match=r"test is 0.2, and .*on.pth held out 0.1 of the same data"):
        job(start=tmp_path / "on.pth", test=0.2)


def test_a_start_that_was_trained_on_all_of_the_data(tmp_path: Path) -> None:
    other = {name: rows + 1 for name, rows in ROWS.items()}
    before = make_job(ROWS, other, TrainingOptions(batch=16))
    start = trained(tmp_path / "start.pth", before.settings)
    with pytest.raises(CimError, match=r"start.pth: was trained on all of data, .* validation"):
        job(start=start)
    assert len(make_job(ROWS, other, TrainingOptions(batch=16, start=start)).held) == 80
    with pytest.raises(CimError, match=r"start.pth was trained on it; expected unseen pairs"):
        make_job(other, ROWS, TrainingOptions(batch=16, start=start))


def test_a_start_with_a_polynomial_is_trained_on_it(tmp_path: Path) -> None:
    start = trained(tmp_path / "start.pth", {}, poly=json.loads(POLY))
    found = job(start=start)
    assert found.loss.name == "info-nce-poly"
    assert found.polynomial is not None
    assert found.polynomial.coeff == (-0.1, 0.0)
    assert job(start=start, loss="info-nce").polynomial is None


def test_items_of_one_modality_need_labels() -> None:
    labels = np.arange(80) % 4
    with pytest.raises(CimError, match=r"embeddings: labels is missing, .* itself; expected rows"):
        job({"rows": TEXT})
    with pytest.raises(CimError, match=r"labels is missing, .* itself"):
        make_job({"rows": TEXT, "labels": labels}, {"rows": TEXT + 1}, TrainingOptions(batch=16))
    assert job({"rows": TEXT, "labels": labels}).pairs.alone


def test_a_start_says_the_options_of_its_run(tmp_path: Path) -> None:
    wide = {"model.text_hidden": "7", "model.video_hidden": "9-8", "model.width": 4}
    before = job(LABELLED, model="tanh-projectors", loss="acmr", options=wide)
    towers = before.model.build(6, 5).state_dict()
    content = {**towers, **before.model.deployed(), "config": dict(before.settings)}
    torch.save(content, tmp_path / "start.pth")
    assert job(LABELLED, start=tmp_path / "start.pth", loss="acmr").model == before.model
    del content["config"]
    torch.save(content, tmp_path / "bare.pth")
    wanted = {"start": tmp_path / "bare.pth", "model": "tanh-projectors", "loss": "acmr"}
    assert job(LABELLED, **wanted).model == before.model
    dropped = job(ROWS | {"video": TEXT}, model="two-branch", options={"model.dropout": 0.5})
    towers = dropped.model.build(6, 6).state_dict()
    torch.save({**towers, "config": dict(dropped.settings)}, tmp_path / "dropped.pth")
    again = job(ROWS | {"video": TEXT}, start=tmp_path / "dropped.pth")
    assert again.model.dropout == 0.5  # type: ignore[attr-defined]


def test_texts_of_one_video_are_of_one_class() -> None:
    rows = ROWS | {"text_to_video": np.arange(80) // 2, "labels": np.arange(80) // 4}
    job(rows)
    rows["labels"][5] = 9
    with pytest.raises(
        CimError, match="texts 4 and 5 belong to video 2, and their labels are 1 and"
    ):
        job(rows)


def test_texts_of_one_video_have_the_same_classes() -> None:
    sets = (np.arange(80) // 4)[:, None] % 5 == np.arange(5)
    rows = ROWS | {"text_to_video": np.arange(80) // 2, "labels": sets}
    job(rows)
    sets[5, 3:] = True
    with pytest.raises(CimError, match="their labels are 1 and 1 3 4; expected one class, or"):
        job(rows)


def test_a_batch_of_one_class_has_no_wrong_pairs() -> None:
    items = {"rows": TEXT, "labels": np.arange(80) % 2}
    wanted = {"model": "autoencoder", "loss": "triplet"}
    with pytest.raises(CimError, match="batch is 10, 10 pairs of one class; expected 20 or more"):
        job(items, **wanted, batch=10)
    job(items, **wanted, batch=20)


@pytest.fixture
def trunk_file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "start.pth"
    torch.save({"model": TrunkModel(hidden=8, width=4).build(6, 5).state_dict()}, path)
    return path


def test_the_weights_come_over(trunk_file: Path) -> None:
    start = read_start(trunk_file)
    towers = TrunkModel(hidden=8, width=4).build(6, 5)
    start.load(towers, "trunk")
    saved = torch.load(trunk_file, weights_only=True)["model"]
    assert all(torch.equal(saved[key], value) for key, value in towers.state_dict().items())
    assert start.model() == "trunk"
    assert start.poly is None


def test_widths_that_do_not_fit(trunk_file: Path) -> None:
    towers = TrunkModel(hidden=8, width=4).build(7, 5)
    with pytest.raises(CimError, match=r"trunk.0.weight has shape \[8, 6\]; expected \[8, 7\]"):
        read_start(trunk_file).load(towers, "trunk")


def test_another_model(trunk_file: Path) -> None:
    with pytest.raises(CimError, match=r'text_proj.trunk.0.weight is not a weight of model "two-b'):
        read_start(trunk_file).load(TwoBranchModel(hidden=8).build(6, 6), "two-branch")
