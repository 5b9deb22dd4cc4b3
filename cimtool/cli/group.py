"""Classes of commands: groups that import late, options of all commands, near names."""

from __future__ import annotations

import importlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from cimtool.base.data_notes import DataNotes, data_noted
from cimtool.base.errors import CimError, CimWarning, taking_warnings
from cimtool.base.files import inputs_kept
from cimtool.base.named import Named, nearest, unknown
from cimtool.base.plugins import needing
from cimtool.base.untrusted import memory_limited, memory_size
from cimtool.cli.output import Output

if TYPE_CHECKING:
    from cimtool.base.options import Option
    from cimtool.cli.project import LeftOut, ProjectValue

T = TypeVar("T")


class Group(click.Group):
    """A group that shows its help without arguments, and the nearest name for a wrong one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; without arguments, show the help."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` starts with; UsageError with the nearest name."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(str(unknown("command", args[0], names)), ctx)
        return super().resolve_command(ctx, args)


PACKAGE = Path(__file__).parents[1]


def command_files(walk: Sequence[str] = (), group: str = "") -> dict[str, Path]:
    """The files of the commands by name, one file per command in `commands/` of every room.

    Those of a `group` are in the folder of its name there. They come in the order of `walk`, then
    by name.
    """
    found = {file.stem: file for file in sorted(PACKAGE.glob(f"*/commands/{group}/[!_]*.py"))}
    return {name: found[name] for name in dict.fromkeys((*walk, *found)) if name in found}


class LazyGroup(Group):
    """A group of commands in separate files, each imported only when it is needed.

    The first line of a file is the command's summary; the group's help needs only that. Commands of
    the group's own module come before them.
    """

    def __init__(self, *args: Any, files: Mapping[str, Path], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.files = files

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names: the group's own, then those in files, in the order of `walk`."""
        return [*super().list_commands(ctx), *self.files]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None if the group has no such command."""
        if cmd_name not in self.files:
            return super().get_command(ctx, cmd_name)
        parts = self.files[cmd_name].relative_to(PACKAGE).with_suffix("").parts
        found = importlib.import_module(".".join((PACKAGE.name, *parts))).command
        if not isinstance(found, click.Command):
            raise TypeError(f"{self.files[cmd_name]}: command is not a click command")
        return found

    def summaries(self) -> dict[str, str]:
        """The first line of each command's file, without importing it."""
        summaries = {
            name: one.get_short_help_str(100) for name, one in sorted(self.commands.items())
        }
        for name, file in self.files.items():
            with file.open(encoding="utf-8") as text:
                summaries[name] = text.readline().strip().strip('"')
        return summaries

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and summaries without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the group's options and the names of commands, without importing a command."""
        commands = [
            CompletionItem(name, help=summary)
            for name, summary in self.summaries().items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


class Refusal(Exception):
    """A CimError in a command's words, with its options in place of the library's arguments."""

    def __init__(self, error: CimError, called: Callable[[str], str]) -> None:
        super().__init__(error.sentence(called))
        self.exit_status = error.exit_status


WHOLE_HELP = "cimtool.whole_help"
"""The key of a context in which the help shows the options of all topics."""

EVERY_COMMAND = "Every command"
"""The topic of options that every command has."""

LIMITS = "{limits}"
"""The placeholder for the names of metrics in a command's help."""


PROJECT = "cimtool.toml"
"""The project file that commands look for in the current folder."""


class CommandContext(click.Context):
    """The context of a command, with the values that a project file gives."""

    of_project: tuple[ProjectValue, ...] = ()

    @property
    def used(self) -> list[ProjectValue]:
        """The values of the project file that no option on the command line overrides."""
        known = click.core.ParameterSource.DEFAULT_MAP
        return [
            one for one in self.of_project if self.get_parameter_source(one.option.name) is known
        ]


class Command(click.Command):
    """A command with `--verbose`, `--json`, `--debug`, `--max-memory`; its help shows all defaults.

    Its function gets an `Output` by `click.pass_obj`: that of the context if it has one. An output
    that is also one of its inputs is refused. `topics` are those of options, by name: `--help`
    counts these options alone, and `--help-all` shows them. `{limits}` in the help stands for the
    metrics that can have a limit. `records` are options by name that a project file may give; of
    these, it does not give those that `left_out` names. The function imports libraries of extras
    late, so that the help works without them.
    """

    context_class = CommandContext

    def __init__(
        self,
        *args: Any,
        topics: Mapping[str, str] | None = None,
        records: Mapping[str, Option] | None = None,
        left_out: LeftOut | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        shared = dict.fromkeys(("debug", "max_memory", "project"), EVERY_COMMAND)
        self.topics = dict(topics or {}) | shared
        self.records = records
        self.left_out = left_out
        if LIMITS in (self.help or ""):
            from cimtool.verification.options import limits_text

            self.help = str(self.help).replace(LIMITS, limits_text())
        self.context_settings["show_default"] = True
        if records is not None:
            said = f"Values of options that are left out [default: {PROJECT}, if it is here]."
            self.params.append(click.Option(["--project"], type=FilePath("TOML"), help=said))
        self.params += [
            click.Option(["-v", "--verbose"], is_flag=True, help="Print all details."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
            click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
            click.Option(
                ["--max-memory"],
                type=Parsed("SIZE", memory_size),
                help="Memory limit for reading one file, such as 4G [default: 8 times its size "
                "plus 256 MB].",
            ),
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options and exit.",
            ),
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that most need, and the others by topic or as a count of each topic."""
        by_topic: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                topic = "" if one.required else self.topics.get(str(one.name), "")
                by_topic.setdefault(topic, []).append(record)
        usual = by_topic.pop("")
        with formatter.section("Options"):
            formatter.write_dl(usual)
        if ctx.meta.get(WHOLE_HELP):
            for topic, records in by_topic.items():
                with formatter.section(topic):
                    formatter.write_dl(records)
        else:
            counts = ", ".join(f"{topic} ({len(records)})" for topic, records in by_topic.items())
            formatter.write_paragraph()
            formatter.write_text(f"--help-all shows these too: {counts}.")
        if isinstance(ctx, CommandContext) and ctx.of_project:
            with formatter.section("From the project file"):
                formatter.write_dl([(one.key, one.shown) for one in ctx.of_project])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; UsageError if an option is given twice and one value would be lost.

        Options that are left out have the values of the project file, if there is one. Raises
        CimError for a mistake in it.
        """
        texts, _, given = self.make_parser(ctx).parse_args(list(args))
        _require_once(given, ctx)
        file = Path(texts.get("project") or PROJECT)
        if self.records is None or not isinstance(ctx, CommandContext) or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if not texts.get("project") and not file.is_file():
            return super().parse_args(ctx, args)
        from cimtool.cli.project import read_values, require_files  # not for the help without one

        typed = {str(one.name): texts[str(one.name)] for one in given if _is_typed(one, texts)}
        words = ctx.command_path.split()[1:]
        ctx.of_project = read_values(
            file, command_files(), words, self.records, typed, self.left_out
        )
        ctx.default_map = {one.option.name: one.text for one in ctx.of_project}
        rest = super().parse_args(ctx, args)
        require_files(file, ctx.used)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command's function, and with `--debug` print the traceback of an error.

        Raises Refusal for a CimError of the library, and if it needs an extra that is not
        installed.
        """
        debug = ctx.params.pop("debug")
        limit = ctx.params.pop("max_memory")
        file = ctx.params.pop("project", None) or PROJECT
        used = ctx.used if isinstance(ctx, CommandContext) else []
        keys = {one.option.name: f"{one.key} in {file}" for one in used}
        try:
            with (
                inputs_kept(ctx.params),
                data_noted() as notes,
                memory_limited(limit),
                _warnings_in(notes, debug),
                needing(ctx.command_path),
            ):
                as_json, verbose = ctx.params.pop("as_json"), ctx.params.pop("verbose")
                if ctx.obj is None:
                    ctx.obj = Output(as_json, notes, verbose)
                    if used and not as_json:
                        names = ", ".join(dict.fromkeys(one.key for one in used))
                        click.secho(f"{file}: {names}", err=True, dim=True)
                else:
                    ctx.obj = replace(ctx.obj, of_data=notes)
                return super().invoke(ctx)
        except Exception as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, CimError):
                called = lambda name: keys.get(name) or self.option(name)  # noqa: E731
                raise Refusal(error, called) from error
            raise

    def option(self, argument: str) -> str:
        """The command's option for an argument of the library, or `--` with the argument's name."""
        named = [
            long_name(one) if isinstance(one, click.Option) else str(one.metavar)
            for one in self.params
            if one.name == argument
        ]
        return named[0] if named else f"--{argument.replace('_', '-')}"


def _show_all(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    """Print the help with the options of all topics, and end the command."""
    if asked and not ctx.resilient_parsing:
        ctx.meta[WHOLE_HELP] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def records_by_command(
    group: click.Group, context: click.Context
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Option]]]:
    """The options of every command below a group that a project file may give, by its words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            for words, options in records_by_command(command, context):
                yield (name, *words), options
        elif isinstance(command, Command) and command.records:
            yield (name,), command.records


def _require_once(given: Sequence[click.Parameter], ctx: click.Context) -> None:
    """Raise UsageError for an option that is given twice, if one value would be lost."""
    counts = Counter(one for one in given if isinstance(one, click.Option))
    for one, count in counts.items():
        if count > 1 and not (one.multiple or one.is_flag or one.count):
            raise click.UsageError(f"{long_name(one)} is given {count} times; expected one", ctx)


def _is_typed(one: click.Parameter, texts: Mapping[str, Any]) -> bool:
    """True for a given option, and for an argument without a name that has a text."""
    text = texts[str(one.name)]
    return isinstance(one, click.Option) or (isinstance(text, str | tuple | list) and bool(text))


def long_name(one: click.Parameter) -> str:
    """The longest of an option's names: `--output`, not `-o`."""
    return max(one.opts, key=len)


@contextmanager
def _warnings_in(notes: DataNotes, raw: bool) -> Iterator[None]:
    """Turn warnings into notes, each once; if `raw`, warnings of libraries are left as they are."""

    def note(told: str, category: type[Warning]) -> bool:
        told = " ".join(told.split())
        if issubclass(category, CimWarning):
            notes.said.append(f"warning: {told}")
        elif raw:
            return False
        else:
            where = f"--debug shows where ({category.__name__})"
            notes.said.append(f"warning: a library says: {told}; {where}")
        return True

    with taking_warnings(note):
        yield


class FilePath(click.Path):
    """A file or folder; an empty text is refused, though a path would take it for the current one.

    The help shows `kind` in its place.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(path_type=Path)
        self.kind = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The kind of file."""
        return self.kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value` as a path; BadParameter for an empty one."""
        if value == "":
            self.fail("is empty; expected a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class Parsed(click.ParamType[T]):
    """A value that `read` makes from a text; BadParameter with the sentence of its error."""

    def __init__(self, name: str, read: Callable[[str], T]):
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return the value of a text; a default that is no text stays as it is."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except (ValueError, CimError) as error:
            self.fail(str(error), param, ctx)


class OneOf(click.Choice[str]):
    """A choice of names; the error for another name gives the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value` if it is one of the choices; BadParameter otherwise."""
        if value not in self.choices:
            known = ", ".join(self.choices)
            self.fail(f'"{value}" is not one of {known}{nearest(value, self.choices)}', param, ctx)
        return str(value)


class NameOf(click.ParamType[str]):
    """The name of a class of a family; the help lists all names, also from plug-ins.

    Without `checked`, any text is accepted and the library judges it.
    """

    name = "name"

    def __init__(self, family: type[Named], checked: bool = True):
        self.family = family
        self.checked = checked

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """All names, also from plug-ins."""
        return f"[{'|'.join(sorted(self.family.every()))}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value`; if `checked`, BadParameter with the nearest name for an unknown one."""
        if self.checked and not self.family.knows(value):
            known = self.family.family
            self.fail(f'"{value}" is not one of {", ".join(known)}{nearest(value, known)}')
        return str(value)
