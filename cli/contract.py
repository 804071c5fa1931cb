"""``ttlsnap contract``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.output import print_json, tell, verbosity, write_whole
from ttlsnap.cli.written_files import files_of_functions, require_files

if TYPE_CHECKING:
    from ttlsnap.contract import Contract, TableContract

EXAMPLES = """
Examples:
  # describe the state of a checkpoint, without a JVM
  ttlsnap contract ck > state.json

  # describe the state of a query, without data
  ttlsnap contract jobs.sessions:build --schema events.ddl

  # the same for a script
  ttlsnap contract --script jobs/sessions.py

  # combine a checkpoint with its query, which knows more
  ttlsnap contract ck --with jobs.sessions:build --schema events.ddl
  ttlsnap contract ck --script jobs/sessions.py

  # a Delta state table
  ttlsnap contract tables/sessions --key user_id
"""
_OUTPUT_MODES = ("append", "update", "complete")
_PROPERTY = re.compile(r"([^\s=:]+)[\s=:]\s*(.+)")


@dataclass(frozen=True)
class QueryOptions:
    """How a query is built or started, on empty sources."""

    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="FILE",
            help="A script that opens its own sources and starts its own query. With a checkpoint, it adds what the "
            "checkpoint does not record.",
        ),
    ] = None
    arguments: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="TEXT", help="An argument for the script. Can be repeated."),
    ] = None
    joined_with: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="MODULE:FUNCTION",
            help="The query that wrote the checkpoint. It adds what the checkpoint does not record.",
        ),
    ] = None
    schema: Annotated[
        list[str] | None,
        typer.Option(
            "--schema",
            metavar="[NAME=]FILE|DDL",
            help="The schema of a source, as DDL or a file with DDL. If there are several sources, repeat the option, "
            "each with NAME=.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of the query's Spark session. Can be repeated."),
    ] = None
    properties_file: Annotated[
        Path | None,
        typer.Option("--properties-file", metavar="FILE", help="Settings as in spark-defaults.conf."),
    ] = None
    output_mode: Annotated[
        str | None,
        typer.Option("--output-mode", metavar="MODE", help="append (default), update or complete."),
    ] = None
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="NAME", help="The query to use, if the script starts several."),
    ] = None

    def check(self) -> None:
        """Raise UsageError for options that cannot be used, before Spark is started."""
        from ttlsnap.errors import UsageError
        from ttlsnap.suggestions import did_you_mean
        from ttlsnap.transformers.registry import is_function

        if self.script is None:
            for option in given(self, "arguments", "query"):
                raise UsageError(f"{option} needs --script")
        elif self.output_mode is not None:
            raise UsageError("--output-mode needs a function; a script sets its own")
        if self.output_mode is not None and self.output_mode.lower() not in _OUTPUT_MODES:
            hint = did_you_mean(self.output_mode, _OUTPUT_MODES)
            raise UsageError(f"--output-mode {self.output_mode}{hint}: it is one of {', '.join(_OUTPUT_MODES)}")
        if self.joined_with is not None and not is_function(self.joined_with):
            raise UsageError(f"--with {self.joined_with}: write MODULE:FUNCTION, such as jobs.sessions:build")

    def settings(self) -> dict[str, str]:
        """Return the settings of the query's Spark session."""
        return {**_properties(self.properties_file), **dict(_pair("--conf", text) for text in self.conf or ())}

    def inputs(self, target: str | None) -> list[str]:
        """Return the names of files that the command may read. Some may be DDL, or modules that are elsewhere."""
        files = [str(path) for path in (self.script, self.properties_file) if path is not None]
        files += [part for text in self.schema or () for part in (text, text.partition("=")[2]) if part]
        return [*files, *files_of_functions([target, self.joined_with])]

    def schemas(self) -> dict[str, str]:
        """Return the schemas of the sources by their names. Each is DDL, or a file with DDL.

        Raise UsageError for two schemas of one source.
        """
        from ttlsnap.errors import UsageError

        schemas: dict[str, str] = {}
        for name, schema in map(_schema, self.schema or ()):
            if name in schemas:
                mistake = f"are both for {name}" if name else "both have no name; write NAME= before each"
                raise UsageError(f"--schema {schemas[name]} and --schema {schema} {mistake}")
            schemas[name] = schema
        return schemas


def register(app: typer.Typer) -> None:
    app.command("contract", cls=Command, epilog=EXAMPLES)(separate(contract))


