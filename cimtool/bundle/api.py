"""The library's functions of this room: compile, load, simulate."""

from __future__ import annotations

from cimtool.bundle.compilation import Compilation as Compilation
from cimtool.bundle.compilation import compile as compile
from cimtool.bundle.compilation import prepare as prepare
from cimtool.bundle.matcher import Matcher as Matcher
from cimtool.bundle.matcher import load as load
from cimtool.bundle.simulate import simulate as simulate
