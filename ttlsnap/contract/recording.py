"""A recording of what the user's code gives to Spark while it builds a query: functions, output modes, started queries.

PySpark's methods are wrapped while the code runs, and restored afterwards. They still do what they did, except in
``intercept_queries``: there each source is empty, and a query is recorded instead of started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ttlsnap.contract.declared import read_declaration
from ttlsnap.contract.functions import digests, name_of
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
_HEADERS = "headers array<struct<key: string, value: binary>>"
_FIXED = {
    "rate": "timestamp timestamp, value bigint",
    "rate-micro-batch": "timestamp timestamp, value bigint",
    "socket": "value string",
    "text": "value string",
}
_FILES = ("json", "csv", "parquet", "orc", "text", "xml")


Empty = Callable[..., Any]
"""``empty(schema, name, source_name)``, which returns a streaming DataFrame with this schema and without rows."""


@dataclass
class Started:
    """A query that a script started: its DataFrame, its output mode and its name."""

    frame: DataFrame
    output_mode: str | None
    name: str | None


@dataclass(frozen=True)
class StatefulFunction:
    """A function or a processor of a stateful operator, and the TTLs of its state variables in milliseconds."""

    name: str
    digests: dict[str, str]
    ttls: dict[str, int | None]


@dataclass
class Recording:
    """The functions that Spark received, and the queries that a script ``started``.

    ``stateful`` has the functions of stateful operators. Plans call each by the ``tag`` of its index here. ``others``
    has the digests of all other functions by their names in plans.
    """

    stateful: list[StatefulFunction] = field(default_factory=list)
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)

    def note_other(self, name: str, subject: Any) -> str:
        """Record a function that has a name, and return its name in plans.

        If several different functions have the name, the later ones get a number.
        """
        function_digests, number = digests(subject), 1
        while self.others.get(_number(name, number), function_digests) != function_digests:
            number += 1
        self.others[_number(name, number)] = function_digests
        return _number(name, number)

    def note(self, subject: Any) -> str:
        """Record the function of a stateful operator, and return its tag."""
        declaration = read_declaration(subject)
        self.stateful.append(
            StatefulFunction(name_of(subject), digests(subject, declaration), declaration.ttls if declaration else {})
        )
        return tag(len(self.stateful) - 1)


def tag(number: int) -> str:
    """Return the name that plans use for the stateful operators' function with this number."""
    return f"ttlsnap_{number}"


def _number(name: str, number: int) -> str:
    return name if number == 1 else f"{name}~{number}"


