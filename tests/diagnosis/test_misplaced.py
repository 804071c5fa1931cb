"""Keys that are not in the partition where Spark looks for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ttlsnap.operators.placement import STRICT

from ..compaction.stories import MORE_WHOLE, WHOLE, rocksdb, settled
from ..judge.model import Model
from ..judge.processes import NEWEST
from ..judge.queries import ENDLESS, ONLY_ROCKSDB, OPERATORS, WITHOUT_KEYS, Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from .asked import doctor
from .misplaced import PARTITIONS, exchange

SLICE = [
    Query("agg_window_update"),
    Query("sessions"),
    Query("join"),
    Query("join", provider="rocksdb", join_format=4),
    rocksdb("alarms", changelog=True),
    rocksdb("for_a_day", changelog=True),
]
EVERYTHING = [
    *(Query(operator) for operator in OPERATORS if operator not in (*ONLY_ROCKSDB, *WITHOUT_KEYS)),
    *(rocksdb(operator, changelog=True) for operator in OPERATORS if operator not in WITHOUT_KEYS),
    Query("join", provider="rocksdb", join_format=4),
]


@pytest.mark.parametrize(
    "query", EVERYTHING if FULL else narrow(SLICE, 0, 2, 4), ids=lambda query: f"{query.operator}-{query.provider}"
)
def test_spark_puts_every_key_where_doctor_expects_it(judge: Judge, query: Query) -> None:
    layout = "both" if query.operator in ENDLESS else "snapshot"
    written = judge.write(replace(query, partitions=PARTITIONS), WHOLE, layout=layout)
    settled(written.path)
    sound = doctor(written.path)
    assert "misplaced-keys" not in sound.codes
    exchange(written.path)
    found = doctor(written.path)
    assert set(found.codes) - set(sound.codes) == {"misplaced-keys"}
    told = [each["message"] for each in found.document["problems"] if each["code"] == "misplaced-keys"]
    counts = [int(message.split(": ")[1].split(" key")[0].replace(",", "")) for message in told]
    assert sum(counts) == found.document["entries"] == sound.document["entries"] > 0


def test_spark_does_not_find_misplaced_keys(judge: Judge) -> None:
    query = Query("agg_update", partitions=PARTITIONS)
    written = judge.write(query, WHOLE)
    settled(written.path)
    exchange(written.path)
    assert doctor(written.path).code == 1
    shown, afresh = judge.restart(written, MORE_WHOLE), Model(query, NEWEST).run(MORE_WHOLE)
    assert [batch.rows for batch in shown] == [batch.rows for batch in afresh]


@pytest.mark.parametrize("strict", [True, False])
def test_partitions_of_a_querys_own_may_be_as_they_should(inputs: Judge, strict: bool) -> None:
    query = Query("agg_repartitioned", partitions=PARTITIONS, conf=((STRICT, str(strict).lower()),))
    written = inputs.write(query, WHOLE)
    settled(written.path)
    found = doctor(written.path)
    assert (found.code, found.codes) == (0, [] if strict else ["maybe-misplaced-keys"])
    if not strict:
        assert found.problem("maybe-misplaced-keys")["severity"] == "note"


@pytest.mark.parametrize("generated", [True, False])
def test_keys_are_where_generated_or_interpreted_code_puts_them(inputs: Judge, generated: bool) -> None:
    conf = (
        ()
        if generated
        else (("spark.sql.codegen.factoryMode", "NO_CODEGEN"), ("spark.sql.codegen.wholeStage", "false"))
    )
    written = inputs.write(Query("dedup_interval", partitions=PARTITIONS, conf=conf), WHOLE, layout="snapshot")
    settled(written.path)
    assert doctor(written.path).codes == []
    exchange(written.path)
    assert doctor(written.path).codes == ["misplaced-keys"]
