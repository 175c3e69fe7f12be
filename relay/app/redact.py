"""Masks secrets in text for people, logs and shared files."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from relay.app.messages.wording import harmless

MASK = "***"
MIN_SECRET = 8
"""A shorter value is masked only by pattern: masking every 'abc' would garble ordinary text."""

SECRET_NAME = re.compile(
    r"(?i)(secret|token(?!iz)|passw(or)?d|pwd|api_?key|access_?key|private_?key|cache_?key|app_?key|credential|cookie|webhook)"
)
ORDINARY_NAME = re.compile(r"(?i)(old)?pwd|\w*_(file|dir|path|sock)")
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
_USERINFO = re.compile(r"(://)[^/@\s]+@")
_ASSIGNED = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) [\w.-]* (?: secret | token | passw(?:or)?d | pwd | api_?key | access_?key | private_?key
                | cache_?key | credentials? | signature | (?<![a-z])sig(?![a-z]) ) [\w.-]* ["']? \s* [=:] \s* ["']? )
    ( [^\s"'&,;)}\]]{4,} )"""
)
_NEAR_KEY = re.compile(r"(?i)((?:wandb|key|login)\S*\W{1,4})([0-9a-f]{40})(?![0-9a-f])")


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """Values of environment variables with secret-sounding names, line by line, stripped."""
    lines = (line.strip() for name, value in environ.items() if _names_secret(name) for line in value.splitlines())
    return frozenset(line for line in lines if len(line) >= MIN_SECRET)


def _names_secret(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not ORDINARY_NAME.fullmatch(name)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with known secrets and everything that looks like a credential masked.

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
    text = _USERINFO.sub(r"\1" + MASK + "@", text)
    text = _NEAR_KEY.sub(r"\1" + MASK, text)
    return _ASSIGNED.sub(r"\1" + MASK, text)


def nameless(value: Any, names: Mapping[str, str]) -> Any:
    """A text or JSON document with people's names replaced by ids in every string (`--redact`).

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
        """The masked line."""
        return harmless(redact(super().format(record), self._secrets))
