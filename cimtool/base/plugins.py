"""Plug-ins: leaves of cimtool and other packages that add classes, rules and targets.

A leaf of cimtool, a folder that the core does not import, registers classes and rules by a module
`plugin` if it has any; its commands and its functions of the library are found by the names of
their files (`cli/group.py`, `api.py`). Other packages register theirs by entry points.

An entry point of the group `cimtool.plugins` names a module. Importing it registers its additions.
If it has an attribute `TARGETS`, that is a folder of targets, with noise models in `noise/` and
CAMs in `cam/`. None of them may have a name that is known already.
Plug-ins are imported only for a name that cimtool itself does not know, or for a list of all names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from cimtool.base.errors import ArgumentError, CimError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import FrameType

LEAF = "plugin"
"""The module by which a leaf of cimtool registers its classes."""

GROUP = "cimtool.plugins"
"""The group of entry points."""

OWN = "cimtool"
"""The origin of the targets and noise models that ship with cimtool."""

FILES = {"": "target", "noise": "noise model", "cam": "CAM"}
"""The kinds of TOML files in a folder of targets, by their folder in it."""


@dataclass(frozen=True)
class Plugin:
    """An entry point of a package; `broken` says in one sentence why it is left out.

    `origin` is the name and version of the package, `point` its entry point, and `packages` are the
    names under which its modules are imported.
    """

    origin: str
    point: str
    packages: frozenset[str]
    targets: Path | None = None
    broken: str | None = None

    def __str__(self) -> str:
        return f"{self.origin}: {self.point}"


_loaded: list[Plugin] | None = None
_undo: list[tuple[str, Callable[[], object]]] | None = None
_faults: dict[str, None] = {}


def load_plugins() -> tuple[Plugin, ...]:
    """Import every leaf and plug-in, once per process.

    If a plug-in of another package raises, it is left out and says why.
    """
    global _loaded
    if _loaded is None:
        from importlib.metadata import entry_points

        package = Path(__file__).parents[1]
        for file in sorted(package.rglob(f"{LEAF}.py")):
            parts = file.relative_to(package).with_suffix("").parts
            importlib.import_module(".".join((OWN, *parts)))
        _loaded = []  # a plug-in that asks for an unknown name while it is imported finds none
        for point in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
            _loaded.append(_imported(point))
    return tuple(_loaded)


def broken_plugins() -> list[str]:
    """A sentence for each plug-in, or class of a plug-in, that was tried and is broken."""
    return [*(one.broken for one in _loaded or () if one.broken is not None), *_faults]


def origin_of_module(module: str) -> str:
    """The origin of the loaded plug-in that has a module; OWN if there is none."""
    plugin = _plugin_of(module)
    return OWN if plugin is None else plugin.origin


def origins_of(kinds: Iterable[type[Any]]) -> list[str]:
    """The origins of the plug-ins that have some of these classes, sorted."""
    return sorted({origin_of_module(kind.__module__) for kind in kinds} - {OWN})


def check_plugins(origins: Iterable[str]) -> None:
    """Raise CimError if the package of an origin has no plug-in here that can be imported.

    Its version may be another one.
    """
    for origin in origins:
        name = origin.rpartition(" ")[0]
        here = [one for one in load_plugins() if one.origin.rpartition(" ")[0] == name]
        if not here:
            raise CimError(f"needs the plug-in {origin}, which is not installed; install it")
        if all(one.broken for one in here):
            raise CimError(f"needs the plug-in {origin}, which is broken; {here[0].broken}")


def _plugin_of(module: str) -> Plugin | None:
    package = package_of(module)
    return next((one for one in _loaded or () if package in one.packages), None)


def fault_of(kind: type[Any], sentence: str, error: type[Exception]) -> Exception:
    """The error for a fault of a class: `error`, or a CimError naming the plug-in that has it."""
    plugin = _plugin_of(kind.__module__)
    return error(sentence) if plugin is None else CimError(f"{plugin}: {sentence}")


def as_plugin_fault(error: Exception) -> Exception:
    """The error itself, or a CimError naming the plug-in in whose code it was raised."""
    if isinstance(error, CimError | OSError | MemoryError):
        return error
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for only_methods in (True, False):
        for frame in reversed(frames):
            plugin = _plugin_of(frame.f_globals.get("__name__", ""))
            name, expected = _contract(frame)
            if plugin is not None and (expected or not only_methods):
                says = f"{plugin}: {name} raises {_reason(error)}"
                return CimError(f"{says}; expected: {expected}" if expected else says)
    return error


def _contract(frame: FrameType) -> tuple[str, str]:
    """The name of a frame's function, and the first sentence of the method that it overrides."""
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    kind = first if isinstance(first, type) else type(first)
    for base in kind.__mro__ if hasattr(kind, code.co_name) else ():
        explained = getattr(vars(base).get(code.co_name), "__doc__", None)
        if package_of(base.__module__) == OWN and isinstance(explained, str):
            said = " ".join(explained.partition(".")[0].split())
            return f"{kind.__name__}.{code.co_name}", said[:1].lower() + said[1:]
    return code.co_qualname, ""


