from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import cimtool
from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Objective, Task
from cimtool.training.losses.acmr import Acmr, invariance, reverse_gradient, rising_strength
from cimtool.training.towers import Encoded

N, D, CLASSES = 9, 4, 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 1])


def points(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, N, D, generator=generator, dtype=torch.float64)
    return drawn[0], drawn[1]


def objective(options: Acmr, weights: tuple[torch.Tensor, ...] = ()) -> Objective:
    torch.manual_seed(0)
    weights = weights or (torch.eye(D),)
    return options.objective(Task(D, CLASSES, weights=weights)).double()


def batch(labels: torch.Tensor | None = LABELS) -> Batch:
    return Batch(torch.zeros(N, 6), torch.zeros(N, 7), labels=labels)


def test_invariance_is_the_mean_over_all_triplets() -> None:
    text, video = points(1)
    margin, wrong, total = 2.0, 0.7, 0.0
    for anchors, others in ((text, video), (video, text)):
        means = []
        for i in range(N):
            found = [
                (anchors[i] - others[j]).norm()
                + wrong * max(0.0, margin - (anchors[i] - others[k]).norm())
                for j in range(N)
                for k in range(N)
                if LABELS[j] == LABELS[i] and LABELS[k] != LABELS[i]
            ]
            means.append(sum(found) / len(found))
        total += sum(means) / N
    found = invariance(text, video, LABELS, margin, wrong)
    assert float(found) == pytest.approx(float(total), rel=1e-9)


def test_invariance_of_one_class_and_of_equal_points_has_finite_gradients() -> None:
    same = torch.ones(N, D, requires_grad=True)
    loss = invariance(same, same, torch.zeros(N, dtype=torch.int64), 1.0, 1.0)
    loss.backward()
    assert same.grad is not None
    assert torch.isfinite(same.grad).all()
    assert loss.item() == pytest.approx(0.0, abs=1e-5)


def test_the_terms_are_the_written_formulas() -> None:
    text, video = points(2)
    weights = torch.full((2, 2), 3.0), torch.full((1, 4), 2.0)
    options = Acmr(alpha=2.0, beta=0.5, regularisation=0.1, margin=3.0)
    made = objective(options, weights)
    terms = made(Encoded(text), Encoded(video), batch()).loss
    assert list(terms) == ["invariance", "discrimination", "regularisation", "adversarial"]
    drawn = invariance(text, video, LABELS, options.margin, options.wrong)
    assert terms["invariance"].item() == pytest.approx(2.0 * drawn.item())
    assert terms["regularisation"].item() == pytest.approx(0.1 * (6.0 + 4.0))
    chances = [made.label(side).softmax(1)[range(N), LABELS].log() for side in (text, video)]
    wanted = -0.5 * (chances[0] + chances[1]).mean()
    assert terms["discrimination"].item() == pytest.approx(wanted.item())
    of_text, of_video = (made.modality(side).squeeze(1).sigmoid() for side in (text, video))
    wanted = -(of_video.log() + (1 - of_text).log()).mean()
    assert terms["adversarial"].item() == pytest.approx(wanted.item())


def test_the_terms_of_items_with_several_classes() -> None:
    text, video = points(2)
    sets = torch.rand(N, CLASSES, generator=torch.Generator().manual_seed(1)) < 0.4
    sets[0] = False
    made = objective(Acmr(beta=0.5))
    terms = made(Encoded(text), Encoded(video), batch(sets))
    logs = [functional.logsigmoid(made.label(side)) for side in (text, video)]
    lacks = [functional.logsigmoid(-made.label(side)) for side in (text, video)]
    sums = [torch.where(sets, *both).sum(1) for both in zip(logs, lacks, strict=True)]
    assert terms.loss["discrimination"].item() == pytest.approx(
        -0.5 * (sums[0] + sums[1]).mean().item()
    )
    told = [sets[range(N), made.label(side).argmax(1)] for side in (text, video)]
    assert terms.watched["label accuracy"].item() == pytest.approx(
        torch.cat(told).double().mean().item()
    )
    terms.total.backward()
    assert all(torch.isfinite(one.grad).all() for one in made.parameters())


def test_invariance_of_classes_in_both_forms() -> None:
    text, video = points(1)
    sets = LABELS[:, None] == torch.arange(CLASSES)
    one, other = (invariance(text, video, labels, 2.0, 0.7) for labels in (LABELS, sets))
    assert one.item() == pytest.approx(other.item(), rel=1e-12)
    sets[:, 0] |= LABELS == 1  # all but class 2 now have class 0 in common
    merged = torch.where(LABELS == 2, 2, 0)
    one, other = (invariance(text, video, labels, 2.0, 0.7) for labels in (merged, sets))
    assert one.item() == pytest.approx(other.item(), rel=1e-12)


