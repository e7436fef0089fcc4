"""What a client can ask of a real agent."""

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
from pathlib import Path

import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, DeadlineExceeded, LaunchError, NeverStartedError, UnsafePath
from orchestrator.parts.launch import Exited, Launch, Line, Listening, PresenceCheck, Requirement, Stop
from orchestrator.remote.events import LineRead, ProcessExited
from tests.helpers.machine import free_port, gone

SOON = 60.0


def soon() -> Deadline:
    return Deadline.after(SOON)


def launch(script: str, **options) -> Launch:
    options = {"name": "p", "node": "n1", "role": "traffic", "argv": (sys.executable, "-u", "-c", script), **options}
    return Launch(**options)


def shell(script: str, **options) -> Launch:
    return launch("", argv=("sh", "-c", script), **options)


def folder(client) -> Path:
    return Path(client.node.folder(client._run))


def test_hello_tells_who_answers(connect_agent):
    client = connect_agent(hello=False)
    before = time.time_ns()
    greeting = client.hello(soon())
    assert before <= greeting.wall_ns <= time.time_ns()
    assert greeting.hostname == socket.gethostname()
    assert greeting.uid == os.geteuid()
    assert greeting.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert folder(client).stat().st_mode & 0o777 == 0o700


def test_a_command_gives_status_output_and_takes_input(connect_agent):
    done = connect_agent().run(["sh", "-c", "cat; echo bad >&2; exit 3"], soon(), stdin=b"in")
    assert (done.status, done.stdout, done.stderr) == (3, "in", "bad\n")


def test_commands_of_one_request_are_all_tried(connect_agent):
    """One that is missing, fails or hangs keeps no other from being run."""
    client = connect_agent()
    done = client.run_all(
        [["echo", "one"], ["no-such-program"], ["sh", "-c", "echo x; exit 3"], ["echo", "last"]], soon(), each_s=60
    )
    assert [None if one is None else (one.status, one.stdout) for one in done] == [
        (0, "one\n"),
        None,
        (3, "x\n"),
        (0, "last\n"),
    ]
    assert client.run_all([["sleep", "600"], ["sleep", "600"]], soon(), each_s=0.1) == [None, None]
    late = client.run_all([["sleep", "600"], ["touch", str(folder(client) / "late")]], Deadline.after(1), each_s=60)
    assert late == [None, None]
    assert not (folder(client) / "late").exists()


def test_output_that_is_no_utf8_and_too_long_is_cut_not_fatal(connect_agent):
    client = connect_agent()
    assert client.run(["printf", r"a\377b"], soon()).stdout == "a\N{REPLACEMENT CHARACTER}b"
    assert len(client.run(["head", "-c", "3000000", "/dev/zero"], soon()).stdout) == 1 << 20


def test_a_command_that_leaves_a_child_with_its_output_open_is_over_all_the_same(connect_agent):
    assert connect_agent().run(["sh", "-c", "sleep 600 & echo done"], soon()).stdout == "done\n"


def test_a_long_command_does_not_hold_up_others_and_ends_with_its_deadline(connect_agent):
    client = connect_agent()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            client.run(["sh", "-c", "echo begun; sleep 600"], Deadline.after(10))
        except DeadlineExceeded as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.clock(1, soon())
    assert thread.is_alive()
    thread.join(60)
    assert errors
    assert errors[0].tail == "begun"
    soon().poll(lambda: client.processes(soon()) == [], every_s=0.01, waiting_for="what it had started to be gone")


def test_a_missing_program_is_named(connect_agent):
    with pytest.raises(AgentError, match="no program named 'orch-no-such'"):
        connect_agent().run(["orch-no-such"], soon())


def test_the_runs_key_goes_to_launches_that_ask_for_it_alone(connect_agent):
    client = connect_agent(run_key="open sesame")
    client.start(shell("env", name="told", run_key="KEY", ready=Exited()), soon())
    client.start(shell("env", name="not-told", ready=Exited()), soon())
    assert "KEY=open sesame\n" in (folder(client) / "told/stdout").read_text()
    assert "sesame" not in (folder(client) / "not-told/stdout").read_text()


