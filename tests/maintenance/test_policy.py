"""The policy file: its settings, and the errors for mistakes in it."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import resources
from pathlib import Path

import pytest

from ttlsnap.cli.maintain import WorkersOptions
from ttlsnap.compaction.incremental import Incremental
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.errors import UsageError
from ttlsnap.maintenance.policy import Policy, line_of, read_policy
from ttlsnap.migration.changes import ChangeOptions
from ttlsnap.operators.registry import Selection

WHOLE = """
[run]
engine = "local"
parallelism = 3

[defaults]
on_busy = "wait"
wait = "5m"
ttl = "30d"

# Sessions.
[[target]]
path = "checkpoints/*"
exclude = "checkpoints/old*"
stopped = true

[[target.rule]]
operator = 0
key_prefix = ["eu", 7]
ttl = "7d"
timestamp = "value.max"

[[target.rule]]
store = "default"
transformer = "keep"
now = "2025-06-15T12:00:00Z"

[[target]]
path = "${TABLES}/sessions$$"
on_busy = "fail"
key = ["user_id", "day"]
max_bytes = "2GB"
erase = true
retention = "0h"
[[target.rule]]
timestamp = "last_seen"
"""


def policy(folder: Path, text: str, **environment: str) -> Policy:
    path = folder / "policy.toml"
    path.write_text(text)
    return read_policy(str(path), environment)


def problems(folder: Path, text: str, **environment: str) -> list[str]:
    """Return the errors of a wrong policy, without the file's name."""
    with pytest.raises(UsageError) as raised:
        policy(folder, text, **environment)
    *lines, last = str(raised.value).splitlines()
    assert last == "Nothing was done"
    return [line.removeprefix(f"{folder}/policy.toml:") for line in lines]


def test_all_settings_of_a_policy_are_read(tmp_path: Path) -> None:
    made = policy(tmp_path, WHOLE, TABLES="/data")
    assert made.folder == str(tmp_path)
    assert made.run == {"engine": "local", "parallelism": 3}
    first, second = made.targets
    assert (first.path, first.exclude, first.on_busy, first.wait_seconds, first.options.stopped) == (
        "checkpoints/*", ("checkpoints/old*",), "wait", 300, True,
    )  # fmt: skip
    prefixed, by_store = first.rules
    assert (prefixed.selection, prefixed.key_prefix, prefixed.now_us) == (Selection(0), ("eu", 7), None)
    assert (by_store.selection, by_store.now_us) == (Selection(store="default"), 1_749_988_800_000_000)
    assert [len(rule.factories) for rule in first.rules] == [1, 1]
    assert (second.path, second.on_busy, second.key) == ("/data/sessions$", "fail", ("user_id", "day"))
    assert (second.max_bytes, second.erase, second.retention_ms) == (2_000_000_000, True, 0)


