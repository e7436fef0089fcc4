"""Reaches hosts by the program ssh, where logins want what paramiko has not: Kerberos, PKCS#11, a second factor.

Each host of a route has a master connection (ssh_config(5), ControlMaster), which all that goes there shares: one of
the user's own that is open, else one that is opened here, once for this process, and ends with it. A host behind
another one is reached through that one's. An agent is a session of the last one's.

The user's SSH configuration decides how a login goes, and what says which host keys are known. As over paramiko, an
unknown key is refused unless the configuration accepts new ones, a changed one always, and no agent is forwarded.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, OrchError, TransportError
from orchestrator.core.machines.remedies import remedy
from orchestrator.core.private_folder import PrivateFolder
from orchestrator.remote.transport import logins, ssh_errors
from orchestrator.remote.transport.bootstrap import agent_command_line
from orchestrator.remote.transport.local import ProcessChannel
from orchestrator.remote.transport.ssh_config import Hop

_PATH_BYTES = 107 - len(".0123456789abcdef")  # of a socket's name, to which ssh adds so much while it makes it
_LOOK_S = 0.02
_TICKET_S = 5.0
_END_S = 2.0  # for a process to end that was asked to
_ALIVE_S, _ALIVE_TIMES = 15, 4  # as over paramiko: a peer that acknowledges nothing for a minute is gone
# What an alias may ask for that is for a person's session, and what would open the way back from the host.
_PLAIN = {
    "ControlPersist": "no",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "Tunnel": "no",
}
# Ctrl-C on the terminal at which a password was asked for is for the controller, which has hosts to put back.
_HELD = ("sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")
# Ends the connections when the controller has ended in any way, whose process ids it writes; $0 is their folder.
_KEEPER = """
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do [ -d "/proc/$pid" ] && grep -qaF "$0" "/proc/$pid/cmdline" && kill "$pid"; done
rm -rf "$0"
"""
_SAID_BYTES = 1 << 14
# What ssh prints, by its sources: sshconnect.c, sshconnect2.c, clientloop.c, mux.c.
_DENIED = re.compile(r"Permission denied \((?P<methods>[\w,@.-]+)\)|Too many authentication failures")
_ASKED = re.compile(r"keyboard-interactive|password")
_NOT_OPENED = re.compile(r"stdio forwarding (request )?failed", re.IGNORECASE)
_WHY = re.compile(r"open failed: (.*)")
_KEY = re.compile(r"host key is known for|Host key verification failed|HOST KEY DETECTED")
_DROPPED = re.compile(r"kex_exchange_identification: .*(closed|reset)|Connection (closed|reset) by .* port \d+$")
_PROXY_ENDED = re.compile(r"kex_exchange_identification: |banner exchange: |Connection (closed|reset) by UNKNOWN")
_CLOSED = re.compile(r"\b(closed|reset)\b")  # what a ProxyCommand that is an ssh says when its server dropped it


def needed(way: Sequence[Hop]) -> bool:
    """Return whether the settings of a route want the program.

    They name what it alone follows, or the path of a master connection that is open, or allow Kerberos, for which
    this user has a ticket.
    """
    return any(
        hop.settings.program_alone
        or _open_already(hop) is not None
        or (hop.settings.gssapiauthentication and hop.target.key is None and _has_ticket())
        for hop in way
    )


def connect(
    way: Sequence[Hop], *, python: str = "python3", sudo: bool | str = False, deadline: Deadline
) -> ProcessChannel:
    """Start an agent on the last host of a route and return its channel; the first answer tells whether it runs."""
    last = way[-1]
    with ssh_errors.explained(last.target, deadline):
        master = _master_of(way, deadline)
        argv = [*master.words(), "--", last.target.host, agent_command_line(python, sudo=sudo)]
        names = [hop.target.name for hop in way[:-1]]
        return ProcessChannel(argv, way=names, by_hand=last.target.by_hand(python, "-V"), exit_s=_END_S)


@dataclass(frozen=True, slots=True)
class _Master:
    """A master connection: to which host, and at which socket.

    One that was opened here has a process besides, and a file of what that printed.
    """

    hop: Hop
    path: Path
    process: subprocess.Popen[bytes] | None = None
    printed: IO[bytes] | None = None

    def words(self) -> list[str]:
        """Return the words of an ssh that goes through it, up to the host; it makes no connection of its own."""
        alone = ["-F", "none", "-T", "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]
        return ["ssh", *alone, "-S", str(self.path)]

    def to_next(self) -> str:
        """Return the ProxyCommand to a host behind; out of the terminal's session, so that Ctrl-C leaves it."""
        words = [word.replace("%", "%%") for word in ("setsid", *self.words())]
        return shlex.join([*words, "-W", "[%h]:%p", "--", self.hop.target.host])

    def size(self) -> int:
        """Return how many bytes it has printed."""
        return os.fstat(self.printed.fileno()).st_size if self.printed is not None else 0

    def said(self, begin: int = 0) -> str:
        """Return the last of what it has printed from this byte on."""
        if self.printed is None:
            return ""
        return os.pread(self.printed.fileno(), _SAID_BYTES, max(begin, self.size() - _SAID_BYTES)).decode(
            errors="replace"
        )


