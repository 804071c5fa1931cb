"""All commands, and the one place in which errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import typer
from typer.main import get_command

from ttlsnap.cli import (
    check,
    compact,
    contract,
    copy,
    diff,
    doctor,
    explain,
    export,
    history,
    importing,
    inspect,
    maintain,
    migrate,
    recover,
    rewind,
    rollback,
    sources,
    transformers,
)
from ttlsnap.cli.help import Commands
from ttlsnap.cli.output import OutputError, StandardOutput, print_error, print_marked, tell, verbosity
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.interrupts import Stop, catch_signals, prepare_exit, raise_received, set_exit_code
from ttlsnap.printable import shell_word
from ttlsnap.versions import VERSION

EXIT_CODES = (
    "Exit codes: 0 done, or compatible; 1 findings of check, diff or doctor, or no entry for explain; 2 wrong usage, "
    "or not a checkpoint; 3 undecided: check lacks facts, or a format, feature or version is unknown or unsupported; "
    "4 refused for safety: the query may be running, the checkpoint has a newer batch or a fence; 5 damage or a "
    "storage error; 130 and 143 stopped by Ctrl-C and by SIGTERM."
)

_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + signal.SIGPIPE
_READERS = ("inspect", "export", "diff", "explain", "contract", "check", "transformers")

app = typer.Typer(
    name="ttlsnap",
    cls=Commands,
    help="Drop expired entries from the state of Spark Structured Streaming checkpoints, offline and safely.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    inspect,
    export,
    importing,
    diff,
    compact,
    explain,
    migrate,
    maintain,
    recover,
    rollback,
    rewind,
    sources,
    history,
    copy,
    doctor,
    contract,
    check,
    transformers,
):
    _command.register(app)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"ttlsnap {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", "-V", callback=_version, is_eager=True, help="Show the version."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print only errors, warnings, questions and JSON."),
    verbose: bool = typer.Option(
        False, "--verbose", "-v", help="Also print, on stderr, what compact, migrate or import plans."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Declare the options that are accepted anywhere on the command line; ``run`` removes them."""


def main() -> None:
    """Run the command line of the process, and end it."""
    prepare_exit()
    # Python gives a closed stream the value None. Nothing can be read from it, and what is written to it is lost.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: PTH123, SIM115 - until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = StandardOutput.of(sys.stdout)
    code = run(sys.argv[1:], last=True)
    set_exit_code(code)
    sys.exit(code)


_FLAGS = {"--debug": "debug", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}


def _take_flags(arguments: list[str]) -> tuple[list[str], set[str]]:
    """Remove the global flags from the command line, but not the value of ``--arg`` and nothing after ``--``."""
    remaining: list[str] = []
    flags: set[str] = set()
    for number, argument in enumerate(arguments):
        if argument == "--":
            return remaining + arguments[number:], flags
        if argument in _FLAGS and remaining[-1:] != ["--arg"]:
            flags.add(_FLAGS[argument])
        else:
            remaining.append(argument)
    return remaining, flags


def run(arguments: list[str], *, last: bool = False) -> int:
    """Run one command line. Return its exit code, 130 after Ctrl-C and 143 after SIGTERM.

    The process ends after the ``last``.
    """
    arguments, flags = _take_flags(arguments)
    verbosity.quiet, verbosity.verbose = "quiet" in flags, "verbose" in flags
    verbosity.keys = _command_in(arguments) == "maintain"
    debug = "debug" in flags
    with catch_signals(last=last) as stop:
        code = _INTERRUPTED
        # Python runs handlers after calls, and not between the end of this block and the assignments.
        try:
            raise_received()
            code = _run(arguments, debug, stop)
            stop.is_armed = False
        except KeyboardInterrupt:
            stop.is_armed = False
        if stop.signum is None and code != _INTERRUPTED:
            return code
        signum = stop.signum or signal.SIGINT  # PySpark has its own handler for SIGINT
        with suppress(OSError):  # the reader may be gone
            name = "Ctrl-C" if signum == signal.SIGINT else "SIGTERM"
            tell(f"Stopped by {name}. {_describe_stop(arguments, stop)}")
        return 128 + signum


