"""The command ``segkit``: the options of every command, and a module of this package for each command.

Commands only read arguments, call the library and tell what came of it. What takes time to import
is imported inside them, so that ``segkit --help`` answers at once.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from segkit import __version__
from segkit._common.device import told_if_full
from segkit.cli import INTERRUPTED, Stopped, terminated_as_by_ctrl_c
from segkit.cli.options import WORKERS
from segkit.cli.terminal import QUIET, echo, show_warning
from segkit.errors import SegkitError

# Each is the function of that name in the module of that name.
COMMANDS = (
    "train",
    "predict",
    "annotate",
    "measure",
    "classify",
    "evaluate",
    "benchmark",
    "inspect",
    "combine",
    "demo",
)


class _Program(TyperGroup):
    """The program, which takes its own options before and after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the program's options before the command."""
        options: dict[str, Any] = {name: option for option in self.params for name in option.opts}
        own: list[str] = []
        others: list[str] = []
        words = iter(args)
        for word in words:
            option = options.get(word.partition("=")[0])
            if word == "--":
                others += [word, *words]
            elif option is None:
                others.append(word)
            elif option.is_flag or "=" in word:
                own.append(word)
            elif (value := next(words, None)) is not None:
                own += [word, value]
            else:  # refused, as it lacks its value
                return super().parse_args(ctx, [word])
        return super().parse_args(ctx, own + others)


app = typer.Typer(
    cls=_Program,
    help="Segment biomedical images from a few annotated ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        echo(f"segkit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show errors and notes only, no progress.")
    ] = False,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of the whole program, such as 2GiB or 500MB; local workers share it. "
            "[default: half of what is free]",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu|cuda",
            help="Where networks compute: on the processor (cpu), on a graphics card (cuda), or there if there is one "
            "(auto).",
        ),
    ] = "cpu",
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|local|ADDRESS",
            help="Spread train, predict and benchmark over workers of Dask: N processes of one thread, one for each core "
            "(local), or those of the scheduler at an address.",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,  # noqa: ARG001
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Segment biomedical images from a few annotated ones."""
    from segkit._common import device as _device
    from segkit._common import memory as _memory

    QUIET.set(quiet)
    WORKERS.set(workers)
    # for as long as the command runs
    context.with_resource(_memory.memory_limit(memory_limit))
    context.with_resource(_device.device(device))


for _name in COMMANDS:
    app.command(epilog="Options of all commands, such as --quiet and --workers: see segkit --help.")(
        getattr(import_module(f"segkit.cli.{_name}"), _name)
    )


def main() -> None:
    """Run the command line: status 2 and one line for every error that segkit raises, 130 after Ctrl-C."""
    warnings.showwarning = show_warning
    try:
        with terminated_as_by_ctrl_c(), told_if_full():
            app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            echo("segkit: interrupted", err=True)
        raise
    except Stopped as stop:
        echo(f"segkit: interrupted: {stop}", err=True)
        sys.exit(INTERRUPTED)
    except (SegkitError, OSError, ValueError, TypeError, MemoryError, ImportError) as error:
        if "--debug" in sys.argv:
            raise
        echo(f"segkit: {_explain(error)}", err=True)
        sys.exit(2)


def _explain(error: Exception) -> str:
    """Explain an error in one line."""
    if isinstance(error, MemoryError):
        return "out of memory: use smaller images, fewer training.pixels or kernel.n_components, or a smaller bank"
    text = " ".join(str(error).split())
    if isinstance(error, SegkitError):
        return text
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or 'file'}: there is no such file or folder: check the path"
    if isinstance(error, IsADirectoryError):
        return f"{error.filename or 'file'}: a folder, expected a file: check the path"
    if isinstance(error, OSError):
        return f"{error.filename or 'file'}: {error.strerror or error}; check the path, its permissions and free space"
    # what a library refuses, for example an option out of its range
    return f"{text} (--debug shows where this came from)"
