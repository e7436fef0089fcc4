"""How processors served a window: on what samplers recorded in real runs, and on one made case for each cause."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.windows import processors
from orchestrator.analysis.windows.processors import NOTHING, NodeSamples, Series
from orchestrator.parts.collectors import processor
from orchestrator.parts.rows import LaunchOutput
from orchestrator.store.tabular import tables
from orchestrator.validity.gates import processor as gate_module
from orchestrator.validity.gates.processor import FULL
from tests.helpers import manifests
from tests.helpers.gate_windows import judged
from tests.helpers.made_tables import table

DATA = Path(__file__).parents[2] / "data/processor"
SECOND = 10**9
BEGIN = 1_795_000_000 * SECOND
LIMIT = 0.05
WAITLESS = table("waits", [])


def recorded(name, without=""):
    """A recorded run of four ranks on h1 to h4, judged; h5 and a switch are there too, all on two processors."""
    folder = DATA / name
    nodes = [path.name for path in sorted(folder.iterdir()) if path.is_dir()]
    launches = [manifests.launch(node=node, part=processors.PART) for node in nodes if node != without]
    tables = {"counters": [], "tasks": []}
    for node in [launch["node"] for launch in launches]:
        output = LaunchOutput(
            folder=folder / node, node=node, launch="", job=None, rank=None, window=None, source=None, offset_ns=0
        )
        for name_of_table, columns in processor.read(output).items():
            made = pa.table({key: pa.array(np.asarray(values).tolist()) for key, values in columns.items()})
            tables[name_of_table].append(made.append_column("node", pa.array([node] * len(made))))
    for rank in range(4):
        name = f"training-rank{rank}"
        launches.append(manifests.launch(name, f"h{rank + 1}", job="training"))
    manifest = manifests.made(
        launches=launches,
        jobs=[{"name": "training", "workload": "ddp", "ranks": []}],
        kernels={"nodes": {launch["node"]: "one" for launch in launches}},
    )
    samples = processors.samples(*(pa.concat_tables(tables[one]) for one in ("counters", "tasks")), WAITLESS, manifest)
    about = json.loads((folder / "window.json").read_text())
    return samples.window(manifests.window(start_ns=about["begin_ns"], end_ns=about["end_ns"]))


def grown(rates):
    """A counter that grows by these amounts, one a second."""
    values = np.concatenate(([0.0], np.cumsum(rates)))
    return Series(BEGIN + SECOND * np.arange(len(values)), values)


def machine(*, count=2, seconds=10, **rates):
    """Counters of a node, by what they grow in a second, or in each."""
    known = {"busy_s": 0.5, "interrupt_s": 0.0, "steal_s": 0.0, "own_s": 0.5, "pressure_s": 0.1, **rates}
    series = {name: grown(np.broadcast_to(rate, seconds)) for name, rate in known.items() if rate is not None}
    times = BEGIN + SECOND * np.arange(seconds + 1)
    return {**series, "count": Series(times, np.full(seconds + 1, float(count)))}


def node(counters, **processes):
    """A node with processes, each given by what it runs and waits in a second, or in each."""
    seconds = len(counters["count"].values) - 1
    run = {name: grown(np.broadcast_to(rates[0], seconds)) for name, rates in processes.items()}
    wait = {name: grown(np.broadcast_to(rates[1], seconds)) for name, rates in processes.items()}
    return NodeSamples(counters, run, wait)


def served(nodes, shared=None, seconds=10):
    ranks = tuple((name, process) for name, sampled in nodes.items() for process in sampled.wait)
    window = manifests.window(start_ns=BEGIN, end_ns=BEGIN + seconds * SECOND)
    return processors.ProcessorSamples(nodes, shared or {}, {"training": ranks}).window(window)


def kept(nodes, shared=None, seconds=10):
    (one,) = served(nodes, shared, seconds).waits
    return one.kept


def gates(nodes, limit=LIMIT, **more):
    found = verdicts(served(nodes, **more), limit)
    return {(gate.name, gate.passed, gate.required): gate for gate in found}


def verdicts(found, limit=LIMIT):
    validity = {"processor": "ignore" if limit is None else limit}
    return judged(gate_module, processor_waits=found.waits, processor_use=found.use, validity=validity)


def test_a_run_beside_compilers_was_not_set_by_the_network_alone():
    found = recorded("busy")
    (training,) = found.waits
    assert 0.15 < training.kept < 0.45
    assert 0.25 < training.others < 0.45
    told = next(gate for gate in verdicts(found) if gate.name == "processor")
    assert (told.passed, told.required) == (False, True)
    assert f"for {training.kept:.1%} of the window its threads waited for processors" in told.message
    assert f"{training.process} on {training.node}" in told.message
    assert {row.host for row in found.rows} == {"h1", "h2", "h3", "h4", "h5", "switch"}
    assert sum(row.own_share for row in found.rows) + found.rows[0].others_share < 1.0


@pytest.mark.parametrize("name", ["busy", "vgg16"])
def test_others_are_told_to_have_kept_what_iterations_took_longer_than_on_free_processors(name):
    """A quickstart (0.172 s, 0.158 fitted) beside compilers, a VGG-16 (1.10 s, 0.37 fitted) beside suites of tests."""
    (training,) = recorded(name).waits
    about = json.loads((DATA / name / "window.json").read_text())
    assert training.kept >= 1 - about["fitted_s"] / about["mean_s"] > LIMIT


def test_a_quickstart_on_an_idle_machine_is_not_called_busy():
    """Its own ranks kept one another waiting, which is told apart: nothing else ran."""
    found = recorded("idle")
    (training,) = found.waits
    assert training.kept < 0.01 < LIMIT
    assert all(gate.passed for gate in verdicts(found))


def test_without_the_sampler_of_one_host_nobody_knows_what_was_others_work():
    found = recorded("busy", without="h2")
    (gate,) = [gate for gate in verdicts(found) if gate.name == "processor"]
    assert (gate.passed, gate.required) == (None, False)


def test_what_a_rank_waits_for_its_own_run_is_not_held_against_the_window():
    alone = {"h1": node(machine(busy_s=1.0, own_s=1.0), rank0=(0.2, 0.6))}
    assert kept(alone) == 0.0
    assert served(alone).waits[0].own == pytest.approx(0.6)


def test_waiting_is_shared_out_by_whose_work_the_processors_did():
    beside = {"h1": node(machine(busy_s=1.0, own_s=0.6), rank0=(0.2, 0.3))}
    assert kept(beside) == pytest.approx(0.3 * 0.4)
    (gate,) = [gate for gate in gates(beside).values() if gate.name == "processor"]
    assert (gate.passed, gate.limit) == (False, LIMIT)


def test_work_that_nobody_waits_for_costs_nothing():
    niced = {"h1": node(machine(busy_s=1.9, own_s=0.4), rank0=(0.2, 0.01))}
    assert kept(niced) < 0.01
    assert ("processor", True, True) in gates(niced)


def test_one_rank_that_is_held_up_holds_up_all():
    counters = machine(busy_s=1.4, own_s=0.4)
    quiet = {f"rank{number}": (0.1, 0.0) for number in range(1, 16)}
    assert kept({"h1": node(counters, rank0=(0.1, 0.5), **quiet)}) == pytest.approx(0.5 * 1.0 / 1.4)


def test_ranks_that_are_held_up_one_after_the_other_add_up():
    turns = np.eye(4)[np.arange(12) % 4]
    counters = machine(seconds=12, busy_s=2.0, own_s=1.0)
    ranks = {f"rank{number}": (0.1, 0.4 * turns[:, number]) for number in range(4)}
    assert kept({"h1": node(counters, **ranks)}, seconds=12) == pytest.approx(0.2)


def test_a_burst_of_other_work_is_not_thinned_out_by_the_quiet_time():
    burst = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    counters = machine(busy_s=0.5 + burst, own_s=0.5)
    assert kept({"h1": node(counters, rank0=(0.1, 0.9 * burst))}) == pytest.approx(0.9 * (1.0 / 1.5) / 10)


def test_threads_that_wait_at_the_same_time_cost_no_more_than_that_time():
    assert kept({"h1": node(machine(busy_s=2.0, own_s=0.0), rank0=(0.1, 7.0))}) == pytest.approx(1.0)


def test_time_stolen_from_a_running_rank_counts_without_any_queue():
    stolen = {"h1": node(machine(busy_s=1.0, own_s=1.0, steal_s=0.25), rank0=(0.4, 0.0))}
    assert kept(stolen) == pytest.approx(0.4 * 0.25)
    assert "20% was stolen" in gates(stolen)["processor", False, True].message


def test_nodes_that_share_a_kernel_are_nobodys_others():
    pair = {
        "h1": node(machine(busy_s=1.0, own_s=0.5), rank0=(0.2, 0.5)),
        "h2": node(machine(busy_s=1.0, own_s=0.5), rank1=(0.2, 0.5)),
    }
    assert kept(pair, {"h1": "one", "h2": "one"}) == 0.0
    assert kept(pair, {"h1": "one", "h2": "other"}) == pytest.approx(0.25)


def test_a_limit_of_a_control_group_counts_though_nobody_else_works():
    stopped = {"h1": node(machine(throttled_s=0.3), rank0=(0.2, 0.5))}
    told = gates(stopped)
    assert told["processor", True, True].measured == 0.0  # nobody else's work
    assert "cpu.max) stopped the run for 30.0% of the window" in told["processor", False, True].message
    unlimited = gates({"h1": node(machine(throttled_s=0.0), rank0=(0.2, 0.5))})
    assert [name for name, *_ in unlimited] == ["processor", "own-processors"]


@pytest.mark.parametrize(("used", "passed"), [(1.4, True), (1.98, False)])
def test_a_run_that_fills_the_processors_by_itself_is_noted_and_not_failed(used, passed):
    found = gates({"h1": node(machine(busy_s=used, own_s=used), rank0=(0.2, 0.9))})
    gate = found["own-processors", passed, False]
    assert (gate.measured, gate.limit) == (pytest.approx(used / 2), FULL)
    assert ("processor", True, True) in found


@pytest.mark.parametrize(
    "silent",
    [
        node(machine(), rank0=(0.2, math.nan)),  # no schedstats
        NodeSamples({}, {"rank0": grown(np.ones(10))}, {"rank0": grown(np.ones(10))}),  # no counters
        NodeSamples(machine(), {}, {"rank0": NOTHING}),  # a process that was never seen
        node(machine(seconds=4), rank0=(0.2, 0.1)),  # a sampler that was gone long before the window's end
    ],
)
def test_what_a_kernel_or_sampler_does_not_tell_is_told_and_not_failed(silent):
    found = gates({"h1": silent, "h2": node(machine(), rank1=(0.1, 0.0))})
    gate = found["processor", None, False]
    assert gate.measured is None
    assert "h1 did not report how long it waited" in gate.message


def test_no_pressure_counted_is_no_pressure_told():
    found = gates({"h1": node(machine(pressure_s=None), rank0=(0.2, 0.0))})
    assert "waited" not in found["own-processors", True, False].message


def test_what_is_ignored_is_told_and_does_not_fail():
    beside = {"h1": node(machine(busy_s=2.0, own_s=0.5), rank0=(0.2, 0.9))}
    gate = gates(beside, limit=None)["processor", True, False]
    assert gate.message.endswith("; ignored")
    assert gate.measured > LIMIT


def test_a_run_from_before_processors_were_sampled_has_no_verdict_on_them():
    manifest = manifests.made(launches=[manifests.launch(job="training")])
    assert processors.samples(None, None, None, manifest).window(manifests.window()) == processors.WindowProcessors(
        (), (), ()
    )


def on_processors(*, count, hog, rank_run, rank_wait, thread_on=0, others_elsewhere=0.0, own_elsewhere=0.98):
    """A rank on one of so many processors, a second at a time; a hog is there, and the run fills the other ones."""
    seconds = 10
    busy = [hog + rank_run] + [own_elsewhere + others_elsewhere] * (count - 1)
    own = [rank_run] + [own_elsewhere] * (count - 1)
    counters = machine(count=count, busy_s=sum(busy), own_s=sum(own))
    each = {
        number: {"busy_s": grown([busy[number]] * seconds), "steal_s": grown([0.0] * seconds)}
        | {"own_s": grown([own[number]] * seconds)}
        for number in range(count)
    }
    made = node(counters, rank0=(rank_run, rank_wait))
    waits = processors.Waits(
        BEGIN + SECOND * np.arange(1, seconds + 1),
        np.full(seconds, thread_on),
        np.full(seconds, rank_run),
        np.full(seconds, rank_wait),
    )
    return replace(made, processors=each, waits={"rank0": waits})


@pytest.mark.parametrize("count", [1, 2, 20, 128])
def test_a_hog_on_the_ranks_processor_is_told_whole_however_many_there_are(count):
    """Told as 25 % of 1 processor and 2.4 % of 20 where all the work of the kernel is taken together."""
    found = served({"h1": on_processors(count=count, hog=0.5, rank_run=0.5, rank_wait=0.5)})
    (one,) = found.waits
    assert one.kept == pytest.approx(0.5, abs=0.01)
    assert (one.processor, one.others) == (0, pytest.approx(0.5, abs=0.01))
    told = next(gate for gate in verdicts(found) if gate.name == "processor")
    assert (told.passed, told.required) == (False, True)
    assert "rank0 on h1, processor 0, longest; of the work there 50% was not this run's" in told.message


def sending(*, senders, loads, window="w1"):
    """Senders of cross traffic by launch, each with its node, source and what it runs and waits in a second."""
    nodes = {}
    launches = [manifests.launch(node=name, part=processors.PART) for name in ("h1", "h2")]
    for process, (name, source, run, wait) in senders.items():
        nodes[name] = on_processors(count=20, hog=0.5, rank_run=run, rank_wait=wait)
        nodes[name] = replace(
            nodes[name],
            run={process: nodes[name].run["rank0"]},
            wait={process: nodes[name].wait["rank0"]},
            waits={process: nodes[name].waits["rank0"]},
        )
        launches.append(manifests.launch(process, name, role="traffic", source=source, window="w1"))
    empty = pa.Table.from_pylist([], schema=tables.schema("tasks"))
    counters = pa.Table.from_pylist([], schema=tables.schema("counters"))
    found = processors.samples(counters, empty, WAITLESS, manifests.made(launches=launches))
    flows = [{"source": source, "src": src, "dst": dst, "requested_bps": 1e8} for source, src, dst in loads]
    about = manifests.window(window, start_ns=BEGIN, end_ns=BEGIN + 10 * SECOND, loads=flows)
    return replace(found, nodes=nodes).window(about)


HELD = {"w1.iperf0.client": ("h1", "iperf0", 0.2, 0.3), "w1.iperf0.server": ("h2", "iperf0", 0.2, 0.4)}


def test_a_hog_on_the_processor_of_a_sender_is_told_by_name():
    found = sending(senders=HELD, loads=[("iperf0", "h1", "h2")])
    (one,) = found.waits
    assert (one.job, one.process, one.node, one.traffic) == ("iperf0", "w1.iperf0.client", "h1", True)
    (told,) = [gate for gate in verdicts(found) if gate.name == "processor"]
    assert (told.passed, told.required, told.measured) == (False, True, pytest.approx(0.3, abs=0.01))
    assert told.message.startswith("cross traffic iperf0: for 30.0% of the window its threads waited for processors")
    assert "(w1.iperf0.client on h1, processor 0, longest; of the work there 71% was not this run's" in told.message


def test_of_several_senders_the_one_that_was_kept_longest_counts_and_they_do_not_add_up():
    found = sending(senders=HELD, loads=[("iperf0", "h1", "h2"), ("iperf0", "h2", "h1")])
    (one,) = found.waits
    assert (one.node, one.kept) == ("h2", pytest.approx(0.4, abs=0.01))


def test_receivers_and_sources_of_other_windows_are_not_judged():
    assert sending(senders=HELD, loads=[("iperf0", "h3", "h1")]).waits == ()
    assert sending(senders=HELD, loads=[("iperf0", "h1", "h2")], window="w2").waits == ()
    easy = {"w1.iperf0.client": ("h1", "iperf0", 0.2, 0.01)}
    (told,) = [
        gate for gate in verdicts(sending(senders=easy, loads=[("iperf0", "h1", "h2")])) if gate.name == "processor"
    ]
    assert told.passed


@pytest.mark.parametrize("hog", [0.02, 0.1, 0.3])
def test_others_and_the_run_share_what_a_rank_waits_on_its_processor(hog):
    """Another rank is there, too: of the half that is not this rank's the hog has its part."""
    made = on_processors(count=20, hog=hog, rank_run=0.5, rank_wait=0.5)
    made.processors[0]["own_s"], made.processors[0]["busy_s"] = grown([1 - hog] * 10), grown([1.0] * 10)
    made.counters["busy_s"] = grown([1.0 + 19 * 0.98] * 10)
    made.counters["own_s"] = grown([1 - hog + 19 * 0.98] * 10)
    assert kept({"h1": made}) == pytest.approx(hog, abs=0.01)


def test_a_hog_on_another_processor_keeps_no_rank_waiting():
    made = on_processors(count=20, hog=0.0, rank_run=0.5, rank_wait=0.02, others_elsewhere=0.5, own_elsewhere=0.3)
    assert kept({"h1": made}) < 0.001


def test_threads_that_move_do_not_make_the_runs_own_work_somebody_elses():
    """The run's work was done on one processor and is looked for on the other: the kernel counts no others."""
    made = on_processors(count=2, hog=0.0, rank_run=0.5, rank_wait=0.5)
    for number, own in ((0, 0.1), (1, 1.8)):
        made.processors[number]["own_s"] = grown([own] * 10)
        made.processors[number]["busy_s"] = grown([0.95] * 10)
    made.counters["busy_s"], made.counters["own_s"] = grown([1.9] * 10), grown([1.9] * 10)
    assert kept({"h1": made}) < 0.01


def test_a_thread_on_a_processor_that_is_not_counted_costs_no_more_than_itself():
    assert kept({"h1": on_processors(count=2, hog=0.5, rank_run=0.5, rank_wait=0.5, thread_on=7)}) == 0.0