def test_a_secret_goes_to_launches_that_name_its_source_alone_and_lies_nowhere(connect_agent):
    client = connect_agent(secrets={"~/key": "open sesame"})
    client.start(shell('printf %s "$KEY" | sha256sum; sleep 60', name="told", env_from={"KEY": "~/key"}), soon())
    client.start(shell("env", name="not-told", ready=Exited()), soon())
    told = folder(client) / "told/stdout"
    Deadline.after(60).poll(lambda: "-\n" in told.read_text(), every_s=0.02, waiting_for="its hash")
    assert told.read_text().split()[0] == hashlib.sha256(b"open sesame").hexdigest()
    lines = [argv for process in client.processes(soon()) for argv in process.argv]
    assert any("sleep" in line for line in lines)
    assert not [line for line in lines if "sesame" in line]
    assert not [path for path in folder(client).rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]


def test_clock(connect_agent):
    sample = connect_agent().clock(8, soon())
    assert abs(sample.offset_ns) <= sample.uncertainty_ns + 1000  # the same clock
    assert sample.uncertainty_ns < 20_000_000


def test_requirements_are_found_or_not_in_the_order_asked(connect_agent):
    def need(kind, what, python=""):
        return Requirement(node="n1", kind=kind, what=what, python=python, remedy="get it", needed_by="a test")

    asked = [
        need("program", "sh"),
        need("module", "json.decoder"),
        need("program", "orch-no-such"),
        need("module", "orch_no_such"),
        need("device", "lo"),
        need("device", "nope0"),
        need("privilege", "root"),
        need("module", "json", "/no/such/python"),
        need("mtu", "65536 on lo"),
        need("mtu", "1500 on lo"),
        need("mtu", "1500 on nope0"),
        need("speed", "100000 Mbit/s on lo"),  # of a virtual device that is a name
    ]
    findings = connect_agent().check(asked, soon())
    assert [finding.requirement for finding in findings] == asked
    expected = [True, True, False, False, True, False, os.geteuid() == 0, False, True, False, False, True]
    assert [finding.found for finding in findings] == expected
    assert findings[0].detail.endswith("/sh")
    assert "lo" in findings[5].detail
    assert [finding.detail for finding in findings[8:10]] == ["it is 65536", "it is 65536"]
    assert "No such file" in findings[10].detail


def test_small_files_are_read_in_one_go(connect_agent, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(b"x" * (1 << 19) + b"end")
    reading = connect_agent().read(
        ["/proc/sys/kernel/ostype", "/no/such", str(big)], soon(), globs=["/proc/sys/kernel/ost*"]
    )
    assert reading.texts["/proc/sys/kernel/ostype"] == "Linux\n"
    assert reading.texts["/no/such"] is None
    assert reading.texts[str(big)].endswith("xend")
    assert len(reading.texts[str(big)]) == 1 << 18


def test_files_are_put_and_listed(connect_agent, tmp_path):
    client = connect_agent()
    script = tmp_path / "script"
    script.write_bytes(b"#!/bin/sh\n" + b"#" * (3 << 20) + b"\necho ran $1\n")
    script.chmod(0o755)
    started = launch("", argv=("./script", "it"), files={"script": script, "data/x": b"12"}, ready=Exited())
    client.start(started, soon())
    files = {file.path: file.bytes for file in client.files(soon())}
    assert files["p/data/x"] == 2
    assert files["p/script"] == script.stat().st_size
    assert (folder(client) / "p/stdout").read_text() == "ran it\n"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "p/../../x", ""])
def test_nothing_is_put_or_fetched_outside_the_folder(connect_agent, path, tmp_path):
    client = connect_agent()
    with pytest.raises(AgentError, match="not in the run's folder"):
        client.put(path, b"", soon())
    with pytest.raises(UnsafePath):
        client.fetch(RunFile(path, 1), tmp_path / "got", soon())


