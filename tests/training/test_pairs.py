from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.reference.truth import Judgements
from cimtool.training.pairs import (
    Pairs,
    check_batches,
    draw_batches,
    set_aside,
    split,
    with_right,
    with_validation,
)


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


def test_an_item_of_several_classes_is_drawn_with_its_rarest() -> None:
    sets = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]])
    items = embeddings_of({"rows": np.zeros((6, 2), np.float32), "labels": sets})
    pairs = Pairs.of(items, np.arange(6))
    assert pairs.classes == 3
    assert pairs.groups.tolist() == [1, 0, 2, -1, 1, 2]
    check_batches(pairs, 4, 2)
    (batch,) = draw_batches(pairs, 4, 2)
    assert set(batch.tolist()) == {0, 4, 2, 5}
    with pytest.raises(CimError, match="the classes give 2 groups of 2 pairs; expected at least 3"):
        check_batches(pairs, 6, 2)


def test_pairs_that_fill_no_batch() -> None:
    pairs = Pairs.of(rows([0, 0, 1, 1, 1, 2]), np.arange(6))
    with pytest.raises(CimError, match="batch is 7, but only 6 pairs are for training"):
        check_batches(pairs, 7, 0)
    with pytest.raises(CimError, match="batch is 5; expected a multiple of 2"):
        check_batches(pairs, 5, 2)
    with pytest.raises(CimError, match="the classes give 2 groups of 2 pairs; expected at least 3"):
        check_batches(pairs, 6, 2)
    check_batches(pairs, 4, 2)


def shared_rows(texts: int, videos: int, width: int = 3) -> Embeddings:
    rng = np.random.default_rng(0)
    text, video = (rng.normal(size=(n, width)).astype(np.float32) for n in (texts, videos))
    right = rng.integers(0, videos, texts)
    return embeddings_of({"text": text, "video": video, "text_to_video": right})


def test_no_video_is_on_both_sides() -> None:
    whole = shared_rows(200, 50)
    pairs, held = split(whole, 0.2, seed=3)
    assert len(pairs) + len(held) == 200
    both = {tuple(row) for row in pairs.video.tolist()} & {
        tuple(row) for row in held.video.tolist()
    }
    assert not both
    assert 0.1 < len(held.video) / 50 < 0.3


def test_the_seed_decides() -> None:
    whole = shared_rows(200, 50)
    first, again, other = (split(whole, 0.2, seed)[1].text.tolist() for seed in (3, 3, 4))
    assert first == again != other


def test_what_is_set_aside_shares_no_row_with_the_rest() -> None:
    whole = shared_rows(200, 50)
    whole.text[::7] = whole.text[0]
    drawn, others = set_aside(whole, 0.2, seed=3)
    assert not (drawn & others).any()
    kept, aside = whole.among(others), whole.among(drawn)
    assert len(aside.video) == round(0.2 * len(np.unique(whole.right)))
    for name in ("text", "video"):
        both = {tuple(x) for x in getattr(kept, name)} & {tuple(x) for x in getattr(aside, name)}
        assert not both
    assert (drawn | others).sum() < 200
    again = embeddings_of(aside.arrays())
    assert np.array_equal(again.video[again.right], whole.video[whole.right[drawn]])
    with pytest.raises(CimError, match=r"share of 0.01 that is set aside: 0 pairs are tests"):
        set_aside(whole, 0.01, 0)


def test_bad_shares() -> None:
    with pytest.raises(CimError, match="held_out is 1; expected a share between 0 and 1"):
        split(shared_rows(20, 5), 1.0, 0)
    with pytest.raises(CimError, match=r"of 5 videos the held-out share of 0.1: 0 pairs"):
        split(shared_rows(20, 5), 0.1, 0)
    with pytest.raises(CimError, match=r"held_out 0.999 leaves no pair to train on"):
        split(shared_rows(200, 50), 0.999, 0)


def test_rows_of_unknown_truth() -> None:
    whole = embeddings_of({"text": np.ones((4, 2)), "video": np.ones((3, 2))})
    with pytest.raises(CimError, match="4 texts and 3 videos, and text_to_video is missing"):
        split(whole, 0.5, 0)


