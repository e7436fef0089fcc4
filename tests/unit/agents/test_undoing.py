"""What is taken back of a run whose agent died, whatever became of its journal, marker and changes meanwhile."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError
from orchestrator.hosts import cleaning
from orchestrator.hosts.cleaning import Wanted
from orchestrator.parts.launch import PresenceCheck
from orchestrator.remote.events import AgentLost
from tests.helpers.machine import PATIENCE_S

pytestmark = pytest.mark.usefixtures("strays")

GARBAGE = ["not JSON", '[1, "two"]', '{"undo": [["true"]]}', '{"id": "x", "undo": "rm"}', "\\udc80", "[" * 100_000]


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


class Rules:
    """A file of rules that changes add to and remove from, as a kernel's tables; removing what is not there fails."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rules"
        self.file.write_text("")

    def present(self) -> list[str]:
        return self.file.read_text().split()

    def add(self, rule: str) -> list[str]:
        return ["sh", "-c", f"echo {rule} >> {self.file}"]

    def remove(self, rule: str) -> list[str]:
        return ["sh", "-c", f"grep -qx {rule} {self.file} && sed -i /^{rule}$/d {self.file}"]

    def change(self, client, key: str, *rules: str, signed: bool = True) -> None:
        presence = PresenceCheck(read=("cat", str(self.file)), pattern=f"^({'|'.join(rules)})$") if signed else None
        undo, apply = [self.remove(rule) for rule in rules], [self.add(rule) for rule in rules]
        client.change(key, soon(), undo=undo, apply=apply, presence=presence)


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path)


def kill(client) -> Path:
    """Kill an agent; the folder that it leaves."""
    os.kill(client.channel.pid, signal.SIGKILL)
    client.await_event(lambda event: isinstance(event, AgentLost))
    return Path(client.node.folder(client._run))


def spoil(folder: Path, line: str, at: int) -> None:
    journal = folder / "undo.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:at], line.encode() + b"\n", *lines[at:]]))


@pytest.mark.parametrize("line", GARBAGE)
def test_a_line_that_cannot_be_read_costs_no_other_change_and_no_other_run(connect_agent, rules, run_name, line):
    first, second = connect_agent(), connect_agent(run=run_name + "-2")
    rules.change(first, "one", "a")
    rules.change(first, "two", "b")
    rules.change(second, "three", "c")
    spoilt, other = kill(first), kill(second)
    spoil(spoilt, line, at=2)  # between the changes
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert set(swept.undone) == {"one", "two", "three"}
    assert rules.present() == []
    (told,) = swept.failed
    assert told.text.startswith(f"{spoilt}/undo.jsonl: line 3 cannot be read: {line[:20]}")
    assert (spoilt.exists(), other.exists()) == (True, False), "what cannot be read may still stand"

    again = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False, forget=run_name + "-2")
    assert len(again.failed) == 1, "another run's"
    last = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False, forget=run_name)
    assert (last.failed, last.removed) == ((), (str(spoilt),))
    assert "line 3 cannot be read" in last.forgotten[0].what


def test_a_run_that_comes_back_tells_of_lines_that_cannot_be_read(connect_agent, rules):
    client = connect_agent()
    rules.change(client, "one", "a")
    spoil(kill(client), "garbage", at=0)
    back = connect_agent()
    swept = back.sweep(soon(), keep_data=True)
    assert swept.undone == ("one",)
    (told,) = swept.failed
    assert told.text == f"{back.node.folder(back._run)}/undo.jsonl: line 1 cannot be read: garbage"
    back.remove(soon())


def test_what_somebody_took_back_by_hand_is_undone_already(connect_agent, rules):
    client = connect_agent()
    rules.change(client, "one", "a", "b")
    rules.change(client, "two", "c")
    folder = kill(client)
    rules.file.write_text("mine\nc\n")
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert (swept.undone, swept.already, swept.failed) == (("two",), ("one",), ())
    assert rules.present() == ["mine"]
    assert not folder.exists()


