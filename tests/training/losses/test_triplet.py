from __future__ import annotations

import itertools

import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Task, Terms
from cimtool.training.losses.constraints import Triplet, same_class, triplet_sum
from cimtool.training.towers import Encoded


def points(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def hinges(
    rows: torch.Tensor, labels: torch.Tensor, margin: float, semi_hard: bool
) -> list[torch.Tensor]:
    """Triplet by triplet."""
    found = []
    for a, p, n in itertools.product(range(len(rows)), repeat=3):
        if a == p or labels[a] != labels[p] or labels[a] == labels[n]:
            continue
        right, wrong = (rows[a] - rows[p]).norm(), (rows[a] - rows[n]).norm()
        if margin + right - wrong > 0 and (not semi_hard or wrong > right):
            found.append(margin + right - wrong)
    return found


@pytest.mark.parametrize("semi_hard", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_the_sum_over_triplets_and_so_is_its_gradient(semi_hard: bool, classes: int) -> None:
    rows = points(11).requires_grad_()
    labels = torch.arange(11) % classes
    wanted = hinges(rows, labels, 0.8, semi_hard)
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    total, count = triplet_sum(distances, *same_class(labels), 0.8, semi_hard)
    assert count.item() == len(wanted) > 0
    assert total.item() == pytest.approx(sum(wanted).item(), rel=1e-12)
    slopes = [torch.autograd.grad(one, rows)[0] for one in (sum(wanted), total)]
    torch.testing.assert_close(slopes[1], slopes[0])


def test_semi_hard_ones_are_fewer_than_all() -> None:
    rows, labels = points(11), torch.arange(11) % 3
    both = [len(hinges(rows, labels, 0.8, semi_hard)) for semi_hard in (False, True)]
    assert both[0] > both[1] > 0


def test_a_tie_is_not_semi_hard() -> None:
    distances = torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    masks = same_class(torch.tensor([0, 0, 1]))
    total, count = triplet_sum(distances, *masks, 1.5, semi_hard=True)
    assert (total.item(), count.item()) == (0.5, 1)
    total, count = triplet_sum(distances, *masks, 1.5, semi_hard=False)
    assert (total.item(), count.item()) == (2.0, 2)


def terms(options: Triplet, rows: torch.Tensor, labels: torch.Tensor) -> Terms:
    code = Encoded(rows)
    made = options.objective(Task(rows.shape[1], classes=2))
    found: Terms = made(code, code, Batch(rows, rows, labels=labels))
    return found


@pytest.mark.parametrize("mining", ["all", "semi-hard"])
def test_the_loss_is_the_mean_of_those_that_count(mining: str) -> None:
    rows, labels = points(8), torch.arange(8) % 2
    found = terms(Triplet(margin=0.8, mining=mining), rows, labels)
    wanted = hinges(rows, labels, 0.8, mining == "semi-hard")
    assert found.total.item() == pytest.approx(sum(wanted).item() / len(wanted), rel=1e-9)
    share = found.watched["triplets"].item()
    assert share == pytest.approx(len(wanted) / (8 * 3 * 4), rel=1e-6)


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.arange(4)])
def test_a_batch_without_triplets_costs_nothing(labels: torch.Tensor) -> None:
    rows = points(4).requires_grad_()
    found = terms(Triplet(), rows, labels).total
    found.backward()
    assert found.item() == 0
    assert (rows.grad == 0).all()


def test_hyperparameters_out_of_range() -> None:
    with pytest.raises(CimError, match=r'loss\.mining "semihard" is not known: .*semi-hard"'):
        Triplet(mining="semihard")
    with pytest.raises(CimError, match=r"loss\.margin is 0; expected more than 0"):
        Triplet(margin=0.0)
    with pytest.raises(CimError, match=r"loss\.reconstruction is -1; expected 0 or more"):
        Triplet(reconstruction=-1.0)
