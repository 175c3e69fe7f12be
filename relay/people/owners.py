"""Infers owner and provider of an account from its label, and the source of each guess. Verifies no identity."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from relay.core.clock import Runtime
from relay.core.errors import BadConfig
from relay.core.ledger.frozen import clean
from relay.core.names import NAME, check_letters
from relay.people.policy import Providers

YOUR_NAME = "YOUR NAME"
"""Stands in an invitation where a person puts a name or a pseudonym."""
SHARED_LOGINS = frozenset({"root", "jovyan", "kaggle", "colab", "ubuntu", "user", "admin"})
"""Login names that notebooks and images share: they identify no person."""

_POSSESSIVE = re.compile(r"^\W*(?P<name>[^\W\d_](?:[^\W_]|[ .-]|['’](?=A))*?)(?:['’]s|(?<=s)['’])(?=\s|$)")
"""In the `_shape` of a label. Within a name an apostrophe comes before a capital."""
_NOT_NAMES = frozenset({"it", "that", "this", "there", "here", "what", "let", "today"})
_ACCENTS = re.compile("[\u0300-\u036f\ufe00-\ufe0f\u115f\u1160\u3164]")
"""Latin, Greek and Cyrillic accents, and characters that Unicode calls letters or marks and that show nothing."""
_LOOKALIKES = str.maketrans(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0455\u0456\u0458\u0501\u04bb\u051b\u051d"
    "\u03b1\u03b9\u03ba\u03bd\u03bf\u03c1\u03c5\u03c7\u0131\u0251\u0261\u00f8\u0142\u0111",
    "aceopxysijdhqwaiknopuxiagold",
)
"""Small Cyrillic, Greek and other letters that look like Latin ones."""
_UNNAMED = re.compile(r"unnamed-[0-9a-f]{4}")


@dataclass(frozen=True)
class Inference:
    """Owner and provider of an account, each with its source."""

    owner: str | None
    """None if no source names a person; use `machine_owner` then."""
    owner_from: str
    provider: str
    provider_from: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Both, with their sources."""
        owner = self.owner or "unknown"
        return (f"owner {owner} (from {self.owner_from})", f"provider {self.provider} (from {self.provider_from})")

    @property
    def guesses(self) -> tuple[str, ...]:
        """Those of `lines` that no option gave."""
        sources = (self.owner_from, self.provider_from)
        return tuple(line for line, source in zip(self.lines, sources, strict=True) if not source.startswith("--"))


def infer(
    label: str,
    owner: str | None,
    provider: str | None,
    environ: Mapping[str, str],
    login: str,
    providers: Providers,
) -> Inference:
    """Owner: the flag, RELAY_OWNER, a name in the label, the login name unless it is shared. Provider: flag, label.

    Raises BadConfig (78) for a provider flag that is not a name, and for bytes that are not letters.
    """
    for source, text in (("The label", label), ("--owner", owner), ("RELAY_OWNER", environ.get("RELAY_OWNER"))):
        check_named(source, text or "")
    who, who_from = _owner(label, owner, environ, login)
    if provider:
        return Inference(who, who_from, providers.named(provider).name, "--provider")
    found = providers.in_text(label)
    where = "the label" if found else "nothing in the label; set it with --provider"
    return Inference(who, who_from, found.name if found else "unknown", where)


class NoName(BadConfig):
    """The invitation's placeholder was left where a person's name belongs."""

    def __init__(self, source: str) -> None:
        super().__init__(f"{source} is still {YOUR_NAME}, which stands for your name or a pseudonym.")
        self.source = source


def check_named(source: str, name: str) -> None:
    """Raises NotLetters (78) for bytes that are not letters, and NoName (78) for the placeholder."""
    check_letters(source, name)
    if same_person(name, YOUR_NAME):
        raise NoName(source)


def same_person(a: str, b: str) -> bool:
    """Whether two owner names are the same person; see `folded`."""
    return folded(a) == folded(b)


def folded(text: str) -> str:
    """A name with its usual variations removed, for comparison.

    Ignores case, width, spacing, punctuation, Latin accents, invisible characters, and Cyrillic and Greek letters that
    look Latin. "John S." stays different from "John".
    """
    wide = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold()).casefold()
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", wide)).translate(_LOOKALIKES)
    letters = "".join(c for c in plain if unicodedata.category(c)[0] in "LMN")
    return letters or "".join(c for c in plain if unicodedata.category(c)[0] not in "CZ")


def account_id(owner: str, provider: str) -> str:
    """The id of a person's account at a provider, from both names: ana-colab.

    Two spellings that are one person by `folded`, and have the same words, give one id. A name without Latin letters or
    digits, or a very long one, is replaced by a digest.
    """
    words = "-".join(word for part in re.split(r"[\s._-]+", owner) if (word := folded(part)))
    found = f"{words}-{provider}"
    if NAME.fullmatch(found):
        return found
    return f"p{hashlib.sha256(folded(owner).encode()).hexdigest()[:10]}-{provider}"


def account_label(owner: str, provider: str) -> str:
    """What people call that account: Ana's Colab."""
    return f"{owner}'s {provider[:1].upper()}{provider[1:]}"


def machine_owner(folder: Path, runtime: Runtime) -> str:
    """The random name `unnamed-xxxx` for the user of this machine, made once and kept in `folder`.

    Raises OSError if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "owner"
    with FileLock(str(path) + ".lock"):
        kept = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if not _UNNAMED.fullmatch(kept):
            kept = unnamed(runtime)
            path.write_text(kept + "\n", encoding="utf-8")
    return kept


def is_unnamed(owner: str) -> bool:
    """Whether an owner is a random name from `unnamed`."""
    return _UNNAMED.fullmatch(owner) is not None


def unnamed(runtime: Runtime) -> str:
    """A random name for a person whom no source names."""
    return f"unnamed-{runtime.token()[:4]}"


def _shape(letter: str) -> str:
    """`A` for a capital, `a` for a mark (it belongs to its letter), otherwise the character itself."""
    kind = unicodedata.category(letter)
    return "A" if kind == "Lu" else "a" if kind[0] == "M" else letter


def _possessor(label: str) -> str | None:
    """The person in a possessive label: Ana for "Ana's Colab"; None without one."""
    text = unicodedata.normalize("NFC", clean(label, 200))
    found = _POSSESSIVE.match("".join(map(_shape, text)))
    name = text[slice(*found.span("name"))] if found else None
    return None if name is None or name.casefold() in _NOT_NAMES else name


def _owner(label: str, owner: str | None, environ: Mapping[str, str], login: str) -> tuple[str | None, str]:
    choices = (
        (owner, "--owner"),
        (environ.get("RELAY_OWNER"), "RELAY_OWNER"),
        (_possessor(label), "the label"),
        (login if login.casefold() not in SHARED_LOGINS else None, "the login name"),
    )
    for text, origin in choices:
        if text and (name := clean(text, 60)):
            return name, origin
    return None, "nothing; set it with --owner or RELAY_OWNER"
