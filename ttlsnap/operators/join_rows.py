"""The rows of one side of a stream-stream join in one partition, with their indexes and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ttlsnap.amounts import quantity
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, TransformerError
from ttlsnap.operators.join import IndexedSide, TimedSide
from ttlsnap.operators.links import Decisions, Fetch, Keys, LinkDecisions, StateId, concat, encode_keys, show_key
from ttlsnap.quoting import quote
from ttlsnap.schema.fields import find_field
from ttlsnap.schema.types import LongType, StructType
from ttlsnap.unsaferow.decode import decode_words
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.project import side_by_side, without_last_field
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows, read_words


class IndexedRows:
    """See ``LinkWork``."""

    def __init__(self, side: IndexedSide, where: str) -> None:
        self._side, self._where = side, where
        self._key_types = [field.type for field in side.values.key_schema.fields]
        self._value_keys: list[pa.LargeBinaryArray] = []
        self._count_keys: list[pa.LargeBinaryArray] = []
        self._indexes: list[Int64s] = []
        self._counts: list[Int64s] = []
        self._has_matched: list[Mask] = []

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        if place == self._side.counts.place:
            self._count_keys.append(keys.to_arrow())
            self._counts.append(read_words(values, 1, 0)[0])
            return
        last_ordinal = len(self._key_types) - 1
        self._indexes.append(read_words(keys, last_ordinal + 1, last_ordinal)[0])
        self._value_keys.append(without_last_field(keys, self._key_types).to_arrow())
        if self._side.has_matched:
            fields = len(self._side.values.value_schema.fields)
            self._has_matched.append(read_words(values, fields, fields - 1)[0] != 0)

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        side = self._side
        index, counts = concat(self._indexes), concat(self._counts)
        codes = encode_keys([*self._value_keys, *self._count_keys])
        of_value, of_count = codes[: len(index)], codes[len(index) :]
        rows = np.bincount(of_value, minlength=int(codes.max(initial=-1)) + 1)
        self._check(index, counts, of_value, of_count, rows)
        decision = decision_of_state.get(side.values.place)
        if decision is None or not decision.changes:
            return LinkDecisions({side.counts.place: Decisions.keep(len(counts))})
        rows_left = np.bincount(of_value[decision.kept], minlength=len(rows))
        # Spark finds the rows of a key by counting from 0 to the stored number, so no number may be missing.
        is_filled = index < rows_left[of_value]
        first_slots = np.cumsum(rows) - rows
        slot = first_slots[of_value] + index
        is_gap, is_mover = is_filled & ~decision.kept, decision.kept & ~is_filled
        # A key has as many moving rows as gaps, so both can be paired in the order of keys.
        gap_at = np.flatnonzero(is_gap)
        gap_at = gap_at[np.argsort(slot[gap_at])]
        mover_at = np.flatnonzero(is_mover)
        mover_at = mover_at[np.argsort(slot[mover_at])]
        source = np.arange(len(index))
        source[gap_at] = mover_at
        is_written = (is_gap | decision.rewritten) & is_filled
        values = _values(source[is_written], decision, lambda mask: fetch(side.values.place, mask))
        of_counts = rows_left[of_count]
        is_changed = (of_counts > 0) & (of_counts != counts)
        # Format 1 has no flag, and Spark runs only inner joins with it.
        unmatched = ~decision.kept & ~np.concatenate(self._has_matched) if side.has_matched else np.zeros(0, np.bool_)
        return LinkDecisions(
            {
                side.values.place: Decisions(is_filled, is_written, values, sources=source),
                side.counts.place: Decisions(of_counts > 0, is_changed, long_rows(of_counts[is_changed])),
            },
            int(unmatched.sum()),
        )

    def _check(self, index: Int64s, counts: Int64s, of_value: Int64s, of_count: Int64s, rows: Int64s) -> None:
        """Raise CorruptionError unless every key has the indexes 0 to n - 1, and the count n."""
        is_wrong = (index < 0) | (index >= rows[of_value])
        if not is_wrong.any():
            slot = (np.cumsum(rows) - rows)[of_value] + index
            is_wrong = np.bincount(slot, minlength=len(index))[slot] > 1
        if is_wrong.any():
            number = int(np.flatnonzero(is_wrong)[0])
            self._fail(
                self._value_keys,
                number,
                f"its rows are not numbered 0 to {rows[of_value[number]] - 1} (see {index[number]})",
            )
        times = np.bincount(of_count, minlength=len(rows))
        is_wrong = (times[of_count] != 1) | (counts != rows[of_count])
        if is_wrong.any():
            number = int(np.flatnonzero(is_wrong)[0])
            self._fail(
                self._count_keys,
                number,
                f"the count says {quantity(counts[number], 'row')}, but there are {rows[of_count[number]]}",
            )
        is_uncounted = times[of_value] == 0
        if is_uncounted.any():
            self._fail(self._value_keys, int(np.flatnonzero(is_uncounted)[0]), "its rows have no count")

    def _fail(self, keys: list[pa.LargeBinaryArray], number: int, problem: str) -> None:
        raise _misfit(self._where, self._side.values, show_key(keys, number, self._side.counts.key_schema), problem)


def _misfit(where: str, values: StateDescriptor, key: Any, problem: str) -> CorruptionError:
    return CorruptionError(
        f"{where}: the stores of the join's {values.side} side do not match: key "
        + quote(key)
        + f": {problem}. Nothing was changed. Go back to an older batch, or to a copy"
    )


def _values(source: Int64s, decision: Decisions, fetch: Callable[[Mask], Rows]) -> Rows:
    """Return the rows of the entries ``source`` after the transformers, in that order."""
    is_new = decision.rewritten[source]
    number = np.cumsum(decision.rewritten) - 1
    is_fetched = np.zeros(len(decision.kept), np.bool_)
    is_fetched[source[~is_new]] = True
    old_values = fetch(is_fetched) if is_fetched.any() else Rows.none()
    place = np.cumsum(is_fetched) - 1
    pool = Rows.concat([old_values, decision.values])
    return pool.take(np.where(is_new, len(old_values) + number[source], place[source]))


def keys_with_times(state: StateDescriptor, keys: Rows, values: Rows, schema: StructType) -> Rows:
    """Return the keys of rows with their times in place of their numbers, as format 4 has them.

    ``state`` has the numbers, and ``schema`` is that of ``values``, which may have the flag that the state lacks.
    """
    types = [column.type for column in state.key_schema.fields]
    moments = long_rows(times_of_rows(state, values, schema))
    return side_by_side(without_last_field(keys, types), moments, types[:-1], [LongType()])


def times_of_rows(state: StateDescriptor, values: Rows, schema: StructType) -> Int64s:
    """Return the times of a join's rows in microseconds, int64[n]; see ``keys_with_times``."""
    field = find_field(state.stored_timestamp or "", state.key_schema, state.value_schema)
    assert field is not None and field.side == "value"
    times, nulls = decode_words(values, schema, field.path)
    # Spark reads the word of a null, which is 0, as its time (SymmetricHashJoinStateManagerV4).
    return np.where(nulls, 0, times)


