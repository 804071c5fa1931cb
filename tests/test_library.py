"""The parameters of the functions of the public API are a promise. Many parameters are the fields of a dataclass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from inspect import Parameter, Signature
from pathlib import Path

import pytest

import ttlsnap
from ttlsnap.delta.run import compact_table
from ttlsnap.errors import UsageError
from ttlsnap.keywords import fields_of, takes
from ttlsnap.spark import read_state
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from .samples import sample

PROMISED = {
    "compact": "target, transformers, *, now='checkpoint', selection=None, schemas=None, dry_run=False, output=None, "
    "engine=None, rewrite='auto', scratch=None, drop_unmatched=False, timers='keep', stopped=False, "
    "planned_batch=True, max_drop=None, parts=(), expired_to=None, show=0, listener=None",
    "compact_table": "target, transformers, *, key=(), now='checkpoint', dry_run=False, limits=None, erasing=None, "
    "expired_to=None, session=None, jars=None, master=None, confirm=None, max_drop=None, asks=False",
    "diff": "old, new=None, *, old_batch=None, new_batch=None, selection=None, tables=(), examples=10, schemas=None, "
    "parallelism=None, listener=None",
    "doctor": "target, *, fix=(), parallelism=None, scratch=None, stopped=False, confirm=None, listener=None",
    "explain": "target, key, transformers, *, now='checkpoint', selection=None, schemas=None, timers='keep', "
    "drop_unmatched=False, show=100, parallelism=None, listener=None",
    "export": "target, to, *, file_format=None, batch=None, selection=None, tables=(), columns=None, where=(), "
    "timestamp=None, time=None, now='checkpoint', schemas=None, parallelism=None, listener=None, escape_formulas=False",
    "history": "target",
    "import_state": "target, source, *, selection=None, tables=(), mode='insert', schemas=None, dry_run=False, "
    "output=None, stopped=False, planned_batch=True, scratch=None, parallelism=None, listener=None",
    "inspect": "target, *, batch=None, entries=0, age=False, sizes=False, timestamp=None, time=None, rule=None, "
    "sample=2_000_000_000, now='checkpoint', selection=None, schemas=None, parallelism=None, listener=None",
    "migrate": "target, *, partitions=None, provider=None, settings=None, new_query=None, transformers=(), "
    "now='checkpoint', selection=None, schemas=None, dry_run=False, output=None, engine=None, scratch=None, "
    "drop_unmatched=False, timers='keep', stopped=False, planned_batch=True, max_drop=None, expired_to=None, drops=(), "
    "listener=None",
    "prune": "target, *, confirm=None",
    "read_state": "spark, path, *, operator=None, store=None, state=None, table=None, batch=None, columns=None, "
    "where=(), timestamp=None, time=None, now='checkpoint', schemas=None",
    "recover": "target, *, prefer_undo=False, expired_to=None, confirm=None",
    "rollback": "target, *, stopped=False, expired_to=None, confirm=None",
}
FUNCTIONS = {name: getattr(ttlsnap, name) for name in PROMISED if name in ttlsnap.__all__}
FUNCTIONS |= {"compact_table": compact_table, "read_state": read_state}


def positional(signature: Signature) -> list[tuple[str, object]]:
    """Return the parameters that a call can give by position, with their defaults."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [(name, found.default) for name, found in signature.parameters.items() if found.kind in kinds]


@pytest.mark.parametrize("name", PROMISED)
def test_a_public_function_has_the_promised_parameters(name: str) -> None:
    promised = inspect.signature(eval(f"lambda {PROMISED[name]}: None"))
    found = inspect.signature(FUNCTIONS[name])
    assert positional(found) == positional(promised)
    defaults = {name: parameter.default for name, parameter in found.parameters.items()}
    assert {name: defaults[name] for name in promised.parameters} == {
        name: parameter.default for name, parameter in promised.parameters.items()
    }


@pytest.mark.parametrize("name", PROMISED)
def test_an_unknown_keyword_is_a_type_error(name: str) -> None:
    required = [None for _, default in positional(inspect.signature(FUNCTIONS[name])) if default is Parameter.empty]
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'nonsense'"):
        FUNCTIONS[name](*required, nonsense=1)


@dataclass(frozen=True, kw_only=True)
class Shared:
    loud: bool = False


@dataclass(frozen=True, kw_only=True)
class Greeting(Shared):
    name: str = field(kw_only=False)
    times: int = 1


@takes(Greeting)
def greet(request: Greeting) -> str:
    """Return a greeting."""
    return " ".join([request.name.upper() if request.loud else request.name] * request.times)


def test_a_function_takes_the_fields_of_its_request() -> None:
    assert greet("a") == "a"
    assert greet(name="a", times=2, loud=True) == "A A"
    assert (greet.__name__, greet.__doc__) == ("greet", "Return a greeting.")
    assert str(inspect.signature(greet)) == "(name: 'str', *, loud: 'bool' = False, times: 'int' = 1) -> 'str'"


def test_wrong_arguments_name_the_function() -> None:
    with pytest.raises(TypeError, match=r"^greet\(\) missing a required argument: 'name'$"):
        greet()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^greet\(\) too many positional arguments$"):
        greet("a", True)  # type: ignore[call-arg]


def test_the_fields_of_a_base_class_are_its_options() -> None:
    assert fields_of(Greeting("a", times=2, loud=True), Shared) == {"loud": True}


def test_the_functions_are_shown() -> None:
    assert {"compact", "inspect", "Keep", "__version__"} <= set(dir(ttlsnap)) == set(ttlsnap.__all__)


def test_times_and_durations_are_taken_as_objects_and_as_texts(tmp_path: Path) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    configs = [StateTtlConfig.of(ttl) for ttl in ("7d", timedelta(days=7), "P7D")]
    moments = (noon, noon.replace(tzinfo=None), noon.astimezone(timezone(timedelta(hours=5))), "2026-11-21T12:00:00Z")
    reports = [
        ttlsnap.compact(target, [TtlTransformerFactory(config, timestamp="value.max")], now=now, dry_run=True)
        for config in configs
        for now in moments
    ]
    assert {report.to_json()["now"] for report in reports} == {"2026-11-21T12:00:00.000Z"}
    (dropped,) = {report.totals.dropped for report in reports}
    assert dropped > 0
    for ttl in (7, None, "soon"):
        with pytest.raises(UsageError, match=r"a ttl is a timedelta, or a text such as '7d'|is not a duration"):
            StateTtlConfig.of(ttl)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--now 7 is not valid"):
        ttlsnap.inspect(target, now=7, sizes=True)  # type: ignore[arg-type]
