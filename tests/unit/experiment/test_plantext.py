"""`orch plan` in words: processes that are alike are one entry that names what differs, and none is lost."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.experiment import loading, plan, plantext
from tests.helpers.experiments import GOOD, changed, orch

ROOT = Path(__file__).parents[3]
PLAYBOOKS = sorted((ROOT / "playbooks/experiments").rglob("*.yaml"))


def planned(tmp_path, text, **changes):
    (tmp_path / "e.yaml").write_text(text)
    return plan.build(loading.checked(tmp_path / "e.yaml", [], local=False)[0])


def test_hosts_with_the_same_command_are_one_line(tmp_path):
    lines = plantext.plan_text(planned(tmp_path, GOOD)).splitlines()
    assert [line.split(":")[0] for line in lines if "tcpdump -Z" in line or "/tcpdump" in line] == [
        "  tcpdump on h1..h3"
    ]
    assert "  training-rank0..training-rank2 on h1..h3:" in "\n".join(lines)
    (env,) = [line for line in lines if "WORLD_SIZE" in line]
    assert "RANK=<rank> WORLD_SIZE=3" in env


def test_verbose_lists_each_process(tmp_path):
    (run,) = planned(tmp_path, GOOD)
    text = plantext.plan_text([run], verbose=True)
    for launch in run.launches():
        if "escalated" not in launch.name:
            assert f"{launch.name} on {launch.node}: " in text
    assert text.count(" WORLD_SIZE=3 ") == 3
    assert "<" not in text


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_process_of_a_playbook_is_in_some_line(path):
    run = plan.build(loading.checked(path, [], local=True)[0])[0]
    lines = plantext.plan_text([run]).splitlines()
    shown = [line.strip().partition(": ") for line in lines if re.match(r"  \S.* on .*: ", line)]
    launches = [launch for launch in run.launches() if "escalated" not in launch.name]
    # A line has one process a node, or several ranks of each: whichever it has more of counts.
    processes = sum(max(map(_count, head.rpartition(" on ")[::2])) for head, _, _ in shown)
    assert processes == len({(launch.name, launch.node) for launch in launches})
    programs = {rest.split()[0] for _, _, rest in shown}
    assert programs == {launch.argv[0] for launch in launches}


def _count(names):
    """How many nodes, or processes, are named, ranges counted."""
    count = 0
    for name in names.split(", "):
        first, _, last = name.partition("..")
        count += int(re.sub(r"\D", "", last)) - int(re.sub(r"\D", "", first)) + 1 if last else 1
    return count


def test_what_differs_is_named(tmp_path):
    (run,) = planned(tmp_path, GOOD)
    ports = {"h1": "5001", "h2": "5002", "h3": "7"}
    odd = [
        dataclasses.replace(
            launch,
            argv=("prog", launch.node, f"--at={run.topology.node(launch.node).address}:1", f"-p{ports[launch.node]}"),
            env={},
            files={},
        )
        for launch in run.collectors
        if launch.part == "collector.nic" and launch.node in ports
    ]
    text = plantext.plan_text([dataclasses.replace(run, collectors=tuple(odd))])
    assert "  nic on h1..h3: prog <host> --at=<address>:1 {-p5001,-p5002,-p7}" in text


def test_commands_that_differ_in_much_stay_apart(tmp_path):
    (run,) = planned(tmp_path, GOOD)
    odd = [
        dataclasses.replace(launch, argv=tuple(f"{word}{launch.node}" for word in "abcd"), env={}, files={})
        for launch in run.collectors[:3]
    ]
    text = plantext.plan_text([dataclasses.replace(run, collectors=tuple(odd))])
    for host in ("h1", "h2", "h3"):
        assert f"  tcpdump.{host} on {host}: a{host} b{host} c{host} d{host}\n" in text


def test_windows_that_differ_in_their_load_are_one_line(tmp_path):
    windows = "windows:\n" + "".join(
        f"  - name: w{n}\n    traffic: [{{iperf: {{from: h1, to: h2, load: {100 * n}mbit}}}}]\n" for n in (1, 2, 3)
    )
    text = changed("traffic:\n  - iperf: {from: h1, to: h2, load: 200mbit}\n", windows)
    told = plantext.plan_text(planned(tmp_path, text))
    assert "windows w1..w3: 20 iterations of warm-up, then 10 iterations\n" in told
    assert "  traffic iperf0: h1 -> h2 at 100mbit, 200mbit, 300mbit (scaled: 10mbit, 20mbit, 30mbit)\n" in told
    assert "w1.iperf0.server..w3.iperf0.server on h2" in told


@pytest.mark.parametrize(
    ("source", "measure", "validity", "told"),
    [
        ("websearch: {from: h1, to: h2, load: 1gbit}", "{iterations: 5}", "{}", True),
        ("websearch: {from: h1, to: h2, load: 1gbit}", "{iterations: 500}", "{}", False),
        ("websearch: {from: h1, to: h2, load: 1gbit}", "{iterations: 5}", "{load: as-achieved}", False),
        ("websearch: {from: h1, to: h2, load: 1gbit}", "{iterations: 5}", "{load: 0%}", False),
        ("websearch: {from: h1, to: h2, load: 1gbit}", "{at_most: 60s}", "{}", False),
        ("iperf: {from: h1, to: h2, load: 1gbit}", "{iterations: 5}", "{}", False),
        ("checkpoint: {from: h1, to: h2, size: 1gb, period: 10s}", "{iterations: 5}", "{}", False),
    ],
)
def test_a_window_too_short_for_a_load_of_drawn_flows_is_told(tmp_path, source, measure, validity, told):
    """Each attempt would send the same flows: better known before the first."""
    text = (
        "name: e\ntestbed: {local: {hosts: 3, link: 25gbit, scale: 100}}\n"
        "workload: {ddp: {model: resnet50, compute: emulated, hosts: [h1, h2, h3]}}\n"
        f"traffic: [{{{source}}}]\nmeasure: {measure}\nvalidity: {validity}\n"
    )
    lines = plantext.plan_text(planned(tmp_path, text)).splitlines()
    found = [line for line in lines if "may fail in each attempt alike" in line]
    assert len(found) == told
    if told:
        assert "5 iterations are few for websearch0" in found[0]
        wanted = int(re.search("measure ([0-9]+)", found[0])[1])
        again = text.replace(measure, f"{{iterations: {wanted}}}")
        assert "in each attempt alike" not in plantext.plan_text(planned(tmp_path, again))


def test_a_thousand_runs_are_a_few_lines(tmp_path):
    runs = planned(tmp_path, GOOD + "repetitions: 30\n")
    told = [line for line in plantext.plan_text(runs).splitlines() if line.startswith(("run ", "..."))]
    assert told[-2].startswith("run 9: ")
    assert told[-1] == "... and 21 more; --verbose lists all"
    assert plantext.plan_text(runs, verbose=True).count("\nrun ") == 30


@pytest.mark.parametrize("mapping", ["[h1, h1, h2, h2]", "[h3, h2, h1]", "[h1, h2]"])
def test_places_of_ranks_are_true(tmp_path, mapping):
    text = changed("{model: resnet50}", f"{{model: resnet50, hosts: {mapping}}}")
    (line,) = [line for line in plantext.plan_text(planned(tmp_path, text)).splitlines() if line.startswith("job ")]
    told = {"[h1, h1, h2, h2]": "0..1=h1, 2..3=h2", "[h3, h2, h1]": "0=h3, 1=h2, 2=h1", "[h1, h2]": "0=h1, 1=h2"}
    assert line == f"job training (ddp), ranks {told[mapping]}"


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_keeps_to_the_width_of_a_terminal(tmp_path, width):
    text = plantext.plan_text(planned(tmp_path, GOOD), width=width)
    assert all(len(line) <= width for line in text.splitlines() if len(line.split()) > 1)


def test_a_piped_plan_keeps_its_lines_whole(tmp_path):
    (tmp_path / "e.yaml").write_text(GOOD)
    argv = [sys.executable, "-m", "orchestrator.cli.main", "plan", str(tmp_path / "e.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    assert done.stdout.rstrip("\n") == orch("plan", str(tmp_path / "e.yaml"))[1].rstrip("\n")
    assert max(map(len, done.stdout.splitlines())) > 120


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ("5", "hosts h1..h5 (198.18.0.1..198.18.0.5)"),
        ("2", "hosts h1 (198.18.0.1), h2 (198.18.0.2)"),
        ("[h3, h2, h1]", "hosts h3 (198.18.0.1), h2 (198.18.0.2), h1 (198.18.0.3)"),
        ("[h1, h2, a, h3]", "hosts h1 (198.18.0.1), h2 (198.18.0.2), a (198.18.0.3), h3 (198.18.0.4)"),
    ],
)
def test_every_host_stands_beside_its_address(tmp_path, hosts, told):
    text = changed("hosts: 3, link", f"hosts: {hosts}, link")
    assert f"  {told}\n" in plantext.plan_text(planned(tmp_path, text))


def test_theory_says_bytes_as_people_do(tmp_path):
    """13.472094mb stood beside mbit."""
    told = plantext.plan_text(planned(tmp_path, GOOD))
    assert re.search(r"theory: each rank sends \d+(\.\d+)? MB an iteration: ", told)
