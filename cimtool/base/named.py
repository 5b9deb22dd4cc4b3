"""Classes that register themselves by name, and the nearest known name for a wrong one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Self

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.plugins import load_plugins, registered


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?` for the closest of `known`, or the empty string.

    A name may be the beginning of a known one: `isac` is near `isaac-rram-128`.
    """
    ranked = ((_closeness(name, one), -len(one), one) for one in known)
    closeness, _, best = max(ranked, default=(0.0, 0, ""))
    return f'; did you mean "{best}"?' if closeness >= CLOSE else ""


CLOSE, CLOSE_BEGINNING = 0.6, 0.75
"""Least share of matching characters for a suggestion: with a whole name, with its beginning."""


def _closeness(name: str, known: str) -> float:
    """Share of characters that match a known name, or its beginning if that is closer.

    A short beginning matches easily: `foo` shares two of three characters with `for`.
    """
    whole, beginning = (
        difflib.SequenceMatcher(None, name, form).ratio()
        for form in (known, known[: len(name)] or known)
    )
    return max(whole, beginning if beginning >= CLOSE_BEGINNING else 0.0)


def unknown(what: str, name: str, known: Iterable[str]) -> CimError:
    """Build the error for a name that is not in `known`; `what` may be an Argument."""
    names = sorted(known)
    listed = ", ".join(names) or "there are none"
    return ArgumentError('{} "{}" is not known: {}{}', what, name, listed, nearest(name, names))


def one_of(values: Collection[str], names: Sequence[str]) -> str | None:
    """The name that `values` has, out of several for one thing; CimError if it has two."""
    found = [name for name in names if name in values]
    if len(found) > 1:
        raise CimError(f"holds {' and '.join(found)}; expected one of them")
    return found[0] if found else None


def require_one(values: Collection[str], names: Sequence[str], empty: str = "nothing") -> str:
    """As `one_of`; if `values` has none, CimError with the nearest name that it has."""
    found = one_of(values, names)
    if found is None:
        held = list(values)
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        hint = next((h for h in (nearest(name, held) for name in names) if h), "")
        raise CimError(
            f"{names[0]}{others} is missing; it holds {', '.join(held[:8]) or empty}{hint}"
        )
    return found


def register_modules(package: str, path: Iterable[str]) -> None:
    """Import all modules of a package, so that the classes in them register themselves."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")


class Named:
    """Base of a family: `class Base(Named)`, then `class A(Base, name="a")` registers itself.

    A subclass without a name is a base within the family. A subclass with a name must define every
    abstract method of its bases. An unknown name is looked for in the plug-ins.
    """

    name: ClassVar[str]
    family: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            if Named in cls.__bases__:
                cls.family = {}
            return
        if name in cls.family:
            raise TypeError(f"two classes of one family are named {name!r}")
        held = {key: value for base in reversed(cls.__mro__) for key, value in vars(base).items()}
        if missing := [k for k in held if getattr(held[k], "__isabstractmethod__", False)]:
            raise TypeError(f"class {cls.__name__} lacks {' and '.join(missing)}")
        cls.name = name
        cls.family[name] = cls
        registered(cls.__module__, lambda: cls.family.pop(name))

    @classmethod
    def every(cls) -> dict[str, type[Self]]:
        """All classes of the family by name, including classes of plug-ins."""
        load_plugins()
        return cls.family

    @classmethod
    def knows(cls, name: str) -> bool:
        """True if a class of the family has that name; plug-ins are asked last."""
        return name in cls.family or name in cls.every()

    @classmethod
    def named(cls, name: str, what: str) -> type[Self]:
        """Return the class registered as `name`; an error calls the name `what`."""
        if not cls.knows(name):
            if not cls.family:
                nothing = "nothing that is installed here offers one"
                raise ArgumentError('{} "{}" is not known: {}', what, name, nothing)
            raise unknown(what, name, cls.family)
        return cls.family[name]
