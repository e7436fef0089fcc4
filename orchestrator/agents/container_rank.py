"""The first process in a rank's container: starts the rank as the agent asks, and ends with the agent.

The image's own Python (3.8 or later) runs it with two arguments: the rank's folder, and the name in it of a socket
(SOCK_SEQPACKET) at which the agent listens. One JSON object a message:

    agent: {"argv", "env", "affinity": [processor], "limits": {number: [soft, hard]}, "nice", "umask"}, with the rank's
           standard input, output and error as ancillary data
    this:  {"net", "ipc": its namespaces, "error": why the rank could not be started, or null}
    this:  {"status": negative for a signal, "user_s", "system_s", "max_rss_kib"} when the rank has ended

So nothing of a rank passes through the runtime: neither its output, nor its environment, which may hold secrets. Two
ends are leashes. When the agent is gone the socket ends, and so does this process; when the runtime's monitor (conmon,
containerd-shim), its parent, is gone the kernel kills it. As process 1 of the container it takes all others with it.
"""

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from orchestrator.agents.agent.container_call import Began, RankEnded, Wanted

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MESSAGE_BYTES = 1 << 20
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def hear(agent: socket.socket) -> "tuple[Wanted, List[int]]":
    """Receive the agent's request and the rank's three descriptors."""
    message, ancillary, _, _ = agent.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(12), socket.MSG_CMSG_CLOEXEC)
    given = array.array("i")
    for _, _, payload in ancillary:
        given.frombytes(payload)
    return json.loads(message.decode()), list(given)


def settle(wanted: "Wanted") -> None:
    """Apply what a rank without a container would inherit of the agent, as far as the container may."""
    for number, (soft, hard) in wanted["limits"].items():
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(int(number), (soft, hard))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, wanted["affinity"])
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, wanted["nice"])
    os.umask(wanted["umask"])


def as_it_was() -> None:
    """Restore signals in the child, before it becomes the rank."""
    for number in (*SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # as without a container


def start(wanted: "Wanted", given: List[int]) -> "subprocess.Popen[bytes]":
    """Start the rank; a user whom the image does not know has the rank's folder as a home."""
    own = {} if os.access(os.environ.get("HOME", "/"), os.W_OK) else {"HOME": sys.argv[1]}
    return subprocess.Popen(
        wanted["argv"],
        env={**os.environ, **own, **wanted["env"]},
        stdin=given[0],
        stdout=given[1],
        stderr=given[2],
        start_new_session=True,
        preexec_fn=as_it_was,  # noqa: PLW1509 - there is one thread
    )


def wait(rank: int, agent: socket.socket, woken: int) -> "RankEnded":
    """Wait until the rank has ended; until then the agent says nothing more, and its end is that of this process."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(agent, select.POLLIN)
    while True:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == rank:
                    return {
                        "status": -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),
                        "user_s": usage.ru_utime,
                        "system_s": usage.ru_stime,
                        "max_rss_kib": usage.ru_maxrss,
                    }
                if pid == 0:
                    break
        ready = [descriptor for descriptor, _ in poll.poll()]
        if agent.fileno() in ready:
            with contextlib.suppress(ProcessLookupError):  # which the kernel does too where this is process 1
                os.killpg(rank, signal.SIGKILL)
            sys.exit("the agent is gone")
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (*SIGNALS, signal.SIGCHLD):  # the agent signals the rank itself
        signal.signal(number, lambda *_: None)
    os.chdir(sys.argv[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.connect(sys.argv[2])
        wanted, given = hear(agent)
        net, ipc = map(os.readlink, ("/proc/self/ns/net", "/proc/self/ns/ipc"))
        about: "Began" = {"net": net, "ipc": ipc, "error": None}
        settle(wanted)
        try:
            rank = start(wanted, given)
        except OSError as error:
            about["error"] = "%s: %s" % (wanted["argv"][0], error.strerror)
        for descriptor in given:
            os.close(descriptor)
        agent.send(json.dumps(about).encode())
        if about["error"] is not None:
            return 127
        ended = wait(rank.pid, agent, woken)
        agent.send(json.dumps(ended).encode())
    status = ended["status"]
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
