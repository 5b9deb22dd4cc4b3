"""Networks of encoders, each run on one item: ONNX, or a folder of transformers or open_clip."""

from __future__ import annotations

import contextlib
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.base.plugins import needing
from cimtool.base.untrusted import require_small_header
from cimtool.embedding import open_clip
from cimtool.embedding.tokens import MODEL_CONFIG, config_of, takes_no_mask
from cimtool.emit.runtime import Session

KNOWN = {
    "text": ("input_ids", "attention_mask", "token_type_ids"),
    "image": ("pixel_values",),
}
"""Inputs that are given by modality; the first is always needed."""

AXES = {"text": 2, "image": 4}
"""Axes of the inputs by modality: items, tokens; items, channels, height, width."""

OUTPUTS = {
    "text": ("text_embeds", "sentence_embedding", "last_hidden_state", "token_embeddings"),
    "image": ("image_embeds", "pooler_output"),
}
"""Outputs that are taken of a file with several, the best first."""

ONNX_FILES = {
    "text": ("text_model.onnx", "model.onnx"),
    "image": ("vision_model.onnx", "model.onnx"),
}
"""Names of ONNX files, in a folder or in `onnx/` below it."""

SAFETENSORS = "model.safetensors"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Endings of weights that would be unpickled."""

MOST_LAYERS = 256
"""Most layers that a `config.json` may ask for."""


class Tower(ABC):
    """A network from the inputs `takes` of one item to a row or to states of its tokens.

    `length` is the number of tokens that it takes, None if it takes any, up to `longest` if that is
    known; `file` its weights, `packages` the packages that run it.
    """

    file: Path
    packages: tuple[str, ...]
    takes: tuple[str, ...]
    length: int | None = None
    longest: int | None = None

    @abstractmethod
    def run(self, feeds: Mapping[str, Array]) -> Array:
        """A row [1, width], or states [1, tokens, width]; CimError if it does not run."""


def open_tower(folder: Path, modality: str) -> Tower:
    """The network of a folder for `text` or `image`; CimError if there is none that can be read."""
    places = (folder, folder / "onnx")
    files = [place / name for name in ONNX_FILES[modality] for place in places]
    onnx = next((file for file in files if file.is_file()), None)
    if onnx is not None:
        return OnnxTower(onnx, modality)
    if (folder / SAFETENSORS).is_file():
        return TransformersTower(folder, modality)
    if (folder / open_clip.CONFIG).is_file() and (folder / open_clip.WEIGHTS).is_file():
        return OpenClipTower(folder, modality)
    pickled = sorted(one for one in folder.iterdir() if one.suffix in PICKLED)
    if pickled:
        expected = (
            f"{SAFETENSORS}, which transformers writes where you trust the file: "
            "AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
        if (folder / open_clip.CONFIG).is_file():
            expected = open_clip.WEIGHTS
        raise CimError(
            f"{pickled[0]}: is never loaded, as a pickled file can run code; expected {expected}"
        )
    names = " or ".join(ONNX_FILES[modality])
    raise CimError(
        f"{folder}: holds no encoder; expected {names}, {SAFETENSORS}, or {open_clip.WEIGHTS} with "
        f"{open_clip.CONFIG}"
    )


class OnnxTower(Tower):
    """An ONNX file, run on the CPU with one thread."""

    packages = ("onnxruntime",)

    def __init__(self, file: Path, modality: str) -> None:
        self.file = file
        self._session = Session(file, again="export the encoder again")
        known, shapes = KNOWN[modality], self._session.shapes
        strange = sorted(shapes.keys() - set(known))
        if strange or known[0] not in shapes:
            raise CimError(
                f"{file}: takes {', '.join(shapes)}; expected an encoder of {modality} alone, "
                f"which takes {', '.join(known)}"
            )
        for name, shape in shapes.items():
            if len(shape) != AXES[modality] or (isinstance(shape[0], int) and shape[0] != 1):
                raise CimError(
                    f"{file}: {name} has shape {list(shape)}; expected {AXES[modality]} axes, the "
                    "first for any number of items"
                )
        self.takes = tuple(shapes)
        if modality == "text" and isinstance(shapes[known[0]][1], int):
            self.length = shapes[known[0]][1]
        self._output = self._chosen(OUTPUTS[modality])

    def _chosen(self, preferred: tuple[str, ...]) -> str:
        """The output that is taken."""
        names = self._session.outputs
        chosen = names if len(names) == 1 else [one for one in preferred if one in names]
        if not chosen:
            raise CimError(
                f"{self.file}: gives {', '.join(names)}; expected one output, or "
                f"{' or '.join(preferred)} among them"
            )
        return chosen[0]

    def run(self, feeds: Mapping[str, Array]) -> Array:
        """The chosen output."""
        found: Any = self._session.run(feeds)[self._output]
        numbers = isinstance(found, np.ndarray) and found.dtype.kind in "fiu"
        if not numbers or found.ndim not in (2, 3) or len(found) != 1:
            kind = (
                f"shape {list(found.shape)} of {found.dtype}" if numbers else "no array of numbers"
            )
            raise CimError(
                f"{self.file}: {self._output} is {kind} for one item; expected its row, or the "
                "states of its tokens"
            )
        return np.asarray(found)


class TorchTower(Tower):
    """A network of transformers on the CPU, with the weights of a `.safetensors` file.

    `config` is the JSON file that names its sizes. CimError for more layers than MOST_LAYERS.
    """

    packages = ("transformers", "torch")

    def __init__(self, file: Path, config: str) -> None:
        self.file = file
        self._local = threading.local()
        require_small_header(file)
        _require_bounded(file.parent / config, config_of(file.parent, config))
        with needing(f"an encoder in {file.name}"):
            import torch
            import transformers
        self._torch, self._transformers = torch, transformers

    @abstractmethod
    def _features(self, given: Mapping[str, Any]) -> Any:
        """The row or the states of an item's tensors."""

    def _require_held(self, config: str, empty: Any) -> None:
        """Raise ValueError if a model of the `meta` device has more numbers than the file bytes."""
        numbers = sum(one.numel() for one in empty.parameters())
        if numbers > self.file.stat().st_size:
            raise ValueError(f"{config} asks for {numbers:,} numbers, more than the file holds")

    @contextlib.contextmanager
    def _of_folder(self) -> Iterator[None]:
        try:
            yield
        except CimError:
            raise
        except Exception as error:  # transformers, and what it calls, have errors of many kinds
            said = " ".join(str(error).split())
            raise CimError(
                f"{self.file}: is no encoder that transformers reads ({said[:300]})"
            ) from None

    def run(self, feeds: Mapping[str, Array]) -> Array:
        """The row or the states of an item."""
        torch = self._torch
        if not hasattr(self._local, "ready"):  # a setting of each thread
            torch.set_num_threads(1)
            self._local.ready = True
        given = {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in feeds.items()}
        with self._of_folder(), torch.inference_mode():
            numbers: Array = self._features(given).numpy()
        return numbers


