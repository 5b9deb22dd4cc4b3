from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_encoders import MOST, numbers, write_json, write_tokenizer

from cimtool.base.errors import CimError
from cimtool.embedding.tokens import Tokens


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path


def config(folder: Path, **values: Any) -> None:
    write_json(folder / "tokenizer_config.json", values)


def test_texts_are_cut_with_their_last_mark_kept(folder: Path) -> None:
    tokens = Tokens(folder, None)
    assert tokens.of("a red dog").numbers == numbers("a red dog")
    assert not tokens.of("a " * (MOST - 2)).cut
    long = tokens.of("a " * 30)
    assert (long.numbers, long.count, long.cut) == (numbers("a " * 30), MOST, True)


def test_texts_are_padded_to_the_length_of_a_model(folder: Path) -> None:
    found = Tokens(folder, 8).of("a dog")
    assert (found.numbers, found.count, found.cut) == ([2, 4, 5, 3, 0, 0, 0, 0], 4, False)
    assert Tokens(folder, 8).of("a " * 7).cut


def test_a_model_without_a_mask_gets_texts_of_full_length(folder: Path) -> None:
    write_json(folder / "config.json", {"model_type": "siglip"})
    assert len(Tokens(folder, None).of("a dog").numbers) == MOST


def test_padding_in_the_tokenizer_itself_is_for_batches(folder: Path) -> None:
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    values["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 1, "pad_type_id": 0, "pad_token": "[UNK]",
    }  # fmt: skip
    file.write_text(json.dumps(values))
    assert Tokens(folder, None).of("a dog").numbers == numbers("a dog")
    assert Tokens(folder, 6).of("a dog").numbers == [2, 4, 5, 3, 1, 1]


def test_the_limit_of_sentence_transformers_comes_first(folder: Path) -> None:
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 7})
    assert Tokens(folder, None).most == 7
    assert Tokens(folder, 5).most == 5


def test_a_limit_that_stands_for_none(folder: Path) -> None:
    for limit in (1e30, 10**400, 1, True, "12"):
        config(folder, model_max_length=limit)
        with pytest.raises(CimError, match="says nowhere after how many tokens a text is cut"):
            Tokens(folder, None)
    config(folder, model_max_length=1e30, pad_token={"content": "[PAD]"})
    assert Tokens(folder, 6).most == 6


def test_a_padding_that_is_not_known(folder: Path) -> None:
    config(folder, model_max_length=9, pad_token="[NONE]")
    with pytest.raises(CimError, match="texts are padded to 9 tokens, and no padding is known"):
        Tokens(folder, 9)


@pytest.mark.parametrize("content", ["", "{}", '{"model": 3}', "[" * 500])
def test_a_tokenizer_that_is_none(content: str, folder: Path) -> None:
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CimError, match=r"tokenizer\.json: is no tokenizer"):
        Tokens(folder, None)
