"""The workload `command`: what its options become, and how its program reads iterations from real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.core.paths import lookup
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import command
from workloads.common.placement import ranks
from workloads.rank.external.command import ODD_LINES, Iterations, Rule
from workloads.rank.logs import IterationLog

NODES = tuple(
    Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device=f"eth{i}"),), python=sys.executable) for i in (1, 2)
)
WHERE = Topology(
    kind="inventory", nodes=NODES, links=tuple(Link(host=n.name, device=n.first.device, rate=1e9) for n in NODES)
)


GRACE = "PEER_GRACE_S = 2.0"


def made(iterations: dict[str, Any], **options: Any) -> command.Config:
    given = {"argv": ["true"], "iterations": iterations, "hosts": ["h1", "h2", "h2"], **options}
    return command.Config.model_validate(given)


def launches(config: command.Config) -> list[Any]:
    job = Job(name="job0", index=1, ranks=ranks(config.hosts, WHERE))
    return command.launches(config, job, WHERE, 1)


def test_placeholders_are_filled_and_nothing_else_is_touched() -> None:
    words = ["{python}", "{rank}/{world}", "{slots}", '{"a": {"b": 1}}', "{{rank}}", "$HOME; rm *"]
    config = made({"pattern": "x"}, argv=words, env={"WHO": "{node}-{local_rank}", "RANK": "0{rank}"})
    assert command.problems(config, WHERE) == []
    last = launches(config)[2]
    assert json.loads(last.files["command.json"])["argv"] == [
        sys.executable,
        "2/3",
        "10.0.0.1:1,10.0.0.2:2",
        '{"a": {"b": 1}}',
        "{rank}",
        "$HOME; rm *",
    ]
    assert (last.env["WHO"], last.env["RANK"], last.env["LOCAL_RANK"]) == ("h2-1", "02", "1")
    assert (last.env["MASTER_ADDR"], last.env["MASTER_PORT"]) == ("10.0.0.1", "29501")


def test_a_name_that_nothing_has_and_files_that_cannot_be_brought_are_problems(tmp_path: Path) -> None:
    (tmp_path / "rank.pyz").touch()
    config = made(
        {"pattern": "x"}, argv=["train", "{ranks}"], files=[str(tmp_path / "rank.pyz"), str(tmp_path / "no.py")]
    )
    found = {problem.at: problem.message for problem in command.problems(config, WHERE)}
    assert found.keys() == {("argv", 1), ("files", 0), ("files", 1)}
    assert found[("argv", 1)] == "nothing is called {ranks}"


def project(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}")


def of_file(folder: Path, *files: str, **options: Any) -> command.Config:
    given = {"argv": ["true"], "iterations": {"pattern": "x"}, "files": files, "hosts": ["h1"], **options}
    return command.Config.model_validate(given, context=lookup.context(folder))


def sent(config: command.Config) -> dict[str, str]:
    """Paths in the rank's folder, and what lies there."""
    assert command.problems(config, WHERE) == []
    job = Job(name="job0", index=0, ranks=ranks(("h1",), WHERE))
    files = command.launches(config, job, WHERE, 1)[0].files
    return {name: path.read_text() for name, path in files.items() if isinstance(path, Path)}


@pytest.mark.parametrize("folder", ["", "experiments/mine"])
def test_files_keep_the_paths_by_which_they_are_named(tmp_path: Path, monkeypatch, folder: str) -> None:
    """As packages have several __init__.py. What a plan writes down is read again from another folder."""
    monkeypatch.chdir(tmp_path)
    project(
        tmp_path / folder,
        "train.py",
        "net/__init__.py",
        "net/parts/__init__.py",
        "net/parts/a.py",
        "net/.git/x",
        "net/__pycache__/a.pyc",
        "../util.py",
    )
    outside = tmp_path / folder / "net/parts/a.py"
    config = of_file(Path(folder), "train.py", "./net", "../util.py", str(outside))
    expected = {
        "train.py": "# train.py",
        "net/__init__.py": "# net/__init__.py",
        "util.py": "# ../util.py",
        "net/parts/__init__.py": "# net/parts/__init__.py",
        "net/parts/a.py": "# net/parts/a.py",
        "a.py": "# net/parts/a.py",
    }
    assert sent(config) == expected
    again = json.loads(config.model_dump_json(by_alias=True, exclude_none=True))
    assert sent(command.Config.model_validate(again, context=lookup.context(Path("elsewhere")))) == expected


