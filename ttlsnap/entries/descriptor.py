"""The description of a state: the facts that accompany every batch of entries, and every line of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from ttlsnap.naming import name_state
from ttlsnap.schema.fields import Field, find_field
from ttlsnap.schema.types import StructType

if TYPE_CHECKING:
    from ttlsnap.avro.unsaferows import AvroRows
    from ttlsnap.checkpoint import Operator, Store
    from ttlsnap.checkpoint.state_schema import ColumnFamilySchema

SIDES = ("left", "right")
"""Those of a join."""


@dataclass(frozen=True)
class StateDescriptor:
    """Describe the state that a batch of entries belongs to.

    operator_name     None if the checkpoint does not record it (Spark before 4.0)
    partition         None while a run is planned
    stored_timestamp  the field in which Spark stores when an entry may be dropped; None if Spark stores none
    stored_time       the clock that this field is on; None if the checkpoint does not record it
    unrecorded_times  event times by which Spark may evict, although the schema records no watermark: it was added later
    expires           False if this time is not an expiry time, but one to which a TTL can be added
    written_plus_ttl  whether it is the time of writing plus a duration
    timeout           the field with the timeout of a group; -1 means that a group has none
    without_time      the operator's own advice, if Spark stores no timestamp
    emits_on_close    whether the operator may emit an entry when Spark closes it
    side              of a join: ``left`` or ``right``
    prefix_columns    how many columns of the key RocksDB stores apart from the others, for scans in order
    ordered_prefix    whether that prefix is one number whose bytes have the order of the numbers
    key_time          if RocksDB stores the key's last column, a time, ``before`` or ``after`` the others
    lists             whether several entries have one key
    written_once      whether Spark never writes a key again while the state has it
    grouping          where in the key the columns by which the query groups are: () for the key itself, (0,) for the
                      struct that is its first column, and so on
    grouping_without_last  whether the last of the columns there is not one of them
    hashes_days       whether Spark's hash of a calendar interval has its days (from 4.3 on)
    kind              ``value``, ``list``, ``map``, ``timer``, ``row`` (of a join), ``index`` or ``count``
    avro              how to read Avro, if the rows are not UnsafeRows
    opaque            why ttlsnap cannot read the entries as rows; it then copies them
    unused            whether the query has no state variable for the entries: it is one that an earlier query had
    """

    operator: int
    operator_name: str | None
    store: str
    state: str
    partition: int | None
    key_schema: StructType
    value_schema: StructType
    role: Literal["primary", "derived"] = "primary"
    stored_timestamp: str | None = None
    stored_time: Literal["event", "processing"] | None = None
    unrecorded_times: tuple[str, ...] = ()
    expires: bool = True
    written_plus_ttl: bool = False
    timeout: str | None = None
    without_time: str | None = None
    emits_on_close: bool = False
    side: str | None = None
    prefix_columns: int = 0
    ordered_prefix: bool = False
    key_time: Literal["before", "after"] | None = None
    lists: bool = False
    written_once: bool = False
    grouping: tuple[int, ...] = ()
    grouping_without_last: bool = False
    hashes_days: bool = False
    kind: str = "value"
    avro: AvroRows | None = None
    opaque: str | None = None
    unused: bool = False

    @classmethod
    def of(cls, operator: Operator, store: Store, family: ColumnFamilySchema, **facts: Any) -> StateDescriptor:
        """Return the state in a column family, with the ``facts`` of its operator's module."""
        return cls(
            operator=operator.id,
            operator_name=operator.name,
            store=store.name,
            state=family.name,
            partition=None,
            key_schema=family.key,
            value_schema=family.value,
            **facts,
        )

    @property
    def place(self) -> tuple[str, str]:
        """The names of the store and of the column family."""
        return self.store, self.state

    @property
    def name(self) -> str:
        """The name of the state in tables and reports, which ``--state`` takes: ``0.default.last``."""
        return name_state(self.operator, self.store, self.state)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that ``--state`` takes: also ``last``, ``default.last``, and the table that ``export`` makes."""
        return self.state, f"{self.store}.{self.state}", self.name, self.table

    @property
    def table(self) -> str:
        """The name of the state's table: ``0.left`` for a side of a join, ``0.visits`` for a variable, ``0.state``.

        It is safe as the name of a folder, whatever characters the names in the checkpoint have.
        """
        names = [name for name in (self.store, self.state) if name != "default"]
        if self.kind == "row":
            names = [str(self.side)]
        elif self.kind == "timer":
            names = [self.state.lstrip("$").partition("_")[0]]
        return ".".join([str(self.operator), *(quote(name, safe=" $") for name in names or ["state"])])

    def __str__(self) -> str:
        place = f"operator {self.operator}"
        if self.operator_name:
            place += f" ({self.operator_name})"
        if self.store != "default":
            place += f", store {self.store}"
        if self.state != "default":
            place += f", state {self.state}"
        return place if self.partition is None else f"{place}, partition {self.partition}"

    def field(self, name: str) -> Field | None:
        """Return the field with the name that ``inspect`` prints; None if this state does not have it."""
        return find_field(name, self.key_schema, self.value_schema)


def derived_among(states: Mapping[tuple[str, str], StateDescriptor]) -> dict[tuple[str, str], StateDescriptor]:
    """Return those of the states, by their places, that are derived from others."""
    return {place: state for place, state in states.items() if state.role == "derived"}
