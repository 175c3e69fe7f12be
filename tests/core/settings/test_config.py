"""Settings: four sources in order, each value with its origin, each mistake named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.messages.errors import paragraph
from relay.core.errors import BadConfig
from relay.core.settings.config import FILE_NAME, Resolved, Settings, leaves, resolve
from relay.core.settings.origins import MOST_NODES, BadSetting, from_environment, variable
from relay.core.settings.validating import meant
from tests.facts import raising
from trm.config import TrainConfig


def defaults(task: str) -> dict[str, str]:
    """A task's, of the relay's settings."""
    return {"project": "sudoku_pretrain_multiaccount", "run": "sudoku_rotation"}


def settled(folder: Path, yaml: str | None = None, environ: dict[str, str] | None = None, *over: str, **flags: object):
    if yaml is not None:
        (folder / FILE_NAME).write_text(yaml, encoding="utf-8")
    return resolve(
        lambda task: TrainConfig(task=task, batch_size=7),
        TrainConfig,
        environ or {},
        folder,
        default_task="sudoku4",
        defaults=defaults,
        overrides=over,
        flags={k.replace("__", "."): v for k, v in flags.items()},
    )


def refusal(folder: Path, yaml: str | None = None, environ: dict[str, str] | None = None, *over: str) -> str:
    with pytest.raises(BadConfig) as caught:
        settled(folder, yaml, environ, *over)
    assert "\n" not in str(caught.value)
    return paragraph(caught.value)


def origin(found: Resolved[TrainConfig], key: str) -> tuple[object, str]:
    return next((value, where) for name, value, where in found.values() if name == key)


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    yaml = "project: p\nrun: from_file\naccount: a\nbatch_size: 8\nseed: 1\n"
    found = settled(tmp_path, yaml, {"RUN_NAME": "from_env", "ACCOUNT_ID": "b"}, "account=c", "seed=3", run="from_flag")
    assert origin(found, "project") == ("p", f"{FILE_NAME}:1")
    assert origin(found, "batch_size") == (8, f"{FILE_NAME}:4")
    assert origin(found, "account")[0] == "c" and origin(found, "account")[1].endswith(": account=c")
    assert origin(found, "run")[0] == "from_flag" and origin(found, "lr") == (1e-4, "preset sudoku4")
    assert origin(found, "lease.ttl_s") == (180.0, "default")


def test_environment_beats_file_and_empty_variables_are_unset(tmp_path: Path) -> None:
    found = settled(tmp_path, "run: a\naccount: x\n", {"RUN_NAME": "b", "ACCOUNT_ID": ""})
    assert (found.settings.run, found.settings.account) == ("b", "x")


def test_every_key_has_a_default_so_nothing_need_be_configured(tmp_path: Path) -> None:
    found = settled(tmp_path)
    assert found.settings.project == "sudoku_pretrain_multiaccount"
    assert found.settings.run == "sudoku_rotation"
    assert found.workload.task == "sudoku4"
    assert found.ledger_url == found.checkpoint_url == (tmp_path / "relay_store").as_uri()


def test_the_two_stores_can_be_named_separately(tmp_path: Path) -> None:
    found = settled(tmp_path, None, {"RELAY_STORE": "file:///s", "RELAY_LEDGER_STORE": "file:///l"})
    assert (found.ledger_url, found.checkpoint_url) == ("file:///l", "file:///s")


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 50))
"""2^50 values, if each alias is read."""


@pytest.mark.parametrize("text", ["007", "on", "10-30", "1e3", "null", "0x10", "no", "1_000"])
def test_texts_are_taken_as_written(tmp_path: Path, text: str) -> None:
    assert settled(tmp_path, None, None, f"run={text}").settings.run == text
    assert settled(tmp_path, None, {"RUN_NAME": text}).settings.run == text
    assert settled(tmp_path, f"run: {text}\n").settings.run == text


def test_yaml_sexagesimal_stays_text_and_exponents_are_numbers(tmp_path: Path) -> None:
    found = settled(tmp_path, "data:\n  train: 10:30\nlr: 1e-4\n")
    assert (found.workload.data.train, found.workload.lr) == ("10:30", 1e-4)


def test_null_clears_what_may_be_absent(tmp_path: Path) -> None:
    found = settled(tmp_path, "storage:\n  url:\nbudget_minutes: 5\n", None, "budget_minutes=null")
    assert found.settings.storage.url is None
    assert found.settings.budget_minutes is None


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_plus_signs_are_tolerated(tmp_path: Path, prefix: str) -> None:
    assert settled(tmp_path, None, None, f"{prefix}arch.L_cycles=3").workload.arch.L_cycles == 3


def test_a_mapping_on_the_command_line_sets_its_keys(tmp_path: Path) -> None:
    found = settled(tmp_path, None, None, "arch={L_cycles: 3, H_cycles: 1}")
    assert (found.workload.arch.L_cycles, found.workload.arch.H_cycles) == (3, 1)


def test_interpolation_is_never_executed(tmp_path: Path) -> None:
    """In a file it is text; on a command line it is never meant as text, so it is refused."""
    found = settled(tmp_path, "data:\n  train: ${HOME}\n", {"HOME": "/secret"})
    assert found.workload.data.train == "${HOME}"
    with raising(BadSetting, "data.train"):
        settled(tmp_path, None, {"HOME": "/secret"}, "data.train=${HOME}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("yaml", "environ", "over", "expected"),
    [
        ("bach_size: 8\n", None, (), ["bach_size", f"{FILE_NAME}:1", "batch_size"]),
        ("arch:\n  L_cycle: 8\n", None, (), ["arch.L_cycle", f"{FILE_NAME}:2", "arch.L_cycles"]),
        (None, {"RELAY_STROE": "x"}, (), ["RELAY_STROE", "RELAY_STORE"]),
        (None, None, ("lease.ttl=3",), ["lease.ttl", "lease.ttl_s"]),
        (None, None, ("arch=trm",), ["arch is a group"]),
        ("batch_size: often\n", None, (), ["batch_size", "integer", "'often'", f"{FILE_NAME}:1"]),
        (None, {"RELAY_BUDGET_MINUTES": "soon"}, (), ["budget_minutes", "number", "RELAY_BUDGET_MINUTES"]),
        (None, None, ("checkpoint.keep_last=1",), ["checkpoint.keep_last", "2"]),
        (None, None, ("checkpoint.keep_last=41",), ["checkpoint.keep_last", "40"]),
        (None, None, ("lr=nan",), ["lr", "finite"]),
        (None, None, ("ema=perhaps",), ["ema", "boolean"]),
        (None, None, ("data.augment=[1]",), ["data.augment", "boolean"]),
        (None, None, ("run=My Run",), ["My Run", "my_run", "command line"]),
        (None, {"RUN_NAME": "../up"}, (), ["../up", "RUN_NAME"]),
        (None, None, ("just_words",), ["key=value"]),
        (None, None, ("=3",), ["key=value"]),
        (None, None, ("arch={",), ["arch={"]),
        ("run: a\nrun: b\n", None, (), ["set twice", f"{FILE_NAME}:2"]),
        ("run: [\n", None, (), [FILE_NAME, "YAML"]),
        pytest.param(f"run: {'[' * 5000}\n", None, (), [FILE_NAME, "nests too deeply"], id="deep file"),
        pytest.param("", None, ("run=" + "[" * 5000,), ["nests too deeply"], id="deep word"),
        ("- a\n", None, (), [FILE_NAME, "key: value"]),
        ("? [a]\n: b\n", None, (), ["plain name"]),
        ("a: &x\n  b: *x\n", None, (), [FILE_NAME, f"{MOST_NODES:,}"]),
        pytest.param(BOMB, None, (), [FILE_NAME, f"{MOST_NODES:,}"], id="aliases of aliases"),
        ("device: tpu\n", None, (), ["device", "tpu"]),
    ],
)
def test_mistakes_are_named_with_their_place_and_the_nearest_name(
    tmp_path: Path, yaml: str | None, environ: dict[str, str] | None, over: tuple[str, ...], expected: list[str]
) -> None:
    text = refusal(tmp_path, yaml, environ, *over)
    assert all(part in text for part in expected), text


def test_a_task_has_defaults_of_its_own_and_every_source_is_stronger(tmp_path: Path) -> None:
    def by_task(task: str) -> dict[str, str]:
        own = {"checkpoint.every_minutes": "30", "evaluation.rows": "400"}
        return defaults(task) | (own if task == "maze" else {})

    def found(yaml: str, *over: str) -> Resolved[TrainConfig]:
        (tmp_path / FILE_NAME).write_text(yaml)
        return resolve(
            lambda task: TrainConfig(task=task),
            TrainConfig,
            {},
            tmp_path,
            default_task="sudoku4",
            defaults=by_task,
            overrides=over,
        )

    assert origin(found(""), "checkpoint.every_minutes") == (10.0, "default")
    assert origin(found("task: maze"), "checkpoint.every_minutes") == (30.0, "default")
    assert found("task: maze").settings.evaluation.rows == 400
    shared = found("task: maze\ncheckpoint:\n  every_minutes: 20\n", "evaluation.rows=100")
    assert origin(shared, "checkpoint.every_minutes") == (20.0, f"{FILE_NAME}:3")
    assert shared.settings.evaluation.rows == 100


def test_a_missing_configuration_file_is_named(tmp_path: Path) -> None:
    with raising(BadSetting, tmp_path / "nowhere.yaml"):
        resolve(
            lambda t: TrainConfig(task=t),
            TrainConfig,
            {},
            tmp_path,
            default_task="sudoku4",
            defaults=defaults,
            file=tmp_path / "nowhere.yaml",
        )


def test_relative_paths_start_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my.yaml").write_text("storage:\n  url: shared folder\n")
    found = resolve(
        lambda t: TrainConfig(task=t),
        TrainConfig,
        {},
        tmp_path,
        default_task="sudoku4",
        defaults=defaults,
        file=tmp_path / "sub" / "my.yaml",
    )
    assert found.path("sync") == tmp_path / "sync"
    assert found.ledger_url == (tmp_path / "shared folder").as_uri()


def test_a_plain_path_may_say_which_store_it_must_be(tmp_path: Path) -> None:
    mark = f"#id={'a' * 32}"
    found = resolve(
        lambda t: TrainConfig(task=t),
        TrainConfig,
        {"RELAY_STORE": f"{tmp_path}/store{mark}"},
        tmp_path,
        default_task="sudoku4",
        defaults=defaults,
    )
    assert found.ledger_url == (tmp_path / "store").as_uri() + mark


def test_every_relay_setting_has_its_own_variable() -> None:
    keys = leaves(Settings)
    names = [variable(key) for key in keys]
    assert len(set(names)) == len(keys)
    given = from_environment(dict.fromkeys(names, "x"), keys)
    assert sorted(g.key for g in given) == sorted(keys)


def test_the_shipped_file_is_valid_and_says_only_defaults(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[3] / FILE_NAME
    found = resolve(
        lambda t: TrainConfig(task=t),
        TrainConfig,
        {},
        tmp_path,
        default_task="sudoku4",
        defaults=defaults,
        file=shipped,
    )
    assert found.settings == Settings.model_validate(defaults("sudoku4"))


def test_tags_in_the_file_are_text(tmp_path: Path) -> None:
    assert settled(tmp_path, "run: !!python/object:os.system x\n").settings.run == "x"


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("learning_rate", "lr"),
        ("learning-rate", "lr"),
        ("hidden_size", "arch.hidden_size"),
        ("batch", "batch_size"),
        ("arch.hidden_sise", "arch.hidden_size"),
        ("keep_last", "checkpoint.keep_last"),
        ("keep", None),
        ("qqqq", None),
    ],
)
def test_an_unknown_setting_names_the_one_that_was_meant(typed: str, wanted: str | None) -> None:
    keys = [*leaves(Settings), "batch_size", "lr", "ema_rate", "arch.hidden_size", "arch.num_heads"]
    assert meant(typed, keys) == wanted
