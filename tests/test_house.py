"""Structure of the package: rooms in one order, libraries in their rooms, no circle of imports."""

from __future__ import annotations

import ast
import graphlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from string import Formatter

import pytest
from house import (
    MODULES,
    PACKAGE,
    ROOMS,
    ROOT,
    arrows,
    imports,
    imports_of,
    library,
    nodes,
    tree,
)

import cimtool

# What may import by a name that is not written out: the lazy doors, and folders of classes.
LAZY = {
    *("cimtool/__init__.py", "cimtool/api.py", "cimtool/cli/group.py"),
    *("cimtool/base/named.py", "cimtool/base/plugins.py", "cimtool/report/result.py"),
}

# Where a library may be imported; annotations (`if TYPE_CHECKING`) may name anything.
LIBRARIES = {
    "torch": (
        "cimtool/loading/*",
        "cimtool/training/*",
        "cimtool/experiments/trained_points.py",
        "cimtool/gpu/*",
        "cimtool/embedding/towers.py",
    ),
    "triton": ("cimtool/gpu/triton_layers.py",),
    "onnx": ("cimtool/emit/*", "cimtool/loading/onnx/*", "cimtool/simulation/kernels/library.py"),
    "onnxruntime": (
        "cimtool/emit/*",
        "cimtool/loading/onnx/*",
        "cimtool/simulation/kernels/library.py",
        "cimtool/demo/encoder.py",
    ),
    "sklearn": ("cimtool/demo/data.py",),
    "llvmlite": ("cimtool/simulation/kernels*",),
    "numba": (
        "cimtool/base/compiled.py",
        "cimtool/simulation/kernels*",
        "cimtool/hardware/noise/*",
        "cimtool/passes/fitting.py",
        "cimtool/reference/exact_kernels.py",
    ),
    "click": ("cimtool/cli/*", "cimtool/*/commands/*"),
    "joblib": ("cimtool/experiments/engine.py",),
    "distributed": (
        "cimtool/base/cluster.py",
        "cimtool/experiments/engine.py",
    ),
    "pyarrow": ("cimtool/experiments/engine.py",),
    "pandas": ("cimtool/report/result.py",),
    "PIL": ("cimtool/embedding/images.py",),
    "tokenizers": ("cimtool/embedding/tokens.py",),
    "transformers": ("cimtool/embedding/towers.py",),
    "polars": ("cimtool/report/result.py",),
}
HEAVY = ("torch", "onnx", "onnxruntime", "numba", "sklearn", "scipy", "numpy", "pydantic")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_stays_in_its_rooms(name: str) -> None:
    outside = [
        file
        for file in MODULES
        if not any(fnmatch(file, room) for room in LIBRARIES[name])
        and any(library(one) == name and not one.typing for one in imports(file))
    ]
    assert not outside, f"{name} belongs in {LIBRARIES[name]}"


def test_every_library_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    users = [one for name, of in extras.items() if name != "dev" for one in of]
    wanted = [*project["dependencies"], *users]
    declared = {re.split(r"[^A-Za-z0-9-]", one)[0] for one in wanted}
    called = {"scikit-learn": "sklearn", "protobuf": "google", "ml-dtypes": "ml_dtypes"}
    called["pillow"] = "PIL"
    known = {called.get(one, one) for one in declared}
    known |= {"pydantic_core", "triton", "cimtool"} | sys.stdlib_module_names  # come with others
    strangers = {(file, library(one)) for file in MODULES for one in imports(file)}
    assert not {one for one in strangers if one[1] not in known}


def test_no_import_runs_in_a_circle() -> None:
    graphlib.TopologicalSorter(arrows()).prepare()  # CycleError names the circle


def test_no_arrow_runs_up() -> None:
    floors = {room: floor for floor, room in enumerate((*ROOMS, "__main__"))}
    up = [
        f"{module} -> {other}"
        for module, others in arrows().items()
        for other in others
        if module.count(".") and other.count(".")  # the package itself has a door to all
        if floors[other.split(".")[1]] > floors[module.split(".")[1]]
    ]
    assert not up


def test_the_rooms_are_few() -> None:
    loose = {path.stem for path in PACKAGE.glob("*.py")}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders | loose - {"__init__", "__main__"} == set(ROOMS)
    assert len(ROOMS) <= 25
    assert len(loose) <= 8


