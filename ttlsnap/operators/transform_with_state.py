"""transformWithState, in Scala, with pandas and with rows (RocksDB only).

Each state variable is a column family, and a state of its own. An entry of a value variable without a TTL is primary:
one per grouping key, and no other family is derived from it. A list has its length in ``$rowCounter_<name>``, a
variable with a TTL its index in ``$ttl_<name>``, timers a twin family: those are copied as they are. Spark stores no
time for a value without a TTL. Source: Spark's ``StatefulProcessorHandleImpl``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ttlsnap.checkpoint.metadata import StateVariable

NAMES = ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec")
_VALUE = "ValueState"


def opaque(variables: Sequence[StateVariable], family: str, encoding: str) -> str | None:
    """Why a column family is more, or other, than one row per key; None for a value variable without a TTL."""
    variable = next((variable for variable in variables if variable.name == family), None)
    if variable is None:
        return "it is derived from other states"
    if variable.kind != _VALUE:
        return f"it is a {variable.kind}"
    if variable.ttl:
        return "it has a TTL, and with it an index"
    if encoding != "unsaferow":
        return f"it is encoded as {encoding}"
    return None
