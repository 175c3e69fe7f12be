"""Masks secrets in everything that leaves the program: output streams, logs, stored texts, messages to services."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

from relay.app.messages.wording import harmless

MASK = "***"
MIN_SECRET = 8
"""A shorter value is masked only by pattern: masking every 'abc' would garble ordinary text."""

SECRET_NAME = re.compile(
    r"(?i)(secret|token(?!iz)|passw(or)?d|pwd|api_?key|access_?key|private_?key|cache_?key|app_?key|credential|cookie|webhook)"
)
ORDINARY_NAME = re.compile(r"(?i)(old)?pwd|\w*_(file|dir|path|sock)|google_application_credentials")
"""Names of variables with paths: masking the working directory would mask every path under it."""
_HEAD = r"(?<![A-Za-z0-9_])"
PATTERNS = (
    re.compile(_HEAD + r"(?:KGAT_|hf_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|sk-|xox[abp]-)[A-Za-z0-9_-]{8,}"),
    re.compile(_HEAD + r"(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(_HEAD + r"(?:ya29\.|1//|sl\.|GOCSPX-|AIza)[A-Za-z0-9_.-]{10,}"),
    re.compile(_HEAD + r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_USERINFO = re.compile(
    r"""(?x)
    (?<! [A-Za-z0-9+.-] ) (?P<scheme> [A-Za-z] [A-Za-z0-9+.-]{1,40}+ (?: : | %3[aA] ) /{0,3}+ )
    (?P<user> [^/:@%\[\]\s"'<>]{0,200}+ ) (?: : | %3[aA] ) (?! \d+ (?: $ | [/?\#\s"',;)\]] ) )
    (?P<password> [^\s"'<>]{1,600} ) (?: @ | %40 )"""
)
"""`scheme://user:password@`, however many slashes were typed: a key may hold slashes and @. A port is no password."""
_TOKEN_ONLY = re.compile(r"""(?<=://)[^/@?\#\s"'<>]+(?=@)""")
"""`scheme://token@`."""
_BARE = re.compile(r"^\s*[^\s/:@]{3,200}:(?!//)(\S{8,600})@")
"""`user:password@` at the beginning of a setting."""
_QUERY = re.compile(r"[?&]([\w.-]+)=([^&#\s]+)")
_ASSIGNED = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) [\w.-]* (?: secret | token(?!iz) | passw(?:or)?d | pwd | api_?key | access_?key | private_?key
                | cache_?key | credentials? | signature | (?<![a-z])sig(?![a-z]) ) [\w.-]* ["']? \s* [=:] \s* ["']? )
    ( [^\s"'&,;)}\]]{4,} )"""
)
_PROSE = re.compile(r"[A-Z][A-Z0-9_]*: [a-z]+[.:]?|(?i:secrets|credentials|tokens):\s+\S+")
"""A sentence that goes on after a colon: `RELAY_DRIVE_TOKEN: mistyped`, `credentials: none needed`."""
_NEAR_KEY = re.compile(r"(?i)((?:wandb|key|login)\S*\W{1,4})([0-9a-f]{40})(?![0-9a-f])")


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets in environment variables, in each spelling that a message may give them.

    These are the values of variables with secret-sounding names, line by line, with the fields of a JSON document; and
    of every variable what its value holds as an address: a user's password, and parameters that sound secret.
    """
    found = set[str]()
    for name, value in environ.items():
        if _names_secret(name):
            found.update(line.strip() for line in value.splitlines())
            found.update(_of_document(value))
        found.update(in_address(value))
    return frozenset(form for secret in found for form in _spellings(secret) if len(form) >= MIN_SECRET)


def in_address(text: str) -> Iterator[str]:
    """Yield the secrets in a text that may be an address, or hold one."""
    for found in _USERINFO.finditer(text):
        yield found["password"]
        yield found["password"].rstrip("=")  # which end a key, and separate a setting from its value
        yield from (found["user"],) * (len(found["user"]) > 2 * MIN_SECRET)  # longer than a name: a key's id
    yield from _TOKEN_ONLY.findall(text)
    yield from _BARE.findall(text)
    yield from (value for name, value in _QUERY.findall(text) if _names_secret(name))


def _of_document(text: str) -> Iterator[str]:
    """Yield the secret fields of a JSON object, such as a token's file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    for name, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, str) and _names_secret(str(name)):
            yield from (line.strip() for line in value.splitlines())


def _spellings(secret: str) -> set[str]:
    """A secret as it is, as a URL has it, decoded from one, and escaped as in source, JSON and plain terminals."""
    ascii_only = (secret.encode("ascii", how).decode() for how in ("replace", "backslashreplace"))
    quoted = (json.dumps(secret)[1:-1], repr(secret)[1:-1])
    parts = () if "://" in secret else (part for part in secret.split("/") if len(part) > MIN_SECRET)  # as of a path
    return {secret, unquote(secret), quote(secret), quote(secret, safe=""), *quoted, *ascii_only, *parts}


def _names_secret(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not ORDINARY_NAME.fullmatch(name)


def without_secrets(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON document with every string in it redacted, names of fields too."""
    known = frozenset(secrets)
    masked = cache(lambda text: redact(text, known))  # a document repeats its names

    def walk(item: Any) -> Any:
        if isinstance(item, dict):
            return {masked(str(key)): walk(inner) for key, inner in item.items()}
        if isinstance(item, list | tuple):
            return [walk(inner) for inner in item]
        return masked(item) if isinstance(item, str) else item

    return walk(value)


def output(text: str, secrets: Iterable[str] = ()) -> str:
    """Return what a stream may show of a text: a JSON document stays one, any other text is redacted as it is."""
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return redact(text, secrets)
        masked = without_secrets(document, secrets)
        return text if masked == document else json.dumps(masked)
    return redact(text, secrets)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with known secrets and everything that looks like a credential masked.

    Invisible characters inside or next to a secret are removed when the text is shown (`harmless`), so the text is
    also masked without them.
    """
    known = sorted(secrets, key=len, reverse=True)
    masked = _masked(text, known)
    if masked.isprintable():
        return masked
    plain = harmless(_COLOUR.sub("", masked))
    again = _masked(plain, known)
    return masked if again == plain else again


def _masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    for pattern in PATTERNS:
        text = pattern.sub(MASK, text)
    text = _BEARER.sub(r"\1 " + MASK, text)
    text = _USERINFO.sub(lambda found: f"{found['scheme']}{MASK}@", text)
    text = _TOKEN_ONLY.sub(MASK, text)
    text = _NEAR_KEY.sub(r"\1" + MASK, text)
    return _ASSIGNED.sub(lambda found: found[0] if _PROSE.fullmatch(found[0]) else found[1] + MASK, text)


def nameless(value: Any, names: Mapping[str, str]) -> Any:
    """Return a text or JSON document with people's names replaced by ids in every string (`--redact`).

    `names`: {name: replacement}; the longest are replaced first.
    """
    if isinstance(value, dict):
        return {key: nameless(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [nameless(item, names) for item in value]
    if isinstance(value, str):
        for name in sorted(names, key=len, reverse=True):
            value = value.replace(name, names[name])
    return value


class RedactingFormatter(logging.Formatter):
    """Masks secrets in the formatted line, including tracebacks."""

    def __init__(self, fmt: str, secrets: Iterable[str] = ()) -> None:
        super().__init__(fmt, datefmt="%Y-%m-%dT%H:%M:%S")
        self._secrets = frozenset(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """Return the masked line."""
        return harmless(redact(super().format(record), self._secrets))
