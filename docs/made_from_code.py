"""The parts of the site that follow from the code, in Markdown: commands, targets, report, API.

A page takes one where it has a line `<!-- made from the code: NAME -->`, NAME a key of `PARTS`.
"""

from __future__ import annotations

import inspect
import json
import re
import runpy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import click

import cimtool
from cimtool.base.options import Record, told
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.matcher import Matcher
from cimtool.cli import cli
from cimtool.cli.commands.targets import describe, describe_cam
from cimtool.cli.group import Command, long_name, records_by_command
from cimtool.cli.project import shared_options
from cimtool.costs.bundle_cost import BundleCost
from cimtool.embedding.embed import EmbeddedRows
from cimtool.experiments.evaluate import Evaluation
from cimtool.experiments.sweep import Sweep
from cimtool.experiments.training_grid import TrainingGrid
from cimtool.experiments.tuned import Tuned
from cimtool.galleries.encoding import GalleryShards
from cimtool.galleries.programming import ProgrammedBundle, ProgrammedCam
from cimtool.hardware.cam import cam_origins, load_cam
from cimtool.hardware.keys import flag
from cimtool.hardware.settings import Overrides, SettingOptions, setting_keys
from cimtool.hardware.target import load_target, target_names
from cimtool.loading.onnx.rules import INSTEAD, REASONS
from cimtool.report.result import Result
from cimtool.report.terminal import terminal
from cimtool.training.fine_tune import FineTuningRun
from cimtool.training.fit import Fit
from cimtool.training.projectors import ProjectorRun
from cimtool.training.teacher_file import Teacher
from cimtool.verification.compare import BundleComparison
from cimtool.verification.report import Report, report_schema

SHARED = ("verbose", "as_json", "debug", "max_memory", "project", "help_all", "help")
"""Options of every command, which are told once."""

RETURNED = (
    *(Bundle, Matcher, ProgrammedBundle, ProgrammedCam, GalleryShards, EmbeddedRows, Report),
    BundleComparison,
    *(Sweep, Tuned, BundleCost, Teacher, Fit, ProjectorRun, TrainingGrid, FineTuningRun),
    Evaluation,
)
"""Classes of what functions of the library return."""


def filled_in(page: str) -> str:
    """The text of a page with what is made from the code, and links that have a page's title.

    A link `[noise.md](noise.md#corners)`, which a reader of the file can follow, has no text of
    its own. A link to a page of `benchmarks/` goes to its section of the site's one page.
    """
    page = re.sub(r"\[([\w-]+\.md)\](?=\(\1)", "[]", page)
    page = re.sub(r"<!-- the file benchmarks/([\w-]+\.md) -->", lambda one: measured(one[1]), page)
    page = re.sub(r"\]\(\.\./benchmarks/[\w-]+\.md(?=[#)])", "](benchmarks.md", page)
    return re.sub(r"<!-- made from the code: (\S+) -->", lambda found: PARTS[found[1]](), page)


def measured(name: str) -> str:
    """A file of `benchmarks/` for the site, which has all of them on one page."""
    text = (Path(__file__).parents[1] / "benchmarks" / name).read_text("utf-8")
    return re.sub(r"\]\([\w-]+\.md(?=#)", "](", text).replace("](../docs/", "](")


def commands() -> str:
    """Every command: usage, help, and a table of its options."""
    context = click.Context(cli, info_name="cimtool")
    shared = _table(
        ("option", "what it does"), _options(Command("any", records={}), context, SHARED)
    )
    said = "Every command takes these beside its own; `--project` those with options of a record"
    parts = [f"{said} ([project files](project-file.md)):\n\n{shared}"]
    for path, command in _walk(cli, context):
        own = [one.name for one in command.params if one.name not in SHARED]
        usage = " ".join(command.collect_usage_pieces(path))
        text = [f"## `{path.command_path}`", f"```text\n{path.command_path} {usage}\n```"]
        text += [
            _prose(paragraph) for paragraph in inspect.cleandoc(command.help or "").split("\n\n")
        ]
        rows = _options(command, path, [name for name in own if name])
        parts.append("\n\n".join([*text, _table(("option", "what it does"), rows) if rows else ""]))
    return "\n\n".join(parts)