def test_a_target_without_rules_gets_one_rule_for_everything(tmp_path: Path) -> None:
    (target,) = policy(tmp_path, '[defaults]\nttl = "1d"\n[[target]]\npath = "a"\n').targets
    (rule,) = target.rules
    assert (rule.selection, rule.key_prefix, len(rule.factories)) == (Selection(), (), 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[target]]\npath = "a"\ntll = 3\n', "3: target 1 has an unknown key, 'tll'"),
        ('[[target]]\npath = "a"\n[[target.rule]]\ntimestmp = "x"\n', "4: target 1, rule 1 has an unknown key, 'times"),
        ('[[target]]\nkey = "a"\n', "1: target 1 lacks path"),
        ("", "1: the policy lacks target"),
        ('[[target]]\npath = "a"\n\n  # when\n  on_busy = "stop"\n', "5: target 1, on_busy must be one of ['skip'"),
        ('[[target]]\npath = "a"\n[[target.rule]]\nkey_prefix = 1.5\n', "4: target 1, rule 1, key_prefix must be"),
        ('[[target]]\npath = "a"\n[[target.rule]]\nttl = "7 daze"\n', "4: '7 daze' is not a duration"),
        ('[defaults]\nttl = "0s"\n[[target]]\npath = "a"\n', "2: a ttl must be positive"),
        ('[[target]]\npath = "a"\n[[target.rule]]\ntransformer = "nobody"\n', "4: "),
        ('[[target]]\npath = "a"\n[[target.rule]]\noptions = { a = 1 }\n', "4: options need a transformer"),
        ('[[target]]\npath = "a"\n[[target.rule]]\nnow = "noon"\n', "4: --now 'noon' is not valid"),
        ('[[target]]\npath = "a"\nretention = "1h"\n', "3: retention needs erase"),
        ('[[target]]\npath = "a"\nmax_bytes = "much"\n', "3: 'much' is not a size"),
        ('[[target]]\npath = "${NOWHERE}"\n', "2: the environment has no variable NOWHERE"),
        ('[[target]]\npath = "${"\n', "2: ${ begins an environment variable"),
        ('[[target]]\npath = "a"\nschema = "x"\n', "3: --schema 'x': write OPERATOR.STORE="),
        ("target = [3]\n", "1: target 1 must be a table, not 3"),
        ('[[target]]\npath = "a"\ntombstone_share = 0.5\n', '3: tombstone_share needs strategy = "rocksdb"'),
        ('[[target]]\npath = "a"\nstrategy = "rocksdb"\ntombstone_share = 2\n', "4: target 1, tombstone_share must be"),
        ('[[target]]\npath = "a"\nstrategy = "rocksdb"\nrewrite = "full"\n', "1: strategy = "),
        (
            '[[target]]\npath = "a"\nstrategy = "rocksdb"\n[[target.rule]]\n[[target.rule]]\ntombstone_share = 0.5\n',
            "1: its rules share their partitions",
        ),
    ],
)
def test_errors_name_the_line_of_the_mistake(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[target]]\npath = "${EMPTY}"\n', "2: target 1, path must be longer than or equal to 1 characters, after"),
        ('[[target]]\npath = "a"\n[[target.rule]]\nkey_prefix = "${EMPTY}"\n', "4: target 1, rule 1, key_prefix must"),
        ('[[target]]\npath = "a"\n[[target.rule]]\nkey_prefix = ["eu", "${EMPTY}"]\n', "4: target 1, rule 1: an empty"),
        ('[[target]]\npath = "a"\non_busy = "${SECRET}"\n', "3: target 1, on_busy must be one of"),
    ],
)
def test_values_from_the_environment_are_checked_but_never_shown(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = problems(tmp_path, text, EMPTY="", SECRET="hunter2")
    assert problem.startswith(told)
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("max_files = nan", "nan is not a valid number"),
        ("max_files = inf", "inf is not a valid number"),
        ("max_files = 1.0", "target 1, max_files must be a whole number, not 1.0"),
        (
            "now = 2026-01-01T00:00:00Z",
            "target 1, now must be a text in quotes, not 2026-01-01 00:00:00+00:00, without quotes",
        ),
        (
            "[[target.rule]]\nkey_prefix = [1.0]",
            "key_prefix must be string or array, of texts and numbers, not [1.0]",
        ),
    ],
)
def test_numbers_and_times_of_wrong_types_are_errors(tmp_path: Path, line: str, told: str) -> None:
    (problem,) = problems(tmp_path, f'[[target]]\npath = "a"\n{line}\n')
    assert told in problem


def test_a_table_in_place_of_an_array_is_an_error(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, '[target]\npath = "a"\n')
    assert problem.endswith("target must be a list; each begins with [[target]], not {'path': 'a'}")


def test_a_transformer_of_a_rule_replaces_the_ttl_of_its_target(tmp_path: Path) -> None:
    text = '[[target]]\npath = "a"\nttl = "1d"\ntimestamp = "value.max"\n[[target.rule]]\nkey_prefix = "eu"\n'
    exempt, both, inherited = (
        policy(tmp_path, text + rule).targets[0].rules[0].factories
        for rule in ('transformer = "keep"\n', 'transformer = "keep"\nttl = "2d"\ntimestamp = "value.max"\n', "")
    )
    names = [[type(factory).__name__ for factory in factories] for factories in (exempt, both, inherited)]
    assert names == [
        ["KeepTransformerFactory"], ["TtlTransformerFactory", "KeepTransformerFactory"], ["TtlTransformerFactory"]
    ]  # fmt: skip


def test_paths_are_relative_to_the_policy_and_uris_are_unchanged(tmp_path: Path) -> None:
    def place(text: str) -> object:
        return policy(tmp_path, f'[[target]]\npath = "a"\nexpired_to = "{text}"\n').targets[0].options.expired_to

    assert place("expired") == f"{tmp_path}/expired"
    assert place("delta:expired") == f"delta:{tmp_path}/expired"
    for uri in ("file:///x/expired", "file:/x", "s3://bucket/x", "delta:file:///x", "/x"):
        assert place(uri) == uri


def test_errors_suggest_the_intended_key(tmp_path: Path) -> None:
    told = problems(tmp_path, '# nothing\n[[targets]]\npath = "a"\n')
    meant = "2: the policy has an unknown key, 'targets' (did you mean target?)"
    assert told == ["1: the policy lacks target", meant]


