"""Wait for the command line of mpirun's daemon on this host, and run it.

Its arguments are the address and the port at which `rsh_agent.py` calls. A command is taken from nobody who does not
know the key of the run, MPI_RUN_KEY. Of the environment it needs what `stub.py` does, too.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import sys

from .mpirun import environment, keep
from .rsh_agent import proof

TALK_S = 10.0  # for a caller to send its request
LONGEST = 1 << 18  # bytes of what it says: twice what the kernel takes as one argument of a command
MOST = 128  # callers read at a time, and as many waiting: a process may have 1024 descriptors
TOLD = 20  # messages about callers turned away; more are only counted


class Gatekeeper:
    """Reads from several callers at once until one proves that it knows the key.

    When more than MOST call, the one that has been silent for longest is dropped: the proof takes one round trip, so
    a crowd can delay a caller that knows the key, but not keep it out. A dropped caller may call again.
    """

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.key = key
        self.command: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._callers: dict[Caller, None] = {}  # in the order in which they called
        self._turned_away = 0

    def enter(self, caller: Caller) -> None:
        if len(self._callers) == MOST:
            next(iter(self._callers)).turn_away(f"{MOST} others called while it said nothing")
        self._callers[caller] = None

    def leave(self, caller: Caller, why: str = "") -> None:
        """Remove `caller`: it is served, or, where there is a reason, turned away."""
        del self._callers[caller]
        if not why:
            return
        self._turned_away += 1
        if self._turned_away <= TOLD:
            print(f"a caller from {caller.address} was turned away: {why}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close all callers."""
        for caller in list(self._callers):
            caller.turn_away("another one knew the key")
        if self._turned_away > TOLD:
            print(f"{self._turned_away - TOLD} more callers were turned away", file=sys.stderr, flush=True)


class Caller(asyncio.Protocol):
    """A caller: it gets a nonce, and answers with a line, `PROOF JSON-OF-COMMAND`.

    Nothing of the line is parsed before its proof is verified.
    """

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self.address = ""
        self._gatekeeper = gatekeeper
        self._once = secrets.token_hex(16)
        self._said = bytearray()
        self._heard = False  # to the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what the server of a stream makes
        self._transport = transport
        self.address = transport.get_extra_info("peername")[0]
        self._gatekeeper.enter(self)
        late = f"it said nothing within {TALK_S:g} s"
        self._patience = asyncio.get_running_loop().call_later(TALK_S, self.turn_away, late)
        transport.write(self._once.encode() + b"\n")

    def data_received(self, data: bytes) -> None:
        if self._heard or self._gatekeeper.command.done():
            return
        self._said += data
        if b"\n" in data:
            self._answer(bytes(self._said).partition(b"\n")[0])
        elif len(self._said) > LONGEST:
            self.turn_away(f"it said more than {LONGEST} bytes")

    def connection_lost(self, _error: Exception | None) -> None:
        self.turn_away("it hung up")

    def turn_away(self, why: str) -> None:
        """Close the connection without an answer: the caller may call again."""
        if not self._heard:
            self._over(why)
            self._transport.abort()

    def _answer(self, line: bytes) -> None:
        given, _, text = line.partition(b" ")
        expected = proof(self._gatekeeper.key, address=self._gatekeeper.address, once=self._once, text=text)
        if hmac.compare_digest(given, expected.encode()):
            self._over()
            self._transport.write(b"ok\n")
            self._gatekeeper.command.set_result(json.loads(text))
        else:
            self._over("it does not know the key of the run")
            self._transport.write(b"no\n")
        self._transport.close()

    def _over(self, why: str = "") -> None:
        self._heard = True
        self._patience.cancel()
        self._gatekeeper.leave(self, why)


async def command_for(address: str, port: int, key: str) -> str:
    """Return the command line of the first caller that knows the key."""
    gatekeeper = Gatekeeper(f"{address}:{port}", key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Caller(gatekeeper), address, port, backlog=MOST)
    try:
        return await gatekeeper.command
    finally:
        server.close()
        gatekeeper.close()


def main() -> None:
    address, port = sys.argv[1], int(sys.argv[2])
    try:
        command = asyncio.run(command_for(address, port, os.environ["MPI_RUN_KEY"]))
    except OSError as error:
        sys.exit(f"{address}:{port}: {os.strerror(error.errno or 0)}; mpirun asks there for its daemon")
    keep(["/bin/sh", "-c", command], environment())  # mpirun made it for a remote shell
