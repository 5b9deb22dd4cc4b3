"""Tokens of texts by an encoder's `tokenizer.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.json_files import read_json
from cimtool.base.plugins import needing
from cimtool.base.untrusted import read_bounded

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
SENTENCE_CONFIG, MODEL_CONFIG = "sentence_bert_config.json", "config.json"

LARGEST_TOKENIZER = 1 << 26
"""Most bytes of a tokenizer."""

FEWEST_TOKENS, MOST_TOKENS = 4, 1 << 16
"""Ends of the limits of a text's tokens; a greater one in a file stands for none."""

WITHOUT_MASK = ("siglip", "siglip_text_model", "siglip2", "siglip2_text_model")
"""Kinds of models that were trained on texts padded to their full length, without a mask."""


def config_of(folder: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of an encoder's folder; empty if there is no such file."""
    file = folder / name
    if not file.is_file():
        return {}
    values = read_json(file)
    if not isinstance(values, dict):
        raise CimError(f"{file}: holds no object; expected one")
    return values


def takes_no_mask(folder: Path) -> bool:
    """True for a model of WITHOUT_MASK."""
    return config_of(folder, MODEL_CONFIG).get("model_type") in WITHOUT_MASK


@dataclass(frozen=True)
class TextTokens:
    """The numbers of a text's tokens, those that stand for it, and whether its end was cut off.

    Numbers after the first `count` are padding.
    """

    numbers: list[int]
    count: int
    cut: bool


class Tokens:
    """The tokenizer of a folder; texts are cut at `most` tokens, and padded to `length` if given.

    `most` is what sentence-transformers, else transformers, else the tokenizer itself would take,
    but no more than the `longest` text of the network. Raises CimError if there is no tokenizer, or
    no limit, or `length` is none of a text.
    """

    def __init__(self, folder: Path, length: int | None, longest: int | None = None) -> None:
        file = folder / TOKENIZER
        if not file.is_file():
            raise CimError(
                f"{folder}: has no {TOKENIZER}, so texts cannot be encoded; expected it as "
                "transformers writes it: "
                "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
            )
        if length is not None and not _is_limit(length):
            raise CimError(
                f"{folder}: its model takes {length:,} tokens; expected {FEWEST_TOKENS} to "
                f"{MOST_TOKENS:,}"
            )
        content = read_bounded(file, LARGEST_TOKENIZER)
        with needing("a text encoder"):
            from tokenizers import Tokenizer
        try:
            self._tokenizer: Any = Tokenizer.from_str(content.decode())
        except Exception as error:  # the package raises nothing more special
            raise CimError(f"{file}: is no tokenizer ({error})") from None
        self.most = self._limit(folder, longest if length is None else length)
        padded = takes_no_mask(folder)
        self.length = self.most if padded and length is None else length
        self._padding = self._padding_number(folder) if self.length is not None else 0
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.most)

    def _limit(self, folder: Path, longest: int | None) -> int:
        limits = (
            config_of(folder, SENTENCE_CONFIG).get("max_seq_length"),
            config_of(folder, TOKENIZER_CONFIG).get("model_max_length"),
            (self._tokenizer.truncation or {}).get("max_length"),
            longest,
        )
        known = [int(one) for one in limits if one is not None and _is_limit(one)]
        if not known:
            raise CimError(
                f"{folder}: says nowhere after how many tokens a text is cut; expected "
                f"model_max_length in {TOKENIZER_CONFIG}, {FEWEST_TOKENS} to {MOST_TOKENS:,}"
            )
        return known[0] if longest is None else min(known[0], longest)

    def _padding_number(self, folder: Path) -> int:
        """The number of the token that fills a text up."""
        inside = self._tokenizer.padding
        if inside is not None:
            return int(inside["pad_id"])
        token = config_of(folder, TOKENIZER_CONFIG).get("pad_token")
        name = token.get("content") if isinstance(token, dict) else token
        number = self._tokenizer.token_to_id(name) if isinstance(name, str) else None
        if number is None:
            raise CimError(
                f"{folder}: texts are padded to {self.length} tokens, and no padding is known; "
                f"expected pad_token in {TOKENIZER_CONFIG}, a token of {TOKENIZER}"
            )
        return int(number)

    def of(self, text: str) -> TextTokens:
        """The tokens of a text."""
        found = self._tokenizer.encode(text)
        numbers = list(found.ids)
        missing = 0 if self.length is None else self.length - len(numbers)
        return TextTokens(
            [*numbers, *[self._padding] * missing], len(numbers), bool(found.overflowing)
        )


def _is_limit(value: Any) -> bool:
    return type(value) in (int, float) and FEWEST_TOKENS <= value <= MOST_TOKENS
