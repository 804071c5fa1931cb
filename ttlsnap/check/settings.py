"""Settings of the whole query, old against new: those that a checkpoint pins, others, and the version of Spark."""

from __future__ import annotations

from ttlsnap.check.comparison import Comparison, parse_version
from ttlsnap.check.inputs import compare_named_sources, compare_sources
from ttlsnap.check.outcomes import (
    CHANGE_SETTING,
    CHANGELOG,
    CHECKPOINT_FORMAT,
    GROUPS_CLOSED,
    GROUPS_MAYBE_CLOSED,
    KEEP_SETTING,
    NUMBER_OF_SOURCES,
    OFFSET_LOG,
    OLDER_SPARK,
    OUTPUT_MODE,
    PARTITIONS_PINNED,
    PROVIDER_PINNED,
    SETTING_PINNED,
    SPARK_TOO_OLD,
    TIME_ZONE_OF_DATES,
)
from ttlsnap.check.outcomes import TIME_ZONE as TIME_ZONE_CHANGED
from ttlsnap.check.query_plan import QueryPlan
from ttlsnap.check.time_zones import mean_same_zone
from ttlsnap.checkpoint.checkpoint import PROVIDERS
from ttlsnap.contract import Contract
from ttlsnap.contract.model import PARTITIONS, TIME_ZONE, ZONED_OF_TIMES
from ttlsnap.entries.place import Place
from ttlsnap.operators import aggregation, group_state, join, session_window
from ttlsnap.printable import shell_word

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
"""Settings that change the layout of the same state, and the operators that use them."""

_PROVIDERS = {short: name for name, short in PROVIDERS.items()}
_JOIN_FORMATS = {"3": (4, 1), "4": (4, 2)}
_TRANSFORM = "transformWithState"


def compare_settings(comparison: Comparison) -> None:
    """Report every difference that belongs to no single operator."""
    _compare_pinned(comparison)
    _compare_others(comparison)
    _compare_sources(comparison)
    _compare_time_zones(comparison)
    _compare_output_modes(comparison)
    _compare_versions(comparison)


def _compare_pinned(comparison: Comparison) -> None:
    old, new = (_find_pinned_settings(contract) for contract in (comparison.old, comparison.new))
    outcomes = {_PROVIDER: PROVIDER_PINNED, PARTITIONS: PARTITIONS_PINNED, **dict.fromkeys(_NOTED, SETTING_PINNED)}
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name] and name in outcomes:
            texts = (f"{name}={settings[name]}" for settings in (old, new))
            words = {"name": name, "value": new[name], "pinned": old[name]}
            option = _find_option(name, old[name], new[name])
            fix = (CHANGE_SETTING if option else KEEP_SETTING).format(**words, option=option)
            comparison.add(outcomes[name], _QUERY, *texts, **words, fix=fix)


def _find_option(name: str, pinned: str, value: str) -> str | None:
    """Return the option of ``ttlsnap migrate`` that changes the pinned value of a setting; None if none does."""
    if name == PARTITIONS:
        return f"--partitions {shell_word(value)}"
    if name == _PROVIDER:
        return f"--provider {PROVIDERS[value]}" if {pinned, value} <= PROVIDERS.keys() else None
    from ttlsnap.migration.changes import SETTINGS  # a slow import, which a check of equal settings does not need

    short = next((short for short, (spark, values) in SETTINGS.items() if spark == name and value in values), None)
    return None if short is None else "--set " + shell_word(f"{short}={value}")


def _find_pinned_settings(contract: Contract) -> dict[str, str]:
    """Return the settings that a checkpoint pins, and those that the contract shows without naming the setting."""
    partitions = {operator.partitions for operator in contract.operators} - {1}
    shown_settings = {
        _PROVIDER: _PROVIDERS.get(contract.provider, contract.provider),
        f"{_STORE}.compression.codec": contract.codec,
        f"{_STORE}.encodingFormat": contract.encoding,
    }
    if len(partitions) == 1:
        shown_settings[PARTITIONS] = str(partitions.pop())
    return {**shown_settings, **contract.conf}


def _compare_others(comparison: Comparison) -> None:
    """Report differences of settings that a checkpoint does not pin."""
    old, new = comparison.old, comparison.new
    if old.checkpoint_format != new.checkpoint_format:
        comparison.add(CHECKPOINT_FORMAT, _QUERY, old.checkpoint_format, new.checkpoint_format, name=_CHECKPOINT_FORMAT)
    if old.offset_log != new.offset_log and not (old.names_sources or new.names_sources):
        comparison.add(OFFSET_LOG, _QUERY, old.offset_log, new.offset_log)
    if None not in (old.changelog, new.changelog) and old.changelog != new.changelog:
        texts = (str(contract.changelog).lower() for contract in (old, new))
        comparison.add(CHANGELOG, _QUERY, *texts, switched="on" if new.changelog else "off")