def test_files_that_would_lie_upon_each_other_or_are_too_many_are_problems(tmp_path: Path, monkeypatch) -> None:
    project(tmp_path, "a/x.py", "b/a", "stdout/x", "odd name.py", *(f"many/{n}" for n in range(1001)))
    (tmp_path / "empty").mkdir()

    def message(*files: str) -> str:
        (found,) = command.problems(of_file(tmp_path, *files), WHERE)
        return found.message

    assert message("a/x.py", "a") == "a second file a/x.py"
    assert message("a", str(tmp_path / "b/a")) == "a is a file here and a folder there"
    assert "may be called 'stdout/x'" in message("stdout")
    assert "may be called 'odd name.py'" in message("odd name.py")
    assert "no file in the folder" in message("empty")
    assert "more than 1000 files" in message("many")
    with pytest.raises(ValidationError, match="no file"):
        of_file(tmp_path, "nowhere")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["{python}", "train.py"], True),
        (["{python}", "-u", "./train.py", "--x"], True),
        (["./go.sh"], True),
        (["/usr/bin/python3", "train.py"], True),
        (["bash", "go.sh"], True),
        (["{python}", "a/x.py"], False),
        (["{python}", "-m", "train"], False),
        (["{python}", "-c", "pass"], False),
        (["train", "a.py"], False),
        (["{python}", "/opt/train.py"], False),
        (["{python}", "{node}.py"], False),
    ],
)
def test_a_script_that_nothing_brings_is_found_before_the_run(tmp_path: Path, argv: list[str], told: bool) -> None:
    project(tmp_path, "a/x.py")
    config = of_file(tmp_path, "a", argv=argv)
    found = command.problems(config, WHERE)
    assert [(one.at[0], "into the rank's folder" in one.message) for one in found] == ([("argv", True)] if told else [])
    assert command.problems(of_file(tmp_path, "a", argv=argv, cwd="/opt"), WHERE) == []