def test_imports_by_a_computed_name_are_few() -> None:
    lazy = {file for file in MODULES if "import_module(" in (ROOT / file).read_text()}
    assert lazy == LAZY


def test_contributing_names_the_modules_that_import_by_a_computed_name() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rule = text.partition("**No import runs in a circle**")[2].partition("- **")[0]
    assert set(re.findall(r"`([^`]+)`", rule)) >= LAZY


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


SLOW = ("sklearn", "scipy")
"""Libraries that take as long to load as all the others: functions import them, not modules."""


def test_modules_that_commands_import_load_no_slow_library() -> None:
    loaders = {
        file: node.lineno
        for file in MODULES
        if file != "cimtool/demo/data.py"  # of the demo alone
        for node in tree(ROOT / file).body
        for one in imports_of(node, Path(file).parent.parts, typing=False)
        if isinstance(node, ast.Import | ast.ImportFrom) and library(one) in SLOW
    }
    assert loaders == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "import cimtool"],
        ["-m", "cimtool", "--help"],
        ["-m", "cimtool", "--version"],
        ["-m", "cimtool", "no-such-command"],
    ],
)
def test_a_light_start_loads_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "cimtool" in loaded
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)


# The writer of a sweep's command line; a sentence elsewhere may name a whole command to run.
WRITERS = ("cimtool/experiments/points.py",)
SPEAKING = {"cli", "commands"}
COMMAND_LINE = re.compile(r"(cimtool|hf) [a-z]+[^`)]*")


