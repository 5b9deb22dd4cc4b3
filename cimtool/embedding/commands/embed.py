"""Encode texts and images into embeddings."""

from __future__ import annotations

import shlex

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.embedding import api
from cimtool.embedding.embed import EmbedOptions


@record_command(EmbedOptions)
def command(out: Output, options: EmbedOptions) -> None:
    """Encode texts and images into embeddings.

    ITEMS is a table with a header (.csv, .tsv), JSON lines (.jsonl), texts one a line (.txt), or a
    folder of images. The encoder is a folder on this machine: an ONNX file with its tokenizer.json,
    or a folder of transformers, sentence-transformers or open_clip with weights as safetensors.
    Nothing is downloaded. A row does not depend on the other rows. A run that was stopped continues
    after the last rows that it saved. <output>.provenance.json says what the rows were made of.
    """
    made = api.embed(**vars(options), say=out.say)
    next_ = f"cimtool inspect {shlex.quote(str(made.file))}"
    out.result(made.document().wrote([made.file, made.provenance_file], next_))