def test_ready_when_a_line_is_there(connect_agent):
    client = connect_agent()
    script = "import time; print('load'); time.sleep(.1); print('ready 5'); time.sleep(600)"
    running = client.start(launch(script, ready=Line(r"^ready \d")), soon())
    assert running.ready_ns - running.started_ns > 0.05e9


def test_ready_when_a_port_is_listened_on(connect_agent):
    port = free_port()
    client = connect_agent()
    script = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    client.start(launch(script, ready=Listening(port)), soon())
    with socket.create_connection(("127.0.0.1", port), 60):
        pass
    with pytest.raises(LaunchError, match=f"listens on TCP port {port} already"):
        client.start(launch(script, name="second", ready=Listening(port)), soon())


def test_ready_when_it_has_ended_well(connect_agent):
    client = connect_agent()
    client.start(shell("exit 0", name="good", ready=Exited()), soon())
    with pytest.raises(LaunchError, match="ended with status 4") as caught:
        client.start(shell("echo no luck >&2; exit 4", name="bad", ready=Exited()), soon())
    assert caught.value.tail == "no luck"
    assert caught.value.node == "n1"
    assert "no luck" in str(caught.value)


def test_an_early_end_is_told_with_the_last_words(connect_agent):
    with pytest.raises(LaunchError, match="ended with status -9") as caught:
        connect_agent().start(shell("echo trouble; kill -9 $$", ready=Line("never")), soon())
    assert caught.value.tail == "trouble"


def test_what_is_never_ready_is_killed(connect_agent):
    client = connect_agent()
    with pytest.raises(LaunchError, match=r"not ready within 10 s") as caught:
        client.start(shell("echo $$; trap '' TERM; sleep 600", ready=Line("never"), ready_within_s=10.0), soon())
    assert gone(int(caught.value.tail))


def test_a_gate_holds_until_go(connect_agent):
    client = connect_agent()
    client.start(launch("print('up'); print(input())", gate=True, ready=Line("up"), follow="stdout"), soon())
    assert [event.text for event in client.events if isinstance(event, LineRead)] in ([], ["up"])
    client.go("p", soon())
    assert client.await_event(lambda event: isinstance(event, LineRead) and event.text == "go")
    client.await_event(lambda event: isinstance(event, ProcessExited))
    with pytest.raises(LaunchError, match="has ended"):
        client.go("p", soon())


def test_a_gate_can_say_when_to_begin_and_how_often(connect_agent):
    client = connect_agent()
    client.start(launch("print(input())", gate=True, follow="stdout"), soon())
    client.go("p", soon(), at_ns=1_795_000_000_000_000_000, every_ns=400_000_000)
    assert client.await_event(
        lambda event: isinstance(event, LineRead) and event.text == "go 1795000000000000000 400000000"
    )


def test_whole_lines_are_followed_in_order_and_before_the_end(connect_agent):
    client = connect_agent()
    script = (
        "import sys, time\nsys.stdout.write('one\\ntw'); sys.stdout.flush(); time.sleep(.15)\n"
        "sys.stdout.write('o\\nthree\\nrest')"
    )
    client.start(launch(script, follow="stdout"), soon())
    client.await_event(lambda event: isinstance(event, ProcessExited))
    assert [getattr(event, "text", "end") for event in client.events] == ["one", "two", "three", "end"]


def test_an_end_is_told_with_its_status_and_time(connect_agent):
    client = connect_agent()
    client.start(shell("exit 7"), soon())
    event = client.await_event(lambda event: isinstance(event, ProcessExited))
    assert (event.name, event.status) == ("p", 7)
    assert abs(time.time_ns() - event.wall_ns) < 2e9
    assert client.wait("p", soon()) == 7


def test_stop_climbs_its_ladder(connect_agent):
    client = connect_agent()
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('int'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up')\nwhile True: time.sleep(1)"
    )
    stop = Stop(signals=((signal.SIGINT, 0.2), (signal.SIGTERM, 60.0)))
    started = launch(script, ready=Line("up"), stop=stop)
    client.start(started, soon())
    ended = client.stop(started, soon())
    assert (ended.status, ended.killed, ended.was_over) == (5, False, False)
    assert "int" in ended.tail
    assert ended.user_s > 0
    assert ended.max_rss_bytes > 1 << 20