def _master_of(way: Sequence[Hop], deadline: Deadline) -> _Master:
    """Return an open master connection to the last host of a route."""
    last = way[-1]
    if (theirs := _open_already(last)) is not None:
        return _Master(last, theirs)
    jump = _master_of(way[:-1], deadline) if len(way) > 1 else None
    return _masters.to(last, jump, deadline)


def _open_already(hop: Hop) -> Path | None:
    """Return the socket of the settings' own ControlPath where a master connection listens there."""
    if hop.settings.controlpath is None:
        return None
    path = Path(hop.settings.controlpath)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return None
    return path


def _has_ticket() -> bool:
    """Return whether this user has a Kerberos ticket that holds."""
    klist = shutil.which("klist")
    if klist is None:
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [klist, "-s"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TICKET_S, check=False
        )
        return done.returncode == 0
    return False


def _options(hop: Hop, proxy: str) -> list[str]:
    """Return the words of an ssh to a host, as far as its socket, which comes next."""
    target = replace(hop.target, jump=None) if proxy else hop.target
    given = dict(_PLAIN, StrictHostKeyChecking="accept-new" if hop.settings.accepts_new else "yes")
    if proxy:
        given["ProxyCommand"] = proxy
    words = ["ssh", "-T", *target.options()]
    for name, value in given.items():
        words += ["-o", f"{name}={value}"]
    if target.user is not None:
        words += ["-l", target.user]
    if target.key is not None:
        key = target.key.expanduser()
        key.stat()  # one that is missing is an error, not one key less
        words += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
    return words


