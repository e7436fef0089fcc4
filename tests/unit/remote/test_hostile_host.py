"""A host that is somebody else's: what its agent says can neither hang, mislead nor overwrite the controller."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, DeadlineExceeded, OrchError, TransportError
from orchestrator.execution.actions.fetching import fetch_all, notes
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.watch import Watch
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.topology import Node
from orchestrator.remote import events, files
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentLost, LineRead
from orchestrator.remote.transport.local import LocalChannel
from tests.helpers.agent_messages import agent_messages

PATIENCE_S = 60.0  # of requests that are to be ended before

PROGRAM = r"""#!{python} -I
import json, struct, sys
inp, out = sys.stdin.buffer, sys.stdout.buffer
inp.read(int(inp.readline().split()[-1]))  # the agent's source, which is not what runs here
def raw(data): out.write(data); out.flush()
def text(header, payload=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw(struct.pack(">I", len(header) if length is None else length) + header + payload)
def requests():
    while head := inp.read(4):
        header = json.loads(inp.read(*struct.unpack(">I", head)))
        inp.read(header.get("bytes", 0))
        yield header
GREETING = {{"pid": 7, "uid": 0, "user": None, "folder": "/w/r1.n1", "python": "3.11.2", "executable": "/x",
            "hostname": "h", "boot": "b", "wall_ns": 1, "monotonic_ns": 1}}
GOOD = {{"hello": GREETING, "bye": {{"undone": [], "already": [], "failed": [], "left": []}}, "cancel": {{}},
        "remove": {{}}, "ping": {{"wall_ns": 1, "monotonic_ns": 1}}}}
ANSWERS = {{}}
def main():
    raw(b"\0orch-agent 1\n")
    for request in requests():
        op = request["op"]
        if op in ANSWERS: text({{"id": request["id"], **ANSWERS[op]}})
        elif op in GOOD: text({{"id": request["id"], **GOOD[op]}})
        else: other(request)
        if op == "bye": return
def other(request): pass
{behaviour}
main()
"""


class Hostile(AgentClient):
    def __init__(self, program: Path, behaviour: str, on_event=None, *, keep: bool = True) -> None:
        program.write_text(PROGRAM.format(python=sys.executable, behaviour=behaviour))
        program.chmod(0o755)
        self.events: list = []
        self.keep = keep
        self.lost = threading.Event()
        self.handler = on_event
        node = Node(name="n1", work="/nowhere", python=sys.executable)
        super().__init__(node, LocalChannel(str(program)), run="r1", holder={}, on_event=self.take)

    def take(self, event) -> None:
        if self.keep:
            self.events.append(event)
        if isinstance(event, AgentLost):
            self.lost.set()
        if self.handler is not None:
            self.handler(event)


@pytest.fixture
def hostile(tmp_path):
    made = []

    def make(behaviour: str, **options) -> Hostile:
        made.append(Hostile(tmp_path / f"agent{len(made)}", behaviour, **options))
        return made[-1]

    yield make
    for client in made:
        client._connection._channel.close()


def patience() -> Deadline:
    return Deadline.after(PATIENCE_S)


def outcomes(client: AgentClient, count: int = 3) -> list[Exception | None]:
    """What becomes of requests that wait, side by side."""
    errors: list[Exception | None] = [None] * count

    def ask(place: int) -> None:
        try:
            client.files(patience())
        except Exception as error:  # noqa: BLE001 - told by the caller
            errors[place] = error

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


NOISE = {
    "a list": "text([])",
    "a list of much": "text([{}] * 9)",
    "a text": 'text("id")',
    "a number": "text(7)",
    "null": "text(None)",
    "deep nesting": 'text(b"[" * 200000)',
    "deep objects": 'text(b\'{"a":\' * 200000)',
    "a deep field": 'text(b\'{"id": \' + b"[" * 100000 + b"]" * 100000 + b"}")',
    "no JSON": 'text(b"{id: 1}")',
    "nothing": 'text(b"")',
    "half an object": "text(b'{\"id\": 1')",
    "no UTF-8": r"text(b'{\"id\": \"\xff\xfe\"}')",
    "UTF-16": 'text(json.dumps({"id": 1}).encode("utf-16"))',
    "a huge header": 'text(b"{}", length=0xffffffff)',
    "a large header": 'text(b"{}", length=(1 << 25) + 1)',
    "NaN for an id": "text(b'{\"id\": NaN}')",
    "Infinity": "text(b'{\"id\": 1, \"x\": Infinity}')",
    "a number of 5000 digits": "text(b'{\"id\": ' + b\"9\" * 5000 + b\"}\")",
    "a huge payload": 'text({"id": 1, "bytes": 1 << 60})',
    "a large payload": 'text({"id": 1, "bytes": (1 << 20) + 1})',
    "a negative payload": 'text({"id": 1, "bytes": -9})',
    "a payload of text": 'text({"id": 1, "bytes": "9"})',
    "a payload of true": 'text({"id": 1, "bytes": True})',
    "a payload of 1.5": 'text({"id": 1, "bytes": 1.5})',
    "an id that is a list": 'text({"id": [1]})',
    "an id that is an object": 'text({"id": {}})',
    "an id that is text": 'text({"id": "1"})',
    "an id that is 1.0": 'text({"id": 1.0})',
    "an id that is true": 'text({"id": True})',
    "a negative id": 'text({"id": -1})',
    "no id": 'text({"ok": True})',
    "an unknown event": 'text({"event": "party", "name": "p", "wall_ns": 1})',
    "an event that is a list": 'text({"event": [], "name": "p", "wall_ns": 1})',
    "an exit of nobody": 'text({"event": "exit", "status": 0, "wall_ns": 1})',
    "an exit with text": 'text({"event": "exit", "name": "p", "status": "0", "wall_ns": 1})',
    "an exit at no time": 'text({"event": "exit", "name": "p", "status": 0, "wall_ns": 1e300})',
    "an exit beyond all time": 'text({"event": "exit", "name": "p", "status": 0, "wall_ns": 1 << 70})',
    "an exit of a list": 'text({"event": "exit", "name": ["p"], "status": 0, "wall_ns": 1})',
    "lines that are text": 'text({"event": "lines", "name": "p", "lines": "abc", "wall_ns": 1})',
    "lines that are numbers": 'text({"event": "lines", "name": "p", "lines": [1], "wall_ns": 1})',
    "lines that are none": 'text({"event": "lines", "name": "p", "lines": None, "wall_ns": 1})',
    "a part of an id that is a list": 'text({"id": [1], "more": True, "bytes": 1}, b"x")',
    "an error without an id": 'text({"id": None, "error": ["x"] * 9})',
    "the end": "sys.exit(0)",
}  # fmt: skip


@pytest.mark.parametrize("what", NOISE)
def test_whoever_waits_learns_that_the_agent_is_lost_and_where(hostile, what):
    client = hostile(f"def other(request): {NOISE[what]}")
    client.hello(patience())
    for error in outcomes(client):
        assert isinstance(error, TransportError), error
        assert error.node == "n1"
        assert error.message.startswith("its agent is gone: the channel to the agent ended")
        assert len(str(error)) < 2000
    assert client.lost.wait(PATIENCE_S)
    assert [event.node for event in client.events if isinstance(event, AgentLost)] == ["n1"]
    with pytest.raises(TransportError, match="n1: its agent is gone: the channel to the agent ended"):
        client.clock(1, patience())


def test_who_prints_and_never_greets_is_not_listened_to_for_ever(hostile):
    client = hostile("def main():\n    while True: raw(b'welcome ' * 9999)")
    with pytest.raises(TransportError, match="no agent of ours"):
        client.hello(patience())


def test_who_breaks_the_protocol_is_let_go(hostile):
    client = hostile("def other(request):\n    text([])\n    while inp.read(1): pass")
    with pytest.raises(TransportError):
        client.files(patience())
    process = client._connection._channel._process
    patience().poll(lambda: process.poll() is not None, every_s=0.05, waiting_for="it to see the end of its input")


@pytest.mark.parametrize("error", [RuntimeError("handler"), ValueError("handler"), AssertionError("handler")])
def test_a_handler_of_events_that_fails_is_told_to_whoever_waits(hostile, error):
    def handler(event) -> None:
        if isinstance(event, LineRead):
            raise error

    line = '{"event": "lines", "name": "p", "lines": ["x"], "wall_ns": 1}'
    client = hostile(f"def other(request): text({line})", on_event=handler)
    for told in outcomes(client):
        assert isinstance(told, TransportError), told
        assert "handler" in told.message
    assert client.lost.wait(PATIENCE_S)


def test_a_handler_that_fails_at_the_loss_itself_keeps_nobody_waiting(hostile, monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def handler(event) -> None:
        raise RuntimeError("handler")

    client = hostile("def other(request): sys.exit(0)", on_event=handler)
    assert all(isinstance(error, TransportError) for error in outcomes(client))
    client._connection._reader.join(PATIENCE_S)
    assert [one.exc_type for one in seen] == [RuntimeError]  # a mistake of ours does not pass in silence


LAUNCH = Launch(name="p", node="n1", role="traffic", argv=("x",))
NEED = Requirement(node="n1", kind="program", what="x", remedy="", needed_by="")
RAN = '"status": 0, "stdout": "", "stderr": ""'
STOPPED = (
    '"status": 0, "killed": False, "was_over": False, "ended_ns": 1, "user_s": 0.0, "system_s": 0.0, "max_rss_bytes": 1'
)
SWEPT = (
    '"killed": [], "left": [], "undone": [], "already": [], "failed": [], "forgotten": [], "removed": [], "kept": [],'
    '"stayed": [], "alive": []'
)
ASKED = {
    "hello": lambda client: client.hello(patience()),
    "ping": lambda client: client.clock(1, patience()),
    "check": lambda client: client.check([NEED], patience()),
    "run_command": lambda client: client.run(["x"], patience()),
    "run_commands": lambda client: client.run_all([["x"], ["y"]], patience(), each_s=9),
    "read": lambda client: client.read(["/x"], patience()),
    "start": lambda client: client.start(LAUNCH, patience()),
    "go": lambda client: client.go("p", patience()),
    "stop": lambda client: client.stop(LAUNCH, patience()),
    "wait": lambda client: client.wait("p", patience()),
    "files": lambda client: client.files(patience()),
    "disk": lambda client: client.disk(patience()),
    "list_processes": lambda client: client.processes(patience()),
    "sweep": lambda client: client.sweep(patience(), keep_data=True),
    "bye": lambda client: client.close(patience()),
    "undo": lambda client: client.undo("k", patience()),
}
WRONG = [
    *((op, "{}") for op in ASKED if op != "undo"),
    ("hello", "{**GREETING, 'pid': '7'}"), ("hello", "{**GREETING, 'pid': -1}"), ("hello", "{**GREETING, 'uid': None}"),
    ("hello", "{**GREETING, 'user': ['root']}"), ("hello", "{**GREETING, 'wall_ns': 1e18}"),
    ("hello", "{**GREETING, 'boot': {}}"), ("hello", "{**GREETING, 'folder': 3}"),
    ("hello", "{**GREETING, 'hostname': 3}"),
    ("ping", "{'wall_ns': '1'}"), ("ping", "{'wall_ns': 1 << 80}"), ("ping", "{'wall_ns': True}"),
    ("check", "{'findings': {}}"), ("check", "{'findings': []}"), ("check", "{'findings': [1]}"),
    ("check", "{'findings': [{'found': 'yes', 'detail': '', 'broken': False}]}"),
    ("check", "{'findings': [{'found': True}]}"),
    ("check", "{'findings': [{'found': True, 'detail': ''}] * 2}"),
    ("run_command", "{'status': 0, 'stdout': '', 'stderr': ['']}"), ("run_command", "{'status': '0', 'stdout': ''}"),
    ("run_command", "{'status': 0.0, 'stdout': '', 'stderr': ''}"),
    ("run_commands", "{'done': [None]}"), ("run_commands", "{'done': [None, 1]}"), ("run_commands", "{'done': {}}"),
    ("run_commands", "{'done': [None, {'status': 0, 'stdout': '', 'stderr': 1}]}"),
    ("read", "{'wall_ns': 1}"), ("read", "{'wall_ns': 1, 'texts': ['x']}"),
    ("read", "{'wall_ns': 1, 'texts': {'a': 1}}"),
    ("start", "{'pid': 1.5, 'started_ns': 1, 'ready_ns': 1}"),
    ("start", "{'pid': 1, 'started_ns': None, 'ready_ns': 1}"),
    ("go", "{'wall_ns': []}"), ("wait", "{'status': '0'}"), ("stop", "{" + STOPPED + "}"),
    ("stop", "{" + STOPPED + ", 'tail': '', 'user_s': 1e999}"),
    ("stop", "{" + STOPPED + ", 'tail': '', 'user_s': '1'}"),
    ("stop", "{" + STOPPED + ", 'tail': 7}"), ("stop", "{" + STOPPED + ", 'tail': '', 'was_over': 'no'}"),
    ("files", "{'files': {}}"), ("files", "{'files': ['x']}"), ("files", "{'files': [{'path': 1, 'bytes': 1}]}"),
    ("files", "{'files': [{'path': 'x', 'bytes': -1}]}"), ("files", "{'files': [{'path': 'x', 'bytes': '1'}]}"),
    ("files", "{'files': [{'path': 'x', 'bytes': 1.0}]}"), ("files", "{'files': [{'path': 'x', 'bytes': 1 << 64}]}"),
    ("files", "{'files': [{'path': 'x', 'bytes': 1}] * 2}"),
    ("files", "{'files': [{'path': str(i), 'bytes': 1} for i in range(100001)]}"),
    ("disk", "{'free_bytes': -1, 'total_bytes': 1}"), ("disk", "{'free_bytes': 'much', 'total_bytes': 1}"),
    ("list_processes", "{'processes': [{'pid': 0, 'argv': [], 'name': ''}]}"),
    ("list_processes", "{'processes': [{'pid': 1, 'argv': 'rm -rf', 'name': ''}]}"),
    ("list_processes", "{'processes': [{'pid': 1, 'argv': [1], 'name': ''}]}"),
    ("sweep", "{" + SWEPT + ", 'left': ['1']}"), ("sweep", "{" + SWEPT + ", 'undone': 'all'}"),
    ("sweep", "{" + SWEPT + ", 'failed': [{'id': 'x'}]}"),
    ("sweep", "{" + SWEPT + ", 'stayed': [{'bytes': -1}]}"), ("sweep", "{" + SWEPT + ", 'killed': [{'pid': 1}]}"),
    ("bye", "{'undone': [], 'already': [], 'failed': [], 'left': 'x'}"),
    ("bye", "{'undone': [], 'already': [], 'failed': [{}], 'left': []}"),
    ("undo", "{'error': ['x']}"), ("undo", "{'error': 'x', 'kind': 7}"), ("undo", "{'error': 'x', 'tail': {}}"),
    ("undo", "{'error': 'x', 'argv': 'x'}"), ("undo", "{'error': 'x', 'undo_failed': 'x'}"),
    ("undo", "{'error': 'x', 'kind': 'locked', 'holder': 'me'}"),
]  # fmt: skip


# Answered without a field, or wrongly in tests of their own.
ASKED_IN_OTHER_TESTS = {"lock", "image", "put", "signal", "change", "cancel", "fetch", "remove"}


def test_every_message_of_the_agent_is_answered_wrongly():
    assert agent_messages() == ASKED.keys() | ASKED_IN_OTHER_TESTS
    assert {op for op, _ in WRONG} == ASKED.keys()


@pytest.mark.parametrize(("op", "answer"), WRONG, ids=lambda one: one[:60])
def test_an_answer_with_a_field_of_another_type_is_refused_with_the_hosts_name(hostile, op, answer):
    client = hostile(f"ANSWERS['{op}'] = {answer}")
    with pytest.raises(OrchError) as caught:
        ASKED[op](client)
    assert caught.value.node == "n1"
    assert "agent" in caught.value.message
    assert len(str(caught.value)) < 1000


def test_texts_that_nobody_could_write_down_are_made_such(hostile):
    client = hostile(r"ANSWERS['run_command'] = {'status': 0, 'stdout': 'a\ud800b', 'stderr': 'é\udcff'}")
    done = client.run(["x"], patience())
    assert (done.stdout, done.stderr) == ("a\N{REPLACEMENT CHARACTER}b", "é\N{REPLACEMENT CHARACTER}")


def serving(names: list[object], content: bytes = b"theirs") -> str:
    """An agent that lists these names and has the same for each of them."""
    return f"""
DATA = {content!r}
ANSWERS["files"] = {{"files": [{{"path": name, "bytes": len(DATA)}} for name in {names!r}], "left": []}}
def other(request):
    text({{"id": request["id"], "more": True, "bytes": len(DATA)}}, DATA)
    text({{"id": request["id"], "sha256": {hashlib.sha256(content).hexdigest()!r}, "size": len(DATA)}})
"""


ELSEWHERE = [
    "../stolen", "../../stolen", "p/../../stolen", "p/../../../../stolen", "{outside}/stolen",
    "//{outside}/stolen", "..",
    ".", "", "p//x", "p/./x", "p/", "a\0b", "a\nb", "\x1b[2J", "a\\..\\b", "\ud800", "x" * 300,
    "d/" * 3000 + "x", "link",
    "link/stolen", "file/x", "folder",
]  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE, ids=lambda name: ascii(name)[:30])
def test_a_name_that_leads_elsewhere_is_refused_and_all_else_comes_home(hostile, tmp_path, name):
    outside, home = tmp_path / "outside", tmp_path / "results/run/hosts/n1"
    outside.mkdir()
    (home / "folder").mkdir(parents=True)
    (home / "link").symlink_to(outside)
    (home / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    client = hostile(serving(["good", name.format(outside=outside), "p/also-good"]))
    left = fetch_all(client, home, patience())
    assert [(one.path, one.kept) for one in left] == [(name.format(outside=outside), True)]
    assert all(map(str.isprintable, notes("n1", left, "R")))
    after = set(tmp_path.rglob("*")) - set(before)
    mine = {home / "good", home / "p", home / "p/also-good", tmp_path / "agent0"}
    assert {path for path in after if not path.name.endswith(".part")} <= mine
    assert (home / "good").read_bytes() == b"theirs"
    assert (home / "p/also-good").read_bytes() == b"theirs" or name == "folder"
    assert (home / "file").read_text() == "mine"
    assert list(outside.iterdir()) == []


def test_more_than_was_listed_is_not_taken(hostile, tmp_path):
    endless = """
ANSWERS["files"] = {"files": [{"path": "x", "bytes": 1000}], "left": []}
def other(request):
    while True: text({"id": request["id"], "more": True, "bytes": 1 << 18}, bytes(1 << 18))
"""
    client = hostile(endless)
    with pytest.raises(AgentError, match="more comes than the 1000 bytes listed") as caught:
        fetch_all(client, tmp_path / "home", patience())
    assert caught.value.node == "n1"
    assert sum(path.stat().st_size for path in (tmp_path / "home").rglob("*")) <= 1000


def test_a_promise_that_the_disk_cannot_hold_is_not_tried(hostile, tmp_path):
    promised = shutil.disk_usage(tmp_path).total
    names = f"[{{'path': 'x', 'bytes': {promised}}}, {{'path': 'y', 'bytes': 6}}]"
    client = hostile(serving([]) + f"\nANSWERS['files'] = {{'files': {names}, 'left': []}}")
    (left,) = fetch_all(client, tmp_path / "home", patience())
    assert (left.path, left.kept) == ("x", True)
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["y"]


# One byte at a time, so many; then the hash of what was asked for, if that is all of it.
SLOW = """
import hashlib, time
def other(request):
    for _ in range({count}):
        text({{"id": request["id"], "more": True, "bytes": 1}}, b"x")
        time.sleep(0.5)
    if {count} == request["most"]:
        text({{"id": request["id"], "sha256": hashlib.sha256(b"x" * {count}).hexdigest(), "size": {count}}})
"""


def test_a_file_that_comes_slowly_comes_home(hostile, tmp_path, monkeypatch):
    """Fifteen seconds for thirty bytes, where ten without any would end it."""
    monkeypatch.setattr(files, "STALLED_S", 10.0)
    client = hostile(SLOW.format(count=30))
    client.fetch(RunFile("x", 30), tmp_path / "home", patience())
    assert (tmp_path / "home/x").read_bytes() == b"x" * 30


def test_a_file_of_which_no_more_comes_is_given_up_and_kept_as_far_as_it_came(hostile, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STALLED_S", 5.0)
    client = hostile(SLOW.format(count=2))
    with pytest.raises(DeadlineExceeded, match="x: nothing came for 5 s, after 2 of 30 bytes"):
        client.fetch(RunFile("x", 30), tmp_path / "home", patience())
    assert (tmp_path / "home/x.part").read_bytes() == b"xx", "the next try goes on from there"


def test_a_hash_that_is_not_that_of_what_came_leaves_no_file(hostile, tmp_path):
    client = hostile(serving(["x"]) + "\nDATA = b'others'")
    (left,) = fetch_all(client, tmp_path / "home", patience())
    assert left.why == "x changed while it was fetched"
    assert list((tmp_path / "home").rglob("*")) == []


def test_who_cannot_take_a_part_says_so_at_once_and_the_agent_stops(connect_agent, tmp_path):
    """A full disk of the controller's: the rest of a large file is neither waited for nor sent."""
    client = connect_agent()
    with (Path(client.node.folder(client._run)) / "big").open("wb") as file:
        file.truncate(1 << 36)  # minutes, if it came whole
    taken = []

    def sink(data: bytes) -> None:
        taken.append(len(data))
        raise OSError(28, "No space left on device")

    values = {"path": "big", "offset": 0, "most": 1 << 36}
    with pytest.raises(OSError, match="No space left"):
        client._connection.ask("fetch", patience(), values, sink=sink)
    client.put("small", b"x", patience())
    client.fetch(RunFile("small", 1), tmp_path / "home", patience())
    assert len(taken) == 1
    patience().poll(lambda: not still_reads(client.channel.pid, "big"), every_s=0.05, waiting_for="the agent to stop")


def still_reads(pid: int, name: str) -> bool:
    return any(link.exists() and link.readlink().name == name for link in Path(f"/proc/{pid}/fd").iterdir())


FLOODS = {
    "single events": """
    event = {"event": "exit", "name": "p", "status": 0, "wall_ns": 1}
    for _ in range(1_000_000): text(event)
""",
    "a frame of lines": """
    while True: text({"event": "lines", "name": "p", "lines": [""] * 500_000, "wall_ns": 1})
""",
    "long lines": """
    while True: text({"event": "lines", "name": "p", "lines": ["x" * 1_000_000], "wall_ns": 1})
""",
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_events_ends_the_connection_and_not_the_controller(hostile, tmp_path, flood, monkeypatch):
    """A run that puts itself down, or waits for something else, takes no events: they wait."""
    monkeypatch.setattr(events, "MOST_BYTES", 8 << 20)
    watch = Watch(EventLog(tmp_path / "events.jsonl"))
    client = hostile(f"def other(request):{flood}", on_event=watch.inbox.put, keep=False)
    tracemalloc.start()
    try:
        (error,) = outcomes(client, 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, TransportError)
    assert client.lost.wait(PATIENCE_S)
    assert most < 64 << 20
    watch.settle()
    assert "floods the controller" in watch.lost["n1"]
    assert len(watch.inbox) == 0


def test_what_is_taken_in_time_is_no_flood(tmp_path):
    watch = Watch(EventLog(tmp_path / "events.jsonl"))
    for _ in range(20):
        for _ in range(50_000):
            watch.inbox.put(LineRead("n1", "p", "x" * 100, 1))
        watch.settle()
    assert len(watch.inbox) == 0