def test_stop_kills_what_ignores_it_with_all_its_children(connect_agent):
    client = connect_agent()
    script = (
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 600; sleep 600' & "
        "setsid sh -c 'trap \"\" TERM; echo $$; sleep 600; sleep 600' & sleep .1; echo up; sleep 600; sleep 600"
    )
    started = shell(script, ready=Line("up"), stop=Stop(signals=((signal.SIGTERM, 600.0),)))
    client.start(started, soon())
    pids = [int(word) for word in (folder(client) / "p/stdout").read_text().split() if word.isdigit()]
    ended = client.stop(started, soon(), grace=0.02)  # a second Ctrl-C shortens the grace
    assert ended.killed
    assert len(pids) == 2
    assert all(map(gone, pids))
    assert client.processes(soon()) == []


def test_stop_leaves_other_launches_alone_and_says_what_was_over(connect_agent):
    client = connect_agent()
    client.start(shell("sleep 600", name="other"), soon())
    started = shell("exit 1")
    client.start(started, soon())
    client.await_event(lambda event: isinstance(event, ProcessExited))
    ended = client.stop(started, soon())
    assert (ended.was_over, ended.status) == (True, 1)
    assert {process.name for process in client.processes(soon())} == {"other"}


def test_what_was_asked_to_end_before_it_was_started_does_not_start(connect_agent):
    """As when Ctrl-C comes between a request's decision and its sending."""
    client = connect_agent()
    late = shell("sleep 600")
    with pytest.raises(NeverStartedError, match="no process named 'p'"):
        client.stop(late, soon())
    with pytest.raises(LaunchError, match="asked to end before it was started"):
        client.start(late, soon())
    assert client.processes(soon()) == []


def test_a_gate_that_nobody_listens_at_any_more_is_told_with_the_reason(connect_agent):
    client = connect_agent()
    script = "exec 0<&-; echo ready; sleep 0.3; echo 'no GPU' >&2; exit 3"
    gated = shell(script, gate=True, ready=Line("ready"))
    client.start(gated, soon())
    with pytest.raises(LaunchError, match="p has ended") as caught:
        client.go("p", soon())
    assert "no GPU" in caught.value.tail


def test_an_undo_waits_for_its_change(connect_agent, tmp_path):
    """Whoever asked for the change may be gone while it is still being made."""
    client = connect_agent()
    state = tmp_path / "state"
    change = threading.Thread(
        target=client.change,
        args=("rate", soon()),
        kwargs={"undo": [["rm", str(state)]], "apply": [["sh", "-c", f"sleep 0.3; touch {state}"]]},
    )
    change.start()
    journal = folder(client) / "undo.jsonl"
    soon().poll(journal.exists, every_s=0.01, waiting_for="the change to begin")
    client.undo("rate", soon())
    change.join()
    assert not state.exists()


def test_a_change_under_way_is_made_whole_before_all_is_taken_back(connect_agent, tmp_path):
    client = connect_agent()
    state = tmp_path / "state"
    undo, apply = [["rm", str(state)]], [["sh", "-c", f"sleep 0.3; touch {state}"]]
    change = threading.Thread(target=client.change, args=("rate", soon()), kwargs={"undo": undo, "apply": apply})
    change.start()
    journal = folder(client) / "undo.jsonl"
    soon().poll(journal.exists, every_s=0.01, waiting_for="the change to begin")
    client.close(soon())  # raises where something could not be taken back
    change.join()
    assert not state.exists()
    assert json.loads(journal.read_text().splitlines()[-1]) == {"id": "rate", "done": True}


