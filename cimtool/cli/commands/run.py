"""Bring a project up to date: compile, verify, cost and the page."""

from __future__ import annotations

import hashlib
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from cimtool import __version__
from cimtool.base.errors import CheckFailed, CimError
from cimtool.base.files import MANIFEST, REPORT_FILES
from cimtool.base.folders import alone_in
from cimtool.bundle.inspect import inspect
from cimtool.cli.group import PROJECT, Command, CommandContext, FilePath, Refusal, command_files
from cimtool.cli.lock import StepRecord, digests, read_lock, write_lock
from cimtool.cli.output import Output
from cimtool.cli.project import Project, shared_options
from cimtool.hardware.target import load_target
from cimtool.report.document import Document, Sentence, Verbatim, notes, walk

STEPS = ("compile", "verify", "cost")
"""The commands that a run consists of, in their order."""

BUNDLE, MEASURED = "bundle", "data.measured"

VERDICT_LINES, COLUMNS = 9, 80
"""Most lines of the verdict, at so many columns."""


@dataclass(frozen=True)
class KeptOutput(Output):
    """An output that keeps the result of a step in place of printing it."""

    kept: list[Document] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def result(self, found: Document) -> None:
        """Keep the step's result, and its warnings."""
        self.kept.append(found)
        said = (*found.values().get("notes", ()), *self.of_data.sentences)
        self.warnings.extend(dict.fromkeys(one for one in said if one.startswith("warning: ")))


@dataclass(frozen=True)
class DoneStep:
    """A step, the reason for which it was done ("" if it is up to date), and its seconds."""

    name: str
    record: StepRecord
    reason: str
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """The step in one line."""
        if not self.reason:
            return f"{self.name:9}up to date"
        return f"{self.name:9}{self.seconds:.1f} s ({self.reason})"


