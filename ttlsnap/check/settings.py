"""What is set for the query as a whole: what the checkpoint pins, what it does not, and the version of Spark."""

from __future__ import annotations

from ttlsnap.check.collecting import Comparison, version
from ttlsnap.check.findings import Place, Verdict
from ttlsnap.check.meanings import Plan, compare_sources
from ttlsnap.check.rules import IGNORED, SILENT
from ttlsnap.checkpoint.checkpoint import PROVIDERS
from ttlsnap.contract import Contract
from ttlsnap.contract.model import PARTITIONS, TIME_ZONE, ZONED_OF_TIMES
from ttlsnap.operators import aggregation, group_state, join, session_window

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
_JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
LAYOUTS = {
    "spark.sql.streaming.aggregation.stateFormatVersion": (aggregation.NAME, session_window.NAME),
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": group_state.NAMES,
    _JOIN_FORMAT: (join.NAME,),
}
"""Settings by which the same state is laid out in another way, and the operators that go by them."""

_PROVIDERS = {short: name for name, short in PROVIDERS.items()}
_JOIN_FORMATS = {"3": (4, 1), "4": (4, 2)}
_TRANSFORM = "transformWithState"


def compare_settings(both: Comparison) -> None:
    """All that is of no single operator."""
    _pinned(both)
    _not_pinned(both)
    _output_mode(both)
    _spark(both)


def _pinned(both: Comparison) -> None:
    old, new = (_conf(contract) for contract in (both.old, both.new))
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


def _conf(contract: Contract) -> dict[str, str]:
    """The settings that a checkpoint pins, with what the contract says besides of those that it does not name."""
    partitions = {operator.partitions for operator in contract.operators} - {1}
    seen = {
        _PROVIDER: _PROVIDERS.get(contract.provider, contract.provider),
        f"{_STORE}.compression.codec": contract.codec,
        f"{_STORE}.encodingFormat": contract.encoding,
    }
    if len(partitions) == 1:
        seen[PARTITIONS] = str(partitions.pop())
    return {**seen, **contract.conf}


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
    elif old.reads is not None and new.reads is not None:
        compare_sources(both, [both.in_new_names(text) for text in old.reads], new.reads)
    elif all(operator.plan is not None for operator in (*old.operators, *new.operators)):
        both.not_seen(
            "whether the sources are the same, in the same order: a contract of an older ttlsnap says nothing"
        )
    was, now = (contract.conf.get(TIME_ZONE) for contract in (old, new))
    if was and now and was != now:
        computed = (text for o in new.operators for text in _computed(Plan.of(o.plan or ())))
        dates = any(map(ZONED_OF_TIMES.search, computed))
        both.add(
            "time-zone",
            Verdict.INCOMPATIBLE if dates else Verdict.UNKNOWN,
            _QUERY,
            was,
            now,
            f"the session's time zone is {now}, and was {was}: "
            + ("what is a date in the state is another one" if dates else "do times differ that functions work with?"),
            f"{SILENT}: wrong results" if dates else SILENT,
            f"set {TIME_ZONE}={was}"
            + ("" if dates else "; if nothing in the state depends on it, ignore this finding"),
        )


def _computed(plan: Plan) -> tuple[str, ...]:
    """What goes into the state as it was computed."""
    return (*plan.keys, *plan.aggregates, *plan.columns.values())


def _output_mode(both: Comparison) -> None:
    old, new = both.old, both.new
    if None in (old.output_mode, new.output_mode):
        if any(operator.output_mode is None for operator in (*old.operators, *new.operators)):
            both.not_seen("the output mode: no checkpoint records it")
        return
    if old.output_mode == new.output_mode:
        return
    watermark = any(Plan.of(operator.plan or ()).watermarks for operator in old.operators)
    # Without a plan nobody knows.
    lossy = new.output_mode == "complete" and (watermark or any(operator.plan is None for operator in old.operators))
    gone = Verdict.INCOMPATIBLE if watermark else Verdict.UNKNOWN
    both.add(
        "output-mode",
        gone if lossy else Verdict.AS_IS,
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
    reasons = _newer_than(old, new, after)
    if after >= before and not reasons:
        return
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


def _newer_than(old: Contract, new: Contract, after: tuple[int, int]) -> list[str]:
    """What is in the old state that came with a later version than the new one's.

    Of a checkpoint only a range of versions is known: what is in the new one, too, its Spark knows.
    """
    exact = not new.spark.startswith(("<", ">"))
    known = {} if exact else _later_features(new)
    return [name for name, since in _later_features(old).items() if after < since and name not in known]


def _later_features(contract: Contract) -> dict[str, tuple[int, int]]:
    """What a state has that older versions of Spark do not know, and the version that it came with."""
    transform = [operator for operator in contract.operators if _TRANSFORM in (operator.name or "")]
    lists = [s for o in transform for store in o.stores for s in store.states or () if s.kind == "list"]
    joins = [operator for operator in contract.operators if operator.name == join.NAME]
    join_format = contract.conf.get(_JOIN_FORMAT, "")
    found = {}
    if contract.row_checksums:
        found["row checksums"] = (4, 2)
    if lists and contract.conf.get(f"{_STORE}.rocksdb.mergeOperatorVersion") == "2":
        found["lists that were merged without a delimiter"] = (4, 2)
    if transform:
        found["transformWithState"] = (4, 0)
    if joins and join_format in _JOIN_FORMATS:
        found[f"join state of format {join_format}"] = _JOIN_FORMATS[join_format]
    if contract.checkpoint_format > 1:
        found[f"checkpoint format {contract.checkpoint_format}"] = (4, 0)
    if contract.offset_log > 1:
        found[f"offset log version {contract.offset_log}"] = (4, 2)
    return found