@contextlib.contextmanager
def record_functions() -> Iterator[Recording]:
    """Record the functions that Spark receives within the block."""
    from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
    from pyspark.sql.streaming import DataStreamWriter
    from pyspark.sql.udf import UDFRegistration, UserDefinedFunction
    from pyspark.sql.udtf import UDTFRegistration, UserDefinedTableFunction

    recording = Recording()
    tags: list[str] = []

    def note_stateful(method: Callable[..., Any], argument: str) -> Callable[..., Any]:
        @wraps(method)
        def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
            tags.append(recording.note(args[0] if args else kwargs.get(argument)))
            try:
                return method(self, *args, **kwargs)
            finally:
                tags.pop()

        return noting

    def note_called(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
            # PySpark wraps the function of a stateful operator, and calls the wrapper itself.
            name = tags[-1] if tags else recording.note_other(self._name, self.func)
            # Spark's own object contains the name, and PySpark creates it only once.
            with patch.multiple(self, _name=name, _judf_placeholder=None):
                return method(self, *args, **kwargs)

        return noting

    def note_registered(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def noting(self: Any, name: str, f: Any, *args: Any, **kwargs: Any) -> Any:
            recording.note_other(name, getattr(f, "func", f))
            return method(self, name, f, *args, **kwargs)

        return noting

    def note_mode(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def noting(self: Any, mode: str) -> Any:
            self._ttlsnap_output_mode = mode
            return method(self, mode)

        return noting

    with contextlib.ExitStack() as stack:

        def wrap(owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, wrapped(getattr(owner, name))))

        for name, argument in (
            ("applyInPandasWithState", "func"),
            ("transformWithState", "statefulProcessor"),
            ("transformWithStateInPandas", "statefulProcessor"),
        ):
            wrap(PandasGroupedOpsMixin, name, partial(note_stateful, argument=argument))
        wrap(UserDefinedFunction, "__call__", note_called)
        wrap(UserDefinedTableFunction, "__call__", note_called)
        wrap(UDFRegistration, "register", note_registered)
        wrap(UDTFRegistration, "register", note_registered)
        wrap(DataStreamWriter, "outputMode", note_mode)
        yield recording


@contextlib.contextmanager
def intercept_queries(recording: Recording, schemas: Mapping[str, str], empty: Empty) -> Iterator[None]:
    """Replace each source of a script by ``empty(schema, name, source_name)``, and record the queries that it starts.

    ``schemas`` maps a path, table or format to the schema of a source.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQueryManager

    names: dict[str, str] = {}

    def find_given(*keys: str | None) -> str | None:
        """Return the schema that the user gave for a source, by any of its names; None if there is none."""
        return next((schemas[key] for key in keys if key is not None and key in schemas), schemas.get(""))

    def source(
        self: Any, path: str | None = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> Any:
        kind = (format or getattr(self, "_ttlsnap_format", None) or "parquet").lower()
        source_schema = schema or getattr(self, "_ttlsnap_schema", None) or find_given(path, kind)
        noted_options = {
            **getattr(self, "_ttlsnap_options", {}),
            **{key.lower(): value for key, value in options.items()},
        }
        if source_schema is None and kind == "kafka":
            source_schema = (
                f"{_KAFKA}, {_HEADERS}" if str(noted_options.get("includeheaders", "")).lower() == "true" else _KAFKA
            )
        source_schema = source_schema or _FIXED.get(kind)
        if source_schema is None:
            names = f"{path}=FILE or --schema {kind}" if path else kind
            raise UsageError(
                f"the script reads a {kind} source, whose schema depends on its data; describe it with --schema "
                f"{names}=FILE"
            )
        topics = next(
            (
                str(noted_options[option_name])
                for option_name in ("subscribe", "subscribepattern", "assign")
                if option_name in noted_options
            ),
            None,
        )
        source_name = getattr(self, "_ttlsnap_source_name", None)
        return empty(source_schema, name_of_source(topics or path or kind), source_name)

    def name_of_source(location: str) -> str:
        """Return the end of a path, or the whole path if another path has the same end."""
        end = location.rstrip("/").rpartition("/")[2]
        locations_with_end = [other_location for other_location, name in names.items() if name == end]
        return names.setdefault(
            location, location if locations_with_end and location not in locations_with_end else end
        )

    def table(self: Any, name: str) -> Any:
        source_schema = find_given(name, name.rpartition(".")[2])
        if source_schema is None:
            raise UsageError(f"the script reads the table {name}; describe its schema with --schema {name}=FILE")
        return empty(source_schema, name, getattr(self, "_ttlsnap_source_name", None))

    def start(
        self: Any, *args: Any, queryName: str | None = None, outputMode: str | None = None, **start_options: Any
    ) -> Any:
        mode = outputMode or getattr(self, "_ttlsnap_output_mode", None)
        recording.started.append(Started(self._df, mode, queryName or getattr(self, "_ttlsnap_name", None)))
        return _NotRunning()

    def file_source(kind: str) -> Callable[..., Any]:
        def read(self: Any, path: str, schema: Any = None, **options: Any) -> Any:
            return source(self, path, kind, schema, **options)

        return read

    do_nothing = lambda *args, **kwargs: None  # noqa: E731
    replaced: list[tuple[Any, str, Any]] = [
        (DataStreamReader, "name", _note_source_name),
        (DataStreamReader, "format", _note_format),
        (DataStreamReader, "schema", _note_schema),
        (DataStreamReader, "option", _note_option),
        (DataStreamReader, "options", _note_options),
        (DataStreamReader, "load", source),
        (DataStreamReader, "table", table),
        *((DataStreamReader, kind, file_source(kind)) for kind in _FILES),
        (DataStreamWriter, "start", start),
        (DataStreamWriter, "toTable", start),
        (DataStreamWriter, "queryName", _note_name(DataStreamWriter.queryName)),
        (StreamingQueryManager, "awaitAnyTermination", do_nothing),
        (SparkSession, "stop", do_nothing),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, new in replaced:
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, new))
        yield


def _note_source_name(self: Any, source_name: str) -> Any:
    self._ttlsnap_source_name = source_name
    return self


def _note_format(self: Any, source: str) -> Any:
    self._ttlsnap_format = source.lower()
    return self


def _note_schema(self: Any, schema: Any) -> Any:
    self._ttlsnap_schema = schema
    return self


def _note_option(self: Any, key: str, value: Any) -> Any:
    self.__dict__.setdefault("_ttlsnap_options", {})[key.lower()] = value
    return self


def _note_options(self: Any, **options: Any) -> Any:
    for key, value in options.items():
        _note_option(self, key, value)
    return self


def _note_name(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def noting(self: Any, name: str) -> Any:
        self._ttlsnap_name = name
        return method(self, name)

    return noting


class _NotRunning:
    """The query that a script gets instead of a started one. It has already ended."""

    id = runId = "00000000-0000-0000-0000-000000000000"
    name = None
    isActive = False
    lastProgress = None
    recentProgress = ()
    status = MappingProxyType({"message": "not started", "isDataAvailable": False, "isTriggerActive": False})

    def awaitTermination(self, timeout: float | None = None) -> bool:
        return True

    def stop(self) -> None:
        return None

    processAllAvailable = stop

    def exception(self) -> None:
        return None

    def explain(self, extended: bool = False) -> None:
        return None
