"""Say if cimtool works on this machine, and what to do if not."""

from __future__ import annotations

import click

from cimtool.base.errors import CheckFailed
from cimtool.cli.group import Command
from cimtool.cli.output import Output
from cimtool.report.document import Verbatim
from cimtool.verification.doctor import examine


@click.command(cls=Command)
@click.option(
    "--warm", is_flag=True, help="Compile the kernels of all targets first, so that they are kept."
)
@click.pass_obj
def command(out: Output, warm: bool) -> None:
    """Say if cimtool works on this machine, and what to do if not.

    A small model is compiled and run by the kernels, the readable reference and ONNX Runtime, whose
    values must be the same to the bit; the first run compiles some kernels too. Then follow
    versions, instruction sets, compilers and free room. Ends with status 1 if a value differs or
    something necessary is missing.

    Compiled kernels are kept for each CPU and shared by all processes. --warm compiles those of
    compile, simulate and verify for all targets, in parallel.
    """
    found = examine(warm, out.say)
    next_ = () if found.failures else (Verbatim("next: cimtool init"),)
    out.result(found.document().plus(*next_))
    if found.failures:
        raise CheckFailed(f"cimtool does not work here: {found.failures[0]}")
