"""What the kernel's answers about routes mean; the answers were recorded from `ip`, by tests/data/routes/make.sh."""

from __future__ import annotations

from pathlib import Path

from orchestrator.execution.nodes import routes
from orchestrator.experiment import loading, plan
from orchestrator.parts.topology import Node, Rail

DATA = Path(__file__).parents[2] / "data/routes"
ROOT = Path(__file__).parents[3]


def node(name, address, device="data0"):
    return Node(name=name, rails=(Rail(address=address, device=device),))


def verdict(me, others, name):
    out, err = (DATA / f"{name}.{kind}" for kind in ("out", "err"))
    return routes.verdict(me, others, out.read_text(), err.read_text())


OTHERS = [
    node(f"o{i}", address)
    for i, address in enumerate(["10.0.0.2", "10.0.1.3", "10.0.9.4", "10.0.2.5", "10.0.9.6", "10.0.0.7"])
]


def test_each_answer_belongs_to_its_question_even_when_some_fail():
    errors = verdict(node("h1", "10.0.0.1"), OTHERS, "answers")
    assert [(error.node, error.message.split(":")[0]) for error in errors] == [
        ("h1", "traffic to 10.0.1.3 (o1) would not leave by data0"),
        ("h1", "no route from 10.0.0.1 to 10.0.9.4 (o2)"),
        ("h1", "no route from 10.0.0.1 to 10.0.9.6 (o4)"),
    ]
    assert "dev mgmt0" in errors[0].message
    assert all(error.hint for error in errors)


def test_an_address_that_the_host_lacks_is_no_route():
    others = [node("o1", "10.0.0.2"), node("o2", "10.0.0.7")]
    errors = verdict(node("h1", "10.0.0.9"), others, "no-address")
    assert ["no route from 10.0.0.9" in error.message for error in errors] == [True, True]
    assert "bring up data0 with its address" in errors[0].hint


def test_another_device_is_another_device():
    errors = verdict(node("h1", "10.0.0.1", "data"), [node("o0", "10.0.0.2")], "answers")
    assert len(errors) == 1


def test_no_answer_is_no_route_that_counts():
    assert len(routes.verdict(node("h1", "10.0.0.1"), OTHERS, "", "")) == len(OTHERS)


def test_the_question_is_one_command_for_all_of_them():
    argv, stdin = routes.question(node("h1", "10.0.0.1"), OTHERS[:2])
    assert argv == ("ip", "-oneline", "-force", "-batch", "-")
    assert stdin == b"route get 10.0.0.2 from 10.0.0.1\nroute get 10.0.1.3 from 10.0.0.1\n"


def test_who_talks_to_whom_follows_from_the_plan():
    experiment, _ = loading.checked(ROOT / "playbooks/experiments/quickstart.yaml", [], local=False)
    peers = routes.peers(plan.build(experiment)[:1])
    assert {name: sorted(others) for name, others in peers.items()} == {
        "h1": ["h2", "h3", "h4", "h5"],
        "h2": ["h1", "h3", "h4"],
        "h3": ["h1", "h2", "h4"],
        "h4": ["h1", "h2", "h3"],
        "h5": ["h1"],
    }


def test_each_rail_is_asked_for_and_one_that_leaves_by_another_is_told_with_its_own_table():
    """Both rails in one network, as the kernel has it without rules: all that is sent leaves by the first."""
    here, there = (
        Node(name=f"h{i}", rails=tuple(Rail(device=f"ens{r}", address=f"10.0.{r}.{i}", prefix=16) for r in (0, 1)))
        for i in (1, 2)
    )
    _, lines = routes.question(here, [there])
    assert lines == b"route get 10.0.0.2 from 10.0.0.1\nroute get 10.0.1.2 from 10.0.1.1\n"
    answers = "10.0.0.2 from 10.0.0.1 dev ens0 uid 0\n10.0.1.2 from 10.0.1.1 dev ens0 uid 0\n"
    (wrong,) = routes.verdict(here, [there], answers, "")
    assert "10.0.1.2 (h2) would not leave by ens1" in wrong.message
    assert "ip rule add from 10.0.1.1 table 101" in wrong.hint
    assert routes.verdict(here, [there], answers.replace("10.0.1.1 dev ens0", "10.0.1.1 dev ens1"), "") == []
