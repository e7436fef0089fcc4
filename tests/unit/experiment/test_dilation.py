"""Dilation multiplies every duration of a plan once, and divides sizes by what is left of the scale."""

from __future__ import annotations

import json
import typing

import pytest
import yaml
from pydantic import BaseModel

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration
from orchestrator.experiment import loading, plan, plantext, testbeds
from orchestrator.experiment.dilation import dilated
from orchestrator.experiment.experiment import Measure
from orchestrator.parts import registry
from orchestrator.parts.conditions import congestion_control
from orchestrator.parts.topology import Node, Rail, Topology
from orchestrator.testbed.local.netns_setup import new_keys, setup_document

SCALE, DILATION = 100, 10
# Of programs, however long what they measure lasts: to start, to meet, to end.
WAITS = frozenset(
    {"rendezvous_s", "collective_s", "drain_s", "grace_s", "join_s", "first_within_s", "ready_s", "wait_s", "timeout_s"}
)


def text(**local):
    return yaml.safe_dump(
        {
            "name": "knee",
            "testbed": {"local": {"hosts": 5, "link": "25gbit", **local}},
            "conditions": [
                {"rate": {"host": "h2", "rate": "10gbit", "queue": "4ms"}},
                {"delay": {"host": "h3", "time": "2ms"}},
            ],
            "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2", "h3", "h4"]}},
            "traffic": [
                {"websearch": {"from": "h1", "to": "h5", "load": "8gbit"}},
                {"websearch": {"from": "h2", "to": "h5", "load": "4gbit", "burst": {"width": "1ms", "period": "10ms"}}},
                {"iperf": {"from": "h3", "to": "h5", "load": "2gbit", "block": "8kb"}},
            ],
            "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
            "measure": {"warmup": 2, "iterations": 10, "at_most": "30s"},
        }
    )


def planned(tmp_path, **local):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
    path.write_text(text(**local))
    (run,) = plan.build(checked(path))
    return run


def checked(path):
    return loading.checked(path, [], local=False)[0]


