"""A notebook's cells: their calls act as the page describes, each failure names the remedy, nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from relay.app.commands.common import App
from relay.app.machine.env import Machine
from relay.app.notebooks import cellstore, notebook
from relay.app.notebooks.notebook import Notebook, Stopped, why_kept
from relay.core.errors import StorageUnreachable
from tests.app.cli import Desk, ToyPlugin

COLAB, KAGGLE = {"COLAB_RELEASE_TAG": "x"}, {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}
HERE = Machine("colab", 0.0, 720.0)


class Missing(Exception):
    pass


class NoAccess(Exception):
    pass


class Silent(Exception):
    pass


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The contents of both services' secrets: values, or the exception that a name raises."""
    held = dict[str, Any]()

    def get(name: str) -> str:
        value = held.get(name, Missing(name))
        if isinstance(value, Exception):
            raise value
        return str(value)

    userdata = ModuleType("google.colab.userdata")
    vars(userdata).update(SecretNotFoundError=Missing, NotebookAccessError=NoAccess, TimeoutException=Silent, get=get)
    colab, kaggle = ModuleType("google.colab"), ModuleType("kaggle_secrets")
    vars(colab).update(userdata=userdata)
    vars(kaggle).update(BackendError=Missing, UserSecretsClient=lambda: SimpleNamespace(get_secret=get))
    for module in (colab, userdata, kaggle):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    in_kernel = SimpleNamespace(get_ipython=lambda: object())
    monkeypatch.setitem(sys.modules, "IPython", in_kernel)  # type: ignore[arg-type]
    return held


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A machine whose folder a notebook uses too, and the address of a store where nothing has begun, on a disk that
    stays: the tests' own folder may be memory."""
    monkeypatch.setattr(cellstore, "evaporates", lambda path: False)
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    return Desk(tmp_path / "here", environ={"RELAY_STORE": f"file://{tmp_path}/store"})


def book(desk: Desk, **environ: str) -> Notebook:
    return Notebook(folder=desk.folder, environ={"HOME": str(desk.folder), **environ})