def test_errors_in_defaults_name_the_line_of_the_default(tmp_path: Path) -> None:
    assert problems(tmp_path, '[defaults]\n\nttl = "x"\n[[target]]\npath = "a"\n[[target]]\npath = "b"\n')[0][0] == "3"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    wrong = ("on_busi = 1", "timestamp = 7", 'max_bytes = ""')
    text = WHOLE.replace('on_busy = "fail"', wrong[0]).replace('timestamp = "value.max"', wrong[1])
    text = text.replace('max_bytes = "2GB"', wrong[2])
    lines = sorted(text.splitlines().index(line) + 1 for line in wrong)
    assert [int(problem.split(":")[0]) for problem in problems(tmp_path, text, TABLES="t")] == lines


@pytest.mark.parametrize("data", [b"\xff", b"a = [", b"[" * 5000], ids=["no text", "half", "deep"])
def test_a_file_that_is_not_toml_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"policy\.toml(:\d+)?:? .*\nNothing was done"):
        read_policy(str(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ttl = 20d", 'ttl = 20d: a text needs quotes: ttl = "20d"'),
        ("path = /data/the ck # mine", 'path = /data/the ck: a text needs quotes: path = "/data/the ck"'),
        ("webhook = https://hooks/secret", 'webhook = ...: a text needs quotes: webhook = "..."'),
        ("stopped = yes", "stopped = yes: write stopped = true"),
        ("stopped = False", "stopped = False: write stopped = false"),
        ("now = 1\nnow = 1", "Cannot overwrite a value"),
        ('ttl = "20d', "Illegal character '\\n'"),
    ],
)
def test_a_value_without_quotes_is_shown_with_them(tmp_path: Path, line: str, said: str) -> None:
    number = 2 + line.count("\n")
    assert problems(tmp_path, f"[[target]]\n{line}\n") == [f"{number}: {said}"]


def test_a_missing_policy_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; name a policy"):
        read_policy(str(tmp_path / "policy.toml"))


def test_lines_are_found_in_all_forms_of_toml() -> None:
    text = 'a = """\nx = 1\n"""\nb.c = [\n  1,\n  2,\n]\n\n[[t]]\n[t.u]\nv = {w = 1}\n[[t]]\n# more\nz = 1\n'
    places = {("a",): 1, ("b", "c"): 4, ("t", 0): 9, ("t", 0, "u", "v", "w"): 11, ("t", 1, "z"): 14, ("t", 1, "q"): 12}
    assert {place: line_of(text, place) for place in places} == places


def test_the_schema_is_draft_7_and_its_defaults_are_complete() -> None:
    schema = json.loads(resources.files("ttlsnap.maintenance").joinpath("policy.schema.json").read_text())
    assert schema["$schema"].endswith("draft-07/schema#")
    # The defaults accept every setting of rules and targets, except those that select a rule or a target.
    named = schema["definitions"]
    rule, target, defaults = (set(named[kind]["properties"]) for kind in ("rule", "target", "defaults"))
    assert rule - {"operator", "store", "state", "key_prefix"} <= defaults
    migration = {"partitions", "provider", "settings"}
    assert target - {"path", "exclude", "schema", "key", "rule"} - migration <= defaults
    assert defaults <= rule | target


def test_settings_of_a_target_override_the_defaults(tmp_path: Path) -> None:
    text = '[defaults]\nnow = "2020-01-01"\n[[target]]\npath = "a"\nnow = "{}"\n'
    text += '[[target.rule]]\nnow = "wall"\n[[target.rule]]\n'
    (target,) = policy(tmp_path, text.format("checkpoint")).targets
    assert [rule.now for rule in target.rules] == ["wall", "checkpoint"]
    assert problems(tmp_path, text.format("soon"))[0].startswith("5: --now 'soon' is not valid")


def test_the_keys_are_the_options_of_runs() -> None:
    schema = json.loads(resources.files("ttlsnap.maintenance").joinpath("policy.schema.json").read_text())
    keys = {
        name: definition["properties"].keys()
        for name, definition in schema["definitions"].items()
        if "properties" in definition
    }
    of_commands, of_rules = {"dry_run", "output", "show", "ages"}, {"selection", "parts"}
    options = {one.name for one in fields(CompactOptions)} - of_commands - of_rules
    assert {{"schemas": "schema"}.get(name, name) for name in options} <= keys["target"]
    assert {one.name for one in fields(ChangeOptions)} - {"new_query", "drops"} <= keys["target"]
    assert {one.name for one in fields(Selection)} | {one.name for one in fields(Incremental)} <= keys["rule"]
    assert keys["run"] == {one.name for one in fields(WorkersOptions)}