def leaves(value, at=()):
    """Every number of nested data, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*at, key))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from leaves(inner, (*at, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at, value


def files(run):
    """The JSON files of every process, by its name."""
    for launch in run.launches():
        for name, content in launch.files.items():
            if isinstance(content, bytes) and name.endswith(".json"):
                yield f"{launch.node} {launch.name} {name}", json.loads(content)


def test_a_dilated_plan_is_that_of_a_smaller_scale_with_each_duration_multiplied_once(tmp_path):
    slow = planned(tmp_path, scale=SCALE, dilation=DILATION)
    quick = planned(tmp_path, scale=SCALE // DILATION)
    mine, plain = dict(files(slow)), dict(files(quick))
    assert mine.keys() == plain.keys()
    assert mine
    found = set()
    for where, data in plain.items():
        numbers = dict(leaves(mine[where]))
        for at, value in leaves(data):
            got = numbers.pop(at)
            key = next((part for part in reversed(at) if isinstance(part, str)), "")
            factor = 1.0
            if (key.endswith("_s") and key not in WAITS) or (key == "layers" and isinstance(value, float)):
                factor = DILATION
            elif key.endswith("_bps"):
                factor = 1 / DILATION
            elif key == "seed":
                continue
            assert got == pytest.approx(value * factor), (where, at)
            found |= {key} if factor != 1 and value else set()
        assert [at for at in numbers if at[-1] != "dilation"] == [], where
    assert {"width_s", "period_s", "load_bps", "layers"} <= found
    assert slow.windows[0].measure.at_most == 300
    assert slow.windows[0].measure.stall_timeout == DILATION * Measure(iterations=1).stall_timeout


def test_samplers_conditions_and_iperf_are_dilated_too(tmp_path):
    slow, quick = planned(tmp_path, scale=SCALE, dilation=DILATION), planned(tmp_path, scale=SCALE // DILATION)
    for one, other in zip(slow.collectors, quick.collectors, strict=True):
        if "sampler.py" in one.argv:
            place = one.argv.index("sampler.py") + 2
            assert float(one.argv[place]) == pytest.approx(DILATION * float(other.argv[place])), one.name
    rates = {run.topology.dilation: _rate_of(run) for run in (slow, quick)}
    assert rates[10] == (1e8, pytest.approx(0.04))
    assert rates[1] == (1e9, pytest.approx(0.004))
    clients = [
        next(launch for launch in run.launches() if launch.name.endswith("client")).argv for run in (slow, quick)
    ]
    asked = [float(argv[argv.index("-b") + 1]) for argv in clients]
    assert asked[0] == pytest.approx(asked[1] / DILATION, rel=1e-6)


def _rate_of(run):
    change = next(change for change in run.changes if change.kind == "rate")
    words = change.apply("default")[0]
    rate = float(words[words.index("rate") + 1].removesuffix("bit"))
    return rate, float(words[words.index("limit") + 1].removesuffix("b")) / (rate / 8)


def durations(kind, seen=()):
    """Every field of a configuration, however deep, that is a duration."""
    for name, field in kind.model_fields.items():
        if typing.get_args(Duration)[1] in [*field.metadata, *_metadata(field.annotation)]:
            yield (*seen, name)
        for inner in _models(field.annotation):
            yield from durations(inner, (*seen, name))


def _metadata(annotation):
    for one in typing.get_args(annotation):
        yield from getattr(one, "__metadata__", ())
        yield from _metadata(one)


def _models(annotation):
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in typing.get_args(annotation):
        yield from _models(one)


def filled(kind):
    """A configuration, unchecked, in which each duration is a second."""
    values = {}
    for name, field in kind.model_fields.items():
        inner = next(_models(field.annotation), None)
        if typing.get_args(Duration)[1] in [*field.metadata, *_metadata(field.annotation)]:
            values[name] = 1.0
        elif inner is not None and next(durations(inner), None):
            values[name] = filled(inner)
        else:
            values[name] = None
    return kind.model_construct(**values)


@pytest.mark.parametrize("kind", ["workload", "traffic", "collector", "condition"])
def test_every_duration_of_every_part_is_multiplied_once(kind):
    for part in registry.parts_of(kind).values():
        slow = dilated(filled(part.Config), 7)
        for path in durations(part.Config):
            value = slow
            for name in path:
                value = getattr(value, name)
            assert value == 7.0, (part.NAME, path)
        assert dilated(slow, 1) is slow


def test_a_scale_that_the_dilation_does_not_divide_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="3 does not divide the scale of 100"):
        planned(tmp_path, scale=100, dilation=3)


def test_real_compute_cannot_be_dilated(tmp_path):
    path = tmp_path / "real.yaml"
    path.write_text(text(scale=10, dilation=10).replace("model: resnet50", "model: resnet50\n    compute: real"))
    with pytest.raises(ConfigError, match="cannot be dilated 10 times"):
        checked(path)


def test_the_queue_and_the_least_time_out_of_hosts_are_dilated(tmp_path):
    documents = {}
    for dilation in (1, 10):
        path = tmp_path / f"{dilation}.yaml"
        path.write_text(text(scale=100, dilation=dilation))
        spec = testbeds.local_spec(checked(path).testbed.local)
        folders = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "switch"), tmp_path)
        documents[dilation] = setup_document(spec, keys=new_keys(), folders=folders, sshd="sshd", limit_s=1.0)
    slow, plain = documents[10]["nodes"][0], documents[1]["nodes"][0]
    assert sum("rto_min 2000ms" in line for line in slow["ip"]) == 2
    assert not any("rto_min" in line for line in plain["ip"])
    limits = [float(one["tc"][0].split("limit ")[1].removesuffix("b")) for one in (slow, plain)]
    assert limits[0] == 10 * limits[1]
    assert "rate 250000000bit" in slow["tc"][0]
    assert "rate 250000000bit" in plain["tc"][0]


def test_a_route_with_a_least_time_out_is_put_back_as_ip_takes_it():
    rail = Rail(device="eth0", address="198.18.0.1")
    shown = "198.18.0.0/24 proto kernel scope link src 198.18.0.1 rto_min lock 2s congctl cubic"
    state = congestion_control.parse(shown, rail=rail)
    assert state == shown
    node = Node(name="h1", rails=(rail,))
    topology = Topology(kind="local", nodes=(node,), links=())
    change = congestion_control.changes(congestion_control.Config(algorithm="reno"), topology)[0]
    for command in (*change.apply(state), *change.undo(state)):
        assert "rto_min 2s" in " ".join(command)


def test_a_plan_says_beyond_which_load_its_scale_is_off(tmp_path):
    told = plantext.plan_text([planned(tmp_path, scale=100)])
    assert "scale 100 without dilation: good at h1 for cross traffic of up to 12gbit" in told
    assert "dilation 10: every duration below is 10 times" in plantext.plan_text(
        [planned(tmp_path, scale=100, dilation=10)]
    )


def test_an_experiment_without_dilation_is_the_same_point_as_ever(tmp_path):
    assert planned(tmp_path, scale=100).point == planned(tmp_path, scale=100, dilation=1).point