class _Masters:
    """The master connections of this process, one for each way to a host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # of the one terminal
        self._folder: PrivateFolder | None = None
        self._keeper: subprocess.Popen[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._made: dict[tuple[str, ...], Future[_Master]] = {}
        self._count = 0

    def to(self, hop: Hop, jump: _Master | None, deadline: Deadline) -> _Master:
        """Return the connection to a host, opened by the first who asks; all who wait get the error where it fails."""
        key = (*_options(hop, jump.to_next() if jump is not None else ""), hop.target.host)
        with self._lock:
            made = self._made.get(key)
            if made is not None and made.done() and _ended(made.result()):
                made = None  # the host restarted, or was lost
            if mine := made is None:
                made = self._made[key] = Future()
        if not mine:
            return _others(made, hop, deadline)
        try:
            made.set_result(self._opened(hop, jump, deadline))
        except BaseException as error:
            with self._lock:
                self._made.pop(key, None)
            made.set_exception(error if isinstance(error, OrchError) else TransportError("the login was given up"))
            raise
        return made.result()

    def close(self) -> None:
        """End the connections and remove their folder; a second call does nothing."""
        with self._lock:
            keeper, folder, processes = self._keeper, self._folder, self._processes
            self._keeper, self._folder, self._processes, self._made = None, None, [], {}
        if keeper is None or folder is None or keeper.stdin is None:
            return
        for process in processes:
            process.terminate()
        for process in processes:
            _awaited(process)
        keeper.stdin.close()
        _awaited(keeper)
        folder.close()

    def _opened(self, hop: Hop, jump: _Master | None, deadline: Deadline) -> _Master:
        """Log in without a word, or else at the terminal where a person can be asked."""
        try:
            return logins.patiently(hop, lambda: self._attempt(hop, jump, deadline, asks=False), deadline)
        except _DeniedError as error:
            if not _somebody_there():
                raise _denied(hop, error.methods, error.said) from error
        with self._asking:
            deadline.check("the SSH login", node=hop.target.name)
            _announce(hop)
            try:
                return self._attempt(hop, jump, deadline, asks=True)
            except _DeniedError as error:
                raise _denied(hop, "", error.said) from error

    def _attempt(self, hop: Hop, jump: _Master | None, deadline: Deadline, *, asks: bool) -> _Master:
        """Start an ssh and wait until others may use its connection."""
        path = self._new_path()
        proxy = jump.to_next() if jump is not None else ""
        argv = [
            *_options(hop, proxy),
            *("-o", f"BatchMode={'no' if asks else 'yes'}", "-o", "NumberOfPasswordPrompts=1"),
            *("-o", f"ServerAliveInterval={_ALIVE_S}", "-o", f"ServerAliveCountMax={_ALIVE_TIMES}"),
            *("-o", "ControlMaster=yes", "-N", "-S", str(path), "--", hop.target.host),
        ]
        begin = jump.size() if jump is not None else 0
        printed = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the connection
        process = self._started(argv if not asks else [*_HELD, *argv], printed, new_session=not asks)
        master = _Master(hop, path, process, printed)
        try:
            deadline.poll(
                lambda: path.exists() or process.poll() is not None,
                every_s=_LOOK_S,
                waiting_for="the SSH login",
                node=hop.target.name,
            )
        except BaseException:
            process.terminate()
            _awaited(process)
            raise
        if process.poll() is None:
            return master
        raise _error(master, jump, jump.said(begin) if jump is not None else "")

    def _new_path(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = PrivateFolder("ssh-")
                self._keeper = subprocess.Popen(
                    ["sh", "-c", _KEEPER, str(self._folder.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    text=True,
                )
                atexit.register(self.close)
            self._count += 1
            path = self._folder.path / str(self._count)
        if len(os.fsencode(path)) > _PATH_BYTES:
            raise TransportError(
                f"{path} is too long a name for a socket of ssh",
                hint="set XDG_RUNTIME_DIR or TMPDIR to a folder with a short name",
            )
        return path

    def _started(self, argv: Sequence[str], printed: IO[bytes], *, new_session: bool) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._keeper is None or self._keeper.stdin is None:
                raise TransportError("orch ends: no login begins any more")
            self._processes = [process for process in self._processes if process.poll() is None]
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, start_new_session=new_session
                )
            except OSError as error:
                raise TransportError(f"cannot start ssh: {error}", argv=argv) from error
            self._processes.append(process)
            with contextlib.suppress(BrokenPipeError):  # somebody has killed the keeper: `close` ends them still
                self._keeper.stdin.write(f"{process.pid}\n")
                self._keeper.stdin.flush()
        return process


def _others(made: Future[_Master], hop: Hop, deadline: Deadline) -> _Master:
    """Return the connection that somebody else opens; the error of a login that failed is a copy."""
    try:
        return made.result(deadline.remaining)
    except NotYet:
        raise DeadlineExceeded("gave up waiting for the SSH login", node=hop.target.name) from None
    except TransportError as error:
        raise error.again() from None


def _ended(master: _Master) -> bool:
    return master.process is not None and master.process.poll() is not None


def _awaited(process: subprocess.Popen[Any]) -> None:
    """Wait for a process that was asked to end; kill it where it does not."""
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _DeniedError(Exception):
    """The server did not let the user in; `methods` are those that it would have taken, in ssh's own words."""

    def __init__(self, said: str, methods: str) -> None:
        super().__init__(said)
        self.said = said
        self.methods = methods


