"""The commands put together, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback

import typer

from ttlsnap.cli import check, compact, contract, doctor, history, inspect, maintain, recover, rollback, transformers
from ttlsnap.cli.output import print_error
from ttlsnap.errors import TtlsnapError
from ttlsnap.interrupts import Terminated, deferred, terminable

EXIT_CODES = (
    "Exit codes: 0 done, or compatible; 1 findings of check or doctor; 2 wrong usage, or not a checkpoint; "
    "3 undecided: an unknown or unsupported format, feature or version; 4 refused for safety: the query runs, the "
    "checkpoint moved on, a fence stands; 5 damage or I/O; 130 and 143 stopped by Ctrl-C and by SIGTERM."
)

_TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    name="ttlsnap",
    help="Drop expired entries from the state of Spark Structured Streaming checkpoints, offline and safely.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (inspect, compact, maintain, recover, rollback, history, doctor, contract, check, transformers):
    _command.register(app)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"ttlsnap {version('ttlsnap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error (accepted anywhere)."),
) -> None:
    pass


def main() -> None:
    """Entry point of the ``ttlsnap`` script."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    # A path need not be text; half a surrogate pair, escaped so, is also what JSON wants.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run([a for a in arguments if a != "--debug"], debug, last=True))


def run(arguments: list[str], debug: bool = False, *, last: bool = False) -> int:
    """Run one command line; its exit code, which is 143 if SIGTERM stopped it. The process ends with the ``last``."""
    with terminable(last=last) as received:
        try:
            code = _run(arguments, debug)
        except Terminated:
            code = _TERMINATED
        if received.signum is None:
            return code
        with deferred() as more:
            told = "Nothing is left half done; ttlsnap history shows whether a run was published."
            typer.echo(f"Stopped by SIGTERM. {told}", err=True)
            more.take()
        return _TERMINATED


def _run(arguments: list[str], debug: bool) -> int:
    try:
        app(arguments, prog_name="ttlsnap")
    except SystemExit as ended:  # how typer ends: help, wrong usage, --version, an answer of no, Ctrl-C
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except TtlsnapError as error:
        if debug:
            traceback.print_exc()
        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone, as with | head; a second error at exit helps nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        words = "`ttlsnap history TARGET` shows whether a run was published before it ran out"
        typer.echo(f"Error: there is not enough memory. {words}", err=True)
        return 5
    except Exception as error:
        if debug:
            traceback.print_exc()
        typer.echo(f"Error: {type(error).__name__}: {error}\nThis is unexpected; --debug shows where.", err=True)
        return 5
    return 0
