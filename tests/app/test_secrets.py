"""No command shows, logs or stores a secret, whichever variable, address, argument or error it came in.

Commands, their parameters and the variables are read from the code, so that new ones are covered by themselves.
Each planted secret holds a core (`PLANT007`) that is in no other text; a core that is left anywhere is a leak.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from relay.app.checks.doctor import secrets as secrets_found
from relay.app.cli import app
from relay.app.commands import common
from relay.app.redact import MASK, ORDINARY_NAME, SECRET_NAME, output, redact, secrets_of, without_secrets
from relay.core.settings.config import Settings, leaves
from relay.core.settings.origins import variable
from storage.base import Denied, Store, StoreError, open_store
from storage.wrapper import Wrapper
from tests.app.cli import Desk, Result, ToyConfig, wrap_stores

ROOT = Path(__file__).parents[2]
CORE = re.compile(r"PLANT\d{3}")
ADDRESSED = re.compile(r"(_STORE|_URL|_URL_S3|_ENDPOINT|_ADDRESS|_PROXY)$")
"""Variables that hold an address."""
SDKS = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "HF_TOKEN")
"""Variables that only the libraries read."""
FORMS = (
    "s3:/AKIA{0}ABCDEFGH:a/b+{0}=@bucket",
    "s3://AKIA{0}ABCDEFGH:a/b+{0}=@bucket/p",
    "s3://bucket/p?endpoint_url=https://user:{0}@host",
    "s3://bucket/p?secret_key=a{0}b",
    "file://user:{0}@host/x",
    "dropbox://{0}token0@folder",
    "https://user:p@ss{0}@host/store",
    "AKIA{0}ABCDEFGH:a/b+{0}=@bucket",
    "S3:\\\\user:{0}@bucket",
)
"""Addresses with a secret in the wrong place, each refused."""


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Every command of the program with its parameters."""

    def within(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from within(one, (*words, name))
            else:
                yield (*words, name), [parameter for parameter in one.params if parameter.name != "help"]

    return dict(within(typer.main.get_command(app), ()))


@cache
def variables() -> tuple[str, ...]:
    """Every variable that the project reads: settings, names in the code, and those of the libraries."""
    settings = {variable(key) for key in (*leaves(Settings), *leaves(ToyConfig))}
    files = [path for part in ("relay", "storage", "trm") for path in (ROOT / part).rglob("*.py")]
    named = {
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", node.value)
    }
    return tuple(sorted({*settings, *named, *SDKS}))


def planted() -> dict[str, str]:
    """A secret in every variable that can hold one, with characters that URLs, JSON and terminals escape."""
    found: dict[str, str] = {}
    for number, name in enumerate(variables()):
        core = f"PLANT{number:03}"
        if ADDRESSED.search(name) or name.endswith("_proxy"):
            found[name] = f"socks5://user{number}:a/b%2F{core}@c@127.0.0.1:9"
        elif SECRET_NAME.search(name) and not ORDINARY_NAME.fullmatch(name):
            found[name] = f"a/b+'\"é%{core}=\n"
    return found | {"RELAY_WEBHOOK": f"http://127.0.0.1:9/PLANT{len(found) + 900:03}"}


ARGUMENTS = {"account": "account_1", "label": "Ana's lab machine", "state": "ready", "to": "other"}
ARGUMENTS |= {"train_minutes": "1", "total_minutes": "2", "price": "1"}
MORE: Mapping[str, Sequence[str]] = {
    "run": ("--account", "account_1", "--target-steps", "4", "--new"),
    "dashboard": ("--export", "page.html"),
    "demo": ("--store", FORMS[0].format("PLANT998")),
    "tour": ("--steps", "1"),
}
"""Words without which a command would serve, follow or train for long."""
TRAIN = ("demo", "tour")
"""Commands that train whole runs of their own."""


def words_for(command: tuple[str, ...], desk: Desk, **given: str) -> list[str]:
    """The command with its required parameters; `given` takes their place, or adds an option."""
    weights = desk.folder / "weights.bin"
    weights.write_bytes(b"weights")
    options, arguments = [], []
    for one in commands()[command]:
        value = given.get(one.name)
        if value is None and one.required:
            value = {**ARGUMENTS, "weights": str(weights)}.get(one.name, "r")
        if value is None:
            continue
        if one.param_type_name == "argument":
            arguments.append(value)
        else:
            options += [f"{one.opts[0]}={value}"]
    more = [] if given else [*MORE.get(command[-1], ())]
    if not given and any(one.name == "run" for one in commands()[command]):
        more += ["--run", "r"]
    return [*command, *options, *more, *arguments]


def check(result: Result, words: Sequence[str], *folders: Path) -> None:
    """Nothing of any planted secret is in the output, in a file, or in a file's name."""
    for stream in (result.out, result.err):
        assert not CORE.search(stream), (words, stream)
    if "--json" in words and result.out.strip():
        json.loads(result.out)
    for path in (path for folder in folders for path in folder.rglob("*")):
        assert not CORE.search(path.name), (words, path)
        if path.is_file():
            assert not re.search(CORE.pattern.encode(), path.read_bytes()), (words, path)


@pytest.mark.slow
def test_the_lists_hold_what_the_code_holds() -> None:
    assert {("doctor",), ("accounts", "quota"), ("config", "show")} <= commands().keys() and len(commands()) > 35
    named = {"RELAY_STORE", "RELAY_CACHE_KEY", "DROPBOX_REFRESH_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_BASE_URL"}
    assert named <= planted().keys()


@pytest.mark.slow
def test_no_command_leaves_a_secret_anywhere_when_all_goes_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real run in a real folder, with a secret in every variable."""
    known = {**planted(), "RELAY_STORE": (tmp_path / "store").as_uri()}
    for name in ("RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE", "RELAY_STORAGE_LEDGER_URL"):
        known.pop(name, None)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    desk = Desk(tmp_path / "desk", environ=known)
    for command in [("register",), ("run",), *commands()]:
        for as_json in ((), ("--json",)):
            words = [*words_for(command, desk), *as_json]
            check(desk(*words, code=None), words)
    check(Result(0, "", ""), ["all"], tmp_path)
    assert list(tmp_path.rglob("*.log")) and list((tmp_path / "store").rglob("*.json")), "there was something to search"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_no_command_repeats_an_address_with_a_secret(tmp_path: Path, form: str) -> None:
    """In the environment, in a configuration file, on the command line."""
    address = form.format("PLANT001")
    desk = Desk(tmp_path / "desk")
    file = tmp_path / "settings.yaml"
    file.write_text(f"storage:\n  url: '{address}'\n")
    for turn, (command, parameters) in enumerate(commands().items(), FORMS.index(form)):
        takes = {one.name for one in parameters}
        ways: list[tuple[list[str], dict[str, str]]] = [([], {"RELAY_STORE": address})]
        ways += [(["--config", str(file)], {})] * ("config" in takes)
        ways += [([f"storage.url={address}"], {})] * ("overrides" in takes)
        ways += [(["--json"], {"RELAY_STORE": address, "RELAY_LEDGER_STORE": address})]
        more, environ = ways[turn % len(ways)]
        words = [*words_for(command, desk), *more]
        check(desk(*words, code=None, **environ), words)
    check(Result(0, "", ""), ["all"], desk.folder)


@pytest.mark.slow
def test_no_command_repeats_a_secret_that_is_given_as_a_value(tmp_path: Path) -> None:
    """Every option and argument, each with a known key and with an address; also inside the frames of usage errors."""
    key = "wJalrXUtnFEMI/K7MDENG+PLANT002"
    desk = Desk(tmp_path / "desk", environ={"AWS_SECRET_ACCESS_KEY": key, "COLUMNS": "40"})
    desk.train(4)
    for command, parameters in commands().items():
        for one in parameters:
            if getattr(one, "is_flag", False) or one.name in ("as_json", "context"):
                continue
            for value in (key, FORMS[0].format("PLANT003")):
                words = words_for(command, desk, **{one.name: value})
                words += list(MORE.get(command[-1], ())) if command[-1] not in TRAIN else ["--steps=1"]
                check(desk(*words, code=None), words)
    check(Result(0, "", ""), ["all"], desk.folder / "relay_store", desk.folder / "sync")


class Talkative(Wrapper):
    """A store of which every request fails with a text that holds secrets, as SDKs' exceptions do."""

    def __init__(self, inner: Store, error: Exception) -> None:
        super().__init__(inner)
        self._error = error

    def _fail(self, *_: object, **__: object) -> Any:
        raise self._error

    put = put_if_absent = put_new = create = get = read_range = stat = delete = list = now = _fail  # type: ignore[assignment]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Denied, RuntimeError])
def test_no_exception_of_a_library_carries_a_secret_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """As an error of the store, and as a bug, whose traceback goes to a log."""
    known = {**planted(), "RELAY_STORE": str(tmp_path / "store")}
    for name in ("RELAY_LEDGER_STORE", "RELAY_CHECKPOINT_STORE"):
        known.pop(name, None)
    desk = Desk(tmp_path / "desk", environ=known)
    desk.train(4)
    text = " ".join(f"{name}: {value} {value!r} {json.dumps(value)}" for name, value in known.items())
    wrap_stores(monkeypatch, lambda store: Talkative(store, kind(f"refused {text}")))
    codes = set()
    for command in commands():
        for as_json in ((), ("--json",)):
            words = [*words_for(command, desk), *as_json]
            result = desk(*words, code=None)
            codes.add(result.code)
            check(result, words)
    check(Result(0, "", ""), ["all"], desk.folder)
    assert (69 if kind is Denied else 1) in codes
    assert kind is Denied or list(desk.folder.rglob("*error.log")), "the traceback was searched"


@pytest.mark.slow
def test_a_whole_process_masks_what_python_itself_prints(tmp_path: Path) -> None:
    """Warnings, and the traceback of a thread, pass no code of ours."""
    program = (
        "import threading, warnings\n"
        "from relay.app.commands import stores\n"
        "from storage.base import open_store\n"
        "def opened(url, **more):\n"
        "    def fail(): raise RuntimeError(f'cannot open {url} with a/b+PLANT004=')\n"
        "    warnings.warn(f'{url} with a/b+PLANT004=')\n"
        "    thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "    return open_store(url, **more)\n"
        "stores.open_store = opened\n"
        "from relay.app.cli import main\n"
        "main()\n"
    )
    address = FORMS[0].format("PLANT005")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "RELAY_STORE": address}
    environ["AWS_SECRET_ACCESS_KEY"] = "a/b+PLANT004="
    words = [sys.executable, "-c", program, "doctor", "--json"]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "RuntimeError" in done.stderr and "UserWarning" in done.stderr
    check(Result(done.returncode, done.stdout, done.stderr), words, tmp_path)