def _walk(
    group: click.Group, context: click.Context
) -> Iterator[tuple[click.Context, click.Command]]:
    """Every command below a group that does something itself, with its context."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            raise LookupError(name)
        inner = click.Context(command, info_name=name, parent=context, show_default=True)
        if isinstance(command, click.Group):
            yield from _walk(command, inner)
        else:
            yield inner, command


def _options(command: click.Command, context: click.Context, names: Any) -> list[tuple[str, str]]:
    records = [
        one.get_help_record(context) for one in command.get_params(context) if one.name in names
    ]
    return [(_code(record[0]), _prose(record[1])) for record in records if record]


def project_keys() -> str:
    """The keys of a project file that commands share, and the tables of single commands."""
    context = click.Context(cli, info_name="cimtool")
    taking = dict(records_by_command(cli, context))
    names = {tuple(path.command_path.split()[1:]): one for path, one in _walk(cli, context)}
    rows = []
    for key, shared in shared_options().items():
        by_option: dict[str, list[str]] = {}
        for words, options in taking.items():
            for one in options.values():
                if one.place == key:
                    option = _called(names[words], one.name)
                    by_option.setdefault(option, []).append(_code(" ".join(words)))
        uses = [f"{_code(option)} of {', '.join(of)}" for option, of in by_option.items()]
        rows.append((_code(key), _prose(shared.said()), "; ".join(uses)))
    tables = ", ".join(_code(f"[{'.'.join(words)}]") for words in taking)
    return f"{_table(('key', 'what it is', 'stands for'), rows)}\n\nTables of commands: {tables}."


def _called(command: click.Command, name: str) -> str:
    """A parameter of a command as its usage has it."""
    (one,) = (one for one in command.params if one.name == name)
    return long_name(one) if isinstance(one, click.Option) else str(one.metavar)


def settings() -> str:
    """Every setting: its key in a settings file, its option, its place in a target's file."""
    tables = Overrides.model_json_schema(by_alias=True)["$defs"]
    layer = next(table for name, table in tables.items() if name.startswith("Layer"))["properties"]
    rows = [
        (_code(name), _code(_flags(name)), _code(key.place) if key.place else "",
         "yes" if name in layer else "", _prose(key.help))
        for name, key in setting_keys().items()
    ]  # fmt: skip
    head = ("key", "option", "in a target's file", "of a layer", "what it is")
    return _table(head, rows)


def _flags(name: str) -> str:
    annotation = Overrides.model_fields[name].annotation
    return (
        f"{flag(name)} / --no-{name.replace('_', '-')}" if annotation == bool | None else flag(name)
    )


def keys() -> str:
    """Every key of a target's file, with its values and what it is where it is left out."""
    text: str = runpy.run_path(str(Path(__file__).with_name("keys.py")))["key_table"]()
    return text


def target_list() -> str:
    """Every shipped target in a line."""
    shipped = [load_target(name) for name in target_names()]
    rows = [
        (_code(one.name), _cell(one.title), _code(one.class_), "yes" if one.simulated else "")
        for one in shipped
    ]
    return _table(("target", "what it is", "class", "simulated"), rows)


def targets() -> str:
    """Every shipped target and memory, as `cimtool targets show` prints it."""
    shown = {name: describe(load_target(name)) for name in target_names()}
    shown |= {name: describe_cam(load_cam(name)) for name in cam_origins()}
    return "\n\n".join(
        f"## `{name}`\n\n```text\n{terminal(one, wrap=False)}\n```" for name, one in shown.items()
    )


def operators() -> str:
    """ONNX operators without a rule: a table of reasons, and of what to write in their place."""
    rows = [
        (", ".join(map(_code, kinds.split())), *reason.split("; expected "))
        for kinds, reason in REASONS.items()
    ]
    rows += [(_code(kind), "has no rule of its own", given) for kind, given in INSTEAD.items()]
    return _table(("refused operators", "why", "what works"), rows)


def report() -> str:
    """Every field of `report.json`: a table of the whole, and one of each record in it."""
    schema = report_schema()
    records = {"The report": schema} | schema["$defs"]
    return "\n\n".join(_record(name, one) for name, one in records.items())


