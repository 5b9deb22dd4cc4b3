from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.training.pairs import Pairs, check_batches, draw_batches


def rows(labels: list[int] | None = None) -> Embeddings:
    text = np.arange(12, dtype=np.float32).reshape(6, 2)
    arrays = {"text": text, "video": 10 * text[:4], "text_to_video": np.array([3, 3, 0, 1, 1, 0])}
    return embeddings_of(arrays | ({} if labels is None else {"labels": np.array(labels)}))


def test_a_batch_has_each_texts_own_video() -> None:
    pairs = Pairs.of(rows([7, 7, 9, 9, 9, 8]), np.array([1, 2, 4, 5]))
    assert len(pairs.video) == 3  # video 2 is nobody's
    batch = pairs.batch(torch.tensor([3, 0, 1]))
    assert batch.text[:, 0].tolist() == [10, 2, 4]
    assert batch.video[:, 0].tolist() == [0, 60, 0]
    assert batch.items is not None
    assert batch.items[0] == batch.items[2] != batch.items[1]
    assert batch.labels is not None
    assert batch.labels.tolist() == [1, 0, 2]
    assert pairs.classes == 3


def test_aligned_rows_have_neither_items_nor_labels() -> None:
    pairs = Pairs(*torch.zeros(2, 5, 3), torch.arange(5))
    batch = pairs.batch(torch.tensor([1]))
    assert (batch.items, batch.labels, pairs.classes) == (None, None, 0)


def test_an_epoch_has_each_row_once_but_for_the_rest() -> None:
    torch.manual_seed(0)
    pairs = Pairs(*torch.zeros(2, 11, 3), torch.arange(11))
    drawn = torch.cat(list(draw_batches(pairs, 4, 0))).tolist()
    assert len(drawn) == len(set(drawn)) == 8


def test_stratified_batches_have_so_many_pairs_of_each_of_their_classes() -> None:
    torch.manual_seed(0)
    text, labels = np.zeros((60, 2), np.float32), np.repeat([4, 5, 6], [31, 20, 9])
    whole = embeddings_of({"text": text, "video": text, "labels": labels})
    pairs = Pairs.of(whole, np.arange(60))
    first, second = (list(draw_batches(pairs, 8, 4)) for _ in range(2))
    assert len(first) == (7 + 5 + 2) // 2
    for batch in first:
        assert set(torch.bincount(torch.from_numpy(labels)[batch]).tolist()) <= {0, 4, 8}
    drawn = torch.cat(first).tolist()
    assert len(drawn) == len(set(drawn))
    assert drawn != torch.cat(second).tolist()


def test_each_class_has_its_turn_as_long_as_it_lasts() -> None:
    torch.manual_seed(0)
    labels = np.repeat([4, 5, 6], [40, 42, 31])
    items = embeddings_of({"rows": np.zeros((113, 2), np.float32), "labels": labels})
    pairs = Pairs.of(items, np.arange(113))
    assert pairs.alone
    assert pairs.labels is not None
    for size in (12, 24):  # one turn and two of three groups of four
        batches = list(draw_batches(pairs, size, 4))
        for batch in batches[: 7 * 12 // size]:
            assert torch.bincount(pairs.labels[batch]).tolist() == [size // 3] * 3
        assert sum(map(len, batches)) <= 27 * 4


def test_pairs_that_fill_no_batch() -> None:
    pairs = Pairs.of(rows([0, 0, 1, 1, 1, 2]), np.arange(6))
    with pytest.raises(CimError, match="batch is 7, and 6 pairs train"):
        check_batches(pairs, 7, 0)
    with pytest.raises(CimError, match="batch is 5; expected a multiple of 2"):
        check_batches(pairs, 5, 2)
    with pytest.raises(CimError, match="the classes give 2 groups of 2 pairs; expected at least 3"):
        check_batches(pairs, 6, 2)
    check_batches(pairs, 4, 2)