def adversarial_slopes(made: Objective, projector: nn.Module, video: torch.Tensor) -> list:
    """Gradients of the adversarial term: of the projector, then of the modality classifier."""
    for part in (made, projector):
        part.zero_grad()
    text, _ = points(3)
    terms = made(Encoded(projector(text)), Encoded(video), batch())
    terms.loss["adversarial"].backward()
    return [projector.weight.grad.clone(), made.modality[0].weight.grad.clone()]


@pytest.mark.parametrize("step", [0, 20, 100, 5000])
def test_projectors_get_the_reversed_gradient_and_the_classifier_its_own(step: int) -> None:
    """Against differences of the loss itself, at several strengths of the reversal."""
    made = objective(Acmr(ramp=100, reversal=0.8))
    made.steps.fill_(step)
    torch.manual_seed(1)
    projector = nn.Linear(D, D, bias=False).double()
    text, video = points(3)
    of_projector, of_classifier = adversarial_slopes(made, projector, video)

    def loss() -> float:
        terms = made(Encoded(projector(text)), Encoded(video), batch())
        return terms.loss["adversarial"].item()

    def slope(weight: torch.Tensor, at: tuple[int, int], by: float = 1e-6) -> float:
        values = []
        with torch.no_grad():
            for sign in (1, -2, 1):
                weight[at] += sign * by
                values.append(loss())
        return (values[0] - values[1]) / (2 * by)

    made.eval()  # or the steps go on
    strength = 0.8 * rising_strength(min(1.0, step / 100))
    for at in ((0, 0), (2, 3)):
        true = slope(projector.weight.data, at)
        assert of_projector[at].item() == pytest.approx(-strength * true, abs=1e-7)
        true = slope(made.modality[0].weight.data, at)
        assert of_classifier[at].item() == pytest.approx(true, abs=1e-7)
    assert of_classifier.abs().max() > 1e-3


def test_steps_count_in_training_alone_and_are_kept() -> None:
    made = objective(Acmr())
    text, video = points(4)
    for _ in range(3):
        made(Encoded(text), Encoded(video), batch())
    made.eval()
    made(Encoded(text), Encoded(video), batch())
    assert made.state_dict()["steps"].item() == 3
    other = objective(Acmr())
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    assert other.steps.item() == 3


def test_scores_are_negative_squared_distances() -> None:
    text, video = points(5)
    wanted = -(text[:, None] - video[None]).square().sum(2)
    torch.testing.assert_close(objective(Acmr()).scores(Encoded(text), Encoded(video)), wanted)
    assert Acmr().deployed() == {"head": "euclidean"}


def test_one_class_and_no_labels_are_refused() -> None:
    with pytest.raises(CimError, match='loss "acmr" tells classes apart, and the labels hold 1'):
        Acmr().objective(Task(D, 1))
    text, video = points(6)
    with pytest.raises(CimError, match='loss "acmr" needs labels; the pairs have none'):
        objective(Acmr())(Encoded(text), Encoded(video), batch(None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0.0}, r"loss\.margin is 0; expected more than 0"),
        ({"ramp": 0}, r"loss\.ramp is 0; expected more than 0"),
        ({"reversal": -1.0}, r"loss\.reversal is -1; expected 0 or more"),
        ({"turns": -1}, r"loss\.turns is -1; expected 0 or more"),
    ],
)
def test_hyperparameters_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(CimError, match=message):
        Acmr(**options)


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    """Pairs of three classes; the class alone is what the modalities share."""
    rng = np.random.default_rng(0)
    labels = np.arange(90) % CLASSES
    centres = rng.normal(size=(2, CLASSES, 8))
    text, video = (centre[labels] + rng.normal(size=(90, 8)) for centre in centres)
    return {"text": text, "video": video, "labels": labels}


SMALL = {"model.text_hidden": "12", "model.video_hidden": "12", "model.width": 6}


def train(rows: dict[str, np.ndarray], folder: Path, **options: object) -> cimtool.Run:
    return cimtool.train(
        rows, folder, model="tanh-projectors", loss="acmr", batch=16,
        **{"epochs": 6, "learning_rate": 1e-2, "options": SMALL, "held_out": 0.3, **options},
    )  # fmt: skip


