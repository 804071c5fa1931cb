"""Schemas as users type them: ``k STRING NOT NULL, ts TIMESTAMP, s STRUCT<a: INT, b: ARRAY<STRING>>``.

Grammar, keywords in any case::

    schema    = column {"," column}
    column    = name [":"] type ["NOT" "NULL"] ["COMMENT" text]
    name      = letters, digits and "_", or any text between back-quotes, with `` for a back-quote
    text      = '...' or "...", with backslash escapes
    type      = plain ["(" number ["," number] ")"]
              | "STRING" ["COLLATE" name]
              | ("TIMESTAMP" | "TIME") ["WITHOUT" "TIME" "ZONE"]
              | "INTERVAL" [unit ["TO" unit]]
              | "ARRAY" "<" type ">"
              | "MAP" "<" type "," type ">"
              | "STRUCT" "<" [column {"," column}] ">"

The names of plain types are those of Spark SQL with their synonyms (``int``/``integer``, ``bigint``/``long``,
``decimal``/``dec``/``numeric`` ...). A comment becomes the field's metadata ``comment``, as in Spark.
A colon between name and type is optional everywhere. Spark expects it only within ``STRUCT<>``.

Every error is a UsageError that names the position (counted from 1) and the expected text.

Source: apache/spark ``SqlBaseParser.g4`` (colTypeList, dataType) and the behaviour of Spark 4.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T

MAX_DEPTH = 64

_STORE = re.compile(r"([0-9]{1,9})\.([^=]+)=(.+)", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<name>\w+)
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<mark>[<>(),:-])""",
    re.DOTALL | re.VERBOSE,
)

