"""Which state is meant: the facts that go with every batch of entries, and with every line of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ttlsnap.fields import Field, find_field
from ttlsnap.schema.types import StructType

if TYPE_CHECKING:
    from ttlsnap.avro.unsaferows import AvroRows
    from ttlsnap.checkpoint import Operator, Store
    from ttlsnap.checkpoint.state_schema import ColumnFamilySchema

SIDES = ("left", "right")
"""Those of a join."""


@dataclass(frozen=True)
class StateDescriptor:
    """Which state a batch of entries belongs to.

    ``operator_name`` is None where the checkpoint does not record it (Spark before 4.0). ``partition`` is None
    while a run is planned. ``stored_timestamp`` names the field in which Spark itself stores when an entry may
    go, and ``stored_time`` the clock it is on; both are None where Spark stores none. ``expires`` is False where that
    time is no moment of expiry, but one from which a ttl can count. ``side`` is a join's, ``left`` or ``right``.
    ``prefix_columns`` of the key are stored apart from the others, for scans in order (RocksDB); 0 where they are not.
    With ``ordered_prefix`` that is one number, in an order that bytes have too. ``key_time`` says where RocksDB keeps
    the key's last column, a time, if apart: ``before`` or ``behind`` the others. With ``lists`` several entries have
    one key. ``kind`` is what a user would call it: ``value``, ``list``, ``map``, ``timer``, ``row`` (of a join),
    ``index`` or ``count``. ``avro`` says how Avro is to be read, where it is not UnsafeRows that are stored. ``opaque``
    says why its entries are no rows that ttlsnap reads, if so: they are copied.
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
    expires: bool = True
    side: str | None = None
    prefix_columns: int = 0
    ordered_prefix: bool = False
    key_time: Literal["before", "behind"] | None = None
    lists: bool = False
    kind: str = "value"
    avro: AvroRows | None = None
    opaque: str | None = None

    @classmethod
    def of(cls, operator: Operator, store: Store, family: ColumnFamilySchema, **facts: Any) -> StateDescriptor:
        """The state in a column family, with what its operator's module knows of it."""
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
        """The names of its store and its column family."""
        return self.store, self.state

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
        """The field called ``name`` (as ``inspect`` spells it); None when this state has none."""
        return find_field(name, self.key_schema, self.value_schema)