def texts(file: str) -> Iterator[str]:
    for node in nodes(ROOT / file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize(
    "file", [file for file in MODULES if not {"cli", "commands"} & {*Path(file).parts}]
)
def test_the_library_does_not_speak_of_options(file: str) -> None:
    spoken = [COMMAND_LINE.sub("", text) for text in texts(file) if file not in WRITERS]
    assert not [text for text in spoken if re.search(r"(?<![\w-])--[a-z]|(?<!\w)-o ", text)]


ARGUMENT_ERROR = ast.dump(ast.parse("ArgumentError", mode="eval").body)


@pytest.mark.parametrize("file", MODULES)
def test_the_template_of_an_argument_error_is_a_literal_with_a_place_for_each_value(
    file: str,
) -> None:
    for node in nodes(ROOT / file):
        if isinstance(node, ast.Call) and ast.dump(node.func) == ARGUMENT_ERROR:
            template, *values = node.args
            assert isinstance(template, ast.Constant), ast.unparse(node)
            places = [name for _, name, _, _ in Formatter().parse(template.value)]
            assert all(name is None or name.isidentifier() or not name for name in places)
            assert places.count("") == len(values), ast.unparse(node)


def types_named(file: str) -> Iterator[str]:
    """The public classes and type aliases of a module; variables of types are none."""
    for node in tree(ROOT / file).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("TypeVar("):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def test_no_two_types_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for file in MODULES:
        for name in types_named(file):
            if re.fullmatch(r"[A-Z]+[a-z]\w*", name):
                homes.setdefault(name, []).append(file)
    assert len(homes) > 400
    assert not {name: files for name, files in homes.items() if len(files) > 1}


# Where a text may be taken apart: what comes from outside, never a name that cimtool made.
READERS = {
    "cimtool/api.py": "the name of a module that is missing",
    "cimtool/base/compiled.py": "words of LLVM for instruction sets",
    "cimtool/base/csv_files.py": "lines and fields of a file of numbers",
    "cimtool/base/folders.py": "names of files that a killed run left",
    "cimtool/base/machine.py": "the name of a CPU and the free memory as Linux writes them",
    "cimtool/base/plugins.py": "the package of a module that Python imports; a message on one line",
    "cimtool/bundle/compilation.py": "warnings among notes",
    "cimtool/bundle/inspect.py": "keys of other people's files",
    "cimtool/bundle/outputs_check.py": "names of arrays that a user gives",
    "cimtool/base/toml_files.py": "a target given as a path or as a name",
    "cimtool/cli/*": "what a user typed, and messages of click",
    "cimtool/*/commands/*": "what a user typed",
    "cimtool/emit/runtime.py": "the type of an input as ONNX Runtime writes it",
    "cimtool/handoff/written.py": "names of layers in a hand-off of others",
    "cimtool/handoff/format_page.py": "lines of files that were just written, for examples",
    "cimtool/bundle/bit_choice.py": "mc=200 as a user gives it",
    "cimtool/experiments/objectives.py": "query_energy=1,arrays=0.5 as a user gives it",
    "cimtool/hardware/keys.py": "keys of TOML, and the Python type of a field",
    "cimtool/hardware/settings.py": "the array 128x128 as a user gives it",
    "cimtool/hardware/target.py": "keys of TOML",
    "cimtool/loading/*": "files, and the keys of other people's checkpoints and ONNX graphs",
    "cimtool/report/svg.py": "a number without its .0",
    "cimtool/simulation/device.py": "a device and its number as a user names them",
    "cimtool/embedding/*": "lines of tables, and names of modules in the files of an encoder",
    "cimtool/demo/sources.py": "the source code that the demo trains on",
    "cimtool/demo/queries.py": "words of docstrings",
    "cimtool/demo/wordpiece.py": "categories of Unicode",
    "cimtool/training/job.py": "keys of a checkpoint",
    "cimtool/training/models/perceptron.py": "keys of a checkpoint, and widths that a user gives",
    "cimtool/training/options.py": "model.KEY and loss.KEY as a user gives them",
}
TAKES_APART = {
    *("split", "rsplit", "partition", "rpartition"),
    *("removeprefix", "removesuffix", "startswith", "endswith"),
}


def takes_apart(file: str) -> list[str]:
    calls = (n for n in nodes(ROOT / file) if isinstance(n, ast.Call))
    functions = (call.func for call in calls if isinstance(call.func, ast.Attribute))
    return [
        ast.unparse(function)
        for function in functions
        if function.attr in TAKES_APART and ast.unparse(function.value) not in ("np", "os.path")
    ]


def test_no_name_is_taken_apart() -> None:
    found = {file: calls for file in MODULES if (calls := takes_apart(file))}
    assert not {f: c for f, c in found.items() if not any(fnmatch(f, one) for one in READERS)}
    assert not [one for one in READERS if not any(fnmatch(file, one) for file in found)]


# Where a file's content is taken in or made values of; bytes of a file of others are bounded there.
CONTENT_READERS = {
    "cimtool/base/untrusted.py": "files of others, to so many bytes; directories of archives",
    "cimtool/base/files.py": "checksums and holes of ordinary files",
    "cimtool/base/json_files.py": "texts of bounded files",
    "cimtool/base/toml_files.py": "texts of bounded files",
    "cimtool/base/csv_files.py": "ordinary files, block by block, lines bounded",
    "cimtool/base/compiled.py": "sources of this package",
    "cimtool/bundle/arrays_file.py": "arrays of bundles and galleries, headers bounded",
    "cimtool/galleries/programming.py": "files of a bundle whose checksums hold",
    "cimtool/base/machine.py": "what Linux says of its CPU and memory",
    "cimtool/costs/machines.py": "the energy that Linux counts",
    "cimtool/emit/own_files.py": "texts of bounded files",
    "cimtool/handoff/format_page.py": "files that were just written",
    "cimtool/emit/runtime.py": "texts of bounded files",
    "cimtool/loading/checkpoint.py": "checkpoints, by the Budget of their file",
    "cimtool/loading/npy.py": "arrays, by the Budget of their file",
    "cimtool/loading/onnx/*.py": "texts of bounded files, and what torch exports in memory",
    "cimtool/cli/group.py": "first lines of the commands' own files",
    "cimtool/embedding/images.py": "bounded files, their pixels counted before they are decoded",
    "cimtool/demo/sources.py": "sources that are installed here, and its own process",
    "cimtool/demo/encoder.py": "files of known SHA-256",
    "cimtool/demo/queries.py": "a file that the demo wrote",
}
TAKES_IN = {
    *("json.load", "json.loads", "tomllib.load", "tomllib.loads", "pickle.load", "pickle.loads"),
    *("np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile", "np.memmap", "torch.load"),
    *("zipfile.ZipFile", "tarfile.open", "open", "io.open", "tokenize.open"),
    *("safe_open", "deserialize", "load_file", "onnx.load", "onnx.load_model"),
    *("onnx.load_from_string", "onnx.load_model_from_string"),
}
OPENS = {"read_text", "read_bytes", "open"}


def takes_in(file: str) -> list[str]:
    """The calls of a module that take in a file's content; resources of the package are none."""
    found = []
    for call in (node for node in nodes(ROOT / file) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        by_path = name.rpartition(".")[2] in OPENS and not re.search(r"\bfiles\(", name)
        writes = any(ast.unparse(one).strip("'")[:1] in ("w", "x", "a") for one in call.args[:1])
        if name in TAKES_IN or (by_path and not writes and not name.startswith("os.")):
            found.append(name)
    return found


def test_files_are_read_by_those_that_bound_what_they_read() -> None:
    found = {file: calls for file in MODULES if (calls := takes_in(file))}
    readers = CONTENT_READERS
    assert not {f: c for f, c in found.items() if not any(fnmatch(f, one) for one in readers)}
    assert not [one for one in readers if not any(fnmatch(file, one) for file in found)]


QUESTION = re.compile(r"(What|Whether|How|Which|Where|Who|When|Why)\b")


def docstrings(file: Path) -> Iterator[str]:
    """The docstrings of a module, its classes, functions, constants and fields."""
    for node in nodes(file):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            texts = (one.value for one in node.body if isinstance(one, ast.Expr))
            yield from (one.value for one in texts if isinstance(one, ast.Constant))


@pytest.mark.parametrize("folder", ["cimtool", "tests", "benchmarks", "docs", "examples"])
def test_docstrings_open_with_a_noun_phrase_or_an_imperative(folder: str) -> None:
    found = [(file, text) for file in (ROOT / folder).rglob("*.py") for text in docstrings(file)]
    assert found
    assert not [(file, text) for file, text in found if QUESTION.match(str(text).strip())]


def test_templates_can_be_read_in_an_editor() -> None:
    files = [
        file for kind in ("txt", "md", "html") for file in PACKAGE.rglob(f"templates/*.{kind}")
    ]
    assert len(files) > 5
    lines = [(file.name, line) for file in files for line in file.read_text().splitlines()]
    assert not [(name, line) for name, line in lines if len(line) > 120]


MOST_ARGUMENTS = 7
"""The most parameters of a function, beside `self`, and arguments of a call by position.

Kernels that numba or Triton compiles are exempt, and calls of them and within them: their arguments
are arrays and numbers by position.
"""
COMPILERS = re.compile(r"(jit\w*|intrinsic|triton\.jit)\b")
# Files with calls that have yet to name their arguments.
BY_POSITION_STILL = {
    "cimtool/experiments/compiled.py",
    "cimtool/experiments/dies.py",
    "cimtool/experiments/subjects.py",
}


def functions(file: str) -> list[ast.FunctionDef]:
    return [node for node in nodes(ROOT / file) if isinstance(node, ast.FunctionDef)]


def compiled(function: ast.FunctionDef) -> bool:
    return any(COMPILERS.match(ast.unparse(one)) for one in function.decorator_list)


def test_no_function_has_more_than_seven_parameters() -> None:
    long: list[tuple[str, str]] = []
    for file in MODULES:
        for function in (one for one in functions(file) if not compiled(one)):
            arguments = function.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            if len([one for one in named if one.arg not in ("self", "cls")]) > MOST_ARGUMENTS:
                long.append((file, function.name))
    assert not long


def test_no_call_passes_more_than_seven_arguments_by_position() -> None:
    every = [function for file in MODULES for function in functions(file)]
    kernels = {one.name for one in every if compiled(one)}
    any_number = {"ArgumentError"} | {one.name for one in every if one.args.vararg}
    long: dict[str, list[str]] = {}
    for file in MODULES:
        within = {id(node) for one in functions(file) if compiled(one) for node in ast.walk(one)}
        for call in nodes(ROOT / file):
            if isinstance(call, ast.Call) and len(call.args) > MOST_ARGUMENTS:
                name = ast.unparse(call.func).rpartition(".")[2]
                if id(call) not in within and name not in kernels | any_number:
                    long.setdefault(file, []).append(ast.unparse(call))
    assert set(long) == BY_POSITION_STILL, long


def python(program: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env=environment, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def test_no_folder_or_module_hides_a_function_of_the_library() -> None:
    program = (
        "import cimtool, pkgutil\n"
        "print({m.name for m in pkgutil.iter_modules(cimtool.__path__)} & set(cimtool.API))\n"
    )
    assert python(program) == "set()\n"


def test_the_library_has_its_functions() -> None:
    assert all(callable(getattr(cimtool, name)) for name in cimtool.API)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    program = "import cimtool; print(hasattr(cimtool, 'nothing'), 'compile' in dir(cimtool))"
    assert python(program) == "False True\n"
