"""Rows of texts and images by encoders on this machine, saved part by part."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, IntArray, blocks
from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import check_output, keeping_inputs, replace_files, sha256, staged
from cimtool.base.folders import alone_in
from cimtool.base.json_files import plain_values
from cimtool.base.options import (
    FILE,
    OneName,
    Place,
    Record,
    Topic,
    Word,
    option,
    optional,
    takes,
)
from cimtool.base.progress import Countdown, PartDone, Say, silent
from cimtool.base.threads import side_by_side
from cimtool.embedding.encoder import (
    ImageEncoder,
    ItemEncoder,
    TextEncoder,
    TokenPooling,
    encoder_folder,
)
from cimtool.embedding.items import EncoderItems, read_items
from cimtool.loading.embeddings import File, read_embeddings
from cimtool.loading.npy import read_npy
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import counted, whole
from cimtool.report.result import Result
from cimtool.report.table import Column, make_table

NPZ, NPY = ".npz", ".npy"

SAVED = 256
"""Items whose rows are saved at a time."""


class EmbedOptions(Record):
    """The options of `embed`."""

    items: File = option(
        "A table (.csv, .tsv, .jsonl), texts one a line (.txt), or a folder of images.",
        FILE,
        positional=True,
        argument="ITEMS",
    )
    encoder: str = option("Folder of the encoder, of texts and images or of one.", Word("DIR"))
    output: File = option(
        "File of the rows: .npz, or .npy for texts or images alone.", Place("NPZ|NPY"), short="o"
    )
    text: str | None = optional("Column of the texts.", "COLUMN")
    image: str | None = optional("Column of the images' files, below the table's folder.", "COLUMN")
    image_encoder: str | None = optional(
        "Folder of the images' encoder [default: {encoder}].", Word("DIR")
    )
    pooling: TokenPooling | None = optional(
        "mean or cls: how states of tokens become a row [default: as the encoder's files say].",
        OneName(names=("mean", "cls")),
    )
    batch: int = option(
        "Items whose rows are saved at a time; the rows do not depend on it.",
        "N",
        at_least=1,
        default=SAVED,
        topic=Topic.WRITTEN,
    )


@dataclass(frozen=True, repr=False)
class EmbeddedRows(Result):
    """The result of `embed`: the file of the rows, and beside it what they were made of."""

    file: Path
    provenance_file: Path
    provenance: Mapping[str, Any]

    def document(self) -> Document:
        """The number of rows of each modality, their width, their encoder, and texts cut off."""
        made: Mapping[str, Any] = self.provenance["rows"]
        rows = [
            (name, one["items"], one["width"], one["encoder"]["encoder"])
            for name, one in made.items()
        ]
        columns = Column("rows"), Column("items", whole), Column("width", whole), Column("encoder")
        sizes = " and ".join(counted(one["items"], name) for name, one in made.items())
        cut = [
            Sentence(
                f"{one['cut']:,} of {counted(one['items'], name)} were cut at "
                f"{one['encoder']['tokens_at_most']} tokens."
            )
            for name, one in made.items()
            if one["cut"]
        ]
        table = make_table("", columns, rows).named("", "verdict")
        return Document(f"{self.file}: {sizes}", (table, *cut), lambda: self.provenance)


@dataclass(frozen=True, eq=False)
class ItemRows:
    """The rows [n, width] of items, and what they were made of."""

    items: EncoderItems
    rows: Array
    made_of: Mapping[str, Any]


@keeping_inputs
@takes(EmbedOptions)
def embed(options: EmbedOptions, say: Say = silent) -> EmbeddedRows:
    """Encode texts and images into the file `output`, an `.npz`, or an `.npy` for one modality.

    `items` is a table with the columns `text`, `image` or both, or a file or folder of one
    modality. With both columns an image that several texts name is encoded once, and
    `text_to_image` says which image belongs to each text. The encoder is a folder on this machine;
    nothing is downloaded and nothing unpickled. Each item is run alone, so a row depends on its
    item and its encoder only. Rows are saved `batch` by `batch`; a call that was stopped continues
    after the last that was saved, and rows of other items or another encoder are made anew. Beside
    `output`, `<output>.provenance.json` says what the rows were made of. Raises CimError for items
    or an encoder that cannot be read.
    """
    source, output = Path(options.items), Path(options.output)
    check_output(output, NPZ, NPY)
    beside = output.with_name(f"{output.name}.provenance.json")
    check_output(beside, beside.suffix)
    sides, right = _sides(read_items(source, options.text, options.image))
    if output.suffix == NPY and len(sides) > 1:
        raise ArgumentError(
            "{output} {}: holds one array; expected .npz for texts and images", output
        )
    encoders = _encoders(sides, options)
    parts = output.with_name(f".{output.name}.parts")
    with alone_in(parts, "embedding"):
        made = [
            _rows(items, encoder, parts, options.batch, say)
            for items, encoder in zip(sides, encoders, strict=True)
        ]
        provenance = {
            "source": source.resolve().name,
            "source_sha256": sha256(source) if source.is_file() else None,
            "rows": {one.items.modality: one.made_of for one in made},
        }
        with staged(output.parent, "the embeddings") as partial:
            _write(partial / output.name, made, right)
            provenance["sha256"] = sha256(partial / output.name)
            if right is not None:  # as reports on these data have it
                provenance["digest"] = read_embeddings(partial / output.name).digest
            text = json.dumps(plain_values(provenance), indent=1) + "\n"
            (partial / beside.name).write_text(text)
        shutil.rmtree(parts)
    return EmbeddedRows(output, beside, provenance)


def _sides(given: list[EncoderItems]) -> tuple[list[EncoderItems], IntArray | None]:
    """Items of each modality; with texts, each image once, and the row of each text's image."""
    if len(given) == 1:
        return given, None
    texts, images = given
    once, rows = images.once()
    return [texts, once], rows


