"""Open MPI jobs: what is launched where, at which ports, and what its algorithms send."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.parts.launch import Line
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from tests.helpers.machine import PATIENCE_S, free_port
from workloads import collective, horovod
from workloads.common import mpi_ranks
from workloads.common.placement import ranks
from workloads.rank.mpi.daemon import LONGEST, MOST
from workloads.rank.mpi.mpirun import free_port as first_free_port
from workloads.rank.mpi.rsh_agent import proof

LOOPBACK = "0100007F"  # as /proc/net/tcp writes 127.0.0.1
SOURCES = Path(__file__).parents[3]


def topology(*, kind: str = "inventory", ip: int = 4) -> Topology:
    at = "10.0.{}.7" if ip == 4 else "2001:2::{}"
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=at.format(i), device=f"eth{i}"),), python=f"/py{i}") for i in (1, 2, 3)
    )
    links = tuple(Link(host=node.name, device=node.first.device, rate=25e9) for node in nodes)
    return replace(Topology(kind="inventory", nodes=nodes, links=links, scale=1), kind=kind)


def made(part, where: Topology, **options: object):
    given = {"model": "resnet50", "controller": "mpi"} if part is horovod else {"backend": "mpi"}
    config = part.Config.model_validate({**given, **options})
    return config, Job(name="job0", index=2, ranks=ranks(config.hosts, where))


def launched(part, where: Topology, **options: object):
    config, job = made(part, where, **options)
    assert part.problems(config, where) == []
    return {launch.name: launch for launch in part.launches(config, job, where, 7)}


@pytest.mark.parametrize("part", [horovod, collective])
def test_mpirun_and_a_daemon_for_each_other_host_start_with_the_ranks(part) -> None:
    found = launched(part, topology(), hosts=["h2", "h2", "h3"])
    assert list(found) == ["job0-mpirun", "job0-daemon-h3", "job0-rank0", "job0-rank1", "job0-rank2"]
    assert {launch.order for launch in found.values()} == {0}, "they wait for each other, and end together"
    started, daemon = found["job0-mpirun"], found["job0-daemon-h3"]
    assert started.node == "h2"
    assert started.ready == Line("^rank 0 joined")
    assert daemon.argv == ("/py3", "-u", "rank.pyz", "mpi.daemon", "10.0.3.7", "20299")
    assert started.run_key == daemon.run_key == "MPI_RUN_KEY"
    assert all(launch.run_key is None for launch in found.values() if launch.rank is not None)
    assert not any("MPI_RUN_KEY" in launch.env for launch in found.values())


def test_ranks_are_where_their_hosts_are_named_in_any_order() -> None:
    argv = launched(collective, topology(), hosts=["h3", "h1", "h3"])["job0-mpirun"].argv
    assert argv[argv.index("--map-by") + 1] == "seq"
    assert argv[argv.index("--host") + 1] == "10.0.3.7,10.0.1.7,10.0.3.7"


def test_each_process_is_told_the_network_that_its_own_host_sees() -> None:
    found = launched(horovod, topology())
    assert found["job0-daemon-h2"].env["OMPI_MCA_oob_tcp_if_include"] == "10.0.2.0/24"
    assert found["job0-rank2"].env["OMPI_MCA_btl_tcp_if_include"] == "10.0.3.0/24"


def test_a_host_that_is_alone_in_its_network_is_told_its_device() -> None:
    """Of 10.0.1.7/32 Open MPI makes any network, the loopback's too."""
    where = topology()
    where = replace(where, nodes=tuple(replace(node, rails=(replace(node.first, prefix=32),)) for node in where.nodes))
    assert launched(horovod, where)["job0-rank2"].env["OMPI_MCA_btl_tcp_if_include"] == "eth3"