def test_of_what_somebody_took_back_in_part_the_rest_is_taken_back(connect_agent, rules):
    client = connect_agent()
    rules.change(client, "one", "a", "b")
    kill(client)
    rules.file.write_text("b\n")
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert (swept.undone, swept.failed) == (("one",), ())
    assert rules.present() == []


def test_a_change_taken_back_by_hand_in_a_run_keeps_nobody_from_ending_it(connect_agent, rules):
    client = connect_agent()
    rules.change(client, "one", "a")
    rules.change(client, "two", "b")
    rules.file.write_text("b\n")
    client.undo("one", soon())
    rules.file.write_text("")
    client.close(soon())  # raises where a change cannot be taken back


def test_a_sign_that_cannot_be_read_counts_for_nothing(connect_agent, rules):
    client = connect_agent()
    presence = PresenceCheck(read=("false",), pattern="a")
    client.change("one", soon(), undo=[rules.remove("a")], apply=[rules.add("a")], presence=presence)
    client.undo("one", soon())
    assert rules.present() == []


@pytest.mark.parametrize("marker", ["", "\n", "[]", "{", "null"])
def test_an_emptied_marker_is_no_reboot(connect_agent, rules, run_name, marker):
    client = connect_agent()
    rules.change(client, "one", "a")
    folder = kill(client)
    (folder / ".orch-run.json").write_text(marker)
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert (swept.undone, swept.failed, swept.removed) == (("one",), (), (str(folder),))
    assert rules.present() == []


def test_a_run_that_comes_back_to_an_emptied_marker_takes_its_changes_back(connect_agent, rules):
    client = connect_agent()
    rules.change(client, "one", "a")
    (kill(client) / ".orch-run.json").write_text("")
    back = connect_agent()
    assert back.sweep(soon(), keep_data=True).undone == ("one",)
    assert rules.present() == []


def test_what_an_older_agent_wrote_is_taken_back_and_where_it_does_not_say_when_it_is_told(connect_agent, rules):
    """Its lines have neither a presence check nor where they were made; nor does its marker, once it is emptied."""
    client = connect_agent()
    folder = kill(client)
    old = {"id": "one", "undo": [rules.remove("a")]}
    (folder / "undo.jsonl").write_text(json.dumps(old) + "\n")
    rules.file.write_text("a\n")
    marker = folder / ".orch-run.json"
    said = marker.read_text()
    marker.write_text("")
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
    assert "one: it is unknown whether it was made before a reboot" in swept.failed[0].text
    marker.write_text(said)
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
    assert (swept.undone, swept.failed) == (("one",), ())
    assert rules.present() == []


def test_what_is_taken_back_already_is_no_trouble_wherever_it_was_made(connect_agent):
    """Else a journal that an older agent has done with would be told of for ever."""
    folder = kill(connect_agent())
    lines = [{"id": "one", "undo": [["false"]]}, {"id": "one", "done": True}]
    (folder / "undo.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / ".orch-run.json").write_text("")
    assert connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True).failed == ()


def test_what_cannot_be_taken_back_is_told_until_it_is_forgotten(connect_agent, tmp_path, run_name, capsys):
    client = connect_agent()
    client.change("route of n1", soon(), undo=[["false"]], apply=[["true"]])
    folder = kill(client)
    for _ in range(2):
        swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
        assert cleaning._report({"n1": swept}, Wanted()) == 1
        told = capsys.readouterr().out
        assert "n1: could not undo route of n1: false\n" in told
        assert "--forget RUN" in told
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True, forget=run_name)
    assert cleaning._report({"n1": swept}, Wanted(forget=run_name)) == 0
    assert capsys.readouterr().out == f"n1: forgot route of n1: false\nn1: kept {folder} (--data removes it)\n"
    assert (folder / "undo.forgotten.jsonl").exists(), "what was forgotten can still be read"
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True, forget=run_name)
    assert cleaning._report({"n1": swept}, Wanted(forget=run_name)) == 0
    assert f"run {run_name} has no changes to forget" in capsys.readouterr().out


def test_only_hosts_that_there_are_can_be_cleaned():
    with pytest.raises(ConfigError, match="--host h7: the testbed has no host 'h7'; accepted: one of localhost"):
        cleaning.clean(None, Wanted(host="h7"))
