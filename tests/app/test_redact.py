"""Secrets never reach a log or an error; hashes and ordinary text stay readable. All secrets here are made up."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from relay.app.commands.common import emit, say
from relay.app.machine.logs import KEEP, close_log, open_log
from relay.app.messages.events import HEARD
from relay.app.messages.wording import harmless, printable
from relay.app.redact import MASK, redact, secrets_of
from relay.app.terminal.mishaps import tell
from relay.app.terminal.progress import Bar, Lines
from relay.core.ledger.reader import Damage

HEX40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"WANDB_API_KEY={HEX40}", HEX40),
        (f"wandb login {HEX40}", HEX40),
        ("token hf_abcdefghijKLMNOP", "hf_abcdefghijKLMNOP"),
        ("KGAT_0123456789abcdef", "KGAT_0123456789abcdef"),
        ("AKIAIOSFODNN7EXAMPLE is the id", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_0123456789abcdefghij", "ghp_0123456789abcdefghij"),
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("s3://user:pass123@host/bucket", "pass123"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ('{"refresh_token": "1//0abcdefghijklmnop"}', "0abcdefghijklmnop"),
        ("https://host/x?X-Amz-Signature=deadbeefdeadbeef&y=1", "deadbeefdeadbeef"),
        ("https://host/x?sv=1&sig=deadbeefdeadbeef", "deadbeefdeadbeef"),
        ("url_sig: deadbeefdeadbeef", "deadbeefdeadbeef"),
        ("password: hunter22", "hunter22"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "MIIabc"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert MASK in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "state_hash " + "ab" * 32,
        "session " + "0f" * 16,
        "seed=3 keys=12 file:///home/me/relay_store",
        "Unknown setting arch.L_cycle. Did you mean arch.L_cycles?",
        "commit at step 500, epoch 7",
        "design: another",
        *HEARD.values(),
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


def test_a_usual_shell_has_no_secret_so_paths_stay_readable() -> None:
    shell = {
        "PWD": "/home/me/project",
        "OLDPWD": "/home/me/other",
        "HOME": "/home/me-and-you",
        "PATH": "/usr/local/bin:/usr/bin",
        "SHELL": "/usr/bin/bash",
        "LOGNAME": "somebody",
        "SSH_AUTH_SOCK": "/tmp/ssh-abc/agent.1",
        "SSH_ASKPASS": "/usr/lib/ssh/askpass",
        "GIT_ASKPASS": "/usr/lib/git/askpass",
        "XDG_RUNTIME_DIR": "/run/user/1000",
        "AWS_SHARED_CREDENTIALS_FILE": "/home/me/.aws/credentials",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/aws/token",
        "TOKENIZERS_PARALLELISM": "disabled",
        "KEYTIMEOUT": "10000000",
    }
    assert secrets_of(shell) == frozenset()
    assert secrets_of({"DB_PWD": "hunter22!", "PGPASSWORD": "hunter23!", "TOKEN_PATHS": "hunter24!"}) >= {
        "hunter22!",
        "hunter23!",
        "hunter24!",
    }


def test_values_of_secret_variables_are_masked_wherever_they_appear() -> None:
    secrets = secrets_of({"AWS_SECRET_ACCESS_KEY": "plainlooking", "HOME": "/home/me", "TOKEN": "abc"})
    assert secrets == {"plainlooking"}
    assert redact("plainlooking /home/me abc", secrets) == f"{MASK} /home/me abc"


def test_a_secret_is_masked_however_its_lines_are_joined() -> None:
    """A pasted key ends in a line break that its user strips; a message joins the lines of another."""
    found = secrets_of({"RELAY_CACHE_KEY": " c0ffee-c0ffee \n", "MY_SECRET": "first-line\nsecond-line\n"})
    for text in ("c0ffee-c0ffee", "first-line\nsecond-line", "first-line second-line", r"first-line\nsecond-line"):
        masked = redact(f"say {text} aloud", found)
        assert not any(word in masked for word in ("c0ffee", "first", "second")), masked


def test_printable_is_one_harmless_line() -> None:
    assert printable("\x1b[31mred\x1b[0m\r\nnext‮evil​") == "[31mred[0m next" + "evil"


EVIL = "a\x1b]0;evil\x07\x1b[2J\u202eb\r\x9b31m"


@pytest.mark.parametrize(
    "leave",
    [
        lambda text: emit(False, {}, text),
        say,
        lambda text: Lines(10, lambda: 0.0, 1.0).tell(text),
        lambda text: Bar(10, lambda: 0.0, Console(file=sys.stderr, force_terminal=True)).tell(text),
        lambda text: tell(65, text, None, False, ()),
        lambda text: print(Damage(3, text).text),
    ],
    ids=["emit", "say", "lines", "bar", "error", "damage"],
)
def test_no_text_leaves_with_a_character_that_a_terminal_obeys(
    leave: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    leave(f"before {EVIL} after")
    captured = capsys.readouterr()
    shown = (captured.out + captured.err).rstrip("\n")
    assert "before a" in shown and shown.endswith("after") and not set(shown) & set("\x1b\x07\u202e\r\x9b")


def test_harmless_keeps_lines_and_columns_and_escapes_what_is_no_character() -> None:
    assert harmless("a   b\n  c\td") == "a   b\n  c d"
    assert harmless("data_dir=\udcff") == "data_dir=\\udcff"


def test_log_masks_secrets_even_in_tracebacks_and_never_shows_locals(tmp_path: Path) -> None:
    path = open_log(tmp_path / "logs", "run", 1_700_000_000.0, ["verysecretvalue"])
    assert path is not None and path.name == "20231114T221320Z_run.log"
    hidden_local = "local-that-no-log-shows"
    try:
        raise RuntimeError("verysecretvalue refused")
    except RuntimeError:
        logging.getLogger("relay.cli").exception("failed with hf_abcdefghijKLMNOP")
    close_log()
    text = path.read_text()
    assert "Traceback" in text and MASK in text
    assert not any(secret in text for secret in ("verysecretvalue", "hf_abc", hidden_local))


def test_only_the_newest_logs_stay(tmp_path: Path) -> None:
    for second in range(KEEP + 5):
        for suffix in ("", ".rank1"):  # of a process that followed
            (tmp_path / f"20200101T0000{second:02}Z_run.log{suffix}").write_text("old")
    open_log(tmp_path, "run", 1_700_000_000.0)
    logging.getLogger("relay").info("new")
    close_log()
    assert (len(list(tmp_path.glob("*.log"))), len(list(tmp_path.glob("*.rank1")))) == (KEEP + 1, KEEP)


def test_a_log_that_is_full_begins_anew_and_a_session_keeps_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.app.machine.logs.MAX_BYTES", 4000)
    monkeypatch.setattr("relay.app.machine.logs.KEEP", 2)
    for session in range(4):
        path = open_log(tmp_path, "run", 1_700_000_000.0 + session)
        assert path is not None
        for number in range(200):
            logging.getLogger("relay.x").info("line %d of a session that has much to say", number)
        close_log()
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 3 * 2, "those before this one, and this one: two files each"
    assert all(file.stat().st_size <= 4000 for file in kept)
    assert "line 199" in path.read_text()


def test_a_folder_that_cannot_be_written_costs_the_log_not_the_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert open_log(tmp_path / "file", "run", 0.0) is None
    logging.getLogger("relay").info("goes nowhere")
    close_log()


@pytest.mark.parametrize("hidden", ["\u200b", "\x00", "\u202e", "\x1b[31m"])
def test_characters_that_nobody_sees_hide_no_secret(tmp_path: Path, hidden: str) -> None:
    """They go when a line is shown, and join the parts around them; a library's colors are right next to a key."""
    secret = "hf_abcdefghijKLMNOP"
    for text in (f"{secret[:6]}{hidden}{secret[6:]}", f"{hidden}{secret}{hidden}", f"a {hidden} b {secret}"):
        assert secret not in harmless(redact(text)) and MASK in redact(text)
    with_value = f"corr{hidden}ect-horse"
    assert redact(with_value, {"correct-horse"}) == MASK
    path = open_log(tmp_path, "run", 0.0)
    assert path is not None
    logging.getLogger("relay.x").error("refused %s", f"{secret[:6]}{hidden}{secret[6:]}")
    close_log()
    assert secret not in path.read_text() and MASK in path.read_text()
    other = f"a{hidden} text\nof two lines"
    assert redact(other) == other


def test_a_long_word_is_looked_at_once() -> None:
    word = "Z" * 100_000
    assert redact(word) == word, "from every letter on it would take hours"