@click.command(cls=Command)
@click.option(
    "--project", "file", metavar="TOML", type=FilePath("TOML"), default=Path(PROJECT),
    help="The project file.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, file: Path) -> None:
    """Bring a project up to date: compile, verify, cost and the page.

    Each step is the command of that name with the values of the project file. A step is done again
    if a key that it reads, a file that it read or wrote, or the version of cimtool is another than
    in cimtool.lock, which is beside the project file. The report and its page report.html go to the
    folder `report`. Without `data.measured` there is no report.

    Ends with status 1 if a check of verify failed, also if nothing was to be done.
    """
    out: Output = context.obj
    if not file.is_file():
        raise CimError(
            f"{file}: there is no such project file; expected one, which `cimtool init` writes"
        )
    project = Project.read(file, command_files())
    if BUNDLE not in project.values:
        raise CimError(
            f"{file}: {BUNDLE} is missing: must be the folder of the bundle, such as "
            "exports/MODEL@TARGET"
        )
    with alone_in(file.parent, "cimtool run"):
        done = list(_done(context, project, out))
    out.result(_document(project, done))
    for one in done:
        if one.record.failure:
            raise CheckFailed(one.record.failure)


def _done(context: click.Context, project: Project, out: Output) -> Iterator[DoneStep]:
    """Do each step that is out of date, and note it in the lock."""
    folder, group = project.file.parent, context.find_root().command
    records = read_lock(folder)
    for name in STEPS:
        step = group.get_command(context, name) if isinstance(group, click.Group) else None
        if not isinstance(step, Command) or (name == "verify" and not _is_measured(project)):
            continue
        kept = KeptOutput(out.as_json)
        inner = _context(context, step, name, project, kept)
        now = _now(inner, project)
        before = records.get(name)
        reason = "for the first time" if before is None else before.reason_to_redo(now, folder)
        started = time.monotonic()
        if reason:
            out.say(f"{name}: {reason}")
            failure = _run(step, inner)
            made = _made(kept.kept[-1], folder)
            warnings = "\n".join(kept.warnings)
            # Digests from before the step: a file that changed meanwhile is read again next time.
            # Only a bundle that is made now names further inputs.
            later = _now(inner, project).inputs if name == STEPS[0] else {}
            inputs = {**later, **now.inputs}
            records[name] = replace(now, inputs=inputs, failure=failure, warnings=warnings, **made)
            write_lock(folder, records)
        yield DoneStep(name, records[name], reason, time.monotonic() - started)


def _is_measured(project: Project) -> bool:
    values = project.values
    return "measured" in values.get("data", {}) or "data" in values.get("verify", {})


def _context(
    context: click.Context, step: Command, name: str, project: Project, kept: KeptOutput
) -> CommandContext:
    """The context of a step, with values of the project file only; CimError if one is missing."""
    words = ["--project", str(project.file)]
    try:
        made = step.make_context(name, words, context.find_root(), obj=kept)
    except click.MissingParameter as error:
        missing = "" if error.param is None else str(error.param.name)
        places = {one.name: place for place, one in shared_options().items()}
        key = places.get(missing, f"{name}.{missing}")
        remedy = "; `cimtool train` makes one" if key == "model.projectors" else ""
        raise CimError(f"{project.file}: {key} is missing, which {name} needs{remedy}") from None
    if not isinstance(made, CommandContext):
        raise TypeError(f"{name} is no command of records")
    return made


def _run(step: Command, inner: CommandContext) -> str:
    """Do a step; the sentence of a check that failed, "" if none did."""
    try:
        with inner:
            step.invoke(inner)
    except Refusal as refused:
        if refused.exit_status != CheckFailed.exit_status:
            raise
        return str(refused)
    return ""


def _now(inner: CommandContext, project: Project) -> StepRecord:
    """A step as it would be done now, without outputs: its keys, and the digests of its inputs."""
    files, more, compiles = list[Path](), dict[str, str](), inner.info_name == STEPS[0]
    for one in inner.of_project:
        if one.option.place == BUNDLE:
            files += [] if compiles else [file / MANIFEST for file in one.files]
        elif one.option.place == "target":
            digest = hashlib.sha256(load_target(one.text).model_dump_json().encode())
            more[f"target {one.text}"] = digest.hexdigest()
        elif one.option.place != "report":
            files += one.files
    if compiles:
        files += _beside(files, project)
    keys = {one.key: one.value for one in inner.of_project}
    return StepRecord(__version__, keys, digests(files, project.file.parent) | more, {})


def _beside(files: list[Path], project: Project) -> Iterator[Path]:
    """Further inputs that the bundle names, such as the weights of an ONNX file, beside these."""
    bundle = project.file.parent / str(project.values[BUNDLE])
    if not (bundle / MANIFEST).is_file():
        return
    for one in inspect(bundle)["inputs"]:
        for folder in dict.fromkeys(file.parent for file in files):
            if (beside := folder / one["file"]).is_file() and beside not in files:
                yield beside


def _made(found: Document, project: Path) -> dict[str, Any]:
    """The digests of the files that a step wrote, and the sentences that it leads with."""
    values = found.values()
    written = [Path(file) for file in values.get("written", ())]
    if values.get("files"):
        folder = Path(values["bundle"])
        written += [folder / name for name in (MANIFEST, *values["files"])]
    said = [found.heading]
    said += [
        one.text for one in walk(found.blocks) if isinstance(one, Sentence)
        and one.level == "verdict"
    ]  # fmt: skip
    return {"outputs": digests(written, project), "verdict": "\n".join(said)}


def _document(project: Project, done: list[DoneStep]) -> Document:
    """The verdict of the run: of the report, else of the last step; then the steps and the page."""
    leading = next((one for one in done if one.name == "verify"), done[-1])
    title, *others = leading.record.verdict.split("\n")
    lines = len(textwrap.wrap(title, COLUMNS))
    said = list[str]()
    for text in others:
        lines += len(textwrap.wrap(text, COLUMNS))
        if lines > VERDICT_LINES:
            break
        said.append(text)
    steps = [one.line for one in done]
    if not any(one.reason for one in done):
        steps = [f"nothing to do: {', '.join(one.name for one in done)} are up to date"]
    pages = [name for name in leading.record.outputs if name.endswith(REPORT_FILES[-1])]
    steps += [f"page     {project.file.parent / page}" for page in pages]
    warnings = dict.fromkeys(text for one in done for text in one.record.warnings.splitlines())
    if leading.name != "verify":
        steps.append(f"there is no report: {project.file} has no {MEASURED}")
    values = {
        "project": project.file,
        "verdict": [title, *others],
        "steps": {
            one.name: {"done": bool(one.reason), "reason": one.reason, **vars(one.record)}
            for one in done
        },
    }
    return Document(
        title,
        (*map(Sentence, said), *notes(warnings, "detail"), *map(Verbatim, steps)),
        lambda: values,
    )
