"""The parameters of the functions of the public API are a promise. Many parameters are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import pytest

import ttlsnap
from ttlsnap import transformers
from ttlsnap.cli.app import run
from ttlsnap.delta.run import compact_table
from ttlsnap.errors import TtlsnapError, UsageError
from ttlsnap.keywords import fields_of, takes
from ttlsnap.naming import for_python
from ttlsnap.spark import read_state
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from .samples import SAMPLES, sample

PROMISED = {
    "compact": "target, transformers, *, now='checkpoint', selection=None, schemas=None, dry_run=False, output=None, "
    "engine=None, rewrite='auto', scratch=None, drop_unmatched=False, timers='keep', variables='keep', stopped=False, "
    "planned_batch=True, max_drop=None, parts=(), expired_to=None, show=0, listener=None",
    "compact_table": "target, transformers, *, key=(), now='checkpoint', dry_run=False, limits=None, erasing=None, "
    "expired_to=None, session=None, jars=None, master=None, confirm=None, max_drop=None, asks=False",
    "diff": "old, new=None, *, old_batch=None, new_batch=None, selection=None, tables=(), examples=10, schemas=None, "
    "parallelism=None, listener=None",
    "doctor": "target, *, fix=(), parallelism=None, scratch=None, stopped=False, confirm=None, listener=None",
    "explain": "target, key, transformers, *, now='checkpoint', selection=None, schemas=None, timers='keep', "
    "variables='keep', drop_unmatched=False, show=100, parallelism=None, listener=None",
    "export": "target, to, *, file_format=None, batch=None, selection=None, tables=(), columns=None, where=(), "
    "timestamp=None, time=None, now='checkpoint', schemas=None, parallelism=None, listener=None, escape_formulas=False",
    "history": "target",
    "import_state": "target, source, *, selection=None, tables=(), mode='insert', schemas=None, dry_run=False, "
    "output=None, stopped=False, planned_batch=True, scratch=None, parallelism=None, listener=None",
    "inspect": "target, *, batch=None, entries=0, age=False, sizes=False, timestamp=None, time=None, rule=None, "
    "sample=2_000_000_000, now='checkpoint', selection=None, schemas=None, parallelism=None, listener=None",
    "list_restorable": "target",
    "migrate": "target, *, partitions=None, provider=None, settings=None, new_query=None, transformers=(), "
    "now='checkpoint', selection=None, schemas=None, dry_run=False, output=None, engine=None, scratch=None, "
    "drop_unmatched=False, timers='keep', variables='keep', stopped=False, planned_batch=True, max_drop=None, "
    "expired_to=None, drops=(), listener=None",
    "prune": "target, *, confirm=None",
    "recorded_files": "target, source, patterns=()",
    "read_state": "spark, path, *, operator=None, store=None, state=None, table=None, batch=None, columns=None, "
    "where=(), timestamp=None, time=None, now='checkpoint', schemas=None",
    "recover": "target, *, prefer_undo=False, expired_to=None, confirm=None",
    "rewind": "target, batch, *, dry_run=False, stopped=False, planned_batch=True, scratch=None, parallelism=None, "
    "listener=None",
    "sources": "target, *, bootstrap_servers=None, kafka_options=None",
    "set_positions": "target, positions=None, *, log_edits=None, dry_run=False, stopped=False, planned_batch=True, "
    "topics=None, bootstrap_servers=None, kafka_options=None, confirm=None",
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
    """What greetings share.

    A ``loud`` one is in capitals.
    """

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
    about_options = "What greetings share.\n\nA ``loud`` one is in capitals."
    assert (greet.__name__, greet.__doc__) == ("greet", f"Return a greeting.\n\n{about_options}")
    assert str(inspect.signature(greet)) == "(name: str, *, loud: bool = False, times: int = 1) -> str"


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
    with pytest.raises(UsageError, match=r"^now is 7; it must be a text or a datetime$"):
        ttlsnap.inspect(target, now=7, sizes=True)  # type: ignore[arg-type]


class HasAPlan:
    """A factory whose attribute has the name of a method."""

    plan = "7d"

    def create(self, state: object, clock: object) -> None: ...


api: Any = ttlsnap
"""The package without its types, for wrong arguments."""

rules: Any = transformers
LOCAL: dict[str, Any] = {"engine": ttlsnap.LocalEngine(1), "dry_run": True}
WRONG: list[tuple[Callable[[str], object], str]] = [
    (lambda target: api.compact(target, [HasAPlan()], **LOCAL), "has the attribute plan = '7d', but ttlsnap calls"),
    (lambda target: api.compact(target, [TtlTransformerFactory], **LOCAL), "is a class. Pass an object of it"),
    (lambda target: api.compact(target, HasAPlan(), **LOCAL), "transformers is one HasAPlan; pass a list: [HasAPlan("),
    (lambda target: api.compact(target, "b" * 300, **LOCAL), "bbb...; it must be a list of"),
    (lambda target: api.compact(target, "ttl", **LOCAL), "transformers is 'ttl'; it must be a list of"),
    (lambda target: api.compact(target, [], max_drop="10%", **LOCAL), "max_drop is '10%'; it must be a number"),
    (lambda target: api.compact(target, [], engine="local"), r"engine is 'local'; it must be an object with run()"),
    (lambda target: api.compact(target, [], selection="0", **LOCAL), "it must be a Selection or an AnyOf or None"),
    (lambda target: api.compact(3, [], **LOCAL), "target is 3; it must be a text"),
    (lambda target: api.inspect(target, entries="3"), "entries is '3'; it must be a whole number"),
    (lambda target: api.inspect(target, entries=True), "entries is True; it must be a whole number"),
    (lambda target: api.inspect(target, entries=-1), "entries is -1; it must be a whole number from 0 on"),
    (lambda target: api.diff(target, tables="0.state"), "tables is '0.state'; it must be a list of texts"),
    (lambda target: api.explain(target, "1", None), "transformers is None; it must be a list of"),
    (
        lambda target: api.migrate(target, settings="codec"),
        "settings is 'codec'; it must be a dict with texts as keys or None",
    ),
    (lambda target: api.doctor(target, fix="torn-offset"), "fix is 'torn-offset'; it must be a list of texts"),
    (lambda target: api.rollback(target, confirm=True), "confirm is True; it must be a function or None"),
    (lambda target: api.history(None), "target is None; it must be a text"),
    (lambda target: rules.TtlTransformerFactory("7d"), r"config is '7d'; pass StateTtlConfig.of('7d')"),
    (lambda target: rules.StateTtlConfig("7d"), r"For a text: StateTtlConfig.of('7d')"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_an_argument_of_another_type_is_an_error_that_says_what_is_expected(
    call: Callable[[str], object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(str(SAMPLES / "agg-deltas-lz4-4.2"))
    assert message in str(caught.value)


def test_paths_and_names_of_clocks_are_accepted(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    rule = rules.TtlTransformerFactory(StateTtlConfig.of("7d"), ["value.max"], "event")
    report = api.compact(target, [rule], output=tmp_path / "new", now="2026-11-21T09:00:00Z", stopped=True)
    assert report.output == str(tmp_path / "new") and report.totals.dropped == 369
    assert api.inspect(target).checkpoint.batch.id == 6


def test_an_error_names_parameters_and_the_command_line_names_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    (tmp_path / "agg-deltas-lz4-4.2/offsets/6").touch()
    calls: list[tuple[Callable[[], object], list[str], str, str]] = [
        (
            lambda: api.compact(target, [TtlTransformerFactory(StateTtlConfig.of("7d"), "value.max")]),
            ["compact", target, "--ttl", "7d", "--timestamp", "value.max"],
            "repeat the call with stopped=True, or without it in",
            "repeat the command with --stopped, or without it in",
        ),
        (
            lambda: api.inspect(target, timestamp="value.max"),
            ["inspect", target, "--timestamp", "value.max"],
            "timestamp needs age=True or sizes=True",
            "--timestamp needs --age or --sizes",
        ),
        (
            lambda: api.import_state(target, "nowhere"),
            ["import", target, "--from", "nowhere"],
            "source nowhere: ",
            "--from nowhere: ",
        ),
    ]
    for call, words, in_python, on_command_line in calls:
        with pytest.raises(TtlsnapError) as caught:
            call()
        assert in_python in str(caught.value) and "--" not in str(caught.value)
        assert run([*words]) == caught.value.exit_code
        assert on_command_line in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ("Run: ttlsnap rollback ck --stopped. Then add --yes", "Run: ttlsnap rollback ck --stopped. Then add yes=True"),
        ("add --yes (in Python: confirm=...)", "add confirm=..."),
        ("use --now TIME (in a policy: now)", "use now TIME"),
        ("add --no-planned-batch", "add planned_batch=False"),
        ("a -- b, x--y and ---", "a -- b, x--y and ---"),
    ],
)
def test_commands_keep_their_options(message: str, in_python: str) -> None:
    assert for_python(message) == in_python


def test_a_result_is_readable_as_text_and_as_html() -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    rule = TtlTransformerFactory(StateTtlConfig.of("7d"), "value.max")
    report = api.compact(target, [rule], now="2026-11-21T09:00:00Z", **LOCAL)
    lines = repr(report).splitlines()
    assert lines[0] == "CompactionReport"
    assert "  totals: entries 480, kept 111, dropped 369, rewritten 0, bytes_before 19591, bytes_after 2783" in lines
    assert "<th>rules</th><td>ttl 7d by value.max</td>" in report._repr_html_()
    inspection = api.inspect(target)
    assert "fields key.key, value.max, value.count, value.sum" in repr(inspection)
    assert "<td>key.key, value.max, value.count, value.sum</td>" in inspection._repr_html_()
    results = (report, inspection, api.diff(target), api.doctor(target), api.explain(target, "{}", [rule]))
    for result in results:
        assert repr(result).startswith(f"{type(result).__name__}\n  ") and len(repr(result)) < 20_000
        assert result._repr_html_().startswith(f"<b>{type(result).__name__}</b><table>")


def test_names_in_html_are_escaped(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path).rename(tmp_path / "<b>")
    assert "&lt;b&gt;</td>" in api.inspect(str(target))._repr_html_()


def test_warnings_in_the_text_of_a_result_name_parameters() -> None:
    report = api.RecoverReport("ck", "nothing", None, ("give --yes, or run: ttlsnap rollback ck --stopped",))
    assert repr(report).endswith("give yes=True, or run: ttlsnap rollback ck --stopped")
    assert "give yes=True" in report._repr_html_()


def test_the_clock_of_a_wrong_time_is_an_error_that_names_the_parameter(tmp_path: Path) -> None:
    checkpoint = api.open_checkpoint(str(sample("agg-deltas-lz4-4.2", tmp_path)))
    with pytest.raises(api.TtlsnapError, match=r"^now 'tomorrow' is not valid"):
        api.clock_at("tomorrow", checkpoint.batch)
