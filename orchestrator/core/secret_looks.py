"""What looks like a secret, by its name or by its value, and like a place to take one from; texts without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The end of one of the words of a name ("HF_TOKEN", "PGPASSWORD"), or a whole one: keys are many things ("MONKEY").
_ENDINGS = ("TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
_WORDS = frozenset({"KEY", "KEYS", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "SECRETKEY", "AUTHORIZATION", "COOKIE"})

_VALUES = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|sk-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|hf_[A-Za-z0-9]{30,}"
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"  # JWT
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",  # user and password of an address
    re.DOTALL,
)
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)[\"']?\s*[:=]\s*\S")


def name_looks_secret(name: str) -> bool:
    """Whether a variable of this name usually holds what nobody else may know."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return any(word in _WORDS or word.endswith(_ENDINGS) for word in words)


def value_looks_secret(value: str) -> bool:
    """Whether a text has the form of a token, a private key, or an address with a password."""
    return _VALUES.search(value) is not None


def is_file(source: str) -> bool:
    """Whether a place to take a value from is the path of a file; else it is the name of a variable."""
    return "/" in source


def masked(text: str) -> str:
    """A text without what has the form of a secret; of `some.key=value` whose value is one, or names one, the key."""
    key, equals, value = text.partition("=")
    if equals and value and (name_looks_secret(key.rpartition(".")[2]) or _names_one(value)):
        return f"{key}={MASK}"
    return _VALUES.sub(MASK, text)


def masked_all(words: Iterable[str]) -> list[str]:
    """A command line without secrets."""
    return [masked(word) for word in words]


def _names_one(text: str) -> bool:
    return any(name_looks_secret(name) for name in _NAMED.findall(text))
