"""Contracts from queries, without their data: real Spark plans a query on empty sources and writes a checkpoint.

The user's code that builds the query runs here, at import and when called. Spark calls no UDF, and no function of
``applyInPandasWithState``. It calls ``init`` and ``close`` of a transformWithState processor. A static table that the
code reads is really read.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE
from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION
from ttlsnap.contract.buffers import Executed, find_executed, read_buffers
from ttlsnap.contract.functions import Digests
from ttlsnap.contract.model import (
    KEYS_AS_LISTED,
    PARTITIONS,
    SCHEMA_CHECK,
    TIME_ZONE,
    ZONED,
    ZONED_OF_TIMES,
    AggregateBuffer,
    Contract,
    OperatorContract,
    StoreContract,
)
from ttlsnap.contract.of_checkpoint import contract_of_checkpoint
from ttlsnap.contract.plan import AGGREGATE, SOURCE, PlannedOperator, sources, stateful_operators
from ttlsnap.contract.recording import Empty, Recording, Started, intercept_queries, record_functions, tag
from ttlsnap.engines.launch import build_session, find_session, first_lines, launch_session, set_temporarily
from ttlsnap.errors import NotACheckpointError, TtlsnapError, UsageError
from ttlsnap.keywords import public
from ttlsnap.operators import aggregation, deduplication, scala_order, session_window
from ttlsnap.storage.open import read_given
from ttlsnap.suggestions import did_you_mean
from ttlsnap.user_code import (
    find_names,
    import_named,
    list_found,
    list_unknown_elsewhere,
    place_of_error,
    search_in_current_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Build = Callable[..., Any]
"""``build(df)`` or ``build(spark, sources)``, which returns a streaming DataFrame, or a DataStreamWriter of one."""

Ttls = Mapping[str, int | None]
"""The TTLs of state variables in milliseconds by the variables' names, None for a variable without a TTL."""

_DRY_PARTITIONS = "2"  # partitions of the run without data: enough to recognize an operator that always has one
_UNENDING = re.compile("transformWithState|flatMapGroupsWithState|applyInPandasWithState")
_TIMEOUT_S = 300
_MAX_DDL_BYTES = 1 << 20
_NAMELESS = "defaultName"


@public
def contract_of_query(
    build: Build | str,
    schemas: Mapping[str, str] | str,
    *,
    conf: Mapping[str, str] | None = None,
    output_mode: str | None = None,
    session: SparkSession | None = None,
) -> Contract:
    """Return the contract of the query that ``build`` (a function, or ``module:function``) makes of empty sources.

    ``schemas`` is the schema of the only source, or maps the name of each source to its schema. A schema is DDL, or the
    path of a file with DDL. ``build(spark, sources)`` gets a mapping of the same names to streaming DataFrames.
    ``conf`` has the settings of production. ``output_mode`` is that of the query if ``build`` returns a DataFrame.
    Without ``session``, the active session is used, or a new one is started.

    Raise UsageError if ``build`` cannot be imported, raises an error, or does not return a stateful streaming query.
    """
    schemas_by_name = _read_schemas({"": schemas} if isinstance(schemas, str) else schemas)
    _require_function(build, schemas_by_name)
    with (
        _session(session, conf or {}) as spark,
        tempfile.TemporaryDirectory(prefix="ttlsnap-") as folder,
        contextlib.ExitStack() as stack,
    ):
        empty = _empty_sources(spark, Path(folder))
        with record_functions() as recording:
            function = _load(build) if isinstance(build, str) else build
            stack.enter_context(_sent_whole())
            returned = _call(function, spark, schemas_by_name, empty)
        frame, mode = _streaming(returned, output_mode)
        return _contract(spark, Started(frame, mode, None), recording, Path(folder))


