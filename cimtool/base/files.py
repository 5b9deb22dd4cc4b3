"""Checksums of files, and the errors for files that cannot be read or written."""

from __future__ import annotations

import errno
import hashlib
import inspect
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import ParamSpec, TypeVar

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.escapes import visible
from cimtool.base.hub_names import fetched_by
from cimtool.base.partial import PARTIAL, partial_folder

P = ParamSpec("P")
T = TypeVar("T")

LARGEST_HOLES = 1 << 28
"""Most bytes of holes in a file: they read as zeros, and a small archive can make many."""


def sha256(file: Path) -> str:
    """The SHA-256 of an ordinary file, in hexadecimal; CimError for any other."""
    require_file(file)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn an OSError into a CimError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise CimError(f"{file}: there is no such file{fetched_by(file)}") from None
    except OSError as error:
        raise CimError(f"{file}: cannot be read: {error.strerror or error}") from None


def require_file(path: Path) -> None:
    """Raise CimError unless `path` is an ordinary file: no folder, device, pipe or socket.

    Nor may it have more than LARGEST_HOLES bytes of holes.
    """
    with reading(path):
        try:
            found = path.stat()
        except ValueError:
            raise CimError(f"{path}: is not a file name") from None
        if stat.S_ISDIR(found.st_mode):
            raise CimError(f"{path}: is a folder; expected a file")
        # Files of the kernel look ordinary, and reading one may wait for ever.
        if not stat.S_ISREG(found.st_mode) or path.resolve().is_relative_to("/proc"):
            raise CimError(f"{path}: is a device, a pipe or a socket; expected an ordinary file")
        if found.st_size - 512 * found.st_blocks > LARGEST_HOLES:
            held = _bytes_held(path, found.st_size)
            if found.st_size - held > LARGEST_HOLES:
                raise CimError(
                    f"{path}: has {found.st_size:,} bytes but the disk holds {held:,}; expected at "
                    f"most {LARGEST_HOLES:,} bytes of holes"
                )


