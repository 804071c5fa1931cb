"""``ttlsnap contract``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.output import print_json, write_whole

if TYPE_CHECKING:
    from ttlsnap.contract import Contract, TableContract

EXAMPLES = """[bold]Examples[/bold]

ttlsnap contract ck > state.json                                        of a checkpoint: no JVM

ttlsnap contract jobs.sessions:build --schema events.ddl                of the query itself: no data

ttlsnap contract --script jobs/sessions.py --conf spark.sql.shuffle.partitions=64

ttlsnap contract ck --with jobs.sessions:build --schema events.ddl      what production has, and what its code says

ttlsnap contract tables/sessions --key user_id                          of a Delta state table: no JVM
"""
_MAX_DDL_BYTES = 1 << 20
_PROPERTY = re.compile(r"([^\s=:]+)[\s=:]\s*(.+)")


def register(app: typer.Typer) -> None:
    app.command("contract", epilog=EXAMPLES)(contract)


def contract(
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="TARGET|MODULE:FUNCTION", help="A checkpoint or a Delta table, or the function that builds a query."
        ),
    ] = None,
    script: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--script", metavar="FILE", help="A script that opens its own sources and starts its query."),
    ] = None,
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--arg", metavar="TEXT", help="An argument for the script; repeatable."),
    ] = None,
    joined_with: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--with", metavar="MODULE:FUNCTION", help="The query of the checkpoint, for what no file tells."),
    ] = None,
    schema: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--schema",
            metavar="[NAME=]FILE|DDL",
            help="The schema of the query's source, as DDL or a file of it; NAME= for each of several.",
        ),
    ] = None,
    conf: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of the query's session; repeatable."),
    ] = None,
    properties_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--properties-file", metavar="FILE", help="Settings as in spark-defaults.conf."),
    ] = None,
    output_mode: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output-mode", metavar="MODE", help="append (default), update or complete."),
    ] = None,
    query: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--query", metavar="NAME", help="Which of a script's queries."),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--batch", metavar="N", help="An older batch of the checkpoint that is still retained."),
    ] = None,
    key: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--key", metavar="COLUMN", help="A column of a Delta table's key; repeatable."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, and not to stdout."),
    ] = None,
) -> None:
    """Print the state contract: what a query's state is, to be committed beside its code and compared by check.

    A checkpoint is read without a JVM. A function or a script is run, on empty sources: its code is executed. See
    docs/contract.md.
    """
    from ttlsnap.contract import contract_of_checkpoint, contract_of_table
    from ttlsnap.delta import is_table
    from ttlsnap.errors import UsageError
    from ttlsnap.filesystem import open_directory
    from ttlsnap.transformers.registry import is_function

    if (target is None) == (script is None):
        raise UsageError("give a checkpoint or a table, a module:function, or --script FILE, and one of them")
    settings = {**_properties(properties_file), **dict(_pair("--conf", text) for text in conf or [])}
    schemas = dict(_schema(text) for text in schema or [])
    if target is None or is_function(target):
        if joined_with is not None or batch is not None or key:
            raise UsageError("--with and --batch go with a checkpoint, and --key with a Delta table")
        made: Contract | TableContract = _of_query(
            target, script, arguments or [], schemas, settings, output_mode, query
        )
    elif is_table(open_directory(target)):
        if joined_with is not None or batch is not None or schemas or settings or output_mode or query or arguments:
            raise UsageError(f"{target} is a Delta table: of the options only --key and --output go with it")
        made = contract_of_table(target, key or ())
    else:
        if key:
            raise UsageError(f"--key goes with a Delta table, and {target} is none")
        made = contract_of_checkpoint(target, batch=batch)
        if joined_with is not None:
            from ttlsnap.contract.of_query import joined

            for name in ("spark.sql.shuffle.partitions", *(n for n in made.conf if "stateStore" in n)):
                settings.setdefault(name, made.conf.get(name, "200"))
            made = joined(made, _of_query(joined_with, None, [], schemas, settings, output_mode, None))
        elif schemas or settings or output_mode or query or arguments:
            raise UsageError(
                "--schema, --conf, --output-mode, --arg and --query are for a query: module:function or --script"
            )
    if output is None:
        print_json(made.to_json())
        return
    if not output.resolve().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.parent}; make it first")
    write_whole(output, made.dumps().encode(errors="backslashreplace"))
    typer.echo(f"{output}: {_summary(made)}", err=True)


def _of_query(
    function: str | None,
    script: Path | None,
    arguments: list[str],
    schemas: dict[str, str],
    conf: dict[str, str],
    output_mode: str | None,
    query: str | None,
) -> Contract:
    from ttlsnap.contract.of_query import contract_of_query, contract_of_script
    from ttlsnap.errors import UsageError

    # As python -m does: the user's modules are looked for where the command runs, by Spark's workers, too.
    here = str(Path.cwd() if script is None else script.resolve().parent)
    sys.path.insert(0, here)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    if script is not None:
        if output_mode is not None:
            raise UsageError("--output-mode goes with a function; a script says it itself")
        return contract_of_script(str(script), arguments, schemas, conf=conf, query=query)
    assert function is not None
    return contract_of_query(function, schemas, conf=conf, output_mode=output_mode)


def _schema(text: str) -> tuple[str, str]:
    """``NAME=FILE``, ``FILE`` or either with DDL instead of a file."""
    from ttlsnap.errors import UsageError

    name, found, rest = text.partition("=")
    if not found or " " in name:
        name, rest = "", text
    path = Path(rest)
    try:
        there = path.is_file()
    except OSError:  # DDL may be longer than the name of a file
        there = False
    if not there and " " not in rest.strip():
        raise UsageError(
            f"--schema {text}: there is no file {rest}, and it is no DDL such as 'user string, at timestamp'"
        )
    if not there:
        return name, rest
    if path.stat().st_size > _MAX_DDL_BYTES:
        raise UsageError(f"--schema {text}: the file is larger than a schema can be")
    return name, path.read_text().strip()


def _pair(option: str, text: str) -> tuple[str, str]:
    from ttlsnap.errors import UsageError

    name, found, value = text.partition("=")
    if not found or not name:
        raise UsageError(f"{option} is NAME=VALUE, not {text!r}")
    return name, value


def _properties(path: Path | None) -> dict[str, str]:
    """Settings as spark-submit reads them: a name and a value on a line, between them a space or an equals sign."""
    from ttlsnap.errors import UsageError

    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--properties-file {path}: {error}") from error
    found = [_PROPERTY.fullmatch(line.strip()) for line in lines]
    return {one[1]: one[2] for one in found if one and not one[1].startswith("#")}


def _summary(made: Contract | TableContract) -> str:
    from ttlsnap.contract import TableContract

    if isinstance(made, TableContract):
        return f"the contract of a Delta table of {len(made.columns)} columns"
    names = ", ".join(operator.name or "unnamed" for operator in made.operators)
    return f"the state contract of {names}, made from {made.made_from}"