@public
def contract_of_script(
    script: str,
    arguments: Sequence[str] = (),
    schemas: Mapping[str, str] | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    query: str | None = None,
    session: SparkSession | None = None,
) -> Contract:
    """Return the contract of the query that a script starts, or of the query named ``query`` if it starts several.

    ttlsnap replaces the script's streaming sources by empty ones, and records its queries instead of starting them.
    ``schemas`` maps a path, table or format to the DDL of a source, or to the path of a file with it, for sources whose
    schema depends on their data.

    Raise UsageError if the script fails, or does not start exactly one such query.
    """
    if not Path(script).is_file():
        raise UsageError(f"the script {script} does not exist")
    schemas_by_name = _read_schemas(schemas or {})
    with _session(session, conf or {}) as spark, tempfile.TemporaryDirectory(prefix="ttlsnap-") as folder:
        empty = _empty_sources(spark, Path(folder))
        with record_functions() as recording, intercept_queries(recording, schemas_by_name, empty):
            _run(script, arguments)
        started = recording.started
        if query is not None:
            started = [started_query for started_query in started if started_query.name == query]
        if len(started) != 1:
            names = (
                ", ".join(str(started_query.name or "one without a name") for started_query in recording.started)
                or "none"
            )
            hint = "give --query NAME" if len(recording.started) > 1 else "a contract is of one"
            raise UsageError(f"{script} starts {len(recording.started)} queries ({names}); {hint}")
        return _contract(spark, started[0], recording, Path(folder))


_DESCRIBE_ITS_QUERY = (
    "Describe the query that wrote the state as it is now: ttlsnap contract CHECKPOINT --with MODULE:FUNCTION --schema "
    "FILE (or --script FILE). If the checkpoint was migrated, that is the new query. To migrate it in another way, "
    "undo that run first: ttlsnap rollback CHECKPOINT --stopped"
)


def join_contracts(checkpoint: Contract, query: Contract) -> Contract:
    """Return the contract of a checkpoint, completed by what only its query shows.

    Raise UsageError if the two have different operators or state types.
    """
    names = [[operator.name for operator in contract.operators] for contract in (checkpoint, query)]
    # Spark before 4.0 records no names.
    if len(names[0]) != len(names[1]) or any(
        old_name not in (None, new_name) for old_name, new_name in zip(*names, strict=True)
    ):
        texts = [", ".join(name or "unnamed" for name in operator_names) for operator_names in names]
        raise UsageError(
            f"the checkpoint has the operators {texts[0]}, but the query has {texts[1]}: they do not belong together. "
            f"{_DESCRIBE_ITS_QUERY}"
        )
    for old, new in zip(checkpoint.operators, query.operators, strict=True):
        for old_type, new_type in zip(_types(old), _types(new), strict=False):
            if old_type != new_type:
                raise UsageError(
                    f"{old} has {old_type[1]} in the checkpoint, but {new_type[1]} in the query: "
                    f"they do not belong together. {_DESCRIBE_ITS_QUERY}"
                )
    operators = tuple(
        replace(
            old,
            name=old.name or new.name,
            plan=new.plan,
            functions=new.functions,
            buffers=new.buffers,
            stores=_join_stores(old.stores, new.stores),
        )
        for old, new in zip(checkpoint.operators, query.operators, strict=True)
    )
    return replace(
        checkpoint,
        made_from="checkpoint and query",
        planned_by=query.planned_by,
        output_mode=query.output_mode,
        reads=query.reads,
        conf={**{name: query.conf[name] for name in (TIME_ZONE,) if name in query.conf}, **checkpoint.conf},
        operators=operators,
    )


def _types(operator: OperatorContract) -> list[tuple[str, str]]:
    """Return the types of an operator's primary states, without names and nullability. Each has a text for messages."""
    types_of_states = []
    for store in sorted(operator.stores, key=lambda store: store.name):
        for state in store.states or ():
            types = [", ".join(field.type.simple_string for field in side) for side in (state.key, state.value)]
            if state.role == "primary":
                types_of_states.append((f"{types[0]} | {types[1]}", f"{state.name}: {types[0]} with {types[1]}"))
    return types_of_states


def _join_stores(old: Sequence[StoreContract], new: Sequence[StoreContract]) -> tuple[StoreContract, ...]:
    """Return the stores of a checkpoint with the TTLs that its query declares."""
    ttls = {state.name: state.ttl_ms for store in new for state in store.states or () if state.ttl}
    return tuple(_with_ttls(store, ttls) for store in old)