_PLAIN: dict[str, T.DataType] = {
    "boolean": T.BooleanType(), "tinyint": T.ByteType(), "byte": T.ByteType(),
    "smallint": T.ShortType(), "short": T.ShortType(), "int": T.IntegerType(), "integer": T.IntegerType(),
    "bigint": T.LongType(), "long": T.LongType(), "float": T.FloatType(), "real": T.FloatType(),
    "double": T.DoubleType(), "binary": T.BinaryType(), "date": T.DateType(),
    "timestamp_ltz": T.TimestampType(), "timestamp_ntz": T.TimestampNTZType(),
    "variant": T.VariantType(), "void": T.NullType(),
}  # fmt: skip
_INTERVALS: tuple[tuple[tuple[str, ...], Callable[[str, str], T.DataType]], ...] = (
    (T.DAY_TIME_UNITS, T.DayTimeIntervalType),
    (T.YEAR_MONTH_UNITS, T.YearMonthIntervalType),
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b"}


@dataclass(frozen=True)
class _Token:
    kind: str  # name, quoted, text, mark, end
    text: str
    position: int  # from 1

    @property
    def word(self) -> str:
        """The token as a keyword in lower case; empty for a quoted name."""
        return self.text.lower() if self.kind in ("name", "mark") else ""


def parse_ddl(text: str) -> T.StructType:
    """Return the struct that a list of columns describes; raises UsageError with the position if it is malformed."""
    parser = _Parser(text)
    fields = parser.columns(0)
    if parser.here.kind != "end":
        raise parser.expected_error("',' or the end")
    return T.StructType(fields)


def parse_schemas(options: Sequence[str] | None) -> dict[tuple[int, str], tuple[T.StructType, T.StructType]]:
    """Return the key and value schemas of each store from options such as ``0.default='key-ddl | value-ddl'``.

    Raises UsageError for an option of another form.
    """
    schemas = {}
    for option in options or ():
        match = _STORE.fullmatch(option.strip())
        key, bar, value = (match[3] if match else "").partition("|")
        if match is None or not bar:
            raise UsageError(f"--schema {option!r}: write OPERATOR.STORE='key-ddl | value-ddl'")
        schemas[int(match[1]), match[2].strip()] = (parse_ddl(key.strip("' ")), parse_ddl(value.strip("' ")))
    return schemas


class _Parser:
    """Recursive-descent parser over the tokens; ``here`` is the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next_token = 0

    @property
    def here(self) -> _Token:
        return self._tokens[self._next_token]

    def expected_error(self, expectation: str) -> UsageError:
        """Return the error that ``expectation`` was expected and the next token is another."""
        token = self.here
        token_text = "the end" if token.kind == "end" else repr(token.text)
        return UsageError(
            f"schema: expected {expectation} at position {token.position}, found {token_text}: {self._text}"
        )

    def columns(self, depth: int) -> tuple[T.StructField, ...]:
        fields = [self._column(depth)]
        while self._skip(","):
            fields.append(self._column(depth))
        return tuple(fields)

    def _column(self, depth: int) -> T.StructField:
        name = self._name("a column name")
        self._skip(":")
        column_type = self._type(depth)
        nullable = True
        if self._skip("not"):
            self._must("null")
            nullable = False
        metadata = {}
        if self._skip("comment"):
            if self.here.kind != "text":
                raise self.expected_error("a quoted comment")
            metadata["comment"] = _unquote(self._advance().text)
        return T.StructField(name, column_type, nullable, metadata)

    def _type(self, depth: int) -> T.DataType:
        if depth > MAX_DEPTH:
            raise self.expected_error(f"at most {MAX_DEPTH} levels of nesting")
        type_name = self.here.word
        if not type_name.isidentifier():
            raise self.expected_error("a type")
        if type_name in _PLAIN:
            self._advance()
            return _PLAIN[type_name]
        match type_name:
            case "string":
                self._advance()
                return T.StringType(self._name("a collation")) if self._skip("collate") else T.StringType()
            case "timestamp":
                self._advance()
                return T.TimestampNTZType() if self._without_zone() else T.TimestampType()
            case "time":
                self._advance()
                # The precision of Spark's ``time`` if none is given.
                precision = 6
                if self._skip("("):
                    precision = self._number(0, 6)
                    self._must(")")
                self._without_zone()
                return T.TimeType(precision)
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "char" | "character" | "varchar":
                self._advance()
                self._must("(")
                length = self._number(1, 2**31 - 1)
                self._must(")")
                return T.VarcharType(length) if type_name == "varchar" else T.CharType(length)
            case "interval":
                return self._interval()
            case "array" | "map" | "struct":
                return self._parse_nested(type_name, depth + 1)
        raise self.expected_error("a type")

    def _parse_nested(self, type_name: str, depth: int) -> T.DataType:
        self._advance()
        self._must("<")
        nested: T.DataType
        if type_name == "array":
            nested = T.ArrayType(self._type(depth))
        elif type_name == "map":
            key = self._type(depth)
            self._must(",")
            nested = T.MapType(key, self._type(depth))
        else:
            nested = T.StructType(() if self.here.word == ">" else self.columns(depth))
        self._must(">")
        return nested

    def _decimal(self) -> T.DecimalType:
        self._advance()
        if not self._skip("("):
            return T.DecimalType()
        precision = self._number(1, T.MAX_DECIMAL_PRECISION)
        scale = self._number(0, precision) if self._skip(",") else 0
        self._must(")")
        return T.DecimalType(precision, scale)

    def _interval(self) -> T.DataType:
        self._advance()
        start = self.here.word
        for units, make in _INTERVALS:
            if start in units:
                self._advance()
                if not self._skip("to"):
                    return make(start, start)
                later_units = units[units.index(start) + 1 :]
                if self.here.word not in later_units:
                    raise self.expected_error(" or ".join(later_units) or f"no TO after {start}")
                return make(start, self._advance().word)
        return T.CalendarIntervalType()

    def _without_zone(self) -> bool:
        if not self._skip("without"):
            return False
        self._must("time")
        self._must("zone")
        return True

    def _name(self, expectation: str) -> str:
        if self.here.kind == "quoted" and len(self.here.text) > 2:
            return self._advance().text[1:-1].replace("``", "`")
        if self.here.kind != "name":
            raise self.expected_error(expectation)
        return self._advance().text

    def _number(self, smallest: int, largest: int) -> int:
        text = self.here.text
        # str.isdigit would also accept digits of other scripts.
        if not re.fullmatch("[0-9]{1,10}", text) or not smallest <= int(text) <= largest:
            raise self.expected_error(f"a number from {smallest} to {largest}")
        return int(self._advance().text)

    def _skip(self, word: str) -> bool:
        if self.here.word != word:
            return False
        self._advance()
        return True

    def _must(self, word: str) -> None:
        if not self._skip(word):
            raise self.expected_error(repr(word.upper()))

    def _advance(self) -> _Token:
        token = self.here
        self._next_token += 1
        return token


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise UsageError(
                f"schema: expected a name, a type or punctuation at position {position + 1}, "
                f"found {text[position]!r}: {text}"
            )
        tokens.append(_Token(match.lastgroup or "", match[0], position + 1))
        position = match.end()
    return [*tokens, _Token("end", "", len(text) + 1)]


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)
