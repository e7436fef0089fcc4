"""What a host, a file or a capture says reaches the terminal as text that it cannot obey."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from orchestrator.core.screen import terminal
from orchestrator.execution.observers.progress import Progress
from tests.helpers import manifests
from tests.helpers.made_packets import ethernet, pcap
from tests.helpers.odd_packets import connection

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x08\x7f\N{RIGHT-TO-LEFT OVERRIDE}gpj\N{POP DIRECTIONAL ISOLATE}\r"
OURS = re.compile(r"\x1b\[(?:3[123]|0)m")  # colours of verdicts, of which EVIL has none
BIDI = "\N{RIGHT-TO-LEFT OVERRIDE}\N{POP DIRECTIONAL ISOLATE}"


def on_a_terminal(argv: list[str]) -> tuple[int, str]:
    """What a program writes to a terminal of its own, of 500 columns."""
    master, slave = pty.openpty()
    env = {**os.environ, "COLUMNS": "500", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([sys.executable, *argv], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    told = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        told += part
    os.close(master)
    return process.wait(), told.decode().replace("\r\n", "\n")


def obeyed(told: str) -> set[str]:
    """The characters in it that a terminal would act upon, but for line ends."""
    told = OURS.sub("", told)
    return {one for one in told if (ord(one) < 0x20 and one != "\n") or 0x7F <= ord(one) < 0xA0 or one in BIDI}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("é 日本 \N{SNAKE}", "é 日本 \N{SNAKE}"),
        ("\x1b[31m", "\\u001b[31m"),
        ("a\rb\x08\x00\x7f\x9b\x85", "a\\u000db\\u0008\\u0000\\u007f\\u009b\\u0085"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text, told):
    assert terminal.escaped(text) == told


def test_a_line_is_one_line():
    assert terminal.line("a\nb\tc") == "a\\u000ab\\u0009c"


def test_every_character_that_is_spelled_out_stays_json():
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        assert json.loads(f'"{terminal.line(chr(code))}"') == chr(code)


def test_names_and_damage_of_captures(tmp_path):
    name = EVIL + "\nh9: 1 packets"
    (tmp_path / f"{name}.pcap").write_bytes(pcap([ethernet(one) for one in connection()])[:-3])
    status, told = on_a_terminal(["-m", "orchestrator.cli.main", "capture", str(tmp_path / f"{name}.pcap")])
    assert status == 0
    assert obeyed(told) == set()
    assert "\\u001b[2J" in told
    assert "5 packets" in told
    assert not any(line.startswith("h9:") for line in told.splitlines())


FAILING = """
import sys
from orchestrator.cli import main as cli; from orchestrator.hosts import doctor
from orchestrator.core.deadline import Deadline
from orchestrator.remote.agent_client import AgentClient
from orchestrator.parts.topology import Node
from orchestrator.remote.transport.local import LocalChannel
def examine(*_, **__):
    node = Node(name="n1", work=sys.argv[1])
    client = AgentClient(node, LocalChannel(), run="r1", holder={}, on_event=lambda event: None)
    try:
        client.hello(Deadline.after(60))
        said = "import sys; sys.stderr.write(sys.argv[1]); sys.exit(3)"
        client.change("rate", Deadline.after(60), undo=[["true"]], apply=[[sys.executable, "-c", said, sys.argv[2]]])
    finally:
        client.close(Deadline.after(60))
doctor.examine = examine
sys.exit(cli.main(["doctor"]))
"""


def test_the_last_words_of_a_command_that_failed_on_a_host(tmp_path):
    status, told = on_a_terminal(["-c", FAILING, str(tmp_path), EVIL + "end"])
    assert status == 1
    assert "last output" in told
    assert "\\u001b[2J" in told
    assert obeyed(told) == set()


def test_runs_that_others_left_in_the_store(tmp_path):
    for number in (1, 2):
        said = {"error": EVIL, "stage": EVIL, "reasons": [EVIL], "notes": [EVIL], "point": EVIL, "began_ns": number}
        manifests.begun(tmp_path, f"r{number}", outcome="failed", **said).seal()
    manifests.left(tmp_path / "e" / "r3", outcome=EVIL)
    for argv in (["ls"], ["ls", "--json"], ["query", "select error, outcome, stage from runs"]):
        status, told = on_a_terminal(["-m", "orchestrator.cli.main", *argv, "--results", str(tmp_path)])
        assert status == 0, told
        assert obeyed(told) == set()
        assert "\\u001b" in told


def test_a_table_as_csv_for_a_program_is_as_it_is(tmp_path):
    manifests.begun(tmp_path, error="a\x1b[2Jb").seal()
    argv = [sys.executable, "-m", "orchestrator.cli.main", "query", "select error from runs", "--csv"]
    done = subprocess.run([*argv, "--results", str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "error\na\x1b[2Jb\n"
    assert obeyed(on_a_terminal([*argv[1:], "--results", str(tmp_path)])[1]) == set()


def test_progress_rewrites_its_line_and_nothing_else_does():
    class Live(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Live()
    progress = Progress(stream)
    progress.phase("open" + EVIL)
    progress.say("said" + EVIL)
    progress.done()
    assert obeyed(stream.getvalue()) == {"\r"}
    assert "\r\r" not in stream.getvalue()
    assert "\r  open\\u001b" in stream.getvalue()
