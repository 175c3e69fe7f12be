"""Who and where an account is, as far as a label tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.app.providers import shipped
from relay.core.errors import BadConfig
from relay.people.inference import infer_account
from relay.people.owners import SHARED_LOGINS, infer, machine_owner, same_person
from tests.core.making import QuietRuntime


@pytest.mark.parametrize(
    ("label", "owner", "provider"),
    [
        ("John's Colab", "John", "colab"),
        ("John’s Google Colab Pro", "John", "colab"),
        ("Chris' Kaggle", "Chris", "kaggle"),
        ("Mary Ann's lab machine", "Mary Ann", "lab"),
        ("Jürgen's slurm", "Jürgen", "slurm"),
        ("  Ana's   laptop ", "Ana", "local"),
        ("Ju\u0308rgen's slurm", "Jürgen", "slurm"),
        ("अमित's Colab", "अमित", "colab"),
        ("O'Brien's Colab", "O'Brien", "colab"),
        ("Aoife O’Brien’s Colab", "Aoife O’Brien", "colab"),
        ("don't use Bob's Colab", "maria", "colab"),
        ("Kaggle - Project 1", "maria", "kaggle"),
        ("kaggle_2", "maria", "kaggle"),
        ("COLAB2", "maria", "colab"),
        ("Backup Account", "maria", "unknown"),
        ("SageMaker Studio Lab", "maria", "studiolab"),
        ("the lab", "maria", "lab"),
        ("labrador", "maria", "unknown"),
        ("it's mine", "maria", "unknown"),
        ("don't know", "maria", "unknown"),
        ("", "maria", "unknown"),
        ("account_1", "maria", "unknown"),
        ("AWS spot", "maria", "cloud"),
    ],
)
def test_what_a_label_says(label: str, owner: str, provider: str) -> None:
    found = infer(label, None, None, {}, "maria", shipped())
    assert (found.owner, found.provider) == (owner, provider)


def test_the_owner_is_the_first_that_anybody_named() -> None:
    def who(owner: str | None, environ: dict[str, str], label: str, login: str) -> tuple[str | None, str]:
        found = infer(label, owner, None, environ, login, shipped())
        return found.owner, found.owner_from

    env = {"RELAY_OWNER": "Env"}
    assert who("Flag", env, "John's Colab", "maria") == ("Flag", "--owner")
    assert who(None, env, "John's Colab", "maria") == ("Env", "RELAY_OWNER")
    assert who("  ", {"RELAY_OWNER": ""}, "John's Colab", "maria") == ("John", "the label")
    owner, source = who(None, {}, "Colab", "maria")
    assert owner == "maria" and "login" in source
    for login in (*SHARED_LOGINS, "ROOT", ""):
        assert who(None, {}, "Colab", login)[0] is None


def test_a_provider_flag_counts_more_than_the_label() -> None:
    assert infer("John's Colab", None, "Kaggle", {}, "x", shipped()).provider == "kaggle"
    assert infer("John's Colab", None, "newcloud", {}, "x", shipped()).provider == "newcloud"
    with pytest.raises(BadConfig):
        infer("x", None, "not a provider", {}, "x", shipped())


def test_what_was_inferred_can_be_printed() -> None:
    lines = infer("John's Colab", None, None, {}, "x", shipped()).lines
    assert [line.partition(" (")[0] for line in lines] == ["owner John", "provider colab"]
    unnamed = infer("Colab", None, None, {}, "root", shipped()).lines[0]
    assert "--owner" in unnamed and "RELAY_OWNER" in unnamed


def test_a_machine_s_random_name_is_made_once(tmp_path: Path) -> None:
    name = machine_owner(tmp_path / "config", QuietRuntime(1))
    assert name.startswith("unnamed-") and len(name) == 12
    assert machine_owner(tmp_path / "config", QuietRuntime(2)) == name
    (tmp_path / "config" / "owner").write_bytes(b"\xff\x00 not a name")
    assert machine_owner(tmp_path / "config", QuietRuntime(3)) != name


def test_a_machine_that_keeps_no_name_gives_one_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.people.inference.login_name", lambda: "root")
    (tmp_path / "file").touch()
    found = infer_account("x", None, None, {"HOME": str(tmp_path / "file")}, QuietRuntime(1), shipped(), "name it")
    assert found.owner is not None and found.owner.startswith("unnamed-") and "name it" in found.owner_from
    assert not (tmp_path / "file" / ".config").exists()


def test_the_same_person_in_other_spellings() -> None:
    assert same_person("John", " JOHN ") and same_person("Ｊｏｈｎ", "john") and same_person("Straße", "STRASSE")
    assert not same_person("John", "Joan")
