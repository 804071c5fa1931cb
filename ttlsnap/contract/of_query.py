"""A contract from a query itself, without its data: real Spark plans it on empty sources and writes a checkpoint.

The user's code runs here: what builds the query, at import and when called. No UDF is called, nor a function of
``applyInPandasWithState``; of a transformWithState processor, ``init`` and ``close`` are. A static table that the code
reads is read for real.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from ttlsnap.contract.functions import Digests
from ttlsnap.contract.model import (
    PARTITIONS,
    SCHEMA_CHECK,
    TIME_ZONE,
    ZONED,
    ZONED_OF_TIMES,
    Contract,
    OperatorContract,
    StoreContract,
)
from ttlsnap.contract.of_checkpoint import contract_of_checkpoint
from ttlsnap.contract.plan import SOURCE, PlannedOperator, sources, stateful_operators
from ttlsnap.contract.recording import Empty, Recording, Started, intercepted, recorded, tag
from ttlsnap.engines.launch import first_lines, launched, own_session, set_for_now
from ttlsnap.errors import NotACheckpointError, TtlsnapError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Build = Callable[..., Any]
"""``build(df)`` or ``build(spark, sources)``; gives a streaming DataFrame, or a DataStreamWriter of one."""

Ttls = Mapping[str, int | None]
"""The TTLs of state variables in milliseconds, None for one without, by the variables' names."""

_FEW = "2"  # partitions that a dry run has: enough to tell an operator that always has one
_UNENDING = re.compile("transformWithState|flatMapGroupsWithState|applyInPandasWithState")
_TIMEOUT_S = 300


def contract_of_query(
    build: Build | str,
    schemas: Mapping[str, str] | str,
    *,
    conf: Mapping[str, str] | None = None,
    output_mode: str | None = None,
    session: SparkSession | None = None,
) -> Contract:
    """The contract of the query that ``build`` (a function, or ``module:function``) makes of empty streaming sources.

    ``schemas`` is the DDL of its one source, or that of each by its name, which ``build(spark, sources)`` gets as a
    mapping to DataFrames. ``conf`` are the settings of production, ``output_mode`` that of the query where ``build``
    gives a DataFrame. Without ``session`` the active one is used, or one is started.

    Raises UsageError, in a sentence, for what cannot be imported, raises, or is no stateful streaming query.
    """
    named = {"": schemas} if isinstance(schemas, str) else dict(schemas)
    with _session(session, conf or {}) as spark, tempfile.TemporaryDirectory(prefix="ttlsnap-") as folder:
        empty = _empty_sources(spark, Path(folder))
        with recorded() as recording:
            found = _call(_load(build) if isinstance(build, str) else build, spark, named, empty)
        frame, mode = _streaming(found, output_mode)
        return _contract(spark, Started(frame, mode, None), recording, Path(folder))


def contract_of_script(
    script: str,
    arguments: Sequence[str] = (),
    schemas: Mapping[str, str] | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    query: str | None = None,
    session: SparkSession | None = None,
) -> Contract:
    """The contract of the query that a script starts, or of the one named ``query`` if there are several.

    Its streaming sources are replaced by empty ones, and no query is started. ``schemas``, by path, table or format,
    is for those whose schema only their data tell.
    """
    with _session(session, conf or {}) as spark, tempfile.TemporaryDirectory(prefix="ttlsnap-") as folder:
        empty = _empty_sources(spark, Path(folder))
        with recorded() as recording, intercepted(recording, schemas or {}, empty):
            _run(script, arguments)
        started = recording.started
        if query is not None:
            started = [one for one in started if one.name == query]
        if len(started) != 1:
            names = ", ".join(str(one.name or "one without a name") for one in recording.started) or "none"
            wanted = "give --query NAME" if len(recording.started) > 1 else "a contract is of one"
            raise UsageError(f"{script} starts {len(recording.started)} queries ({names}); {wanted}")
        return _contract(spark, started[0], recording, Path(folder))