def test_a_change_is_journaled_before_it_is_made_and_undone(connect_agent, tmp_path):
    client = connect_agent()
    state = tmp_path / "state"
    journal = folder(client) / "undo.jsonl"
    apply = [["cp", str(journal), str(state)]]  # so that the state is the journal as it was when the change was made
    client.change("rate", soon(), undo=[["rm", str(state)]], apply=apply)
    assert '"rm"' in state.read_text()
    client.undo("rate", soon())
    assert not state.exists()
    client.undo("rate", soon())  # once more: there is nothing to do


@pytest.mark.parametrize("apply", [[], [["false"]]])
def test_a_change_that_changed_nothing_keeps_no_folder(connect_agent, apply):
    """It was in force already, or the node refuses it; its undo has nothing to find."""
    client = connect_agent()
    with contextlib.suppress(AgentError):
        client.change("rate", soon(), undo=[["false"]] if apply else [], apply=apply)
    client.undo("rate", soon())
    client.remove(soon())


def test_a_change_that_fails_halfway_is_taken_back_at_once(connect_agent, tmp_path):
    client = connect_agent()
    state = tmp_path / "state"
    apply = [["touch", str(state)], ["ls", "/no/such/folder"]]
    with pytest.raises(AgentError, match="cannot apply rate") as caught:
        client.change("rate", soon(), undo=[["rm", str(state)]], apply=apply)
    assert caught.value.argv == ("ls", "/no/such/folder")
    assert "No such file" in caught.value.tail
    assert not state.exists()
    client.close(soon())  # nothing is left to undo


def test_changes_are_taken_back_last_first_at_the_end(connect_agent, tmp_path):
    client = connect_agent()
    log = tmp_path / "log"
    for word in ("one", "two"):
        client.change(word, soon(), undo=[["sh", "-c", f"echo {word} >> {log}"]], apply=[["true"]])
    client.close(soon())
    assert log.read_text() == "two\none\n"


def test_an_undo_that_fails_is_told_at_the_end(connect_agent):
    client = connect_agent()
    client.change("rate", soon(), undo=[["sh", "-c", "echo stuck; exit 1"]], apply=[["true"]])
    with pytest.raises(AgentError, match="1 changes could not be taken back") as caught:
        client.close(soon())
    assert "stuck" in caught.value.tail


def test_an_undo_that_hangs_is_ended_and_told_and_keeps_no_other_from_being_made(connect_agent, tmp_path):
    client = connect_agent()
    undone = tmp_path / "undone"
    client.change("one", soon(), undo=[["touch", str(undone)]], apply=[["true"]])
    presence = PresenceCheck(read=("echo", "it stands"), pattern="stands")
    hangs = [["sh", "-c", "echo stuck; sleep 600"]] * 20  # ten seconds each
    client.change("two", soon(), undo=hangs, apply=[["true"]], presence=presence)
    with pytest.raises(AgentError, match="1 changes could not be taken back") as caught:
        client.close(soon())
    assert "two: stuck" in caught.value.tail
    assert undone.exists()


def test_a_file_comes_home_whole(connect_agent, tmp_path):
    client = connect_agent()
    data = os.urandom(5_000_000)
    client.put("big", data, soon())
    digest = client.fetch(RunFile("big", len(data)), tmp_path / "home", soon())
    assert digest == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "home/big").read_bytes() == data
    client.put("empty", b"", soon())
    client.fetch(RunFile("empty", 0), tmp_path / "home", soon())
    assert (tmp_path / "home/empty").read_bytes() == b""


def test_programs_are_compressed_on_their_way(connect_agent, monkeypatch):
    """They go to every node over what may be one slow network."""
    client = connect_agent()
    sent = []
    write = client.channel.write
    monkeypatch.setattr(client.channel, "write", lambda data: (sent.append(len(data)), write(data)))
    program = Path(hashlib.__file__).read_bytes() * 200  # more than one part
    client.put("program", program, soon())
    assert (folder(client) / "program").read_bytes() == program
    assert sum(sent) < len(program) / 10