def test_of_ipv6_mpirun_hears_names_that_have_no_colon() -> None:
    """In a word of --host it takes what follows the first colon for a number of slots."""
    found = launched(horovod, topology(ip=6), hosts=["h1", "h2", "h2"])
    argv = found["job0-mpirun"].argv
    assert argv[argv.index("--host") + 1] == "localhost,240.0.0.1,240.0.0.1"
    assert json.loads(found["job0-mpirun"].env["MPI_HOSTS"]) == {"localhost": "2001:2::1", "240.0.0.1": "2001:2::2"}
    assert found["job0-rank1"].env["OMPI_MCA_btl_tcp_disable_family"] == "4"
    assert found["job0-daemon-h2"].env["OMPI_MCA_oob_tcp_disable_ipv4_family"] == "1"
    assert not [name for launch in launched(horovod, topology()).values() for name in launch.env if "disable" in name]


def test_ports_of_tensors_and_of_control_are_known_and_apart() -> None:
    found = launched(horovod, topology(), hosts=["h1", "h1", "h2"])
    flows = found["job0-mpirun"].flows
    env = found["job0-rank0"].env
    first, count = int(env["OMPI_MCA_btl_tcp_port_min_v4"]), int(env["OMPI_MCA_btl_tcp_port_range_v4"])
    assert first == 20200
    assert (env["OMPI_MCA_btl_tcp_port_min_v6"], env["OMPI_MCA_btl_tcp_port_range_v6"]) == (str(first), str(count))
    assert {flow.port for flow in flows if flow.kind == "training"} == set(range(first, first + count))
    control = {flow.port for flow in flows if flow.kind == "control"}
    lowest, highest = map(int, found["job0-mpirun"].argv[4:6])
    assert control == {*range(lowest, highest + 1), 20299}
    assert first + count <= lowest < highest < 20299
    assert count > 2, "several ranks of a host need several ports"


@pytest.mark.parametrize(("hierarchical", "by_port"), [(False, False), (True, True)])
def test_gradients_that_nccl_carries_are_known_by_the_hosts_that_send_them(hierarchical: bool, by_port: bool) -> None:
    """Reduced by hosts, they go by NCCL within each, and by MPI over the network."""
    where = topology()
    where = replace(where, nodes=tuple(replace(node, gpus=2) for node in where.nodes))
    options = {"operations": "nccl", "hierarchical": hierarchical, "hosts": ["h1", "h1", "h2", "h2"]}
    flows = launched(horovod, where, **options)["job0-mpirun"].flows
    training = [flow for flow in flows if flow.kind == "training"]
    assert [flow.port is not None for flow in training] == [by_port] * len(training)
    assert by_port or [(flow.src, flow.dst) for flow in training] == [("10.0.1.7", "10.0.2.7")]
    assert (20200 in {flow.port for flow in flows if flow.kind == "control"}) is not by_port