def test_validation_pairs_that_are_trained_on() -> None:
    whole = shared_rows(20, 5)
    assert whole.text_to_video is not None
    values = {
        "text": np.vstack([whole.text[:2] + 1, whole.text[:3]]),
        "video": whole.video,
        "text_to_video": np.concatenate([[0, 1], whole.text_to_video[:3]]),
    }
    pairs, held = with_validation(whole, embeddings_of(values, "v"))
    assert (len(pairs), len(held)) == (17, 5)
    np.testing.assert_array_equal(pairs.text.numpy(), whole.text[3:])
    values["text_to_video"] = (values["text_to_video"] + 1) % 5  # the same rows in other pairs
    assert len(with_validation(whole, embeddings_of(values))[0]) == 20
    with pytest.raises(CimError, match="all 20 pairs are also in v, the validation file"):
        with_validation(whole, replace(whole, file="v"))


def test_a_validation_file_of_other_widths() -> None:
    with pytest.raises(CimError, match="text rows have 4 numbers; expected 3 as in embeddings"):
        with_validation(shared_rows(20, 5), shared_rows(20, 5, width=4))


def judged() -> Embeddings:
    """Text 2 has nothing right; text 0 has videos 1 and 3, of equal grade."""
    text, video, grade = np.array([[0, 3, 1], [0, 1, 1], [1, 3, 1], [1, 0, 2], [3, 2, 1]]).T
    arrays = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = embeddings_of({"text": arrays, "video": 10 * arrays})
    return replace(found, judged=Judgements(text, video, grade))


def test_judged_texts_come_with_one_of_their_right_videos_and_know_all() -> None:
    taken = with_right(judged())
    assert taken.right.tolist() == [1, 0, 2]  # the highest grade, then the first
    pairs = Pairs.of(taken, np.arange(3))
    torch.manual_seed(0)
    seen = set()
    for _ in range(30):
        batch = pairs.batch(torch.tensor([1, 0, 2]))
        assert batch.items is None
        assert batch.right is not None
        videos = (batch.video[:, 0] / 20).long().tolist()
        rights = [{3, 0}, {1, 3}, {2}]
        assert batch.right.tolist() == [[v in right for v in videos] for right in rights]
        assert batch.right.diagonal().all()
        seen.add(tuple(videos))
    assert seen == {(a, b, 2) for a in (3, 0) for b in (1, 3)}


def test_a_part_of_judged_texts_has_all_their_right_videos() -> None:
    pairs = Pairs.of(with_right(judged()), np.arange(3)).among(np.array([True, False, True]))
    assert pairs.video[:, 0].tolist() == [20, 40, 60]
    assert pairs.right.tolist() == [0, 1]
    assert pairs.judged is not None
    assert sorted(zip(pairs.judged.text, pairs.judged.video, strict=True)) == [
        (0, 0), (0, 2), (1, 1),
    ]  # fmt: skip


def test_held_out_videos_are_right_for_no_training_text() -> None:
    rng = np.random.default_rng(0)
    text, video = rng.normal(size=(2, 90, 3)).astype(np.float32)
    own = np.arange(90) % 30
    pairs = {(i, own[i]) for i in range(90)} | {(i, (own[i] + 7) % 30) for i in range(60)}
    texts, videos = np.array(sorted(pairs)).T
    told = Judgements(texts, videos, np.where(videos == own[texts], 2, 1))
    rows = embeddings_of({"text": text, "video": video[:30], "text_to_video": own})
    train, held = split(with_right(replace(rows, judged=told)), 0.2, 0)
    assert (len(held), len(held.video)) == (18, 6)
    assert not np.isin(held.video.numpy(), train.video.numpy()).any()
    for part in (train, held):
        assert part.judged is not None
        kept = {(tuple(part.text[i].tolist()), tuple(part.video[j].tolist()))
                for i, j in zip(part.judged.text, part.judged.video, strict=True)}  # fmt: skip
        mine = {tuple(row) for row in part.video.tolist()}
        assert kept == {
            (tuple(text[i].tolist()), tuple(video[j].tolist()))
            for i, j in pairs
            if tuple(text[i].tolist()) in set(map(tuple, part.text.tolist()))
            and tuple(video[j].tolist()) in mine
        }


def test_judged_items_of_one_modality() -> None:
    rows = embeddings_of({"rows": np.eye(4, dtype=np.float32)})
    one = np.array([0]), np.array([1]), np.array([1])
    with pytest.raises(CimError, match="one modality, and qrels judges texts and videos"):
        with_right(replace(rows, judged=Judgements(*one)))