@contextlib.contextmanager
def _session(session: SparkSession | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Provide a session with these settings. Restore the settings of a session that existed before."""
    session = find_session(session)
    if session is not None:
        with _settings(session, conf):
            yield session
        return
    with start_session(conf) as session, _settings(session, {}):
        yield session


@contextlib.contextmanager
def start_session(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start a session on this machine, and stop it when the block ends."""
    builder = build_session()
    for name, value in {"spark.master": "local[2]", **conf}.items():
        builder = builder.config(name, value)
    with launch_session(
        builder, lambda message: f"Spark could not be started. Is there a Java 17?\n{message}"
    ) as session:
        yield session


@contextlib.contextmanager
def _settings(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in {"spark.sql.debug.maxToStringFields": "100000", **conf}.items():
            if session.conf.get(name, None) == value:
                continue
            try:
                stack.enter_context(set_temporarily(session, {name: value}))
            except Exception as error:
                if "cannot modify" in str(error).lower().replace("_", " "):
                    raise UsageError(
                        f"the setting {name}={value} must be made before Spark starts. The session that runs has "
                        f"{session.conf.get(name, None) or 'none'}. Start it with the setting, or leave the setting out"
                    ) from error
                raise UsageError(f"Spark rejects --conf {name}={value}: {first_lines(error, 1)}") from error
        yield


def _empty_sources(spark: SparkSession, folder: Path) -> Empty:
    """Return a function that makes a streaming DataFrame of a schema.

    The DataFrame reads one file of 0 bytes, so a batch runs, but without rows. With source evolution, where each source
    must have a name, the source has ``source_name``, or ``name`` without special characters.
    """
    set_schema, read_json = type(spark.readStream).schema, type(spark.readStream).json
    set_name: Callable[..., Any] = getattr(type(spark.readStream), "name", lambda reader, name: reader)
    folders: dict[str, str] = {}

    def empty(schema: Any, name: str = "", source_name: str | None = None) -> DataFrame:
        # The plan shows the folder's name, which distinguishes sources with the same schema.
        folder_name = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        if folders.setdefault(folder_name, name) != name:
            folder_name += f"-{xxhash.xxh32_hexdigest(name.encode())}"
        source = folder / f"{SOURCE}{folder_name}"
        source.mkdir(exist_ok=True)
        (source / "empty.json").touch()
        try:
            reader = spark.readStream
            if source_name is None and str(spark.conf.get(SOURCE_EVOLUTION, "false")).lower() == "true":
                source_name = re.sub(r"\W", "_", name, flags=re.ASCII) or "source"
            return read_json(set_schema(set_name(reader, source_name) if source_name else reader, schema), str(source))
        except Exception as error:
            raise UsageError(f"{schema!r} is not a schema: {first_lines(error, 1)}") from error

    return empty


def _read_schemas(schemas: Mapping[str, str]) -> dict[str, str]:
    """Return the DDL of each schema, which may be the path of a file. Raise UsageError for what is neither."""
    return {name: _read_ddl(name, os.fspath(schema)) for name, schema in schemas.items()}


def _read_ddl(name: str, schema: str) -> str:
    try:
        is_file = Path(schema).is_file()
    except (OSError, ValueError):  # DDL may be longer than the name of a file, or have characters that no name has
        is_file = False
    option = f"--schema {name}={schema}" if name else f"--schema {schema}"
    if is_file:
        try:
            return read_given(schema, _MAX_DDL_BYTES, "a file with DDL").decode().strip()
        except UnicodeDecodeError as error:
            raise UsageError(f"{option}: the file is not text in UTF-8; name a file with DDL") from error
    if not re.search(r"[\s:]", schema.strip()):
        raise UsageError(f"{option}: {schema} is neither a file nor DDL such as 'user string, at timestamp'")
    return schema


def _require_function(build: Build | str, schemas: Mapping[str, str]) -> None:
    """Raise UsageError for what is wrong without a session, which takes long to start.

    The module is not imported yet, because it may need the session.
    """
    if not schemas:
        raise UsageError(
            f"{build if isinstance(build, str) else build.__qualname__} needs the schema of its source: --schema FILE, "
            "or --schema NAME=FILE for each of several"
        )
    if not isinstance(build, str):
        _takes_one(build, schemas)
    else:
        module, _, attribute = build.partition(":")
        if module.endswith(".py"):
            name = module.removesuffix(".py").replace("/", ".")
            raise UsageError(f"{build} names a file. Name its module: {name}:{attribute}")
        search_in_current_folder()
        with _loading(build):
            names = find_names(module)
        first_name = attribute.partition(".")[0]
        if names is not None and first_name not in names:
            raise UsageError(f"{build} cannot be loaded: {module} has no {first_name}{did_you_mean(first_name, names)}")


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Raise UsageError if ``name`` cannot be found or imported."""
    try:
        yield
    except Exception as error:  # the user's code may raise anything
        hint = ""
        top_name = name.partition(":")[0].partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == top_name:
            hint = "; it is looked for among what is installed, and in the current folder"
        raise UsageError(f"{name} cannot be loaded: {type(error).__name__}: {error}{hint}") from error


def _load(name: str) -> Build:
    module, _, attribute = name.partition(":")
    with _loading(name):
        value: Any = import_named(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{name} is {type(value).__name__}, not a function")
    function: Build = value
    return function


@contextlib.contextmanager
def _sent_whole() -> Iterator[None]:
    """Let Spark's workers get objects of modules that are not installed with their code, such as data sources."""
    from pyspark import cloudpickle

    names = {*chain.from_iterable(names for _, names in list_found()), *list_unknown_elsewhere()}
    modules = [sys.modules[name] for name in names - cloudpickle.list_registry_pickle_by_value()]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _takes_one(build: Build, schemas: Mapping[str, str]) -> bool:
    """Return whether a function takes one DataFrame only. Raise UsageError if it takes other arguments than it gets."""
    name = getattr(build, "__qualname__", str(build))
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (1, 2):
        raise UsageError(
            f"{name} takes {quantity(len(required), 'argument')}; write build(df) or build(spark, sources)"
        )
    if len(required) == 1 and len(schemas) != 1:
        raise UsageError(f"{name} takes one DataFrame, but {len(schemas)} schemas were given: {', '.join(schemas)}")
    return len(required) == 1


def _call(build: Build, spark: SparkSession, schemas: Mapping[str, str], empty: Empty) -> Any:
    takes_one = _takes_one(build, schemas)
    sources = {source: empty(schema, source) for source, schema in schemas.items()}
    try:
        return build(*sources.values()) if takes_one else build(spark, sources)
    except TtlsnapError:
        raise
    except Exception as error:
        name, location = getattr(build, "__qualname__", str(build)), place_of_error(error)
        names = ", ".join(sources) or "nothing, as there was no --schema"
        called = "" if takes_one else f". It was called as {name}(spark, sources); sources has {names}"
        raise UsageError(f"{name} raised {type(error).__name__}{location}: {first_lines(error)}{called}") from error


def _run(script: str, arguments: Sequence[str]) -> None:
    old_arguments, old_path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise UsageError(f"{script} ended with exit code {ended.code}") from ended
    except TtlsnapError:
        raise
    except Exception as error:
        raise UsageError(
            f"{script} raised {type(error).__name__}{place_of_error(error)}: {first_lines(error)}"
        ) from error
    finally:
        sys.argv, sys.path[:] = old_arguments, old_path


def _streaming(returned: Any, output_mode: str | None) -> tuple[DataFrame, str | None]:
    """Return the streaming DataFrame that a function returned, and its output mode.

    Raise UsageError for any other object, and for two different output modes.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

    if isinstance(returned, DataStreamWriter):
        mode = getattr(returned, "_ttlsnap_output_mode", None)
        if output_mode and mode and output_mode != mode:
            raise UsageError(f"--output-mode is {output_mode}, but the query sets {mode}")
        returned, output_mode = returned._df, output_mode or mode
    if not isinstance(returned, DataFrame):
        raise UsageError(
            f"the function returned {type(returned).__name__}; return a streaming DataFrame, or its writeStream"
        )
    if not returned.isStreaming:
        raise UsageError("the function returned a DataFrame that does not stream; build it from its arguments")
    return returned, output_mode


def _contract(spark: SparkSession, query: Started, recording: Recording, folder: Path) -> Contract:
    """Run the query once with a temporary checkpoint, and return the contract of both."""
    plan = query.frame._jdf.queryExecution().analyzed()
    planned_operators = stateful_operators(plan)
    mode = query.output_mode or "append"
    partitions = spark.conf.get(PARTITIONS)
    dry_partitions = partitions if partitions == "1" else _DRY_PARTITIONS
    checkpoint = folder / "checkpoint"
    once = any(_UNENDING.search(name) for planned_operator in planned_operators for name in planned_operator.names)
    widens = _find_setting(spark, ALWAYS_NULLABLE)
    # What Spark records then as nullable is nullable in the query itself.
    with _settings(spark, {PARTITIONS: dry_partitions, **dict.fromkeys(widens, "false")}):
        names, executed = _run_once(query.frame, mode, checkpoint, once)
    planned_operators = [
        as_executed(operator, executed.get(number)) for number, operator in enumerate(planned_operators)
    ]
    try:
        contract = contract_of_checkpoint(str(checkpoint))
    except NotACheckpointError as error:
        raise UsageError("the query has no state, so there is nothing to restore") from error
    operators = _operators(
        contract.operators, planned_operators, names, executed, recording, dry_partitions, int(str(partitions))
    )
    if contract.lists_keys and any(map(_has_many_keys, operators)):
        with _settings(spark, {PARTITIONS: dry_partitions, KEYS_AS_LISTED: "false"}):
            _run_once(query.frame, mode, folder / "legacy", once)
        operators = _with_legacy_keys(operators, contract_of_checkpoint(str(folder / "legacy")).operators)
    return replace(
        contract,
        made_from="query",
        spark=spark.version,
        planned_by=spark.version,
        output_mode=mode.lower(),
        conf={
            **contract.conf,
            PARTITIONS: str(partitions),
            **widens,
            **_find_disabled_check(spark),
            **_time_zone(spark, operators),
        },
        operators=operators,
        reads=tuple(sources(plan)),
    )


def _has_many_keys(operator: OperatorContract) -> bool:
    """Return whether an operator is a deduplication whose keys may have another order with an older checkpoint."""
    return operator.name in deduplication.NAMES and len(_key_of(operator)) > scala_order.ORDERED


def _key_of(operator: OperatorContract) -> tuple[str, ...]:
    (store,) = operator.stores
    (state,) = store.states or ()
    return state.key.names


def _with_legacy_keys(
    operators: Sequence[OperatorContract], legacy: Sequence[OperatorContract]
) -> tuple[OperatorContract, ...]:
    """Return the operators with the order of their keys in the same query with an older checkpoint, if it differs."""
    return tuple(
        replace(operator, legacy_key=_key_of(legacy_operator))
        if _has_many_keys(operator) and _key_of(legacy_operator) != _key_of(operator)
        else operator
        for operator, legacy_operator in zip(operators, legacy, strict=True)
    )


def _cause(error: Exception) -> str:
    """Return why a query failed, without the text that Spark adds to every such error."""
    text = first_lines(error, 60).strip()
    text = re.sub(r"^\[STREAM_FAILED\] .*? terminated with exception: ", "", text)
    hint = "\nGive the settings of production by --conf" if "NOT_SUPPORTED" in text else ""
    return text + hint


def _find_setting(spark: SparkSession, name: str) -> dict[str, str]:
    """Return a setting with its value, which may be Spark's default; empty if this version does not have it."""
    try:
        return {name: str(spark.conf.get(name)).lower()}
    except Exception:  # classes of two unrelated errors, for classic Spark and for Connect
        return {}


def _find_disabled_check(spark: SparkSession) -> dict[str, str]:
    """Return the setting that switches off Spark's comparison of schemas, if it is switched off.

    Spark does not pin this setting, but it decides which queries Spark refuses.
    """
    value = str(spark.conf.get(SCHEMA_CHECK, "true")).lower()
    return {} if value == "true" else {SCHEMA_CHECK: value}


def _time_zone(spark: SparkSession, operators: Sequence[OperatorContract]) -> dict[str, str]:
    """Return the setting of the session's time zone, if the state may depend on it.

    It may if an operator casts to a date or a time. If the sources have times, it also may with a cast to text, or a
    Python function.
    """
    lines = [line for operator in operators for line in operator.plan or ()]
    timed = any(line.partition("from ")[1] and re.search(r"\b(?:timestamp|date)\b", line) for line in lines)
    of_times = any(operator.functions for operator in operators) or any(map(ZONED_OF_TIMES.search, lines))
    zoned = any(map(ZONED.search, lines)) or (timed and of_times)
    return {TIME_ZONE: str(spark.conf.get(TIME_ZONE))} if zoned else {}


def _run_once(frame: DataFrame, mode: str, checkpoint: Path, once: bool) -> tuple[list[str], Executed]:
    """Run the query for one batch.

    Return the names of its stateful operators, in the order of the plan, and the aggregates that Spark executed.
    """
    # A query with a TTL or a processing-time timeout always has more to do, so it never ends under availableNow.
    trigger: dict[str, Any] = {"once": True} if once else {"availableNow": True}
    try:
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(**trigger).start()
    except Exception as error:
        hint = "" if "utput mode" not in str(error) else "\nIs --output-mode right?"
        raise UsageError(f"Spark refuses the query: {first_lines(error)}{hint}") from error
    try:
        has_ended = query.awaitTermination(_TIMEOUT_S)
    except Exception as error:
        raise UsageError(f"Spark cannot run the query, even without data: {_cause(error)}") from error
    if not has_ended:
        query.stop()
        raise UsageError(f"the query did not end within {_TIMEOUT_S} seconds, although it has no data")
    names = [str(operator["operatorName"]) for operator in (query.lastProgress or {}).get("stateOperators", ())]
    return names, find_executed(query._jsq.streamingQuery().lastExecution().executedPlan())


def as_executed(operator: PlannedOperator, executed: Sequence[Any] | None) -> PlannedOperator:
    """Return an operator of the analyzed plan with its aggregates in the order of their buffers in the state."""
    ids = [aggregate.resultId().id() for aggregate in executed or ()]
    if not ids or not all(number in operator.aggregates for number in ids):
        return operator
    executed_lines = [f"{AGGREGATE}{operator.aggregates[number][0]}" for number in ids]
    positions = [position for position, line in enumerate(operator.lines) if line.startswith(AGGREGATE)]
    aggregate_lines = list(dict.fromkeys([*executed_lines, *(operator.lines[position] for position in positions)]))
    lines = list(operator.lines)
    # The lines of the operator itself come before those of the operators below it.
    for position, line in zip(positions, aggregate_lines, strict=False):
        lines[position] = line
    return replace(operator, lines=tuple(lines))


def _operators(
    stored_operators: Sequence[OperatorContract],
    planned_operators: Sequence[PlannedOperator],
    names: Sequence[str],
    executed: Executed,
    recording: Recording,
    dry_partitions: str,
    partitions: int,
) -> tuple[OperatorContract, ...]:
    """Return the operators with their partitions in production.

    If ``planned_operators`` has the same operators, also add their plans, functions and TTLs. ``names`` are those in
    the query's progress. Spark before 4.0 does not write them into the checkpoint.
    """
    if len(names) == len(stored_operators) == len(planned_operators):
        # 3.5.0 has no name for some operators. In a plan, each of those is the last that it may be.
        known_names = [
            planned_operator.names[-1] if name == _NAMELESS else name
            for name, planned_operator in zip(names, planned_operators, strict=True)
        ]
        stored_operators = [
            replace(stored_operator, name=stored_operator.name or name)
            for stored_operator, name in zip(stored_operators, known_names, strict=True)
        ]
    plan_matches = len(stored_operators) == len(planned_operators) and all(
        stored_operator.name in planned_operator.names
        for stored_operator, planned_operator in zip(stored_operators, planned_operators, strict=True)
    )
    functions = find_functions(planned_operators, recording)
    result = []
    for number, operator in enumerate(stored_operators):
        operator = replace(
            operator, partitions=partitions if operator.partitions == int(dry_partitions) else operator.partitions
        )
        if plan_matches:
            operator = replace(
                operator,
                plan=planned_operators[number].lines,
                functions=functions[number][0],
                buffers=_buffers(operator, planned_operators[number], executed.get(number)),
            )
            operator = replace(
                operator, stores=tuple(_with_ttls(store, functions[number][1]) for store in operator.stores)
            )
        result.append(operator)
    return tuple(result)


def _buffers(
    operator: OperatorContract, planned_operator: PlannedOperator, executed: Sequence[Any] | None
) -> tuple[AggregateBuffer, ...] | None:
    """Return the buffers of an aggregation, if their columns are the last ones of the state's values."""
    if operator.name not in (aggregation.NAME, session_window.NAME) or executed is None:
        return None
    buffers = read_buffers(executed, planned_operator.aggregates)
    values = [state.value.names for store in operator.stores for state in store.states or ()]
    columns = tuple(name for buffer in buffers or () for name in buffer.columns)
    are_last = all(names[len(names) - len(columns) :] == columns for names in values)
    return buffers if are_last else None


def _with_ttls(store: StoreContract, ttls: Ttls) -> StoreContract:
    if store.states is None:
        return store
    return replace(store, states=tuple(replace(state, ttl_ms=ttls.get(state.name)) for state in store.states))


def find_functions(planned_operators: Sequence[PlannedOperator], recording: Recording) -> list[tuple[Digests, Ttls]]:
    """Return the digests of the functions that the plan of each operator names, and the TTLs of its variables."""
    functions_by_tag = {tag(number): function for number, function in enumerate(recording.stateful)}
    functions_of_operators: list[tuple[Digests, Ttls]] = []
    for operator in planned_operators:
        text = "\n".join(operator.lines)
        functions = {
            name: parts for name, parts in recording.others.items() if f"{name}(" in text or f" {name} of " in text
        }
        function = functions_by_tag.get(operator.function or "")
        functions_of_operators.append(
            ({function.name: function.digests, **functions}, function.ttls) if function else (functions, {})
        )
    return functions_of_operators