def test_mpirun_gets_a_port_that_no_run_before_it_keeps() -> None:
    """The side that closes first keeps the port for a minute: a second run at once must not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        near = socket.create_connection(("127.0.0.1", port))
        far, _ = server.accept()
    far.close()
    near.close()
    assert port < first_free_port(port, port + 7) <= port + 7
    with pytest.raises(SystemExit, match=f"every port from {port} to {port} is taken"):
        first_free_port(port, port)


def test_more_ranks_than_ports_are_refused() -> None:
    config, _ = made(collective, topology(), hosts=["h1"] * 84 + ["h2"])
    (problem,) = collective.problems(config, topology())
    assert "84 ranks" in problem.message


def test_rdma_goes_by_ucx_up_to_the_launch_line() -> None:
    found = launched(horovod, topology(), transport="rdma", rdma_device="mlx5_0:1")
    env = found["job0-rank1"].env
    assert (env["OMPI_MCA_pml"], env["UCX_NET_DEVICES"]) == ("ucx", "mlx5_0:1")
    assert env["UCX_TLS"].startswith("rc,")
    assert not any("btl_tcp" in name for name in env)
    tcp = launched(horovod, topology())["job0-rank1"].env
    assert (tcp["OMPI_MCA_pml"], tcp["OMPI_MCA_btl"]) == ("ob1", "self,tcp")
    assert not any(name.startswith("UCX") for name in tcp)


def test_ranks_that_wait_give_way_only_where_hosts_share_processors() -> None:
    assert "OMPI_MCA_mpi_yield_when_idle" not in launched(horovod, topology())["job0-rank0"].env
    local = launched(horovod, topology(kind="local"))["job0-rank0"].env
    assert local["OMPI_MCA_mpi_yield_when_idle"] == "1"


@pytest.mark.parametrize(
    ("part", "options", "at"),
    [
        (horovod, {"controller": "gloo", "algorithm": "ring"}, "algorithm"),
        (horovod, {"controller": "gloo", "transport": "rdma"}, "transport"),
        (horovod, {"rdma_device": "mlx5_0"}, "rdma_device"),
        (collective, {"backend": "gloo", "algorithm": "ring"}, "algorithm"),
        (collective, {"backend": "gloo", "python": "/py"}, "python"),
        (collective, {"backend": "auto", "mpirun": "/opt/mpi/bin/mpirun"}, "mpirun"),
        (collective, {"rdma_device": "mlx5_0"}, "rdma_device"),
    ],
)
def test_an_option_that_nothing_would_use_is_a_problem(part, options: dict[str, str], at: str) -> None:
    config, _ = made(part, topology(), **options)
    assert [problem.at for problem in part.problems(config, topology())] == [(at,)]


@pytest.mark.parametrize("part", [horovod, collective])
def test_what_is_missing_names_the_step_that_gets_it(part) -> None:
    where = topology(kind="local")
    config, job = made(part, where, mpirun="/opt/mpi/bin/mpirun")
    needed = {(need.node, need.what): need for need in part.requirements(config, job, where)}
    for what in (("h1", "/opt/mpi/bin/mpirun"), ("h2", "/opt/mpi/bin/orted"), ("h3", "/opt/mpi/bin/orted")):
        assert needed[what].kind == "program"
        assert needed[what].remedy == "orch prepare --only torch"
    module = "horovod" if part is horovod else "mpi4py"
    assert needed["h2", module].remedy == "orch prepare --only torch"


def test_a_ring_sends_to_the_next_rank() -> None:
    assert mpi_ranks.all_reduce("ring", 3, 3.0) == {(0, 1): 4.0, (1, 2): 4.0, (2, 0): 4.0}


def test_recursive_doubling_exchanges_all_with_each_partner() -> None:
    assert mpi_ranks.all_reduce("recursive-doubling", 4, 5.0) == {
        (a, a ^ distance): 5.0 for a in range(4) for distance in (1, 2)
    }
    # The first of three ranks takes part through the second.
    assert mpi_ranks.all_reduce("recursive-doubling", 3, 5.0) == {(0, 1): 5.0, (1, 0): 5.0, (1, 2): 5.0, (2, 1): 5.0}


@pytest.mark.parametrize("world", [2, 4, 8])
def test_rabenseifners_algorithm_is_bandwidth_optimal_for_powers_of_two(world: int) -> None:
    pairs = mpi_ranks.all_reduce("rabenseifner", world, 8.0)
    for rank in range(world):
        sent = sum(size for (src, _), size in pairs.items() if src == rank)
        assert sent == pytest.approx(2 * (world - 1) / world * 8.0)


def test_rabenseifners_algorithm_on_three_ranks() -> None:
    """As captured: the second rank halves with the first, which stands for both."""
    assert mpi_ranks.all_reduce("rabenseifner", 3, 2.0) == {(0, 1): 3.0, (1, 0): 2.0, (0, 2): 2.0, (2, 0): 2.0}


@pytest.mark.parametrize(
    ("operation", "messages"),
    [("all-reduce", 4 / 3), ("all-gather", 2 / 3), ("reduce-scatter", 2 / 3), ("all-to-all", 2 / 3)],
)
def test_bytes_of_a_collective(operation: str, messages: float) -> None:
    where = topology()
    config, job = made(collective, where, operations=[operation], sizes=["12mb"], repeats=2)
    assert collective.theory(config, job, where).bytes_per_iteration == pytest.approx(2 * messages * 12e6)


def test_two_ranks_of_a_host_send_one_ring_over_the_network() -> None:
    where = topology()
    config, job = made(horovod, where, hosts=["h1", "h1", "h2"])
    pairs = horovod.theory(config, job, where).pairs
    ring = 2 * 2 / 3 * 4 * 25_557_032
    assert {(src, dst): size for src, dst, size in pairs} == {
        ("h1", "h2"): pytest.approx(ring),
        ("h2", "h1"): pytest.approx(ring),
    }


# The programs that stand between mpirun and us


DAEMON = """
import sys
from workloads.rank.mpi import daemon
daemon.TALK_S = float(sys.argv.pop())
daemon.main()
"""


def daemon_in(folder: Path, port: int, talk_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DAEMON, "127.0.0.1", str(port), str(talk_s)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "MPI_RUN_KEY": "right"},
        stderr=subprocess.PIPE,
    )


def calling_with(key: str, port: int, command: str) -> dict[str, Any]:
    """How mpirun starts our remote shell."""
    return {
        "args": [sys.executable, "-m", "workloads.rank", "mpi.rsh_agent", "240.0.0.1", *command.split(" ")],
        "env": {
            **os.environ,
            "PYTHONPATH": str(SOURCES),
            "MPI_RUN_KEY": key,
            "MPI_DAEMON_PORT": str(port),
            "MPI_HOSTS": '{"240.0.0.1": "127.0.0.1"}',
            "MPI_MEET_S": str(PATIENCE_S),
        },
    }


def call(port: int, key: str, command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(**calling_with(key, port, command), capture_output=True, timeout=2 * PATIENCE_S, check=False)


@contextmanager
def a_daemon_in(folder: Path, talk_s: float = 10 * PATIENCE_S) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A daemon that listens, and its port; it lets callers be silent for so many seconds."""
    port = free_port()
    daemon = daemon_in(folder, port, talk_s)
    try:
        listens = f"{LOOPBACK}:{port:04X} 00000000:0000 0A"
        wait_for(lambda: listens in Path("/proc/net/tcp").read_text(), "the daemon to listen")
        yield port, daemon
    finally:
        daemon.kill()
        daemon.communicate()