def test_a_json_document_stays_one() -> None:
    """A secret of digits is masked in texts, not in numbers; a number under the name of a secret is none."""
    document = {"tokens": 12345678, "signature": None, "bytes": 12345678, "text": "pin 12345678", "12345678": [1.5]}
    shown = json.loads(output(json.dumps(document), {"12345678"}))
    assert shown == {**{k: document[k] for k in ("tokens", "signature", "bytes")}, "text": f"pin {MASK}", MASK: [1.5]}
    assert without_secrets(document, ()) == document


def test_what_an_address_hides_is_known_in_each_spelling() -> None:
    found = secrets_of({"https_proxy": "http://me:p%40ss%2Fword@host:80", "X": "https://h/?sig=1&api_key=abc/defgh"})
    for text in ("p@ss/word", "p%40ss%2Fword", "abc/defgh", "abc%2Fdefgh"):
        assert redact(f"it was {text}!", found) == f"it was {MASK}!"
    assert secrets_of({"PATH": "/usr/bin:/bin", "URL": "http://127.0.0.1:9000/a@b", "WHO": "ana:x@y"}) == frozenset()


def literals() -> Iterator[str]:
    """Every text of the program but its documentation, f-strings with a word in place of each value."""
    for path in (path for part in ("relay", "storage", "trm") for path in (ROOT / part).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in (node for node in nodes if id(node) not in documentation):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "NAME" for part in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.value


@pytest.mark.slow
def test_no_sentence_of_the_program_is_masked() -> None:
    known = "password: hunter22"
    assert redact(known) != known
    assert {text: redact(text) for text in literals() if redact(text) != text} == {}


@pytest.mark.slow
def test_no_command_is_masked_where_there_is_nothing_to_hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[str, str]] = []

    def watched(text: str, secrets: frozenset[str]) -> str:
        changed.extend([(text, output(text, secrets))] * (text != output(text, secrets)))
        return text

    monkeypatch.setattr(common, "output", watched)
    desk = Desk(tmp_path / "desk")
    for command in [("register",), ("run",), *(name for name in commands() if name[-1] not in TRAIN)]:
        desk(*words_for(command, desk), code=None)
        desk(*words_for(command, desk), "--json", code=None)
    names = "AWS_ACCESS_KEY_ID, RELAY_STORE"
    for finding in secrets_found("Colab's secrets", names.split(", "), ["No secret X. Set it."]):
        line = f"{finding.subject}: {finding.text}"
        changed.extend([(line, redact(line))] * (line != redact(line)))
    assert changed == []


def test_the_store_opens_no_address_with_a_secret() -> None:
    for form in FORMS:
        address = form.format("PLANT006")
        with pytest.raises(StoreError) as refused:
            open_store(address)
        assert not CORE.search(redact(str(refused.value), secrets_of({"RELAY_STORE": address})))
