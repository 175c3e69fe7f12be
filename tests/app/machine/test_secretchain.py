"""A notebook's secrets fill the gaps of the environment; every failure has its own advice; no value is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from relay.app.machine.secretchain import Chain, vault_of
from relay.app.messages.advice import in_a_cell
from relay.app.redact import secrets_of
from storage.kinds import KINDS
from tests.app.cli import Desk

COLAB = {"COLAB_RELEASE_TAG": "release-colab_20261101"}
KAGGLE = {"KAGGLE_KERNEL_RUN_TYPE": "Batch", "RELAY_COAUTHOR": "1"}
KEY, TOKEN = "AK-made-up-key", "made-up-secret-of-a-bucket"
S3 = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": TOKEN}


class Missing(Exception):
    pass


class NoAccess(Exception):
    pass


class Silent(Exception):
    pass


class Refusal(Exception):
    pass


class Notebook:
    """Colab's or Kaggle's secrets: their values, their actions, and the requests they got."""

    def __init__(self) -> None:
        self.holds: dict[str, str | Exception] = {}
        self.asked: list[str] = []
        self.handed_on: dict[str, str] = {}

    def get(self, name: str) -> str:
        self.asked.append(name)
        value = self.holds.get(name, self.holds.get("*", Missing(name)))
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """Both kinds' modules, as in the notebook's own process."""
    secrets = Notebook()
    userdata = ModuleType("google.colab.userdata")
    names = {"SecretNotFoundError": Missing, "NotebookAccessError": NoAccess, "TimeoutException": Silent}
    for name, value in (names | {"get": secrets.get}).items():
        setattr(userdata, name, value)
    colab = ModuleType("google.colab")
    colab.userdata = userdata  # type: ignore[attr-defined]
    kaggle = ModuleType("kaggle_secrets")
    for name, value in {"BackendError": Missing, "CredentialError": Refusal, "ValidationError": Silent}.items():
        setattr(kaggle, name, value)
    kaggle.UserSecretsClient = lambda: SimpleNamespace(get_secret=secrets.get)  # type: ignore[attr-defined]
    for module in (colab, userdata, kaggle):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    in_kernel = SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", in_kernel)  # type: ignore[arg-type]
    return secrets


def chain(provider: str = "colab") -> Chain:
    return Chain(vault_of(provider))  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", ["colab", "kaggle"])
@pytest.mark.parametrize(
    ("url", "holds"),
    [
        ("s3://bucket/x", S3 | {"AWS_SESSION_TOKEN": "session", "AWS_DEFAULT_REGION": "eu-central-1"}),
        ("dropbox:///relay", {"DROPBOX_REFRESH_TOKEN": "r", "DROPBOX_APP_KEY": "k", "DROPBOX_APP_SECRET": "s"}),
        ("dropbox:///relay", {"DROPBOX_ACCESS_TOKEN": "a"}),
        ("drive://FOLDER/FIRST", {"RELAY_DRIVE_TOKEN": "{}", "RELAY_DRIVE_OWN_ACCOUNT": "1"}),
    ],
)
def test_what_a_store_needs_is_asked_for(notebook: Notebook, provider: str, url: str, holds: dict[str, str]) -> None:
    notebook.holds = {**holds, "RELAY_OWNER": "Ada"}
    found = chain(provider)
    assert found.credentials({}, [url], ["RELAY_OWNER"]) == notebook.holds
    assert not found.advice
    found.credentials({}, [url], ["RELAY_OWNER"])
    assert len(notebook.asked) == len(set(notebook.asked)), "each name once"


def test_the_environment_comes_first_and_parts_are_never_mixed(notebook: Notebook) -> None:
    notebook.holds = dict(S3)
    assert chain().credentials({"AWS_ACCESS_KEY_ID": "mine"}, ["s3://b"], []) == {}
    assert chain().credentials({"AWS_PROFILE": "work"}, ["s3://b"], []) == {}
    assert not notebook.asked


def test_half_a_pair_is_not_handed_on_alone(notebook: Notebook) -> None:
    notebook.holds = {"AWS_ACCESS_KEY_ID": KEY}
    found = chain()
    assert found.credentials({}, ["s3://b"], []) == {}
    assert any("AWS_SECRET_ACCESS_KEY" in line for line in found.advice)


@pytest.mark.parametrize("url", ["file:///mnt/shared", "memory://x"])
def test_a_store_that_needs_nothing_asks_for_nothing(notebook: Notebook, url: str) -> None:
    assert chain().credentials({}, [url], ["RELAY_OWNER"]) == {} and not notebook.asked


def test_elsewhere_nobody_is_asked(notebook: Notebook) -> None:
    for provider in ("local", "slurm"):
        assert chain(provider).credentials({}, ["s3://b"], []) == {}
    assert not notebook.asked


WAYS: list[tuple[str, Exception, str, bool]] = [
    ("colab", Missing(), "Colab has no secret AWS_ACCESS_KEY_ID", False),
    ("colab", NoAccess(), "no access to the secret AWS_ACCESS_KEY_ID", False),
    ("colab", Silent(), "a notebook that is open in Colab's own page", True),
    ("colab", AttributeError("'NoneType' object has no attribute 'kernel'"), "Colab's own page", True),
    ("kaggle", Missing("{'secret': 'x'}"), "No secret AWS_ACCESS_KEY_ID is attached", False),
    ("kaggle", Refusal(), "Kaggle", True),
    ("kaggle", ConnectionError("Please ensure internet is on."), "Settings > Internet", True),
    ("kaggle", TimeoutError(), "Settings > Internet", True),
    ("kaggle", json.JSONDecodeError("x", "y", 0), "Kaggle's secrets", True),
]


@pytest.mark.parametrize(("provider", "failure", "advice", "over"), WAYS)
def test_each_way_of_failing_has_its_advice_and_hopeless_ones_end_the_asking(
    notebook: Notebook, provider: str, failure: Exception, advice: str, over: bool
) -> None:
    notebook.holds = {"*": failure}
    found = chain(provider)
    assert found.credentials({}, ["s3://b", "dropbox:///x"], ["RELAY_OWNER"]) == {}
    said = " ".join(found.advice)
    assert said.count(advice) == (1 if over or provider == "kaggle" else said.count(advice)) and advice in said
    assert (len(notebook.asked) == 1) is over
    assert "{'secret'" not in said, "what the library says is not repeated"


def test_behind_an_exclamation_mark_colab_is_not_asked_at_all(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "IPython")
    found = chain()
    assert found.credentials({}, ["s3://b"], []) == {} and not notebook.asked
    assert in_a_cell("config show") in found.advice[0]


def test_where_the_environment_has_all_that_is_needed_nothing_is_said(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in every command behind `!` once a cell has handed the secrets on."""
    monkeypatch.delitem(sys.modules, "IPython")
    found = chain()
    assert found.credentials(dict(S3), ["s3://b"], ["RELAY_OWNER"]) == {} and not found.advice