@contextmanager
def unless_broken(what: str, origin: str) -> Iterator[None]:
    """Leave out `what` of a plug-in if it raises, and note why; cimtool's own errors are raised."""
    try:
        yield
    except Exception as error:
        if origin == OWN:
            raise
        _faults[f"{origin}: {what} is left out: {_reason(error)}"] = None


def targets_folder() -> Path:
    """Return the folder of shipped targets: in an installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "targets", package.parent / "targets"):
        if folder.is_dir():
            return folder
    raise CimError(f"{package / 'targets'}: there is no such folder; reinstall cimtool")


def known_files(folder: str = "") -> dict[str, tuple[Path, str]]:
    """Files (with their origins) of all targets, or of all in `folder` beside them, by name."""
    load_plugins()
    return _files(folder)


def _files(folder: str) -> dict[str, tuple[Path, str]]:
    """The files of cimtool and of the plug-ins that are loaded so far."""
    folders = [(targets_folder(), OWN)]
    folders += [(one.targets, one.origin) for one in _loaded or () if one.targets is not None]
    return {
        file.stem: (file, origin)
        for targets, origin in folders
        for file in sorted((targets / folder).glob("*.toml"))
    }


def registered(module: str, undo: Callable[[], object]) -> None:
    """Note how to undo a registration of a module, in case its plug-in is broken."""
    if _undo is not None and package_of(module) != "cimtool":
        _undo.append((module, undo))


def package_of(module: str) -> str:
    """The name of the package that a module is in."""
    return module.partition(".")[0]


def _imported(point: EntryPoint) -> Plugin:
    """Import one plug-in; take back all that a broken one had registered and imported."""
    global _undo
    origin = "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    where = f'plug-in "{point.name}" ({point.value})'
    _undo, before = [], set(sys.modules)
    try:
        targets = getattr(point.load(), "TARGETS", None)
        if targets is not None:
            targets = Path(targets)
            _check_targets(targets)
        return Plugin(origin, where, _packages(point), targets)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: it is the plug-in's and not cimtool's
        for _, undo in reversed(_undo):
            undo()
        packages = _packages(point)
        _forget(packages, before)
        sentence = f"{origin}: {where} is left out: {_reason(error)}"
        return Plugin(origin, where, packages, broken=sentence)
    finally:
        _undo = None


def _packages(point: EntryPoint) -> frozenset[str]:
    """The package of an entry point, and packages whose modules registered something meanwhile."""
    return frozenset({package_of(point.module), *(package_of(module) for module, _ in _undo or ())})


def _reason(error: BaseException) -> str:
    """An error in one line, with its class unless it is a CimError."""
    kind = "" if isinstance(error, CimError) else type(error).__name__
    return " ".join(": ".join(filter(None, (kind, str(error)))).split())


def _forget(packages: frozenset[str], before: set[str]) -> None:
    """Forget modules of packages that were imported since, so that the next import runs them."""
    for name in set(sys.modules) - before:
        if package_of(name) in packages:
            del sys.modules[name]
            above, _, last = name.rpartition(".")
            if above in sys.modules:
                vars(sys.modules[above]).pop(last, None)


def _check_targets(targets: Path) -> None:
    """Raise ValueError if the folder does not exist, or a file has a name that is known."""
    if not targets.is_dir():
        raise ValueError(f"TARGETS = {targets}: there is no such folder")
    for folder, kind in FILES.items():
        known = _files(folder)
        for name in sorted(file.stem for file in (targets / folder).glob("*.toml")):
            if name in known:
                raise ValueError(f'{kind} "{name}" has the name of one of {known[name][1]}')


EXTRAS = {
    "torch": ("torch", "train"),
    "sklearn": ("scikit-learn", "train"),
    "distributed": ("distributed", "dask"),
    "pyarrow": ("pyarrow", "parquet"),
    "pandas": ("pandas", "report"),
    "tokenizers": ("tokenizers", "embed"),
    "PIL": ("pillow", "embed"),
    "transformers": ("transformers", "transformers"),
    "polars": ("polars", "polars"),
}
"""The package and the extra of each library, by the name under which it is imported."""


@contextmanager
def needing(what: str, otherwise: str = "") -> Iterator[None]:
    """Raise CimError if a library of EXTRAS is missing: `what` needs it, here is its extra.

    `otherwise` names an alternative; `what` may be an Argument.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = package_of(error.name or "")
        if library not in EXTRAS:
            raise
        package, extra = EXTRAS[library]
        raise ArgumentError(
            '{} needs the package {}; expected `pip install "cimtool[{}]"`{}',
            what, package, extra, f", or {otherwise}" if otherwise else "",
        ) from None  # fmt: skip