class TransformersTower(TorchTower):
    """A folder of transformers, read from its `model.safetensors` alone.

    Code of the folder itself is never run. CimError for a kind of model that transformers does not
    have, and for weights that are missing.
    """

    def __init__(self, folder: Path, modality: str) -> None:
        super().__init__(folder / SAFETENSORS, MODEL_CONFIG)
        torch, transformers = self._torch, self._transformers
        with _quiet(transformers), self._of_folder():
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            with torch.device("meta"):
                empty = transformers.AutoModel.from_config(config, trust_remote_code=False)
            self._require_held(MODEL_CONFIG, empty)
            self._model, told = transformers.AutoModel.from_pretrained(
                folder, config=config, local_files_only=True, trust_remote_code=False,
                use_safetensors=True, dtype=torch.float32, output_loading_info=True,
            )  # fmt: skip
        missing = [name for name in sorted(told["missing_keys"]) if not name.startswith("pooler.")]
        if missing:
            raise CimError(f"{self.file}: has no {missing[0]}; expected all weights of the encoder")
        self._model.eval()
        of_both = {"text": "get_text_features", "image": "get_image_features"}[modality]
        if modality == "image" and not hasattr(self._model, of_both):
            raise CimError(
                f"{folder}: is no encoder of images and texts, such as CLIP or SigLIP; expected one"
            )
        self._call: Any = getattr(self._model, of_both, self._model)
        forward = self._call.forward if self._call is self._model else self._call
        taken = set(inspect.signature(forward).parameters)
        self.takes = tuple(name for name in KNOWN[modality] if name in taken)
        if modality == "text" and takes_no_mask(folder):
            self.takes = KNOWN["text"][:1]

    def _features(self, given: Mapping[str, Any]) -> Any:
        """Features of a model of both modalities, else the last hidden states."""
        found: Any = self._call(**given)
        if isinstance(found, self._torch.Tensor):
            return found
        return found.pooler_output if self._call is not self._model else found.last_hidden_state


class OpenClipTower(TorchTower):
    """A tower of a CLIP in open_clip's folder, run as transformers' CLIP."""

    def __init__(self, folder: Path, modality: str) -> None:
        super().__init__(folder / open_clip.WEIGHTS, open_clip.CONFIG)
        torch, transformers = self._torch, self._transformers
        values = open_clip.clip_settings(folder, modality)
        kind = {"text": "Text", "image": "Vision"}[modality]
        config = getattr(transformers, f"CLIP{kind}Config")
        model = getattr(transformers, f"CLIP{kind}ModelWithProjection")
        with _quiet(transformers), self._of_folder(), torch.random.fork_rng(devices=[]):
            with torch.device("meta"):
                empty = model(config(**values))
            self._require_held(open_clip.CONFIG, empty)
            wanted = {name: one.shape for name, one in empty.state_dict().items()}
            held = open_clip.clip_weights(folder, modality, wanted)
            self._model = model(config(**values))
            self._model.load_state_dict({n: torch.from_numpy(one) for n, one in held.items()})
        self._model.eval()
        self.takes = KNOWN[modality][:1]
        self.longest = values.get("max_position_embeddings")

    def _features(self, given: Mapping[str, Any]) -> Any:
        """The projected row."""
        found = self._model(**given)
        return found.text_embeds if "input_ids" in given else found.image_embeds


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from telling its progress and its advice."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _require_bounded(file: Path, values: Mapping[str, Any]) -> None:
    """Raise CimError if a config asks for more than MOST_LAYERS layers, which takes hours."""
    for key, value in values.items():
        if isinstance(value, dict):
            _require_bounded(file, value)
        elif "layers" in key and isinstance(value, int) and value > MOST_LAYERS:
            raise CimError(f"{file}: {key} is {value:,}; expected at most {MOST_LAYERS}")
