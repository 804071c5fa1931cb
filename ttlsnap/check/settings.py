"""What is set for the query as a whole: what the checkpoint pins, what it does not, and the version of Spark."""

from __future__ import annotations

import re

from ttlsnap.check.collecting import Comparison
from ttlsnap.check.findings import Place, Verdict
from ttlsnap.check.rules import IGNORED, SILENT
from ttlsnap.contract import Contract
from ttlsnap.contract.model import PARTITIONS

_QUERY = Place()
_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = f"{_STORE}.providerClass"
_CHECKPOINT_FORMAT = f"{_STORE}.checkpointFormatVersion"
_NOTED = {
    f"{_STORE}.compression.codec",
    f"{_STORE}.encodingFormat",
    f"{_STORE}.rowChecksum.enabled",
    f"{_STORE}.rocksdb.formatVersion",
    f"{_STORE}.rocksdb.mergeOperatorVersion",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
}
LAYOUTS = (
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
)
"""Settings by which the same state is laid out in another way."""

_ROWS_WITH_CHECKSUMS = (4, 2)
_TRANSFORM = "transformWithState"


def compare_settings(both: Comparison) -> None:
    """All that is of no single operator."""
    _pinned(both)
    _not_pinned(both)
    _output_mode(both)
    _spark(both)


def _pinned(both: Comparison) -> None:
    old, new = both.old.conf, both.new.conf
    for name in sorted(old.keys() & new.keys()):
        if old[name] == new[name]:
            continue
        code = {_PROVIDER: "provider-ignored", PARTITIONS: "partitions-ignored"}.get(name)
        if code is None and name not in _NOTED:
            continue
        more = ""
        if name == PARTITIONS:
            more = ", or repartition the state with Spark's own tool (4.2 on, RocksDB), or begin a new checkpoint"
        elif name == _PROVIDER:
            more = ", or begin a new checkpoint"
        both.add(
            code or "setting-ignored",
            Verdict.RECONFIGURATION,
            _QUERY,
            f"{name}={old[name]}",
            f"{name}={new[name]}",
            f"{name} is {new[name]}, and the checkpoint pins {old[name]}: the new value has no effect on this state",
            IGNORED,
            f"set {name}={old[name]}{more}",
        )


def _not_pinned(both: Comparison) -> None:
    old, new = both.old, both.new
    if old.checkpoint_format != new.checkpoint_format:
        both.add(
            "checkpoint-format",
            Verdict.RECONFIGURATION,
            _QUERY,
            old.checkpoint_format,
            new.checkpoint_format,
            f"{_CHECKPOINT_FORMAT} is {new.checkpoint_format}, and the checkpoint is of format {old.checkpoint_format}",
            "fails in the first batch",
            f"set {_CHECKPOINT_FORMAT}={old.checkpoint_format}",
        )
    if old.offset_log != new.offset_log:
        both.add(
            "offset-log",
            Verdict.RECONFIGURATION,
            _QUERY,
            old.offset_log,
            new.offset_log,
            f"the offset log is of version {old.offset_log}, and the new query writes version {new.offset_log}",
            SILENT,
            "set spark.sql.streaming.queryEvolution.enableSourceEvolution as it was",
        )
    if None not in (old.changelog, new.changelog) and old.changelog != new.changelog:
        on = "on" if new.changelog else "off"
        both.add(
            "changelog",
            Verdict.AS_IS,
            _QUERY,
            str(old.changelog).lower(),
            str(new.changelog).lower(),
            f"changelog checkpointing is switched {on}; what is there is read all the same",
            SILENT,
        )
    if old.sources and new.sources and old.sources != new.sources:
        both.add(
            "sources",
            Verdict.INCOMPATIBLE,
            _QUERY,
            old.sources,
            new.sources,
            f"the query had {old.sources} sources, and has {new.sources}",
            "refuses at the start: the offset log has another number of sources",
            "begin a new checkpoint, or read the new source by a query of its own",
        )


def _output_mode(both: Comparison) -> None:
    old, new = both.old, both.new
    if None in (old.output_mode, new.output_mode):
        if any(operator.output_mode is None for operator in (*old.operators, *new.operators)):
            both.not_seen("the output mode: no checkpoint records it")
        return
    if old.output_mode == new.output_mode:
        return
    watermark = any(line.startswith("watermark ") for operator in old.operators for line in operator.plan or ())
    lossy = new.output_mode == "complete" and watermark
    both.add(
        "output-mode",
        Verdict.INCOMPATIBLE if lossy else Verdict.AS_IS,
        _QUERY,
        old.output_mode,
        new.output_mode,
        f"the output mode is {new.output_mode}, and was {old.output_mode}"
        + (": groups that the watermark has closed are gone, and will not be in the complete result" if lossy else ""),
        SILENT,
        "if every group must be there, begin a new checkpoint; else ignore this finding" if lossy else "",
    )


def _spark(both: Comparison) -> None:
    old, new = both.old, both.new
    before, after = version(old.spark), version(new.spark)
    if after >= before:
        return
    reasons = list(_newer_than(old, after))
    both.add(
        "spark-downgraded",
        Verdict.INCOMPATIBLE if reasons else Verdict.AS_IS,
        _QUERY,
        old.spark,
        new.spark,
        f"Spark {new.spark} is to read what Spark {old.spark} wrote"
        + (f", and does not know {' nor '.join(reasons)}" if reasons else ""),
        "fails at the start or in the first batch" if reasons else SILENT,
        f"stay on Spark {old.spark}" if reasons else "",
    )


def _newer_than(old: Contract, after: tuple[int, int]) -> list[str]:
    """What is in the old state that came with a later version."""
    transform = [operator for operator in old.operators if _TRANSFORM in (operator.name or "")]
    lists = [s for o in transform for store in o.stores for s in store.states or () if s.kind == "list"]
    reasons = []
    if old.row_checksums and after < _ROWS_WITH_CHECKSUMS:
        reasons.append("row checksums")
    if lists and old.conf.get(f"{_STORE}.rocksdb.mergeOperatorVersion") == "2" and after < (4, 2):
        reasons.append("lists that were merged without a delimiter")
    if transform and after < (4, 0):
        reasons.append("transformWithState")
    if old.checkpoint_format > 1 and after < (4, 0):
        reasons.append(f"checkpoint format {old.checkpoint_format}")
    if old.offset_log > 1 and after < (4, 2):
        reasons.append(f"offset log version {old.offset_log}")
    return reasons


def version(text: str) -> tuple[int, int]:
    """The version, or of a range the least that it can be; 3.5 of what is only known to be before 4.0."""
    if text.startswith("<"):
        return 3, 5
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