def _record(name: str, schema: Mapping[str, Any]) -> str:
    heading = f"## {name}" if " " in name else f"(report-{name.lower()})=\n## `{name}`"
    required = schema.get("required", ())
    rows = [
        (_code(key), _type(value), "always" if key in required else "if it is known")
        for key, value in schema.get("properties", {}).items()
    ]
    text = _markdown(schema.get("description", ""))
    return "\n\n".join([heading, text, _table(("key", "value", "there"), rows)])


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a value in words, linked where it is a record."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#report-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return ", ".join(
            _code(json.dumps(one)) for one in schema.get("enum", [schema.get("const")])
        )
    if "prefixItems" in schema:
        return f"list of {', '.join(map(_type, schema['prefixItems']))}"
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(inner := schema.get("additionalProperties"), Mapping):
        return f"table of {_type(inner)}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def api() -> str:
    """The functions of the library, and the classes of what they return."""
    public = [_documented(name, getattr(cimtool, name), f"cimtool.{name}") for name in cimtool.API]
    returned = [_documented(one.__name__, one, one.__name__) for one in (Result, *RETURNED)]
    says = f"Each has the members of `{Result.__name__}` too. Sizes in brackets are of arrays."
    return "\n\n".join(["## Functions", *public, "## What they return", says, *returned])


def _documented(name: str, value: Any, heading: str) -> str:
    text = _markdown((inspect.getdoc(value) or "").partition("\n\n* `")[0])
    kind = "class" if isinstance(value, type) else "function"
    signature = "" if kind == "class" and name != "ModelSource" else _signature(value)
    parts = [f"### `{heading}`", f"```python\n{name}{signature}\n```" if signature else "", text]
    if records := getattr(value, "__records__", ()):
        parts.append(_table(("argument", "what it is"), _arguments(*records)))
    if kind == "class" and not signature:
        parts.append(_table(("member", "what it is"), _members(value)))
    return "\n\n".join(parts)


def _arguments(*records: type[Record]) -> list[tuple[str, str]]:
    """The arguments that records give a function; all settings in one line."""
    settings = setting_keys()
    rows = [(_code(name), _prose(said)) for name, said in told(*records) if name not in settings]
    if any(issubclass(record, SettingOptions) for record in records):
        rows.append(("`weight_bits`, ...", "[Settings](targets.md#every-setting) by name."))
    return rows


def _signature(function: Callable[..., Any]) -> str:
    """The signature, an argument a line where one line would be too long."""
    signature = inspect.signature(function)
    texts = [re.sub(r": '([^']*)'", r": \1", str(one)) for one in signature.parameters.values()]
    arguments = [re.sub(r"<function (\w+) at \w+>", r"\1", text) for text in texts]
    kinds = [one.kind for one in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        arguments.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returns = signature.return_annotation
    end = "" if returns in (inspect.Signature.empty, "None") else f" -> {returns}"
    return "(\n" + "".join(f"    {one},\n" for one in arguments) + ")" + end


def _members(kind: type) -> list[tuple[str, str]]:
    """The fields of a class with their types, then public methods and properties.

    Members of Result are told of Result alone, and those without a docstring are not public.
    """
    told = set() if kind is Result else set(dir(Result))
    own = fields(kind) if is_dataclass(kind) else ()
    rows = [(_code(one.name), _code(str(one.type))) for one in own if not one.name.startswith("_")]
    told.update(one.name for one in own)
    for name, member in inspect.getmembers_static(kind):
        text = None if name.startswith("_") or name in told else inspect.getdoc(member)
        if text:
            call = "()" if inspect.isfunction(member) else ""
            rows.append((_code(name + call), _cell(_markdown(" ".join(text.split())))))
    return rows


def _markdown(docstring: str) -> str:
    """A docstring, whose backticks and paragraphs are Markdown's already."""
    return re.sub(r"(`[^`]*`)|<", lambda one: one[1] or r"\<", docstring)


def _prose(text: str) -> str:
    """A sentence of the command line in a cell or paragraph: options and file names as code."""
    plain = re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.replace("\b", "").split()))
    return re.sub(r"(?<![\w\\-])--?[a-z][a-z-]*(?:\\_[a-z]+)*", lambda one: _code(one[0]), plain)


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "project-keys": project_keys,
    "settings": settings,
    "keys": keys,
    "target-list": target_list,
    "targets": targets,
    "report": report,
    "api": api,
    "operators": operators,
}