def test_it_trains_by_map_and_compiles_alone(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    run = train(rows, tmp_path / "run")
    start, best = run.history[0], run.best
    assert best.means["mAP"] == max(epoch.means["mAP"] for epoch in run.history)
    assert best.means["mAP"] > start.means["mAP"] + 0.15
    assert {"map_text_to_video", "map_video_to_text"} <= set(best.recalls)
    bundle = cimtool.compile(
        run.folder / "model.pth",
        calibration=rows,
        drift="given",
        target="ideal",
        output=tmp_path / "b",
    )
    matcher = cimtool.load(bundle.folder)
    scores = matcher.score(matcher.encode_text(rows["text"]), matcher.encode_video(rows["video"]))
    assert scores.shape == (90, 90)


def test_it_trains_on_several_classes_an_item(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    sets = rows["labels"][:, None] == np.arange(4)
    sets[:, 3] = np.arange(90) % 7 == 0
    run = train({**rows, "labels": sets}, tmp_path / "run")
    assert run.best.means["mAP"] > run.history[0].means["mAP"] + 0.1
    assert run.best.held["loss"] > 0


def test_validation_rows_have_their_classes_numbered_with_those_that_train(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    labels = rows["labels"]
    train_, held = ({k: v[part] for k, v in rows.items()} for part in (labels < 2, labels > 0))
    held["text"] = held["text"] + 1
    run = train(train_, tmp_path / "run", held_out=None, validation=held, epochs=1)
    assert run.best.held["loss"] > 0
    sets = {**held, "labels": held["labels"][:, None] == np.arange(3)}
    with pytest.raises(CimError, match=r"labels have shape \[N, 3\]; expected \[N\] as in"):
        train(train_, tmp_path / "other", held_out=None, validation=sets)


def test_cut_off_it_comes_to_the_same_bytes(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    whole = train(rows, tmp_path / "whole", epochs=3)
    train(rows, tmp_path / "cut", epochs=1)
    resumed = train(rows, tmp_path / "cut", epochs=3, resume=True)
    first, second = (one.folder.joinpath("last.pth").read_bytes() for one in (whole, resumed))
    assert first == second


@pytest.mark.parametrize("turns", [0, 2])
def test_in_turns_projectors_move_for_some_steps_then_the_modality_classifier(turns: int) -> None:
    made = objective(Acmr(turns=turns))
    towers = nn.ModuleList([nn.Linear(D, D).double() for _ in range(2)])
    everything = {*towers.parameters(), *made.parameters()}
    others = everything - {*made.modality.parameters()}
    text, video = points(7)
    moved = []
    for _ in range(6):
        made(Encoded(towers[0](text)), Encoded(towers[1](video)), batch())
        moved.append(everything - {*made.resting(towers)})
    judged = {*made.modality.parameters()}
    one_round = [others] * turns + [judged]
    assert moved == (one_round * 2 if turns else [everything] * 6)


def test_it_trains_in_turns_by_plain_descent(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    given = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 4}
    run = train(rows, tmp_path / "run", options={**SMALL, "loss.turns": 2}, **given)
    assert run.best.means["mAP"] > run.history[0].means["mAP"] + 0.1
    saved = torch.load(run.folder / "model.pth", weights_only=True)
    assert (saved["config"]["optimizer"], saved["config"]["loss.turns"]) == ("sgd", 2)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, 'labels is missing, the class of each text, which loss "acmr" needs'),
        (np.arange(89), r"labels has shape \[89\]; expected \[90\], one per text"),
        (np.zeros(90, np.int64), r"the labels hold 1; expected at least 2"),
    ],
)
def test_labels_amiss(
    rows: dict[str, np.ndarray], tmp_path: Path, labels: np.ndarray | None, message: str
) -> None:
    given = {**rows, "labels": labels} if labels is not None else dict(list(rows.items())[:2])
    with pytest.raises(CimError, match=message):
        train(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_values_pass_and_gradients_turn_round() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    passed = reverse_gradient(x, 0.25)
    assert torch.equal(passed, x)
    passed.square().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -0.25 * 2 * x.detach())


def test_layers_behind_it_get_their_ordinary_gradient() -> None:
    before = torch.nn.Linear(3, 2, bias=False)
    behind = torch.nn.Linear(2, 1, bias=False)
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = {}
    for strength in (None, 0.5):
        before.zero_grad()
        behind.zero_grad()
        hidden = before(rows)
        hidden = hidden if strength is None else reverse_gradient(hidden, strength)
        behind(hidden).tanh().sum().backward()
        found[strength] = [one.weight.grad.clone() for one in (before, behind)]
    torch.testing.assert_close(found[0.5][0], -0.5 * found[None][0])
    torch.testing.assert_close(found[0.5][1], found[None][1])


def test_the_strength_rises_from_nothing_to_nearly_one() -> None:
    assert rising_strength(0.0) == 0.0
    assert rising_strength(0.1) == pytest.approx(2 / (1 + math.exp(-1)) - 1)
    assert 0.9999 < rising_strength(1.0) < 1.0
