from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cimtool.base.errors import CimError
from cimtool.training.loss import Batch, Task, Terms
from cimtool.training.losses.constraints import (
    Constraints,
    Siamese,
    distances,
    drawn,
    kl_to_standard,
    same_class,
    squared_error,
)
from cimtool.training.towers import Encoded

LABELS = torch.tensor([0, 1, 0, 2])


class Seen(Constraints):
    """Constraints that remember what they were given."""

    def constrained(self, distances: Tensor, labels: Tensor) -> Terms:
        self.seen = distances.detach(), labels
        return Terms({"seen": distances.sum()}, {"rows": torch.tensor(1.0)})


def gaussians(rows: int = 4, width: int = 3) -> Encoded:
    generator = torch.Generator().manual_seed(1)
    return Encoded(*torch.randn(2, rows, width, generator=generator))


def test_a_drawn_point_has_the_gaussians_moments_and_gradients() -> None:
    torch.manual_seed(0)
    mu, logvar = torch.tensor([[1.0, -2.0]]), torch.tensor([[-1.0, 1.0]]).requires_grad_()
    points = drawn(Encoded(mu.expand(20_000, 2), logvar.expand(20_000, 2)))
    torch.testing.assert_close(points.mean(0), mu[0], atol=0.05, rtol=0)
    torch.testing.assert_close(points.var(0), logvar[0].exp(), atol=0, rtol=0.05)
    points.square().sum().backward()
    assert (logvar.grad > 0).all()
    assert drawn(Encoded(mu)) is mu


def test_the_same_seed_draws_the_same_points() -> None:
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(drawn(gaussians()))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_kl_is_that_of_torch() -> None:
    mu, logvar = gaussians().gaussian
    own = torch.distributions.Normal(mu, (logvar / 2).exp())
    wanted = torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(kl_to_standard(mu, logvar), wanted.sum(1).mean())


def test_the_squared_error_is_halved_and_summed_over_a_row() -> None:
    rows = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert squared_error(torch.zeros(2, 2), rows).item() == (1 + 4) / 2 / 2


def test_distances_of_equal_points_have_finite_gradients() -> None:
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]).requires_grad_()
    found = distances(points)
    assert found.tolist() == [[0, 5, 0], [5, 0, 5], [0, 5, 0]]
    found.sum().backward()
    assert torch.isfinite(points.grad).all()
    assert points.grad.abs().max() > 0


def test_an_item_is_no_pair_with_itself() -> None:
    same, other = same_class(torch.tensor([0, 1, 0]))
    assert same.nonzero().tolist() == [[0, 2], [2, 0]]
    assert other.nonzero().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_items_of_several_classes_are_the_same_where_one_is_in_common() -> None:
    same, other = same_class(torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 0]]).bool())
    assert same.nonzero().tolist() == [[0, 1], [0, 3], [1, 0], [3, 0]]
    assert other.nonzero().tolist() == [
        [0, 2],
        [1, 2],
        [1, 3],
        [2, 0],
        [2, 1],
        [2, 3],
        [3, 1],
        [3, 2],
    ]


def test_one_encoder_gives_each_item_once_and_two_towers_give_two() -> None:
    made = Seen(Siamese(reconstruction=1.0, kl=1.0), Task(3, classes=3))
    text, video = (Encoded(gaussians().mu), Encoded(gaussians().logvar))
    batch = Batch(torch.zeros(4, 3), torch.zeros(4, 3), labels=LABELS)
    assert list(made(text, text, batch).loss) == ["seen"]
    torch.testing.assert_close(made.seen[0], torch.cdist(text.mu, text.mu))
    assert made.seen[1].tolist() == LABELS.tolist()
    made(text, video, batch)
    both = torch.cat([text.mu, video.mu])
    torch.testing.assert_close(made.seen[0], torch.cdist(both, both))
    assert made.seen[1].tolist() == LABELS.tolist() * 2


def test_the_terms_of_a_decoder_and_of_a_variance_have_their_prices() -> None:
    decoder = nn.Linear(3, 5)
    made = Seen(Siamese(reconstruction=0.5, kl=0.25), Task(3, classes=3, decoder=decoder))
    text, rows = gaussians(), torch.ones(4, 5)
    torch.manual_seed(2)
    terms = made(text, text, Batch(rows, rows, labels=LABELS)).loss
    torch.manual_seed(2)
    points = drawn(text)
    assert list(terms) == ["seen", "reconstruction", "kl"]
    torch.testing.assert_close(terms["reconstruction"], 0.5 * squared_error(decoder(points), rows))
    torch.testing.assert_close(terms["kl"], 0.25 * kl_to_standard(*text.gaussian))
    torch.testing.assert_close(made.seen[0], torch.cdist(points, points))
    assert not list(made.parameters()), "the decoder is the model's, and is trained once"


def test_scores_are_minus_the_expected_squared_distance_whatever_is_drawn() -> None:
    made = Seen(Siamese(reconstruction=1.0, kl=1.0), Task(3, classes=3))
    text, video = gaussians(), Encoded(*(one[:2] for one in gaussians().gaussian))
    delta = (text.mu[:, None] - video.mu[None]).square().sum(2)
    variance = text.gaussian[1].exp().sum(1)[:, None] + video.gaussian[1].exp().sum(1)
    torch.testing.assert_close(made.scores(text, video), -(delta + variance))
    points = Encoded(text.mu), Encoded(video.mu)
    torch.testing.assert_close(made.scores(*points), -delta)


def test_one_class_and_no_labels_are_refused() -> None:
    with pytest.raises(CimError, match='loss "siamese" tells classes apart, and the labels hold 1'):
        Siamese(reconstruction=1.0, kl=1.0).objective(Task(3, classes=1))
    made = Seen(Siamese(reconstruction=1.0, kl=1.0), Task(3, classes=3))
    with pytest.raises(CimError, match="need labels; the pairs have none"):
        made(gaussians(), gaussians(), Batch(torch.zeros(4, 3), torch.zeros(4, 3)))


def test_pairs_of_a_class_are_told_where_the_labels_are() -> None:
    found = same_class(torch.zeros(4, dtype=torch.int64, device="meta"))
    assert [one.device.type for one in found] == ["meta", "meta"]