def _bytes_held(path: Path, size: int) -> int:
    """The bytes of a file outside holes; its number of blocks may lag behind."""
    held, place = 0, 0
    with path.open("rb", buffering=0) as stream:
        handle = stream.fileno()
        while place < size:
            try:
                start = os.lseek(handle, place, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # a file system without holes
                    return size
                break  # a hole up to the end
            place = os.lseek(handle, start, os.SEEK_HOLE)
            held += place - start
    return held


def check_output(file: Path, *suffixes: str) -> None:
    """Raise CimError, before long work, if `file` cannot be written or has another suffix."""
    if file.suffix not in suffixes:
        kinds = " or ".join(suffixes)
        article = "an" if kinds[1] in "nsx" else "a"  # as these letters are spoken
        raise CimError(
            f"{file}: the output is {article} {kinds} file; expected a name that ends in {kinds}"
        )
    if file.is_dir():
        raise CimError(f"{file}: is a folder; expected a file")
    if file.exists() and not file.is_file():
        raise CimError(f"{file}: is a device, a pipe or a socket; expected an ordinary file")
    check_way(file, file.absolute().parent)


def check_folder(folder: Path) -> None:
    """Raise CimError, before long work, if files cannot be written into `folder`.

    Writing makes a missing folder, with its parents.
    """
    check_way(folder, folder.absolute())


def check_way(output: Path, folder: Path) -> None:
    """Raise CimError, which begins with the `output`, if `folder` cannot be made or written."""
    place = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if place.is_symlink() and not place.exists():
        raise CimError(f"{output}: cannot be written ({place} is a link that leads nowhere)")
    if not place.is_dir():
        raise CimError(f"{output}: cannot be written ({place} is a file); expected a folder")
    if not os.access(place, os.W_OK):
        raise CimError(f"{output}: cannot be written ({place} is read-only)")
    disk = shutil.disk_usage(place)
    if disk.total and not disk.free:  # a total of 0 means no disk
        raise CimError(f"{output}: cannot be written (the disk of {place} is full)")


WRITTEN = ("output", "junit", "report", "trec")
"""Arguments, of functions and of commands, that name a file or a folder to write."""

_GIVEN: ContextVar[Mapping[str, object]] = ContextVar("_GIVEN", default={})  # noqa: B039


@contextmanager
def inputs_kept(arguments: Mapping[str, object]) -> Iterator[None]:
    """Keep files that these arguments name from being overwritten inside.

    The arguments in WRITTEN name outputs: `require_kept` checks them at once.
    """
    outer = _GIVEN.get()
    given = {name: one for name, one in arguments.items() if name not in WRITTEN}
    token = _GIVEN.set({**outer, **given, **outer})  # a command's names before the library's
    try:
        for name in WRITTEN:
            if isinstance(place := arguments.get(name), str | Path):
                require_kept(Path(place), name)
        yield
    finally:
        _GIVEN.reset(token)


def keeping_inputs(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function from overwriting the files that its arguments name."""
    signature = inspect.signature(function)

    @wraps(function)
    def kept(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python's own sentence names the function
        for name, parameter in signature.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(name, {})
        with inputs_kept(given):
            return function(*args, **kwargs)

    return kept


def require_kept(place: Path, argument: str | None = None) -> None:
    """Raise CimError if a file that is written to `place` replaces an input, by any path.

    Also if it would lie in the folder of a bundle and make it unusable. The sentence names the
    `argument` that gives the place.
    """
    # A folder on the way that is made later turns new/../x into x.
    places = [one for one in (place, Path(os.path.normpath(place))) if os.path.isfile(one)]
    for name, given in _GIVEN.get().items() if places else ():
        if any(
            os.path.samefile(text, one)
            for text in _texts(given)
            for one in places
            if os.path.isfile(text)
        ):
            raise ArgumentError(
                "{}{}: is the file of {}, which would be overwritten; expected another file",
                "" if argument is None else ArgumentError("{} ", Argument(argument)),
                place,
                Argument(name),
            )
    folder = without_links(place.absolute().parent)
    if place.name not in BUNDLE_BESIDE or not _is_bundle(folder):
        require_outside_bundles(folder / place.name)


def require_outside_bundles(place: Path) -> None:
    """Raise CimError if a folder above `place` is a bundle: it may hold only its own files."""
    for folder in without_links(place.absolute().parent).joinpath(place.name).parents:
        if _is_bundle(folder):
            raise CimError(
                f"{place}: is in the bundle {folder.name}, which must hold no other files; "
                "expected another place"
            )


def without_links(place: Path) -> Path:
    """The path of a place with links resolved, except links that run in a circle."""
    return Path(os.path.realpath(place))


MANIFEST, CONSTANTS = "manifest.json", "constants.safetensors"
"""The files that make a folder a bundle."""


def _is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and (folder / CONSTANTS).is_file()


TRAINED_MODEL = "model.pth"
"""The model in the folder of a training."""

REPORT_FILES = ("report.json", "report.md", "report.html")
"""The files of a report on a bundle."""

COST_FILES = ("cost.json", "placement.svg", "schedule.svg", "instead.svg")
"""The files of a cost estimate of a bundle; the last only with a gallery."""

BUNDLE_BESIDE = (*REPORT_FILES, *COST_FILES)
"""The files that commands may add to the folder of a bundle."""


def _texts(value: object) -> Iterator[str]:
    """The texts and paths in an argument."""
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif is_dataclass(value):
        for one in vars(value).values():
            yield from _texts(one)


def place_in(folder: Path, below: str) -> Path:
    """The place of a file or folder `below` a folder, perhaps several folders down.

    Every path that comes from a foreign name is made here. Raises CimError if it is not below the
    folder.
    """
    place = PurePosixPath(below)
    # PurePosixPath leaves out empty parts and dots.
    above = place.is_absolute() or {"..", "."} & {below, *place.parts}
    if above or str(place) != below or "\0" in below:
        raise CimError(
            f"{json.dumps(below)} is not a path below the folder that is written; expected names "
            "separated by /, none of them empty, . or .."
        )
    return folder / place


def check_room(place: Path, size: int) -> None:
    """Raise CimError if fewer than `size` bytes are free on the disk of a place to be made."""
    within = next(one for one in (place, *place.absolute().parents) if one.exists())
    free = shutil.disk_usage(within).free
    if free < size:
        raise CimError(
            f"{place}: takes {size:,} bytes or more, and the disk of {within} has {free:,} free; "
            "nothing was written"
        )


def unwritable(place: Path, error: OSError) -> CimError:
    """Build the error for a place that cannot be written; nothing was left there."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return CimError(f"{place}: cannot be written ({reason}); nothing was left there")


def text_bytes(text: str) -> bytes:
    """A text for a file in UTF-8, with U+FFFD for invisible characters and lone surrogates."""
    return visible(text).encode()


def replace_texts(folder: Path, texts: Mapping[str, str], what: str) -> tuple[Path, ...]:
    """Write text files by name into `folder`, as `replace_files` does."""
    return replace_files(folder, {name: text_bytes(one) for name, one in texts.items()}, what)


def replace_files(folder: Path, files: Mapping[str, bytes], what: str) -> tuple[Path, ...]:
    """Write files by name into `folder`, which is made if missing, all or nothing.

    Earlier ones are replaced only once all new ones are written. Raises CimError, which says that
    `what` cannot be written.
    """
    with staged(folder, what) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)
    return tuple(folder / name for name in files)


@contextmanager
def no_empty_folders(folder: Path) -> Iterator[None]:
    """At the end, remove a folder and its parents if they are new and empty."""
    new = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        yield
    finally:
        for one in new:
            with suppress(OSError):  # others may have written there meanwhile
                one.rmdir()


@contextmanager
def staged(folder: Path, what: str) -> Iterator[Path]:
    """Give a folder whose files are moved into `folder` at the end, all or nothing.

    `folder` is made if missing, and removed if it stays empty. Raises CimError, which says that
    `what` cannot be written.
    """
    require_outside_bundles(folder)
    try:
        with no_empty_folders(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with partial_folder(folder, PARTIAL) as partial:
                yield partial
                files = sorted(partial.iterdir())
                for file in files:
                    require_kept(folder / file.name)
                for file in files:
                    os.replace(file, folder / file.name)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CimError(f"{folder}: {what} cannot be written ({reason})") from error