class TimedRows:
    """See ``LinkWork``. The rows of a key and a time are a list, and the index has as many entries for it."""

    def __init__(self, side: TimedSide, where: str) -> None:
        self._side, self._where = side, where
        self._keys = Keys(side.places)
        self._has_matched: list[Mask] = []
        self._times: list[Int64s] = []

    def look(self, place: StateId, keys: Rows, values: Rows) -> None:
        """See ``LinkWork.look``."""
        self._keys.add(place, keys)
        if place == self._side.values.place:
            fields = len(self._side.values.value_schema.fields)
            self._has_matched.append(read_words(values, fields, fields - 1)[0] != 0)
            fields = len(self._side.values.key_schema.fields)
            self._times.append(read_words(keys, fields, fields - 1)[0])

    def resolve(self, decision_of_state: Mapping[StateId, Decisions], fetch: Fetch) -> LinkDecisions:
        """See ``LinkWork.resolve``."""
        values, times = self._side.values, self._side.times
        codes, count = self._keys.codes()
        of_value, of_time = codes[values.place], codes[times.place]
        rows, index_entries = np.bincount(of_value, minlength=count), np.bincount(of_time, minlength=count)
        for place, key_codes in codes.items():
            is_wrong = (rows != index_entries)[key_codes]
            if is_wrong.any():
                number = int(np.flatnonzero(is_wrong)[0])
                index_text = quantity(index_entries[key_codes[number]], "entry", "entries")
                problem = f"the index has {index_text} for {quantity(rows[key_codes[number]], 'row')}"
                raise _misfit(self._where, values, self._keys.show(place, number, values.key_schema), problem)
        decision = decision_of_state.get(values.place)
        if decision is None or not decision.changes:
            return LinkDecisions({times.place: Decisions.keep(len(of_time))})
        self._require_times(decision)
        rows_left = np.bincount(of_value[decision.kept], minlength=count)
        # The index entries of one key are adjacent and identical, so any of them may be dropped.
        first_of_time = np.flatnonzero(np.append(True, of_time[1:] != of_time[:-1]))
        rank = np.arange(len(of_time)) - np.repeat(first_of_time, np.diff(np.append(first_of_time, len(of_time))))
        unmatched = ~decision.kept & ~np.concatenate(self._has_matched)
        return LinkDecisions({times.place: Decisions.drop(rank >= rows_left[of_time])}, int(unmatched.sum()))

    def _require_times(self, decision: Decisions) -> None:
        """Raise TransformerError if a new row has another time than its key."""
        state = self._side.values
        field = find_field(state.stored_timestamp or "", state.key_schema, state.value_schema)
        if field is None or len(field.path) > 1 or not decision.rewritten.any():
            return
        new_times, nulls = read_words(decision.values, len(state.value_schema.fields), field.path[0])
        new_times = np.where(nulls, 0, new_times)  # Spark uses this time for a null
        if (new_times != concat(self._times)[decision.rewritten]).any():
            raise TransformerError(
                f"{state}: a transformer changed {field.name}, which is also part of the join's keys or index. Rows "
                "can be dropped, and other fields rewritten, but not this one"
            )