def joined(checkpoint: Contract, query: Contract) -> Contract:
    """What a checkpoint tells, and of its query what no checkpoint does.

    Raises UsageError where they are not of the same operators.
    """
    names = [[operator.name for operator in contract.operators] for contract in (checkpoint, query)]
    # Spark before 4.0 records no names.
    if len(names[0]) != len(names[1]) or any(a not in (None, b) for a, b in zip(*names, strict=True)):
        told = [", ".join(name or "unnamed" for name in found) for found in names]
        raise UsageError(
            f"the checkpoint has the operators {told[0]}, and the query {told[1]}: they do not belong together"
        )
    for old, new in zip(checkpoint.operators, query.operators, strict=True):
        for was, now in zip(_types(old), _types(new), strict=False):
            if was != now:
                raise UsageError(f"{old} keeps {was[1]}, and in the query {now[1]}: they do not belong together")
    operators = tuple(
        replace(
            old,
            name=old.name or new.name,
            plan=new.plan,
            functions=new.functions,
            stores=_joined_stores(old.stores, new.stores),
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
    """The types of its states, but for names and what may be null, each with its words for a message."""
    found = []
    for store in sorted(operator.stores, key=lambda store: store.name):
        for state in store.states or ():
            types = [", ".join(field.type.simple_string for field in side) for side in (state.key, state.value)]
            if state.role == "primary":
                found.append((f"{types[0]} | {types[1]}", f"{state.name}: {types[0]} with {types[1]}"))
    return found


def _joined_stores(old: Sequence[StoreContract], new: Sequence[StoreContract]) -> tuple[StoreContract, ...]:
    """The stores of a checkpoint with the TTLs that its query declares."""
    ttls = {state.name: state.ttl_ms for store in new for state in store.states or () if state.ttl}
    return tuple(_with_ttls(store, ttls) for store in old)


@contextlib.contextmanager
def _session(session: SparkSession | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with these settings; what is changed of one that was there is put back."""
    from pyspark.sql import SparkSession

    session = session or SparkSession.getActiveSession()
    if session is not None:
        with _settings(session, conf):
            yield session
        return
    with started_session(conf) as session, _settings(session, {}):
        yield session


@contextlib.contextmanager
def started_session(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of our own on this machine, stopped when the block ends."""
    builder = own_session()
    for name, value in {"spark.master": "local[2]", **conf}.items():
        builder = builder.config(name, value)
    with launched(builder, lambda told: f"Spark could not be started. Is there a Java 17?\n{told}") as session:
        yield session


@contextlib.contextmanager
def _settings(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in {"spark.sql.debug.maxToStringFields": "100000", **conf}.items():
            try:
                stack.enter_context(set_for_now(session, {name: value}))
            except Exception as error:
                raise UsageError(f"Spark does not take --conf {name}={value}: {first_lines(error, 1)}") from error
        yield


def _empty_sources(spark: SparkSession, folder: Path) -> Empty:
    """Makes streaming DataFrames of a schema over one file of no bytes: a batch runs, and has no row."""
    read, json = type(spark.readStream).schema, type(spark.readStream).json
    folders: dict[str, str] = {}

    def empty(schema: Any, name: str = "") -> DataFrame:
        # The plan shows the folder's name, by which sources of one schema are told apart.
        plain = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
        if folders.setdefault(plain, name) != name:
            plain += f"-{xxhash.xxh32_hexdigest(name.encode())}"
        source = folder / f"{SOURCE}{plain}"
        source.mkdir(exist_ok=True)
        (source / "empty.json").touch()
        try:
            return json(read(spark.readStream, schema), str(source))
        except Exception as error:
            raise UsageError(f"the schema {schema!r} is none: {first_lines(error, 1)}") from error

    return empty


def _load(name: str) -> Build:
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # its author's code runs here
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            hint = "; it is looked for among what is installed, and in the current folder"
        raise UsageError(f"{name} cannot be loaded: {type(error).__name__}: {error}{hint}") from error
    if not callable(found):
        raise UsageError(f"{name} is {type(found).__name__}, and no function")
    loaded: Build = found
    return loaded


def _call(build: Build, spark: SparkSession, schemas: Mapping[str, str], empty: Empty) -> Any:
    name = getattr(build, "__qualname__", str(build))
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) not in (1, 2):
        raise UsageError(f"{name} takes {len(required)} arguments: build(df) or build(spark, sources) is wanted")
    if not schemas:
        raise UsageError(
            f"{name} needs the schema of its source: --schema FILE, or --schema NAME=FILE for each of several"
        )
    sources = {source: empty(schema, source) for source, schema in schemas.items()}
    if len(required) == 1 and len(sources) != 1:
        raise UsageError(f"{name} takes one DataFrame, and {len(sources)} schemas were given: {', '.join(sources)}")
    try:
        return build(*sources.values()) if len(required) == 1 else build(spark, sources)
    except TtlsnapError:
        raise
    except Exception as error:
        where = _last_place(error)
        raise UsageError(f"{name} raised {type(error).__name__}{where}: {first_lines(error)}") from error


def _last_place(error: BaseException) -> str:
    """Where in the user's code an error came from."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((str(Path(__file__).parent), "<")) and "site-packages" not in file:
            place = f" at {Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _run(script: str, arguments: Sequence[str]) -> None:
    if not Path(script).is_file():
        raise UsageError(f"there is no script {script}")
    saved, path = sys.argv, list(sys.path)
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
        raise UsageError(f"{script} raised {type(error).__name__}{_last_place(error)}: {first_lines(error)}") from error
    finally:
        sys.argv, sys.path[:] = saved, path


def _streaming(found: Any, output_mode: str | None) -> tuple[DataFrame, str | None]:
    """The streaming DataFrame that a function gave, and its output mode."""
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

    if isinstance(found, DataStreamWriter):
        mode = getattr(found, "_ttlsnap_output_mode", None)
        if output_mode and mode and output_mode != mode:
            raise UsageError(f"--output-mode is {output_mode}, and the query's own {mode}")
        found, output_mode = found._df, output_mode or mode
    if not isinstance(found, DataFrame):
        raise UsageError(
            f"the function returned {type(found).__name__}: a streaming DataFrame, or its writeStream, is wanted"
        )
    if not found.isStreaming:
        raise UsageError("the function returned a DataFrame that does not stream; build it from what it was given")
    return found, output_mode


def _contract(spark: SparkSession, query: Started, recording: Recording, folder: Path) -> Contract:
    """Run the query once into a checkpoint of its own, and read that."""
    plan = query.frame._jdf.queryExecution().analyzed()
    planned = stateful_operators(plan)
    mode = query.output_mode or "append"
    wanted = spark.conf.get(PARTITIONS)
    few = wanted if wanted == "1" else _FEW
    checkpoint = folder / "checkpoint"
    with _settings(spark, {PARTITIONS: few}):
        _run_once(query.frame, mode, checkpoint, any(_UNENDING.search(name) for p in planned for name in p.names))
    try:
        found = contract_of_checkpoint(str(checkpoint))
    except NotACheckpointError as error:
        raise UsageError("the query keeps no state, so there is nothing that could fail to restore") from error
    operators = _operators(found.operators, planned, recording, few, int(str(wanted)))
    return replace(
        found,
        made_from="query",
        spark=spark.version,
        planned_by=spark.version,
        output_mode=mode.lower(),
        conf={**found.conf, PARTITIONS: str(wanted), **_unchecked(spark), **_time_zone(spark, operators)},
        operators=operators,
        reads=tuple(sources(plan)),
    )


def _cause(error: Exception) -> str:
    """Why a query ended, without what Spark says of it in every case."""
    text = first_lines(error, 60).partition("=== Streaming Query ===")[0].strip()
    text = re.sub(r"^\[STREAM_FAILED\] .*? terminated with exception: ", "", text)
    hint = "\nGive the settings of production by --conf" if "NOT_SUPPORTED" in text else ""
    return text + hint


def _unchecked(spark: SparkSession) -> dict[str, str]:
    """That Spark shall not compare schemas, which it does not pin, but which decides what it refuses."""
    value = str(spark.conf.get(SCHEMA_CHECK, "true")).lower()
    return {} if value == "true" else {SCHEMA_CHECK: value}


def _time_zone(spark: SparkSession, operators: Sequence[OperatorContract]) -> dict[str, str]:
    """The session's time zone, if the state may depend on it: by a cast to a date or a time, or, where there are times
    to begin with, to a text, or in a Python function."""
    lines = [line for operator in operators for line in operator.plan or ()]
    timed = any(line.partition("from ")[1] and re.search(r"\b(?:timestamp|date)\b", line) for line in lines)
    of_times = any(operator.functions for operator in operators) or any(map(ZONED_OF_TIMES.search, lines))
    zoned = any(map(ZONED.search, lines)) or (timed and of_times)
    return {TIME_ZONE: str(spark.conf.get(TIME_ZONE))} if zoned else {}


def _run_once(frame: DataFrame, mode: str, checkpoint: Path, once: bool) -> None:
    # With a TTL or a timeout in processing time a query has always more to do, and never ends under availableNow.
    trigger: dict[str, Any] = {"once": True} if once else {"availableNow": True}
    try:
        writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(**trigger).start()
    except Exception as error:
        hint = "" if "utput mode" not in str(error) else "\nIs --output-mode right?"
        raise UsageError(f"Spark refuses the query: {first_lines(error)}{hint}") from error
    try:
        ended = query.awaitTermination(_TIMEOUT_S)
    except Exception as error:
        raise UsageError(f"Spark cannot run the query, even without data: {_cause(error)}") from error
    if not ended:
        query.stop()
        raise UsageError(f"the query did not end within {_TIMEOUT_S} seconds, although it has no data")


def _operators(
    found: Sequence[OperatorContract],
    planned: Sequence[PlannedOperator],
    recording: Recording,
    few: str,
    partitions: int,
) -> tuple[OperatorContract, ...]:
    """The operators with what their plan and their functions say, where it is certain which is which."""
    fits = len(found) == len(planned) and all(o.name in p.names for o, p in zip(found, planned, strict=True))
    functions = _functions(planned, recording)
    result = []
    for number, operator in enumerate(found):
        operator = replace(operator, partitions=partitions if operator.partitions == int(few) else operator.partitions)
        if fits:
            operator = replace(operator, plan=planned[number].lines, functions=functions[number][0])
            operator = replace(operator, stores=tuple(_with_ttls(s, functions[number][1]) for s in operator.stores))
        result.append(operator)
    return tuple(result)


def _with_ttls(store: StoreContract, ttls: Ttls) -> StoreContract:
    if store.states is None:
        return store
    return replace(store, states=tuple(replace(state, ttl_ms=ttls.get(state.name)) for state in store.states))


def _functions(planned: Sequence[PlannedOperator], recording: Recording) -> list[tuple[Digests, Ttls]]:
    """The functions of each operator, and the TTLs of its variables, by the names that the plan has for them."""
    stateful = {tag(number): one for number, one in enumerate(recording.stateful)}
    found: list[tuple[Digests, Ttls]] = []
    for operator in planned:
        text = "\n".join(operator.lines)
        functions = {n: parts for n, parts in recording.others.items() if f"{n}(" in text or f" {n} of " in text}
        one = stateful.get(operator.function or "")
        found.append(({one.name: one.digests, **functions}, one.ttls) if one else (functions, {}))
    return found