def test_an_interrupted_fetch_is_taken_up(connect_agent, tmp_path):
    client = connect_agent()
    data = os.urandom(1_000_000)
    client.put("big", data, soon())
    (tmp_path / "big.part").write_bytes(data[:600_001])
    client.fetch(RunFile("big", len(data)), tmp_path, soon())
    assert (tmp_path / "big").read_bytes() == data
    (tmp_path / "big.part").write_bytes(b"something else")
    with pytest.raises(AgentError, match="changed while"):
        client.fetch(RunFile("big", len(data)), tmp_path, soon())
    assert not (tmp_path / "big.part").exists()


def test_remove_deletes_the_folder_once_nothing_runs(connect_agent):
    client = connect_agent()
    started = shell("sleep 600")
    client.start(started, soon())
    with pytest.raises(AgentError, match="process "):
        client.remove(soon())
    client.stop(started, soon())
    client.remove(soon())
    assert not folder(client).exists()


def test_disk(connect_agent):
    disk = connect_agent().disk(soon())
    assert 0 < disk.free_bytes <= disk.total_bytes


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_an_error_and_not_the_end(connect_agent, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "tmpfs", small], check=True)
    try:
        client = connect_agent(hello=False)
        client.hello(soon(), folder=f"{small}/run")
        with pytest.raises(AgentError, match=r"[Nn]o space (is )?left"):
            client.put("big", b"x" * 100_000, soon())
        with pytest.raises(AgentError, match=r"[Nn]o space (is )?left|disk is full"):
            client.change("rate", soon(), undo=[["true"]], apply=[["touch", str(tmp_path / "applied")]])
        assert not (tmp_path / "applied").exists()
        with pytest.raises(LaunchError, match=r"[Nn]o space (is )?left"):
            [client.start(shell("true", name=f"p{number}"), soon()) for number in range(8)]
        assert client.run(["echo", "alive"], soon()).stdout == "alive\n"
        client.close(soon())
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_process_has_the_environment_asked_for_and_the_tag(connect_agent, run_name):
    client = connect_agent()
    client.start(shell("env", env={"X": "a b;$c"}, ready=Exited()), soon())
    lines = (folder(client) / "p/stdout").read_text().splitlines()
    assert "X=a b;$c" in lines
    assert f"ORCH_RUN={run_name}" in lines


def test_a_stopped_agent_runs_into_the_deadline(connect_agent):
    client = connect_agent()
    os.kill(client.channel.pid, signal.SIGSTOP)
    try:
        with pytest.raises(DeadlineExceeded, match="n1"):
            client.files(Deadline.after(0.2))
        with pytest.raises(DeadlineExceeded):
            client.put("big", bytes(8 << 20), Deadline.after(0.2))  # more than the channel holds
    finally:
        os.kill(client.channel.pid, signal.SIGCONT)
    assert client.run(["echo", "back"], soon()).stdout == "back\n"


def test_a_port_on_which_somebody_listens_is_told_with_who(connect_agent):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        need = Requirement(node="n1", kind="port", what=str(port), remedy="end it", needed_by="iperf")
        (busy,) = connect_agent().check([need], soon())
    assert not busy.found
    assert f"(pid {os.getpid()}) listens there" in busy.detail
    (free,) = connect_agent(run=f"other-{time.time_ns()}").check([need], soon())
    assert free.found


@pytest.mark.parametrize("work", ["/proc/1/work", "/sys/kernel/work"])
def test_a_work_folder_that_cannot_be_written_is_told_with_its_key(connect_agent, work):
    with pytest.raises(AgentError, match=f"cannot write where the run's files are to lie: {work[:9]}") as caught:
        connect_agent(hello=False).hello(soon(), folder=f"{work}/r1.n1")
    assert "Errno" not in str(caught.value)
    assert "`work` of the inventory" in caught.value.hint


def test_a_work_folder_that_leads_through_a_file_is_told_with_its_key(connect_agent):
    with pytest.raises(AgentError, match="/dev/null is a link or no folder") as caught:
        connect_agent(hello=False).hello(soon(), folder="/dev/null/w/r1.n1")
    assert "`work` of the inventory" in caught.value.hint