def _error(master: _Master, jump: _Master | None, jump_said: str) -> Exception:
    """Return the error of an ssh that has ended before its connection could be used.

    `jump_said` is what that to the host before it has printed meanwhile.
    """
    hop, said = master.hop, master.said().replace("\r", "")
    last = said.strip().rpartition("\n")[2] or "ssh ended without a word"
    if (found := _DENIED.search(said)) is not None:
        return _DeniedError(said, found["methods"] or "")
    if jump is not None and (_ended(jump) or _NOT_OPENED.search(said)):
        return _not_opened(hop, jump, jump_said + said)
    if _KEY.search(said):
        return _of_host_key(hop, said)
    if "Could not resolve hostname" in said:
        return ssh_errors.unknown(hop)
    if hop.settings.proxycommand is not None and (found := _PROXY_ENDED.search(said)) is not None:
        proxy_said = said[: found.start()].strip().rpartition("\n")[2]
        last = f"its ProxyCommand ended: {proxy_said or 'without a word'}"
        said = said if _CLOSED.search(proxy_said) else proxy_said
    if _DROPPED.search(said):
        return logins.DroppedError(last)
    hint = remedy(said) or f"see the output of: {hop.target.by_hand('true')}"
    return TransportError(f"cannot connect by SSH: {last}", node=hop.target.name, tail=said, hint=hint)


def _not_opened(hop: Hop, jump: _Master, said: str) -> TransportError:
    """Return the error that a jump host opens no connection to the next host, or is gone."""
    if _ended(jump):
        return TransportError("its SSH connection ended", node=jump.hop.target.name, tail=jump.said())
    if "administratively prohibited" in said:
        return ssh_errors.no_forwarding(hop, jump.hop)
    return ssh_errors.unreached(hop, jump.hop, (_WHY.findall(said) or ["no connection"])[-1])


def _of_host_key(hop: Hop, said: str) -> TransportError:
    """Return the error of a host whose key, or the authority that signed it, is not accepted."""
    by_hand = hop.target.by_hand("true")
    what, hint = "is not known", f"compare it, then accept it with: {by_hand}"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        what, hint = "has changed", f"somebody may be in between; see all of: {by_hand}"
    elif "revoked" in said.lower():
        what, hint = "is revoked", f"see all of: {by_hand}"
    text = f"the host key of {hop.settings.known_as} {what}"
    return TransportError(text, node=hop.target.name, tail=said, hint=hint)


def _denied(hop: Hop, methods: str, said: str) -> TransportError:
    """Return the error of a login that failed."""
    failed = f"SSH login failed as {hop.settings.user}"
    if asked := _ASKED.findall(methods):
        return TransportError(
            f"{failed}: the server asks for {' or '.join(asked)}, and there is no terminal to ask at",
            node=hop.target.name,
            tail=said,
            hint="run orch at a terminal, or log in first by a connection of your own that stays open: ControlMaster,"
            " ControlPath and ControlPersist in your SSH configuration",
        )
    by_hand = hop.target.by_hand("true")
    return TransportError(
        failed, node=hop.target.name, tail=said, hint=remedy(said) or f"see whether this works: {by_hand}"
    )


def _somebody_there() -> bool:
    """Return whether ssh can ask: at the terminal that this process has in the foreground, or by SSH_ASKPASS."""
    if os.environ.get("SSH_ASKPASS") and (
        os.environ.get("DISPLAY") or os.environ.get("SSH_ASKPASS_REQUIRE") in ("force", "prefer")
    ):
        return True
    with _terminal() as terminal:
        return terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp()


def _announce(hop: Hop) -> None:
    """Say at the terminal, on a line of its own, for whom ssh is about to ask."""
    with _terminal() as terminal:
        if terminal is not None:
            os.write(terminal, f"\r\n{hop.target.name}: ssh logs in as {hop.settings.user}\r\n".encode())


@contextlib.contextmanager
def _terminal() -> Iterator[int | None]:
    """Give the terminal of this process; None where it has none."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


_masters = _Masters()