def contract(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET|MODULE:FUNCTION", help="A checkpoint, a Delta table, or the function that builds a query."
        ),
    ] = None,
    *,
    query: QueryOptions,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="Describe the state after this batch of the checkpoint, which must still be retained.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMN", help="A column of a Delta table's key. Can be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the contract to this file instead of stdout."),
    ] = None,
) -> None:
    """Print the state contract of a query: a description of its state that `ttlsnap check` compares.

    Commit it beside the code. ttlsnap reads a checkpoint without a JVM. It executes a function or a script, on empty
    sources. The page "contract" of the documentation explains more.
    """
    from ttlsnap.check.targets import refuse_script
    from ttlsnap.contract import contract_of_checkpoint, contract_of_table
    from ttlsnap.delta import is_table
    from ttlsnap.errors import UsageError
    from ttlsnap.storage.open import open_directory
    from ttlsnap.transformers.registry import is_function

    if target is None and query.script is None:
        raise UsageError("name one of these: a checkpoint or table, a module:function, or --script FILE")
    if target is not None:
        refuse_script(target)
    if query.script is not None and (query.joined_with is not None or (target is not None and is_function(target))):
        raise UsageError("a contract is of one query: name a module:function or --script FILE, not both")
    query.check()
    if output is not None:
        is_built = target is None or is_function(target)
        require_files([(f"--output {output}", output)], query.inputs(target), [] if is_built else [target or ""])
    settings, schemas = query.settings(), query.schemas()
    if target is None or is_function(target):
        if query.joined_with is not None or batch is not None or key:
            raise UsageError("--with and --batch need a checkpoint, and --key needs a Delta table")
        new_contract: Contract | TableContract = _of_query(target, query, schemas, settings)
    elif is_table(open_directory(target)):
        if given(query) or batch is not None:
            raise UsageError(f"{target} is a Delta table; only --key and --output work with it")
        new_contract = contract_of_table(target, key or ())
    else:
        if key:
            raise UsageError(f"--key needs a Delta table, but {target} is not one")
        new_contract = contract_of_checkpoint(target, batch=batch)
        if query.joined_with is not None or query.script is not None:
            from ttlsnap.contract.of_query import join_contracts

            for name in (
                "spark.sql.shuffle.partitions",
                *(setting for setting in new_contract.conf if "stateStore" in setting),
            ):
                settings.setdefault(name, new_contract.conf.get(name, "200"))
            new_contract = join_contracts(new_contract, _of_query(query.joined_with, query, schemas, settings))
        elif given(query):
            raise UsageError(
                "--schema, --conf, --output-mode, --arg and --query are for a query: module:function or --script"
            )
    if output is None:
        print_json(new_contract.to_json())
        return
    text = new_contract.dumps()
    if not _has_already(output, text):
        write_whole(output, text.encode(errors="backslashreplace"))
    if not verbosity.quiet:
        tell(f"{output}: {_summary(new_contract)}")


def _has_already(output: Path, text: str) -> bool:
    """Return whether the file has this contract, whatever version of ttlsnap made it.

    Otherwise each upgrade of ttlsnap would change the committed contracts of all queries.
    """
    data = text.encode(errors="backslashreplace")
    if not output.is_file() or output.stat().st_size > 2 * len(data):
        return False
    old_lines, lines = (
        [line for line in each.split(b"\n") if not line.startswith(b'  "ttlsnap": ')]
        for each in (output.read_bytes(), data)
    )
    return old_lines == lines


def _of_query(function: str | None, query: QueryOptions, schemas: dict[str, str], settings: dict[str, str]) -> Contract:
    """Return the contract of the query that ``function`` builds; without one, of the query that the script starts."""
    from ttlsnap.contract.of_query import contract_of_query, contract_of_script

    if function is not None:
        return contract_of_query(function, schemas, conf=settings, output_mode=query.output_mode)
    assert query.script is not None
    # As with python, modules beside a script have precedence; also for Spark's workers.
    script_folder = str(query.script.resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [script_folder, os.environ.get("PYTHONPATH")]))
    return contract_of_script(str(query.script), query.arguments or [], schemas, conf=settings, query=query.query)


def _schema(text: str) -> tuple[str, str]:
    """Return the name, or "", and the file or DDL of ``NAME=FILE`` or ``FILE``."""
    name, separator, schema = text.partition("=")
    return (name, schema) if separator and " " not in name else ("", text)


def _pair(option: str, text: str) -> tuple[str, str]:
    from ttlsnap.errors import UsageError

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{option} is NAME=VALUE, not {text!r}")
    return name, value


def _properties(path: Path | None) -> dict[str, str]:
    """Return settings as spark-submit reads them: on each line a name and a value, with a space, = or : between."""
    from ttlsnap.errors import UsageError

    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--properties-file {path}: {error}") from error
    matches = [_PROPERTY.fullmatch(line.strip()) for line in lines]
    return {match[1]: match[2] for match in matches if match and not match[1].startswith("#")}


def _summary(contract: Contract | TableContract) -> str:
    from ttlsnap.contract import TableContract

    if isinstance(contract, TableContract):
        return f"the contract of a Delta table of {quantity(len(contract.columns), 'column')}"
    names = ", ".join(operator.name or "unnamed" for operator in contract.operators)
    return f"the state contract of {names}, made from {contract.made_from}"