def wait_for(ready: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < ends, f"waited in vain for {what}"
        threading.Event().wait(0.02)


def calling(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def answered(caller: socket.socket) -> bytes:
    """All that it still hears until it is hung up on."""
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while more := caller.recv(1000):
            heard += more
    return heard


def greeted(port: int) -> tuple[socket.socket, str]:
    """A caller who has heard the number that is used once, and that number."""
    caller = calling(port)
    heard = b""
    while not heard.endswith(b"\n"):
        heard += caller.recv(1)
    return caller, heard.decode().strip()


def ended(daemon: subprocess.Popen[bytes]) -> str:
    daemon.send_signal(signal.SIGTERM)
    _, said = daemon.communicate(timeout=PATIENCE_S)
    assert daemon.returncode == 0
    return said.decode()


def test_a_daemon_runs_the_command_of_who_knows_the_key_and_of_nobody_else(tmp_path: Path) -> None:
    with a_daemon_in(tmp_path) as (port, daemon):
        stranger = call(port, "wrong", f"touch {tmp_path}/stranger")
        assert stranger.returncode == 1
        assert b"turned mpirun's daemon away" in stranger.stderr
        assert call(port, "right", f"env > {tmp_path}/env; touch {tmp_path}/ours; sleep 60").returncode == 0
        wait_for((tmp_path / "ours").exists, "the command")
        assert (tmp_path / "session").is_dir()
        assert "MPI_RUN_KEY" not in (tmp_path / "env").read_text()
        said = ended(daemon)
    assert not (tmp_path / "stranger").exists()
    assert not (tmp_path / "session").exists()
    assert "a caller from 127.0.0.1 was turned away: it does not know the key of the run" in said


ASKED_WHILE_IT_STARTS = """
import os, signal, subprocess
from workloads.rank.mpi import mpirun
start = subprocess.Popen
def started_and_asked(*argv, **more):
    child = start(*argv, **more)
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return child
subprocess.Popen = started_and_asked
mpirun.keep(["sleep", "600"], {})
"""


def test_what_is_asked_to_end_while_it_starts_a_child_ends_the_child(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED_WHILE_IT_STARTS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(f"/proc/{int(done.stdout)}").exists()
    assert not (tmp_path / "session").exists()


def test_silent_callers_keep_nobody_waiting(tmp_path: Path) -> None:
    """All of them have called before mpirun does, no one's time is up, and it is served while they are silent."""
    with a_daemon_in(tmp_path) as (port, daemon), contextlib.ExitStack() as held:
        silent = [held.enter_context(calling(port)) for _ in range(200)]
        assert call(port, "right", f"touch {tmp_path}/ours; sleep 60").returncode == 0
        wait_for((tmp_path / "ours").exists, "the command")
        said = ended(daemon)
        assert all(answered(caller).count(b"\n") <= 1 for caller in silent), "a number for each, and no answer"
    assert "a caller from 127.0.0.1 was turned away: 128 others called while it said nothing" in said
    assert "180 more callers were turned away" in said


def test_a_silent_caller_goes_when_its_time_is_up(tmp_path: Path) -> None:
    with a_daemon_in(tmp_path, talk_s=0.1) as (port, daemon):
        with calling(port) as silent:
            assert answered(silent).count(b"\n") == 1
        assert daemon.stderr is not None
        assert daemon.stderr.readline() == b"a caller from 127.0.0.1 was turned away: it said nothing within 0.1 s\n"


def test_the_one_who_was_silent_for_longest_makes_room(tmp_path: Path) -> None:
    with a_daemon_in(tmp_path) as (port, daemon):
        with contextlib.ExitStack() as held:
            first, _ = greeted(port)
            held.enter_context(first)
            for _ in range(MOST):
                caller, _ = greeted(port)
                held.enter_context(caller)
            assert answered(first) == b"", "the one who has been silent for longest goes"
            still, once = greeted(port)
            held.enter_context(still)
            text = json.dumps(f"touch {tmp_path}/ours; sleep 60").encode()
            shown = proof("right", address=f"127.0.0.1:{port}", once=once, text=text)
            still.sendall(shown.encode() + b" " + text + b"\n")
            assert answered(still) == b"ok\n", "not the newest"
        wait_for((tmp_path / "ours").exists, "the command")
        ended(daemon)


def test_an_agent_that_is_hung_up_on_calls_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as crowded:
        port = crowded.getsockname()[1]
        agent = subprocess.Popen(**calling_with("right", port, "true"), stderr=subprocess.PIPE)
        try:
            for _ in range(2):
                crowded.accept()[0].close()
            caller, _ = crowded.accept()
            with caller, caller.makefile("rwb") as stream:
                stream.write(b"once\n")
                stream.flush()
                stream.readline()
                stream.write(b"ok\n")
            assert agent.wait(PATIENCE_S) == 0
        finally:
            agent.kill()
            agent.communicate()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\xff\x00garbage\n", "it does not know the key"),
        (b"[" * 100_000 + b"\n", "it does not know the key"),
        (b'{"command": "true", "proof": 1}\n', "it does not know the key"),
        (b"x" * (LONGEST + 1), f"it said more than {LONGEST} bytes"),
        (b"half a line", "it hung up"),
        (b"", "it hung up"),
    ],
)
def test_what_strangers_say_ends_with_them(tmp_path: Path, said: bytes, why: str) -> None:
    with a_daemon_in(tmp_path) as (port, daemon):
        stranger, _ = greeted(port)
        with stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            assert answered(stranger) in (b"no\n", b"")
        assert call(port, "right", f"touch {tmp_path}/ours; sleep 60").returncode == 0
        wait_for((tmp_path / "ours").exists, "the command")
        assert f"turned away: {why}" in ended(daemon)


def test_a_proof_holds_for_one_command_at_one_address_and_once(tmp_path: Path) -> None:
    with a_daemon_in(tmp_path) as (port, daemon):
        right = {"address": f"127.0.0.1:{port}", "text": b'"touch stranger"'}
        for changed in ({"address": "127.0.0.2:1"}, {"text": b'"touch ours"'}, {"once": "0" * 32}):
            stranger, once = greeted(port)
            shown = proof("right", **{"once": once, **right, **changed})
            with stranger:
                stranger.sendall(shown.encode() + b" " + right["text"] + b"\n")
                assert answered(stranger) == b"no\n", changed
        assert daemon.poll() is None


JOINING = """
import os, sys
from workloads.rank.mpi import join
join.PEER_GRACE_S = 0.1
join.join(float(sys.argv[1]))
print("told", os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_MCA_btl"], flush=True)
sys.stdin.read()
"""


def rank_named(name: str, *, within_s: float) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "MPI_NAME": name, "RANK": "3", "OMPI_MCA_btl": "ours"}
    return subprocess.Popen(
        [sys.executable, "-c", JOINING, str(within_s)],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_rank_is_told_who_it_is_by_a_stub_that_ends_with_it() -> None:
    name = f"test-{os.getpid()}-rank"
    env = {
        **os.environ,
        "PYTHONPATH": str(SOURCES),
        "MPI_RANK": name,
        "PMIX_RANK": "3",
        "MPI_MEET_S": "20",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_MCA_btl": "mpirun's",
    }
    argv = [sys.executable, "-m", "workloads.rank", "mpi.stub"]
    stub = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    rank = rank_named(f"{name}3", within_s=120)
    try:
        assert rank.stdout is not None
        assert stub.stdout is not None
        assert rank.stdout.readline() == "told 3 ours\n", "what the workload sets wins"
        assert stub.stdout.readline() == "rank 3 joined\n"
        assert stub.poll() is None
        rank.kill()
        assert stub.wait(120) == 0
    finally:
        for process in (stub, rank):
            process.kill()
            process.communicate()


def test_a_rank_fails_with_one_line_when_nobody_tells_it_or_its_stub_ends() -> None:
    alone = rank_named(f"test-{os.getpid()}-alone", within_s=0.2)
    _, said = alone.communicate(timeout=120)
    assert (alone.returncode, said) == (1, "rank 3: mpirun did not register this rank within 0.2 s\n")
    whole = f"{os.environ.get('ORCH_RUN', '')}/test-{os.getpid()}-left"
    rank = rank_named(f"test-{os.getpid()}-left", within_s=120)
    listener = b"\0" + hashlib.sha256(whole.encode()).hexdigest().encode()
    try:
        with socket.socket(socket.AF_UNIX) as stub:
            ends = time.monotonic() + 120
            while stub.connect_ex(listener) != 0:  # type: ignore[arg-type]
                assert time.monotonic() < ends
                threading.Event().wait(0.02)
            stub.sendall(b'{"OMPI_COMM_WORLD_RANK": "3"}\n')
            assert rank.stdout is not None
            rank.stdout.readline()
        assert rank.wait(120) == 1
        assert rank.stderr is not None
        assert rank.stderr.read().startswith("rank 3: the MPI job has ended")
    finally:
        rank.kill()
        rank.communicate()