@pytest.mark.parametrize(
    ("iterations", "message"),
    [
        ({}, "either pattern or json"),
        ({"pattern": "x", "json": {"loss": "a"}}, "either pattern or json"),
        ({"pattern": "step ("}, "not a regular expression"),
        ({"pattern": "(?P<lost>x)"}, "no quantity is called lost"),
        ({"pattern": "(?P<seconds>x)(?P<milliseconds>y)"}, "tells the time twice"),
        ({"pattern": r"step (\d+) took ([\d.]+) s"}, "its groups have no names"),
    ],
)
def test_a_reading_that_cannot_work_is_refused(iterations: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        made(iterations)


@pytest.mark.parametrize(
    ("iterations", "told"),
    [
        ({"pattern": "x"}, "(?P<seconds>...) in its pattern"),
        ({"pattern": "(?P<loss>x)"}, "(?P<seconds>...)"),
        ({"json": {"loss": "a"}}, "seconds in its JSON"),
        ({"json": {"milliseconds": "a"}}, ""),
        ({"pattern": "(?P<seconds>x)"}, ""),
    ],
)
def test_a_plan_says_where_iterations_have_no_time_of_their_own(iterations: dict[str, Any], told: str) -> None:
    remarks = command.remarks(made(iterations))
    assert [told in remark for remark in remarks] == ([True] if told else [])


def test_where_the_first_rank_alone_prints_it_alone_is_followed() -> None:
    started = launches(made({"pattern": "x", "ranks": "first"}))
    assert [launch.follow for launch in started] == ["iterations.jsonl", None, None]


def _make_impatient(archive: Path) -> None:
    """Let its programs wait less for the reasons of others, in a folder: Python runs one as it runs an archive."""
    with zipfile.ZipFile(archive) as packed:
        archive.unlink()
        packed.extractall(archive)
    lifecycle = archive / "rank/lifecycle.py"
    text = lifecycle.read_text()
    assert GRACE in text
    lifecycle.write_text(text.replace(GRACE, "PEER_GRACE_S = 0.1"))


class Ran:
    """The program of rank 0 with a script of Python as its command."""

    def __init__(self, folder: Path, script: str, iterations: dict[str, Any], **options: Any) -> None:
        self.folder = folder
        config = made(iterations, argv=["{python}", "-c", script], **options)
        launch = launches(config)[0]
        shutil.rmtree(folder / "rank.pyz", ignore_errors=True)  # of another one in the same folder
        for name, content in launch.files.items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
        _make_impatient(folder / "rank.pyz")
        self.process = subprocess.Popen(
            launch.argv,
            cwd=folder,
            env={**os.environ, **launch.env},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def failed(self) -> str:
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 1, out + err
        return err

    def rows(self) -> dict[str, Any]:
        output = LaunchOutput(
            folder=self.folder, node="h1", launch="x", job="j", rank=0, window=None, source=None, offset_ns=0
        )
        return dict(command.read(output)["iterations"])


def test_times_that_a_line_tells_are_taken(tmp_path: Path) -> None:
    script = "for i in range(3): print('step', i, (i + 1) / 4, 's, loss', 1 / (i + 1))"
    ran = Ran(tmp_path, script, {"pattern": r"(?P<seconds>[\d.]+) s, loss (?P<loss>\S+)"}, samples=8)
    assert "came to its end after 3 iterations" in ran.failed()
    rows = ran.rows()
    assert list(rows["iteration"]) == [0, 1, 2]
    assert rows["seconds"] == pytest.approx([0.25, 0.5, 0.75])
    assert rows["loss"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert (list(rows["samples"]), rows["forward_s"]) == ([8] * 3, [None] * 3)


def test_without_a_time_an_iteration_lies_between_two_lines(tmp_path: Path) -> None:
    script = "import time\nfor i in range(3): print('\\rdone', end='', flush=True); time.sleep(0.2)"
    ran = Ran(tmp_path, script, {"pattern": "^done$"})
    assert "after 2 iterations" in ran.failed()
    rows = ran.rows()
    assert all(seconds > 0.05 for seconds in rows["seconds"])
    assert rows["end_ns"][0] == rows["start_ns"][1]


def test_json_lines_of_a_file_that_is_replaced_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"t": {"ms": [9]}, "loss": 9}\n')
    script = """if True:
        import json, os, time
        for part in (1, 2):
            with open("new", "w") as out:
                whole = {"t": {"ms": [part]}, "loss": part}
                print("no JSON", json.dumps({"loss": 3}), json.dumps(whole), sep="\\n", file=out)
            os.replace("new", "log")
            while len(open("iterations.jsonl").readlines()) < part: time.sleep(0.01)
    """
    ran = Ran(tmp_path, script, {"json": {"milliseconds": "t.ms.0", "loss": "loss"}, "file": "log"})
    ran.failed()
    assert ran.rows()["seconds"] == pytest.approx([1e-3, 2e-3])


def test_lines_of_both_streams_are_read_each_by_itself(tmp_path: Path) -> None:
    """Torn in the middle of a line while the other stream goes on, as bars of tqdm and lines of logging come."""
    script = """if True:
        import sys, time
        def put(stream, text):
            stream.write(text)
            stream.flush()
            time.sleep(0.05)
        for step in range(0, 6, 2):
            put(sys.stderr, "\\r 3%| | 2/9 [step " + str(step))
            put(sys.stdout, "step " + str(step + 1))
            put(sys.stderr, " took 0." + str(step) + "5 s")
            put(sys.stdout, " took 0." + str(step + 1) + "5 s\\n")
        put(sys.stderr, "\\r")
    """
    ran = Ran(tmp_path, script, {"pattern": r"step \d+ took (?P<seconds>[\d.]+) s"})
    assert "after 6 iterations" in ran.failed()
    assert sorted(ran.rows()["seconds"]) == pytest.approx([0.05, 0.15, 0.25, 0.35, 0.45, 0.55])


def test_a_line_that_is_logged_on_both_streams_counts_once(tmp_path: Path) -> None:
    script = """if True:
        import sys, time
        for step in range(5):
            for stream in (sys.stdout, sys.stderr)[:: 1 if step % 2 else -1]:
                print("step", step, "took 0.5 s", file=stream, flush=True)
                time.sleep(0.02)
    """
    ran = Ran(tmp_path, script, {"pattern": r"took (?P<seconds>[\d.]+) s"})
    assert "after 5 iterations" in ran.failed()


def test_each_stream_goes_where_it_went_and_last_words_do_too(tmp_path: Path) -> None:
    script = """if True:
        import signal, sys, time
        def end(*_):
            print("x" * 200_000, "last out")
            sys.stdout.flush()
            sys.exit("last err")
        signal.signal(signal.SIGTERM, end)
        print("out", flush=True)
        print("err", file=sys.stderr, flush=True)
        print("tick", flush=True)
        time.sleep(60)
    """
    ran = Ran(tmp_path, script, {"pattern": "tick"}, grace="20s")
    assert ran.process.stdout is not None
    while "tick" not in ran.process.stdout.readline():
        pass
    ran.process.send_signal(signal.SIGTERM)
    out, err = ran.process.communicate(timeout=120)
    assert (ran.process.returncode, err) == (0, "err\nlast err\n")
    assert out.endswith("last out\n")


def test_lines_of_iterations_that_tell_no_number_are_told(tmp_path: Path) -> None:
    script = "for took in ('0.5', '0,5', '-1', '0.25', 'nan'): print('took', took, 's')"
    ran = Ran(tmp_path, script, {"pattern": r"took (?P<seconds>\S+) s"})
    assert "after 2 iterations" in ran.failed()
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job="j", rank=0, window=None, source=None, offset_ns=0
    )
    assert command.read(output)["iterations"]["seconds"] == pytest.approx([0.5, 0.25])
    unread = output.unread.rows()
    assert (unread["count"], unread["line"], unread["text"]) == ([3], [1], ["took 0,5 s"])


def test_a_pattern_that_never_matches_is_told_with_what_was_printed(tmp_path: Path) -> None:
    quiet = Ran(tmp_path, "print('epoch 1')", {"pattern": r"took (?P<seconds>\S+)"})
    message = quiet.failed()
    assert "no line matched 'took (?P<seconds>\\\\S+)'" in message
    assert "the last lines: epoch 1" in message
    logged = Ran(tmp_path, "import sys; print('epoch 1', file=sys.stderr)", {"pattern": "never"})
    assert "the last lines: epoch 1" in logged.failed()
    silent = Ran(tmp_path, "", {"pattern": "never"})
    assert "it printed nothing, neither on standard output nor on standard error" in silent.failed()
    comma = Ran(tmp_path, "print('step 1 took 0,25 s')", {"pattern": r"took (?P<seconds>\S+)"})
    assert "finds no number above 0 in the lines that it matches, such as 'step 1 took 0,25 s'" in comma.failed()
    lasting = "import time; print('epoch 2'); time.sleep(60)"
    slow = Ran(tmp_path, lasting, {"pattern": "never", "first_within": "300ms"})
    assert "0.3 s went by, and no line matched 'never'" in slow.failed()


def test_a_command_that_cannot_be_started_or_is_killed_says_so(tmp_path: Path) -> None:
    config_cwd = Ran(tmp_path, "", {"pattern": "x"}, cwd="/no/such/folder")
    assert "No such file or directory (/no/such/folder)" in config_cwd.failed()
    killed = Ran(tmp_path, "import os; os.kill(os.getpid(), 9)", {"pattern": "x"})
    assert "rank 0: the command was ended by signal 9" in killed.failed()


def test_being_asked_to_end_ends_the_command_and_is_no_failure(tmp_path: Path) -> None:
    script = "import os, time\nprint('pid', os.getpid())\nwhile True: print('tick'); time.sleep(0.02)"
    ran = Ran(tmp_path, script, {"pattern": "tick"})
    deadline = time.monotonic() + 120
    while not (tmp_path / "iterations.jsonl").exists() or not (tmp_path / "iterations.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    ran.process.send_signal(signal.SIGTERM)
    out, err = ran.process.communicate(timeout=120)
    assert (ran.process.returncode, err) == (0, "")
    pid = int(out.split("pid ")[1].split()[0])
    assert not Path(f"/proc/{pid}").exists()


def test_json_of_iterations_without_a_number_is_told_and_numbers_in_texts_count(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rule = Rule({"pattern": None, "json": {"milliseconds": "t", "loss": "m.loss"}})
    assert rule.fields('{"t": 50, "m": {"loss": "0.5"}}') == {"milliseconds": 50, "loss": 0.5}
    other = ['{"t": 50}', '{"m": {"loss": 1}}', "[1]", "text", '{"t": 1, "m": []}']  # such as lines of an evaluation
    assert [rule.fields(line) for line in other] == [None] * 5
    assert not (tmp_path / ODD_LINES).exists()
    odd = [
        '{"t": null, "m": {"loss": 1}}',
        f'{{"t": {"9" * 400}, "m": {{"loss": 1}}}}',
        '{"t": "x", "m": {"loss": 1}}',
        '{"t": true, "m": {"loss": 1}}',
        '{"t": [1], "m": {"loss": 1}}',
    ]
    assert [rule.fields(line) for line in odd] == [None] * 5
    assert (tmp_path / ODD_LINES).read_text() == "".join(f"{line[:200]}\n" for line in odd)


@pytest.mark.parametrize("samples", ["nan", "inf"])
def test_samples_that_are_no_number_cost_their_line(tmp_path, monkeypatch, samples) -> None:
    monkeypatch.chdir(tmp_path)
    log = IterationLog(Path("log.jsonl"))
    iterations = Iterations(Rule({"pattern": r"(?P<seconds>\S+) s (?P<samples>\S+)", "json": None}), log, None)
    iterations.take(["0.5 s 32", f"0.5 s {samples}", "0.5 s 33"], "stdout")
    assert iterations.count == 2
    assert (tmp_path / ODD_LINES).read_text() == f"0.5 s {samples}\n"


def test_times_that_are_rounded_to_nothing_tell_no_iteration(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    iterations = Iterations(Rule({"pattern": r"(?P<seconds>\S+) s", "json": None}), IterationLog(Path("log")), None)
    iterations.take(["0.00 s"], "stdout")
    assert (iterations.matched, iterations.count) == (0, 0)
    assert "finds no number above 0 in the lines that it matches, such as '0.00 s'" in iterations.unmatched
    iterations.take(["0.01 s"], "stdout")
    assert (iterations.matched, iterations.count) == (1, 1)
