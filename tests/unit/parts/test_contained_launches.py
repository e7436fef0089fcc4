"""An agent and a launch in a container, of a runtime that is a stub: what the rank gets, and how each one's end shows.

The stub starts the container's first process without any container; what runtimes do is tried on testbeds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from orchestrator.core.errors import LaunchError
from orchestrator.parts import contained
from orchestrator.parts.launch import Container, Launch, Line, Requirement, Stop

STUB = """#!{python}
import os, resource, sys
if "inspect" in sys.argv:
    print("sha256:" + "7" * 64)
elif sys.argv[1] == "--version":
    print("podman version 9.9")
elif "run" in sys.argv:
    words = sys.argv[sys.argv.index("run"):]
    if "--cidfile" in words:
        with open(words[words.index("--cidfile") + 1], "w") as file:
            file.write("c0ffee")
    for place, word in enumerate(words):
        if word == "--env":
            name, _, value = words[place + 1].partition("=")
            os.environ[name] = value
    at = words.index("--entrypoint")
    if {broken!r}:
        sys.exit("Error: no space left on device")
    if {chatty!r} and "probe" in sys.argv[sys.argv.index("--label") + 1]:
        os.system(" ".join(repr(word) for word in [words[at + 1], *words[at + 3:]]))
        print("bye")
        sys.exit(0)
    # As a daemon far from the agent would have it.
    os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.umask(0o777)
    os.execv(words[at + 1], [words[at + 1], *words[at + 3:]])
else:
    with open({log!r}, "a") as log:
        log.write(" ".join(sys.argv[1:]) + "\\n")
"""
CONTAINER = Container(runtime="podman", image="lab/t:1", python=sys.executable)
RANK = """
import json, os, resource, signal, sys
def end(*_):
    print("asked", flush=True)
    os._exit(7)
signal.signal(signal.SIGTERM, end)
print(json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "limit": resource.getrlimit(resource.RLIMIT_CORE)}))
print("ready", flush=True)
print("went" if sys.stdin.readline() == "go\\n" else "nobody is there", flush=True)
signal.pause()
"""


@pytest.fixture
def agent(connect_agent, tmp_path):
    """Makes an agent whose podman is the stub."""

    def made(*, broken=False, chatty=False):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        stub = folder / "podman"
        stub.write_text(STUB.format(python=sys.executable, log=str(tmp_path / "log"), broken=broken, chatty=chatty))
        stub.chmod(0o755)
        client = connect_agent(env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        need = Requirement(
            node=client.node.name, kind="image", what="lab/t:1", container=CONTAINER, remedy="", needed_by="x"
        )
        return client, client.check([need], soon())

    return made


def soon():
    from orchestrator.core.deadline import Deadline

    return Deadline.after(60.0)


def rank(client, **changes):
    launch = Launch(
        name="rank0",
        node=client.node.name,
        role="rank",
        argv=(sys.executable, "-c", RANK),
        ready=Line("^ready"),
        gate=True,
        env={"MINE": "a b\nc"},
        stop=Stop(signals=((signal.SIGTERM, 30.0),), ok=(7,)),
        ready_within_s=60.0,
        **changes,
    )
    return contained.wrapped(launch, {client.node.name: CONTAINER})


def output(client, name="stdout"):
    return client.read([f"rank0/{name}"], soon()).texts[f"rank0/{name}"]


def test_a_rank_gets_its_streams_its_environment_and_its_signals_and_its_end_is_its_own(agent, tmp_path):
    client, (found,) = agent()
    assert found.image.image == "7" * 64
    assert (tmp_path / "log").read_text().splitlines() == ["kill c0ffee", "rm --force c0ffee"], "of the probe"
    (tmp_path / "log").unlink()
    running = client.start(rank(client), soon())
    told = json.loads(output(client).splitlines()[0])
    assert told["env"]["MINE"] == "a b\nc"
    assert told["env"]["ORCH_LAUNCH"] == "rank0"
    assert told["cwd"].endswith("/rank0")
    assert told["limit"] == list(resource.getrlimit(resource.RLIMIT_CORE))
    assert os.sched_getaffinity(running.pid) == os.sched_getaffinity(0)
    assert "Umask:\t0022" in Path(f"/proc/{running.pid}/status").read_text()
    assert "MINE" not in Path(f"/proc/{parent(running.pid)}/environ").read_text(), "of the runtime's client"
    client.go("rank0", soon())
    until(lambda: "went" in output(client))
    stopped = client.stop(rank(client), soon())
    assert (stopped.status, stopped.killed) == (7, False)
    assert stopped.max_rss_bytes > 1e6
    assert output(client).splitlines()[-1] == "asked"
    assert "rm --force c0ffee" in (tmp_path / "log").read_text()
    assert client.processes(soon()) == []
    assert not [file.path for file in client.files(soon()) if "containers" in file.path or "socket" in file.path]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_a_signal_ends_has_that_status(agent, number):
    client, _ = agent()
    running = client.start(rank(client), soon())
    os.kill(running.pid, number)
    assert client.wait("rank0", soon()) == -number


def test_a_container_that_cannot_be_started_says_what_its_runtime_said(agent):
    _, (found,) = agent(broken=True)
    assert not found.found
    assert found.detail == "Error: no space left on device"


def test_an_image_whose_python_prints_what_it_likes_is_refused(agent):
    _, (found,) = agent(chatty=True)
    assert (found.found, found.detail) == (False, "its Python printed something else than it was asked")


def test_a_rank_whose_program_the_image_lacks_is_refused(agent):
    client, _ = agent()
    launch = rank(client)
    with pytest.raises(LaunchError, match="cannot be started in its container: /no/such: No such file"):
        client.start(type(launch)(**{**fields(launch), "argv": ("/no/such",)}), soon())
    until(lambda: client.processes(soon()) == [])


def test_no_image_that_nobody_looked_for_is_started(connect_agent):
    client = connect_agent()
    with pytest.raises(LaunchError, match="nobody has looked for the image lab/t:1 here"):
        client.start(rank(client), soon())


def fields(launch):
    return {name: getattr(launch, name) for name in type(launch).__dataclass_fields__}


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(ready):
    ends = time.monotonic() + 60.0
    while not ready():
        assert time.monotonic() < ends
        time.sleep(0.01)