def test_the_store_is_found_among_the_secrets_and_handed_on_to_commands(
    desk: Desk, secrets: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    desk.train(20, run="sudoku_rotation")
    secrets |= {"RELAY_STORE": desk.environ["RELAY_STORE"]}
    one = book(desk, **COLAB)
    one.settings("Ana", coauthor=True)
    assert (one.environ["RELAY_STORE"], one.environ["ACCOUNT_ID"]) == (secrets["RELAY_STORE"], "ana-colab")
    assert one.environ["RELAY_COAUTHOR"] == "1" and "RELAY_EPHEMERAL" not in one.environ
    said = capsys.readouterr().out
    assert "Account: ana-colab (Ana's Colab), owner Ana" in said and "sudoku_rotation, at step 20 of 20" in said
    assert "RELAY_STORE of Colab's secrets" in said


def test_a_notebook_shown_in_a_cell_shows_no_secret(desk: Desk, secrets: dict[str, Any]) -> None:
    """Its last line may be any name: IPython writes its repr into the file that people share."""
    secrets |= {"RELAY_STORE": desk.environ["RELAY_STORE"]}
    one = book(desk, **COLAB, AWS_SECRET_ACCESS_KEY="hunter2hunter2")
    one.settings("Ana")
    assert "hunter2" not in repr(one) + repr(one.opened) and desk.environ["RELAY_STORE"] not in repr(one)
    assert "HOME" not in repr(one) + repr(one.opened), "nor the rest of the environment"


def test_what_is_typed_no_more_is_forgotten(desk: Desk, secrets: dict[str, Any]) -> None:
    one = book(desk, **COLAB)
    one.settings("Ana", store=desk.environ["RELAY_STORE"], trial=True)
    with pytest.raises(Stopped, match="no secret RELAY_STORE"):
        one.settings("Ben")
    assert "RELAY_EPHEMERAL" not in one.environ and "ACCOUNT_ID" not in one.environ


@pytest.mark.parametrize(
    ("environ", "held", "advice"),
    [
        (COLAB, {}, "Colab has no secret RELAY_STORE. Add it under the key"),
        (COLAB, {"RELAY_STORE": NoAccess()}, "no access to the secret RELAY_STORE"),
        (COLAB, {"RELAY_STORE": Silent()}, "Colab's own page"),
        (COLAB, {"RELAY_STORE": " "}, "The secret RELAY_STORE is empty"),
        (KAGGLE, {}, "No secret RELAY_STORE is attached to this notebook. Tick it"),
        (KAGGLE, {"RELAY_STORE": ConnectionError()}, "Switch the internet on"),
        ({}, {}, "in STORE of cell 2"),
        (COLAB, {"RELAY_STORE": "ftp://x"}, "ftp"),
        (COLAB, {"RELAY_STORE": '"s3://bucket/relay"'}, "quote"),
    ],
    ids=["colab-none", "no-access", "silent", "empty", "kaggle-none", "offline", "no-vault", "address", "quoted"],
)
def test_each_way_to_have_no_store_says_what_to_do(
    desk: Desk, secrets: dict[str, Any], environ: dict[str, str], held: dict[str, Any], advice: str
) -> None:
    secrets |= held
    with pytest.raises(Stopped) as stopped:
        book(desk, **environ).settings("Ana")
    assert advice in str(stopped.value)
    assert stopped.value._render_traceback_() == [str(stopped.value)], "one paragraph, no traceback"


def failing(error: Exception) -> Callable[..., Any]:
    """A function that only raises."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_credentials_that_are_missing_are_named_where_the_store_refuses(
    desk: Desk, secrets: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets |= {"RELAY_STORE": "s3://bucket/x", "AWS_ACCESS_KEY_ID": "made-up-key"}
    monkeypatch.setattr(cellstore, "open_stores", failing(StorageUnreachable("The bucket refuses.")))
    one = book(desk, **COLAB)
    with pytest.raises(Stopped, match=r"The bucket refuses.*no secret AWS_SECRET_ACCESS_KEY"):
        one.settings("Ana")
    assert "AWS_ACCESS_KEY_ID" not in one.environ, "half a pair is handed to nobody"
    secrets["AWS_SECRET_ACCESS_KEY"] = "made-up-secret"
    with pytest.raises(Stopped, match="The bucket refuses") as stopped:
        one.settings("Ana")
    assert one.environ["AWS_SECRET_ACCESS_KEY"] == "made-up-secret" and "made-up" not in str(stopped.value)


def test_a_missing_library_of_the_store_is_installed_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(cellstore, "lacking", lambda schemes: True)
    one = book(desk, RELAY_STORE="s3://nowhere.invalid/x?endpoint=http://127.0.0.1:9")
    monkeypatch.setattr(one, "set_up", lambda: asked.append("set up"))
    monkeypatch.setattr(cellstore, "open_stores", failing(StorageUnreachable("later")))
    with pytest.raises(Stopped, match="later"):
        one.settings("Ana")
    assert asked == ["set up"]


def test_a_command_of_a_cell_asks_no_secrets_again(secrets: dict[str, Any], tmp_path: Path) -> None:
    environ = {**COLAB, notebook.ASKED: "1"}
    assert App(plugin=ToyPlugin(), environ=environ, cwd=tmp_path, root=tmp_path).chain.vault is None
    assert App(plugin=ToyPlugin(), environ=COLAB, cwd=tmp_path, root=tmp_path).chain.vault is not None


def ending_with(monkeypatch: pytest.MonkeyPatch, one: Notebook, code: int, **document: Any) -> list[list[str]]:
    """From now on every command of this notebook ends so; returns the arguments it got."""
    given = list[list[str]]()

    def instead(words: list[str], *_: Any) -> tuple[int, str]:
        given.append(words[words.index("trm_relay") + 1 :])
        return code, json.dumps({"exit_code": code, "message": "How it ended.", "unsent": None, **document})

    monkeypatch.setattr(notebook, "follow", instead)
    return given


@pytest.mark.parametrize("code", [0, 1, 2, 65, 69, 73, 74, 75, 76, 77, 78, 130, 137, 143])
def test_only_an_end_as_planned_lets_the_machine_go(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    released = list[bool]()
    monkeypatch.setattr(notebook, "release", lambda *_: released.append(True))
    one = book(desk, **desk.environ, **COLAB)
    one.settings("Ana")
    given = ending_with(monkeypatch, one, code)
    if code in (0, 75):
        one.train(wait_minutes=7, earlier="replace")
    else:
        with pytest.raises(Stopped, match="How it ended"):
            one.train(wait_minutes=7, earlier="replace")
    assert given[0] == ["run", "--json", "--progress-seconds", "5", "--wait", "7", "--replace"]
    assert (["next"] in given) == (code == 75)
    one.release_runtime(False)
    assert not released and "Machine kept" in capsys.readouterr().out
    one.release_runtime(True)
    assert bool(released) == (code in (0, 75))


@pytest.mark.parametrize(
    ("code", "document", "said"),
    [
        (73, {"schema": "relay.error/1", "message": "Ana trains."}, "the reason is above. Run this cell again later."),
        (73, {"schema": "relay.error/1", "message": "Here: `run --attach`"}, "Choose EARLIER in this cell"),
        (74, {"schema": "relay.error/1", "message": "Not sent."}, "Do not delete this machine"),
        (130, {"schema": "relay.run/1", "message": "Interrupted; step 9 is committed."}, "step 9 is committed. Run th"),
        (130, {"schema": "relay.error/1", "message": "Detached. Process 7 …"}, "Choose 'attach' again"),
        (137, {"message": ""}, "It ended with 137."),
    ],
)
def test_each_end_says_what_to_do_in_the_notebook(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, code: int, document: dict[str, Any], said: str
) -> None:
    one = book(desk, **desk.environ)
    one.settings("Ana")
    ending_with(monkeypatch, one, code, **document)
    with pytest.raises(Stopped) as stopped:
        one.train()
    assert said in str(stopped.value)


def test_an_earlier_good_session_does_not_vouch_for_a_later_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    one = book(desk, **desk.environ)
    one.settings("Ana")
    ending_with(monkeypatch, one, 0)
    one.train()
    ending_with(monkeypatch, one, 74)
    with pytest.raises(Stopped, match="Do not delete this machine"):
        one.train()
    assert why_kept(one.ended, HERE, [])


def test_what_is_on_the_machine_only_keeps_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.train(20, run="sudoku_rotation")
    one = book(desk, **desk.environ)
    one.settings("Ana")
    assert one.opened is not None and one.opened.unsent() == [], "the copy of a committed checkpoint is no loss"
    home = desk.folder / "sync" / "sudoku_pretrain_multiaccount" / "sudoku_rotation"
    shutil.copytree(home / "step_20.e1", home / "step_25.e1")
    described = json.loads((home / "step_20.e1.json").read_text()) | {"committed": None}
    (home / "step_25.e1.json").write_text(json.dumps(described | {"step": 25, "parent": [20, 1]}))
    (kept,) = one.opened.unsent()
    assert "step 25" in kept and str(home) in kept and why_kept({"exit_code": 75}, HERE, [kept]) == kept
    home.rename(home.with_name("another"))
    assert "another" in one.opened.unsent()[0], "a run that this store does not hold"
    monkeypatch.setattr(cellstore, "open_run", failing(StorageUnreachable("The store is silent.")))
    assert one.opened.unsent()[0].endswith(": The store is silent.")


def test_a_store_of_this_very_machine_keeps_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that store was only a trial, too: otherwise the last session's final state would be lost."""
    one = book(desk, **desk.environ)
    one.settings("Ana", trial=True)
    assert one.opened is not None and one.opened.unsent() == []
    monkeypatch.setattr(cellstore, "evaporates", lambda path: path.endswith("/store"))
    (kept,) = one.opened.unsent()
    assert "/store" in kept


def test_a_setup_that_fails_stops_the_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "multi_account_workflow.sh").write_text('echo "why: $1" >&2; exit 78')
    with pytest.raises(Stopped, match="78"):
        Notebook(folder=tmp_path, environ=dict(os.environ)).set_up()
    assert capsys.readouterr().out == "why: setup\n"


def test_the_page_is_a_file_that_a_cell_shows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, shown = book(desk, **desk.environ), list[Any]()
    one.settings("Ana")
    given = ending_with(monkeypatch, one, 0)
    (desk.folder / "sync").mkdir()
    (desk.folder / "sync" / "run.html").write_text("<p>curves</p>")
    one.curves()
    assert given == [["dashboard", "--export", "sync/run.html", "--json"]]
    assert capsys.readouterr().out.endswith("run.html\n"), "outside a notebook the file is named"
    monkeypatch.setattr(notebook, "displays", lambda: lambda data, raw: shown.append(data))
    one.curves()
    assert "curves" in shown[0]["text/html"]


def test_cells_out_of_order_say_which_comes_first(tmp_path: Path) -> None:
    for call in (Notebook().train, Notebook().curves, lambda: Notebook().release_runtime(True)):
        with pytest.raises(Stopped, match="settings"):
            call()