def _encoders(sides: list[EncoderItems], options: EmbedOptions) -> list[ItemEncoder]:
    """The encoder of each modality; ArgumentError for an option of a modality that is not there."""
    modalities = [one.modality for one in sides]
    if options.pooling is not None and "text" not in modalities:
        raise ArgumentError("{pooling} is of texts; expected it with {text}, a column")
    if options.image_encoder is not None and "image" not in modalities:
        raise ArgumentError("{image_encoder} is of images; expected it with {image}, a column")
    name = Argument("encoder" if options.image_encoder is None else "image_encoder")
    made: dict[str, Callable[[], ItemEncoder]] = {
        "text": lambda: TextEncoder(
            encoder_folder(options.encoder, Argument("encoder")), options.pooling
        ),
        "image": lambda: ImageEncoder(
            encoder_folder(options.image_encoder or options.encoder, name)
        ),
    }
    return [made[modality]() for modality in modalities]


def _rows(
    items: EncoderItems, encoder: ItemEncoder, folder: Path, batch: int, say: Say
) -> ItemRows:
    """The rows of items, those of a part as an earlier call saved them in a folder, if it did.

    The name of a part's file is the SHA-256 of its items and of all facts of the encoder.
    """
    count, found, whole_digest = len(items.values), [], hashlib.sha256()
    facts = json.dumps(encoder.facts, sort_keys=True)
    countdown, cut, encoded = Countdown(say), 0, 0
    for part in blocks(count, batch):
        rows = range(part.start, part.stop)
        digests = "".join(side_by_side(lambda row: encoder.digest(items, row), rows))
        whole_digest.update(digests.encode())
        tokens = side_by_side(lambda row: encoder.tokens_of(items, row), rows)
        cut += sum(one is not None and one.cut for one in tokens)
        name = hashlib.sha256(f"{items.modality} {facts} {digests}".encode()).hexdigest()
        file = folder / f"{name}{NPY}"
        saved = _saved(file, len(rows))
        if saved is None:
            given = list(zip(rows, tokens, strict=True))
            saved = _joined(side_by_side(lambda one: encoder.row(items, *one), given), encoder)
            content = BytesIO()
            np.save(content, saved)
            replace_files(folder, {file.name: content.getvalue()}, "the rows")
            encoded += len(rows)
            told = PartDone(f"{part.stop:,} of {counted(count, items.modality)} encoded")
            countdown.tell(told, encoded, encoded + count - part.stop)
        found.append(saved)
    made_of = {
        "column": items.column,
        "items": count,
        "items_sha256": whole_digest.hexdigest(),
        "cut": cut,
        "width": found[0].shape[1],
        "encoder": encoder.facts,
    }
    return ItemRows(items, _joined([one for part in found for one in part], encoder), made_of)


def _saved(file: Path, count: int) -> Array | None:
    """The rows [count, width] that an earlier call saved; None if the file does not hold them."""
    try:
        saved = read_npy(file)
    except CimError:  # most often there is none
        return None
    right = saved.dtype == np.float32 and saved.ndim == 2 and len(saved) == count
    return saved if right and np.isfinite(saved).all() else None


def _joined(rows: Sequence[Array], encoder: ItemEncoder) -> Array:
    """Rows as one array [n, width]; CimError if they are not equally wide."""
    widths = sorted({one.size for one in rows})
    if len(widths) > 1:
        raise CimError(
            f"{encoder.tower.file}: gives rows of {widths[0]} and of {widths[-1]} numbers; "
            "expected equally many for every item"
        )
    return np.stack(rows)


def _write(file: Path, made: Sequence[ItemRows], right: IntArray | None) -> None:
    """Write the arrays that other commands read."""
    if file.suffix == NPY:
        np.save(file, made[0].rows)
        return
    arrays: dict[str, Any] = {one.items.modality: one.rows for one in made}
    if right is not None:
        arrays["text_to_image"] = right
    paths = [path for one in made if one.items.modality == "image" for path in one.items.values]
    apart = len(set(paths)) == len(paths) and not any(re.search(r"\s", path) for path in paths)
    if paths and apart:  # ids have no spaces, and none stands twice
        arrays["image_ids"] = np.array(paths)
    np.savez(file, **arrays)