def _compare_sources(comparison: Comparison) -> None:
    old, new = comparison.old, comparison.new
    has_names = old.names_sources or new.names_sources
    if has_names:
        compare_named_sources(comparison)
    # Version 1 of the offset log has the sources by their places, also if they have names.
    if has_names and not (old.names_sources and new.names_sources and old.offset_log == new.offset_log == 1):
        return
    if old.sources and new.sources and old.sources != new.sources:
        comparison.add(NUMBER_OF_SOURCES, _QUERY, old.sources, new.sources)
    elif old.reads is not None and new.reads is not None:
        compare_sources(comparison, [comparison.new_columns(text) for text in old.reads], new.reads)
    elif has_names or all(operator.plan is not None for operator in (*old.operators, *new.operators)):
        comparison.cannot_compare("the sources and their order: a contract of an older ttlsnap does not list them")


def _compare_time_zones(comparison: Comparison) -> None:
    old_zone, new_zone = (contract.conf.get(TIME_ZONE) for contract in (comparison.old, comparison.new))
    if old_zone and new_zone and not mean_same_zone(old_zone, new_zone):
        expressions = (
            text for operator in comparison.new.operators for text in QueryPlan.of(operator.plan or ()).computed
        )
        dates = any(map(ZONED_OF_TIMES.search, expressions))
        comparison.add(TIME_ZONE_OF_DATES if dates else TIME_ZONE_CHANGED, _QUERY, old_zone, new_zone, name=TIME_ZONE)


def _compare_output_modes(comparison: Comparison) -> None:
    old, new = comparison.old, comparison.new
    if None in (old.output_mode, new.output_mode):
        if any(operator.output_mode is None for operator in (*old.operators, *new.operators)):
            comparison.cannot_compare("the output mode: checkpoints do not record it")
        return
    if old.output_mode == new.output_mode:
        return
    outcome = OUTPUT_MODE
    if new.output_mode == "complete":
        if any(QueryPlan.of(operator.plan or ()).watermarks for operator in old.operators):
            outcome = GROUPS_CLOSED
        elif any(operator.plan is None for operator in old.operators):
            outcome = GROUPS_MAYBE_CLOSED
    comparison.add(outcome, _QUERY, old.output_mode, new.output_mode)


def _compare_versions(comparison: Comparison) -> None:
    old, new = comparison.old, comparison.new
    before, after = parse_version(old.spark), parse_version(new.spark)
    features = _find_unsupported(old, new, after)
    if features:
        comparison.add(SPARK_TOO_OLD, _QUERY, old.spark, new.spark, features=" and ".join(features))
    elif after < before:
        comparison.add(OLDER_SPARK, _QUERY, old.spark, new.spark)


def _find_unsupported(old: Contract, new: Contract, after: tuple[int, int]) -> list[str]:
    """Return what the old state has and the new contract's Spark does not support.

    A checkpoint tells only a range of versions: its Spark supports at least what the checkpoint has.
    """
    exact = not new.spark.startswith(("<", ">"))
    known_features = {} if exact else _find_features(new)
    return [name for name, version in _find_features(old).items() if after < version and name not in known_features]


def _find_features(contract: Contract) -> dict[str, tuple[int, int]]:
    """Return the features of a state that older versions of Spark lack, and the version that introduced each."""
    transform = [operator for operator in contract.operators if _TRANSFORM in (operator.name or "")]
    lists = [
        state
        for transform_operator in transform
        for store in transform_operator.stores
        for state in store.states or ()
        if state.kind == "list"
    ]
    joins = [operator for operator in contract.operators if operator.name == join.NAME]
    join_format = contract.conf.get(_JOIN_FORMAT, "")
    features = {}
    if contract.row_checksums:
        features["row checksums"] = (4, 2)
    if lists and contract.conf.get(f"{_STORE}.rocksdb.mergeOperatorVersion") == "2":
        features["lists merged without a delimiter"] = (4, 2)
    if transform:
        features["transformWithState"] = (4, 0)
    if joins and join_format in _JOIN_FORMATS:
        features[f"join state of format {join_format}"] = _JOIN_FORMATS[join_format]
    if contract.checkpoint_format > 1:
        features[f"checkpoint format {contract.checkpoint_format}"] = (4, 0)
    if contract.offset_log > 1:
        features[f"offset log version {contract.offset_log}"] = (4, 2)
    return features