def test_without_kaggles_module_that_is_said(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaggle_secrets", None)  # type: ignore[arg-type]
    found = chain("kaggle")
    assert found.addresses({}) == {} and "no kaggle_secrets" in found.advice[0]


@pytest.mark.parametrize("value", ["", "  \n", "a\0b", "a\ud800b", None])
@pytest.mark.parametrize("provider", ["colab", "kaggle"])
def test_an_empty_secret_or_one_that_is_no_text_is_said(notebook: Notebook, provider: str, value: str) -> None:
    notebook.holds = {"AWS_ACCESS_KEY_ID": value}
    found = chain(provider)
    assert found.credentials({}, ["s3://b"], []) == {} and "AWS_ACCESS_KEY_ID" in found.advice[0]


def test_a_trial_without_a_store_is_no_trouble(notebook: Notebook) -> None:
    found = chain()
    assert found.addresses({}) == {} and not found.advice
    assert chain().addresses({"RELAY_STORE": "x", "RELAY_LEDGER_STORE": "y", "RELAY_CHECKPOINT_STORE": "z"}) == {}


def test_every_name_is_known_to_the_mask() -> None:
    names = {name for kind in KINDS.values() for group in kind.credentials for name in (*group.needed, *group.optional)}
    public = {"AWS_DEFAULT_REGION", "RELAY_DRIVE_OWN_ACCOUNT"}
    assert secrets_of({name: f"value-of-{name}" for name in names}) == {f"value-of-{n}" for n in names - public}
    assert not [name for name in ("HOME", "PATH", "RELAY_STORE", "RUN_NAME") if secrets_of({name: "x" * 20})]


@pytest.fixture
def desk(tmp_path: Path, notebook: Notebook) -> Desk:
    found = Desk(tmp_path / "desk")
    notebook.holds = {"RELAY_STORE": f"file://{tmp_path}/shared", **S3, "RELAY_OWNER": "Ada"}
    return found


def test_settings_say_that_they_came_from_a_secret_and_the_next_command_has_them(
    desk: Desk, tmp_path: Path, notebook: Notebook
) -> None:
    shown = desk("config", "show", "--origin", **COLAB)
    (line,) = [line for line in shown.out.splitlines() if line.startswith(f"storage.url = file://{tmp_path}/shared ")]
    assert "RELAY_STORE" in line and "Colab" in line
    assert desk.handed_on == {"RELAY_STORE": f"file://{tmp_path}/shared"}, "a file store needs nothing else"
    assert "AWS" not in " ".join(notebook.asked)


def test_a_session_trains_where_the_secret_says(desk: Desk, tmp_path: Path) -> None:
    desk("run", "--run", "r", "--target-steps", "2", "--new", **KAGGLE)
    assert (tmp_path / "shared" / "registry").is_dir() and not (desk.folder / "relay_store").exists()


def test_credentials_are_named_and_never_shown(desk: Desk, notebook: Notebook) -> None:
    notebook.holds["RELAY_STORE"] = "s3://a-bucket/relay"
    shown = desk("config", "show", "--origin", "--json", **COLAB)
    more = desk("config", "show", "--origin", **COLAB)
    assert desk.handed_on == {"RELAY_STORE": "s3://a-bucket/relay", **S3, "RELAY_OWNER": "Ada"}
    names = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, RELAY_OWNER, RELAY_STORE"
    assert more.out.endswith(f" {names}\n")
    for text in (shown.out, shown.err, more.out, more.err):
        assert KEY not in text and TOKEN not in text


def test_preparing_asks_for_no_secret(desk: Desk, notebook: Notebook) -> None:
    desk("prepare", **KAGGLE)
    assert not notebook.asked


def test_a_store_that_refuses_says_what_the_secrets_lack(desk: Desk, notebook: Notebook) -> None:
    notebook.holds = {"RELAY_STORE": "dropbox:///relay"}
    assert "DROPBOX_REFRESH_TOKEN" in desk("status", code=69, **KAGGLE).err


def test_doctor_names_what_the_secrets_gave_and_lack(desk: Desk, notebook: Notebook) -> None:
    notebook.holds = {"RELAY_STORE": notebook.holds["RELAY_STORE"], "*": NoAccess()}
    found = desk("doctor", "--json", code=None, **COLAB).json["findings"]
    given = [row["text"] for row in found if row["subject"] == "secrets" and row["ok"]]
    assert len(given) == 1 and "Colab" in given[0] and "RELAY_STORE" in given[0]
