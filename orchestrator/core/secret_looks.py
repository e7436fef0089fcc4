"""Recognise secrets by their name or value, and mask them in texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The end of one of the words of a name ("HF_TOKEN", "PGPASSWORD"), or a whole one: keys are many things ("MONKEY").
_ENDINGS = ("SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
_WORDS = frozenset(
    {"KEY", "KEYS", "APIKEY", "ACCESSKEY", "ACCOUNTKEY", "PRIVATEKEY", "SECRETKEY", "AUTHORIZATION", "COOKIE"}
)
# Words that mean one as the last of a name alone ("MYSQL_PWD", not "SSH_AUTH_SOCK").
_LAST = frozenset({"PASS", "DBPASS", "USERPASS", "SSHPASS", "PWD", "DBPWD", "PASSCODE", "PAT", "AUTH", "OAUTH", "SAS"})
_FOLDERS = frozenset({"PWD", "OLDPWD"})  # which shells have
# What stands ahead of an ordinary key, token or pass ("--eos-token", "forward_pass"), and behind one ("--key-dim").
_ORDINARY = frozenset(
    {
        *("BOS", "CLS", "END", "EOS", "EOT", "FIRST", "IMAGE", "LAST", "MASK", "MAX", "MIN", "NEW", "NEXT", "NUM"),
        *("PAD", "PER", "SEP", "SPECIAL", "START", "STOP", "UNK", "BACKWARD", "FORWARD", "MULTI", "SINGLE", "NO"),
        *("CACHE", "CONFIG", "DATA", "DICT", "FEATURE", "FOREIGN", "GROUP", "INPUT", "LABEL", "LOSS", "METRIC"),
        *("MODEL", "OUTPUT", "PRIMARY", "PUBLIC", "QUERY", "SORT", "STATE", "TARGET", "TEXT"),
        *("AUDIO", "CAPTION", "DATASET", "HASH", "PARTITION", "PRNG", "RNG", "SAVE", "SHUFFLE", "VIDEO"),
    }
)
_ABOUT = frozenset(
    {
        *("BITS", "BUDGET", "COUNT", "DIM", "DIMS", "DIR", "DROPOUT", "EMBEDDING", "FILE", "FORMAT", "HEADS", "ID"),
        *("IDS", "LEN", "LENGTH", "LIMIT", "LOSS", "MASK", "NAME", "PADDING", "PATH", "RATE", "SIZE", "TYPE", "URL"),
    }
)
_LONGEST_PLAIN = 4096
# Values that hide nothing: switches, small numbers, paths, and what a shell or we put in the place of a name.
_PLAIN = re.compile(
    r"(?i:true|false|yes|no|on|off|none|null|)|\d{1,2}|\.{0,2}/.*/.*|[~.]{1,2}/.*|\S+\.(?:key|pem|json|txt)"
    r"|\$\{?\w+\}?|\{env:\w+\}"
)

_VALUES = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|npm_[A-Za-z0-9]{36}|dckr_pat_[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}|r8_[A-Za-z0-9]{30,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|sk-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|hf_[A-Za-z0-9]{30,}"
    r"|AIza[0-9A-Za-z_-]{35}"  # Google
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"  # JWT
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
    r"|(?i:(?<=\bbearer\s)(?=\S*\d)[\w.~+/=-]{8,})"
    r"|(?i:(?<=authorization:)\s*\S.*)"
    r"|(?i:(?<=[?&]sig=)[^&\s]+|(?<=-signature=)[^&\s]+)"  # of addresses of Azure's, Amazon's and Google's
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",  # user and password of an address
    re.DOTALL,
)
# Names have at most 100 characters, so that a long text costs no more than its length.
_NAMED = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_-]{0,99})[\"']?\s*[:=]\s*\S")
# An option, and the word behind it, also within a list or a command for a shell.
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]{0,99})[\"']?(?:\s*[,=]\s*|\s+)[\"']?(?!-)([^\s\"',\]}]+)")
# A header, or an entry of JSON; what "key: ..." alone means is anybody's guess.
_FIELD = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_-]{0,99})[\"']?\s*:\s*[\"']?([^\s\"',}]+)")


def name_looks_secret(name: str) -> bool:
    """Return whether a variable, a key or an option of this name usually holds a secret."""
    words = re.findall(r"[A-Z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper())
    if len(words) == 1 and words[0] in _FOLDERS:
        return False
    for place, word in enumerate(words):
        if _ABOUT.intersection(words[place + 1 : place + 2]):
            continue
        ordinary = place > 0 and words[place - 1] in _ORDINARY
        weak = word in _WORDS or word.endswith("TOKEN") or (word in _LAST and place == len(words) - 1)
        if word.endswith(_ENDINGS) or (weak and not ordinary):
            return True
    return False


def looks_secret(name: str, value: str) -> bool:
    """Return whether a name usually holds a secret, and this value may be one."""
    return name_looks_secret(name) and not (len(value) <= _LONGEST_PLAIN and _PLAIN.fullmatch(value))


def secret_words(words: Sequence[str]) -> list[int]:
    """Return the places of words of a command line that look like secrets.

    A word does by its own form, or by the option ahead.
    """
    found = []
    for place, word in enumerate(words):
        option = words[place - 1] if place else ""
        behind = option.startswith("-") and "=" not in option and not word.startswith("-")
        if (behind and looks_secret(option, word)) or masked(word) != word:
            found.append(place)
    return found


def value_looks_secret(value: str) -> bool:
    """Return whether a text has the form of a token, a private key, or an address with a password."""
    return _VALUES.search(value) is not None


def is_file(source: str) -> bool:
    """Return whether a place to take a value from is the path of a file; else it is the name of a variable."""
    return "/" in source


def masked(text: str) -> str:
    """Return a text without what has the form of a secret.

    Of `some.key=value` whose value is one, or names one, the key.
    """
    key, equals, value = text.partition("=")
    if equals and value and (looks_secret(key.rpartition(".")[2], value) or _names_one(value)):
        return f"{key}={MASK}"
    return _VALUES.sub(MASK, _FIELD.sub(_without_value, _OPTION.sub(_without_value, text)))


def masked_all(words: Sequence[str]) -> list[str]:
    """Return a command line without secrets."""
    secret = frozenset(secret_words(words))
    return [MASK if place in secret and masked(word) == word else masked(word) for place, word in enumerate(words)]


def _without_value(option: re.Match[str]) -> str:
    """Return an option or a field with its value hidden, where that may be a secret."""
    weak = not option[1].startswith("-") and option[1].upper() in {"KEY", "KEYS"} | _LAST
    if weak or not looks_secret(option[1], option[2]):
        return option[0]
    return option[0][: option.start(2) - option.start()] + MASK


def _names_one(text: str) -> bool:
    named = (match for pattern in (_NAMED, _OPTION) for match in pattern.finditer(text))
    return any(name_looks_secret(match[1]) for match in named)