def _only_reads(arguments: list[str]) -> bool:
    return _command_in(arguments) in _READERS


def _command_in(arguments: list[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def _describe_stop(arguments: list[str], stop: Stop) -> str:
    """Return what a stopped command has done."""
    if _only_reads(arguments):
        return "Nothing was changed."
    if _command_in(arguments) == "copy":
        return "If the copy is not complete, Spark refuses to start on it. Repeat the command, and it goes on."
    if stop.open:
        target = next(iter(stop.open.values()))
        return f"A run had begun to publish. To see whether it was published: ttlsnap history {shell_word(target)}"
    return f"Everything is complete or undone. {_describe_published(stop) or 'No run was published.'}"


def _describe_published(stop: Stop) -> str:
    """Return what a command has published; empty for nothing."""
    if len(stop.published) != 1:
        runs_text = f"{len(stop.published)} runs were published. ttlsnap history TARGET shows those of a target."
        return runs_text if stop.published else ""
    ((run, target),) = stop.published.items()
    return f"The new checkpoint {target} was completed." if run == target else f"Run {run} on {target} was published."


@cache
def _commands() -> Callable[..., object]:
    """Return all commands as functions of the command line. Typer builds them again at each call of ``app``."""
    return get_command(app)


def _call(arguments: list[str]) -> int:
    """Run a command. Return its exit code. Raise BrokenPipeError if the reader of the output has ended."""
    try:
        _commands()(arguments, prog_name="ttlsnap")
    except SystemExit as ended:  # typer ends so after help, wrong usage, --version, an answer of no, and Ctrl-C
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _flush() -> BrokenPipeError | OutputError | None:
    """Write what is left of the output. If that fails, drop it, so that no second error comes at exit."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, OutputError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _run(arguments: list[str], debug: bool, stop: Stop) -> int:
    if sys.stdout is None:
        print_error(UsageError("the standard output is closed, and results are written there. Use > /dev/null"))
        return UsageError.exit_code
    code = _handle_errors(arguments, debug, stop)
    output_error = _flush()
    if isinstance(output_error, BrokenPipeError):
        return _BROKEN_PIPE
    if output_error is not None and code != output_error.exit_code:
        _print(output_error, arguments, stop)
        return output_error.exit_code
    return code


def _print(error: TtlsnapError, arguments: list[str], stop: Stop) -> None:
    """Print an error, and what the command has published before it, unless the message says so."""
    advice = _describe_published(stop)
    if isinstance(error, OutputError) and not advice and not _only_reads(arguments):
        advice = "The command may have done its work: ttlsnap history TARGET shows whether a run was published."
    if not any(run in error.text for run in stop.published):
        error.advice = "\n".join(filter(None, [error.advice, advice]))
    print_error(error)


def _handle_errors(arguments: list[str], debug: bool, stop: Stop) -> int:
    """Run a command, and print its error. Return the exit code."""
    try:
        return _call(arguments)
    except TtlsnapError as error:
        if debug:
            tell(traceback.format_exc().rstrip())
        _print(error, arguments, stop)
        return error.exit_code
    except BrokenPipeError:
        return _BROKEN_PIPE  # as with | head; other tools end by SIGPIPE, also without a message
    except MemoryError:
        words = "Nothing was changed"
        if not _only_reads(arguments):
            words = "`ttlsnap history TARGET` shows whether a run was published before it ran out"
        tell(f"Error: out of memory. {words}")
        return 5
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if debug:
            tell(traceback.format_exc().rstrip())
        message = (
            f"{type(error).__name__}: {error}\nThis is unexpected; --debug shows where. {_describe_published(stop)}"
        )
        print_marked("Error:", "bold red", message.rstrip())
        return 5
