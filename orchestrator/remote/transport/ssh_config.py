"""Reads the SSH settings for a host and its jump hosts, as `ssh -G` of OpenSSH prints them.

What stands for something else in settings (`%h` and its like, `${VARIABLE}` and `~`) is as ssh_config(5) has it.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, MissingRequirement, TransportError

HOST_KEY = "`ssh` in the inventory"
_MOST_JUMPS = 16
_HOP = re.compile(r"(?:(?P<user>.+)@)?(?:\[(?P<address>[^]]+)]|(?P<name>[^][:]+))(?::(?P<port>[0-9]{1,5}))?")
_NO = ("no", "off", "false", "none")
# How the values of an option stand behind its name; a path that stands alone on its line may have spaces in it.
_WHOLE = ("identityfile", "certificatefile")
_SPACED = ("userknownhostsfile", "globalknownhostsfile")

# What the program ssh follows and paramiko cannot.
_PROGRAM_ALONE = {
    "bindinterface": "BindInterface",
    "knownhostscommand": "KnownHostsCommand",
    "nohostauthenticationforlocalhost": "NoHostAuthenticationForLocalhost",
    "pkcs11provider": "PKCS11Provider",
    "proxyusefdpass": "ProxyUseFdpass",
    "revokedhostkeys": "RevokedHostKeys",
    "verifyhostkeydns": "VerifyHostKeyDNS",
}
_TOKEN = re.compile(r"%(.?)")
_VARIABLE = re.compile(r"\$\{(\w*)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """The SSH address of a node; what is None comes from the SSH configuration.

    `host` may be an alias of it. `config` is read instead of the user's and the system's file. `jump` is written as for
    `ssh -J`. `name` is the node's, for messages, and `source` where `host` is written.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    config: Path | None = None
    jump: str | None = None
    source: str = HOST_KEY

    def options(self) -> list[str]:
        """Return the options of `ssh` before the host, as far as they decide which settings hold."""
        given = (("-F", self.config and self.config.expanduser()), ("-p", self.port), ("-J", self.jump))
        return [word for option, value in given if value is not None for word in (option, str(value))]

    def by_hand(self, *words: str) -> str:
        """Return the command that does the same by hand."""
        key = ["-i", str(self.key)] if self.key is not None else []
        host = f"{self.user}@{self.host}" if self.user else self.host
        return shlex.join(["ssh", *self.options(), *key, host, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """The SSH settings of one host, under OpenSSH's names without their case; text is as `ssh -G` gives it.

    Tuples are of what may stand there several times. `none` and what is not set are None.
    """

    hostname: str
    user: str
    port: int
    addressfamily: str = "any"
    bindaddress: str | None = None
    connecttimeout: int | None = None
    identityfile: tuple[str, ...] = ()
    certificatefile: tuple[str, ...] = ()
    identitiesonly: bool = False
    identityagent: str | None = "SSH_AUTH_SOCK"
    pubkeyauthentication: bool = True
    gssapiauthentication: bool = False
    proxyjump: str | None = None
    proxycommand: str | None = None
    userknownhostsfile: tuple[str, ...] = ()
    globalknownhostsfile: tuple[str, ...] = ()
    hostkeyalias: str | None = None
    stricthostkeychecking: str = "ask"
    hashknownhosts: bool = False
    hostkeyalgorithms: tuple[str, ...] = ()
    casignaturealgorithms: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    kexalgorithms: tuple[str, ...] = ()
    compression: bool = False
    controlpath: str | None = None
    program_alone: tuple[str, ...] = ()
    """Options that are set and that the program ssh alone follows."""

    @property
    def known_as(self) -> str:
        """The name under which known_hosts files have the host's key."""
        if self.hostkeyalias is not None:
            return self.hostkeyalias
        host = self.hostname.lower()
        return host if self.port == 22 else f"[{host}]:{self.port}"

    @property
    def principal(self) -> str:
        """The name that a certificate of the host has to be for."""
        return self.hostkeyalias if self.hostkeyalias is not None else self.hostname.lower()

    @property
    def accepts_new(self) -> bool:
        """Whether the key of a host that no file names is taken and remembered; a changed key never is."""
        return self.stricthostkeychecking == "accept-new" or self.accepts_any

    @property
    def accepts_any(self) -> bool:
        """Whether the settings would take even a changed key, in which they are not followed."""
        return self.stricthostkeychecking in _NO


@dataclass(frozen=True, slots=True)
class Hop:
    """One host of a route, the last one included."""

    target: SshTarget
    settings: SshSettings


def route(target: SshTarget, deadline: Deadline) -> list[Hop]:
    """Return the hosts of the route, the target last, each with its own settings.

    A jump host is looked up as `ssh -J` does: with the same configuration file, without the target's user, port or key.
    """
    hops: list[Hop] = []
    here: SshTarget | None = target
    while here is not None:
        if len(hops) > _MOST_JUMPS:
            raise TransportError("the jump hosts form a loop", node=target.name, hint=here.by_hand("true"))
        settings = settings_of(here, deadline)
        hops.insert(0, Hop(here, settings))
        here = _jump(here, settings.proxyjump) if settings.proxyjump is not None else None
    return hops


def _jump(target: SshTarget, jumps: str) -> SshTarget:
    """Return the target for the last of `jumps`, reached through the others.

    Without others, its own settings say how it is reached.
    """
    before, _, last = jumps.rpartition(",")
    found = _HOP.fullmatch(last)
    if found is None:
        raise TransportError(f"{last!r} is no jump host", node=target.name, hint="write it as [user@]host[:port]")
    host = found["address"] or found["name"]
    port = int(found["port"]) if found["port"] else None
    if target.source != HOST_KEY:  # a jump host itself, whose own jump hosts stand before it
        source = target.source
    elif target.jump is not None:
        source = "`jump` in the inventory"
    else:
        source = f"ProxyJump of {target.host} in {target.config or '~/.ssh/config'}, or what includes it"
    return SshTarget(
        name=f"jump host {host}",
        host=host,
        user=found["user"],
        port=port,
        config=target.config,
        jump=before or None,
        source=source,
    )


def settings_of(target: SshTarget, deadline: Deadline) -> SshSettings:
    """Return the settings that `ssh` would use for a target."""
    user = ["-l", target.user] if target.user is not None else []
    argv = ["ssh", "-G", "-T", *target.options(), *user, "--", target.host]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=max(deadline.remaining, 0.001),
            check=False,
        )
    except FileNotFoundError:
        raise MissingRequirement(
            "the program ssh is not installed on this machine: it says which SSH settings hold",
            hint="sudo apt-get install openssh-client",
        ) from None
    except subprocess.TimeoutExpired:
        raise DeadlineExceeded(
            "gave up waiting for the SSH settings", node=target.name, hint="see whether a `Match exec` of them hangs"
        ) from None
    if done.returncode != 0:
        said = "; ".join(done.stderr.split("\n")[-4:]).strip("; ") or f"status {done.returncode}"
        loop = "a jump host needs `ProxyJump none` for itself"
        raise TransportError(
            f"ssh does not accept its settings for {target.host}: {said}",
            node=target.name,
            hint=loop if "loop" in said else f"see the output of: {target.by_hand('true')}",
        )
    return parsed_settings(done.stdout)


def parsed_settings(text: str) -> SshSettings:
    """Parse what `ssh -G` printed."""
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        said.setdefault(name.lower(), []).append(value)
    kinds = get_type_hints(SshSettings)
    try:
        settings = SshSettings(
            **{name: _typed(name, kinds[name], found) for name, found in said.items() if name in kinds}
        )
    except (TypeError, ValueError) as error:  # a field is missing, or no number
        raise TransportError(
            f"what `ssh -G` prints is not understood: {error}", hint="is the `ssh` of PATH that of OpenSSH?"
        ) from None
    return replace(settings, program_alone=tuple(text for name, text in _PROGRAM_ALONE.items() if _is_set(said, name)))


def _is_set(said: Mapping[str, list[str]], name: str) -> bool:
    return said.get(name, ["none"])[0] not in _NO


def _typed(name: str, kind: object, found: list[str]) -> Any:
    """Return the values of one option with the type of its field."""
    first = found[0]
    if kind == tuple[str, ...]:
        words = found if name in _WHOLE else first.split(None if name in _SPACED else ",")
        return tuple(word for word in words if word != "none")
    if kind is bool:
        return first not in _NO
    if kind is str:
        return first
    if first == "none":
        return None
    return first if kind == str | None else int(first)


def expanded(text: str, hop: Hop) -> str:
    """Return `text` with its %-tokens replaced."""
    values = _values(hop)

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise TransportError(
                f"the SSH settings have {found[0]!r} in {text!r}, which is no token of ssh_config(5)",
                node=hop.target.name,
            )
        return values[found[1]]()

    return _TOKEN.sub(value, text)


def expanded_path(text: str, hop: Hop) -> Path:
    """Return the path that `text` names."""

    def variable(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise TransportError(
                f"the SSH settings want the variable {found[1]}, which is not set", node=hop.target.name
            )
        return os.environ[found[1]]

    found = _VARIABLE.sub(variable, expanded(text, hop))
    try:
        return Path(_home(found))
    except KeyError:
        raise TransportError(
            f"the SSH settings name {text!r}, and there is no such user here", node=hop.target.name
        ) from None


def _home(text: str) -> str:
    """Expand a leading tilde in a path by the user database, as OpenSSH does, not by HOME.

    Raise KeyError without such a user.
    """
    if not text.startswith("~"):
        return text
    user, slash, rest = text[1:].partition("/")
    return (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir + slash + rest


def _values(hop: Hop) -> Mapping[str, Callable[[], str]]:
    settings = hop.settings
    jump = settings.proxyjump or ""

    def connection() -> str:
        text = socket.getfqdn() + settings.hostname + str(settings.port) + settings.user + jump
        return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()

    return {
        "%": lambda: "%",
        "C": connection,
        "d": lambda: _home("~"),
        "h": lambda: settings.hostname,
        "i": lambda: str(os.getuid()),
        "j": lambda: jump,
        "k": lambda: settings.hostkeyalias or hop.target.host,
        "L": lambda: socket.gethostname().partition(".")[0],
        "l": socket.gethostname,
        "n": lambda: hop.target.host,
        "p": lambda: str(settings.port),
        "r": lambda: settings.user,
        "u": getpass.getuser,
    }
