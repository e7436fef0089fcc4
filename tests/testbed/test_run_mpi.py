"""Open MPI for real over three hosts, under Horovod and as a benchmark: what travels, and how it ends."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.helpers import listeners, wire
from tests.helpers.orch_runs import agree, killed_in_its_window, orch, sealed, write
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(not environments.is_built("torch"), reason="no Open MPI here: run `make frameworks`"),
]

COMMON = {"collect": ["tcpdump", "nic"], "validity": {"clock": "100ms"}}
# Few tensors and a long cycle, so that what Horovod's ranks agree on weighs little beside them.
HOROVOD = {
    "name": "horovod-mpi",
    **COMMON,
    "testbed": {"local": {"hosts": 3, "link": "100gbit", "scale": 100}},
    "measure": {"warmup": 2, "iterations": 12, "at_most": "60s"},
    "workload": {
        "horovod": {
            "controller": "mpi",
            "model": "vgg16",
            "compute_time": "60ms",
            "cycle_time": "10ms",
            "checksum": True,
            "hosts": ["h1", "h2", "h3"],
        }
    },
}
COLLECTIVE = {
    "name": "collective-mpi",
    **COMMON,
    "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
    # Nothing is computed between iterations: ranks that are apart move bytes over the window's ends.
    "measure": {"warmup": 2, "iterations": 40, "at_most": "60s"},
    "workload": {
        "collective": {
            "backend": "mpi",
            "sizes": ["1mb", "2mb"],
            "repeats": 1,
            "operations": ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"],
            "hosts": ["h1", "h3", "h3", "h2"],
        }
    },
}


def changed(experiment, **options):
    ((name, workload),) = experiment["workload"].items()
    return {**experiment, "workload": {name: {**workload, **options}}}


def as_theory_says(tmp_path, experiment):
    """A valid run that sent as many bytes as theory has, and its row of the table of trainings."""
    run = sealed(tmp_path, experiment)
    (row,) = run.rows("training")
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)
    assert wire.apart(wire.captured(run), wire.told(run)) < 0.07
    assert not list(run.path.glob("hosts/*/*/session")), "Open MPI's session is no result"
    return run, row


@pytest.mark.parametrize(
    "framework",
    [
        "torch",
        pytest.param(
            "tensorflow",
            marks=[
                pytest.mark.variants,
                pytest.mark.skipif(not environments.is_built("tensorflow"), reason="no TensorFlow here"),
            ],
        ),
    ],
)
def test_horovods_ranks_agree_over_mpi_and_send_as_much_as_theory_says(tmp_path, framework):
    run, row = as_theory_says(tmp_path, changed(HOROVOD, framework=framework))
    assert row["theory_bytes"] == pytest.approx(2 * 2 / 3 * 4 * 1_383_575)
    agree(run)
    assert wire.pattern_of(run).shape == "ring"
    ports = {kind: set() for kind in ("control", "training")}
    for row in run.rows("capture_flows"):
        if row["kind"] in ports:
            ports[row["kind"]] |= {row["src_port"], row["dst_port"]} & set(range(20000, 20100))
    assert ports["control"] == {20091, 20099}, "mpirun's daemons"
    assert ports["training"]
    assert max(ports["training"]) < 20091


@pytest.mark.variants
@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_several_ranks_of_a_host_agree_and_send_one_ring_over_the_network(tmp_path, controller):
    run, _ = as_theory_says(tmp_path, changed(HOROVOD, controller=controller, hosts=["h1", "h1", "h2"]))
    agree(run)


@pytest.mark.variants
def test_every_collective_sends_what_theory_says_between_the_hosts_it_says(tmp_path):
    run, _ = as_theory_says(tmp_path, COLLECTIVE)
    assert {row["rank"] for row in run.rows("iterations")} == {0, 1, 2, 3}
    rows = list(run.rows("collectives"))
    assert {row["operation"] for row in rows} == set(COLLECTIVE["workload"]["collective"]["operations"])
    assert {row["rank"] for row in rows} == {0, 1, 2, 3}
    assert all(row["bus_bps"] > 0 for row in rows)


@pytest.mark.variants
@pytest.mark.parametrize("algorithm", ["recursive-doubling", "rabenseifner"])
def test_an_all_reduce_goes_by_the_algorithm_that_was_asked_for(tmp_path, algorithm):
    options = {"algorithm": algorithm, "operations": ["all-reduce"], "hosts": ["h1", "h2", "h3"]}
    as_theory_says(tmp_path, changed(COLLECTIVE, **options))


@pytest.mark.variants
@pytest.mark.parametrize("experiment", [HOROVOD, COLLECTIVE], ids=["horovod", "collective"])
def test_a_rank_killed_in_its_step_ends_the_run_and_until_then_what_listens_is_known(tmp_path, experiment):
    before = sessions()
    err = killed_in_its_window(tmp_path, experiment, before=partial(listeners.as_known, "mpi"))
    assert "training-rank1 ended with status -9" in err
    assert sessions() == before


def sessions():
    return {path for folder in ("/tmp", "/dev/shm") for path in Path(folder).glob("ompi.*")}


@pytest.mark.variants
def test_a_daemon_killed_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, COLLECTIVE, launch="training-daemon-h2", program="orted")
    assert "before it was asked to" in err


def test_without_mpirun_nothing_is_started(tmp_path):
    path = write(tmp_path, changed(COLLECTIVE, mpirun="/no/such/mpirun"))
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "orch prepare --only torch" in err
    assert (out, (tmp_path / "results").exists()) == ("", False)


@pytest.mark.variants
@pytest.mark.parametrize(("more", "ends"), [({"ip": 6}, "2001:2::"), ({"rails": 2}, "198.18.")])
def test_horovods_ranks_meet_and_send_over_ipv6_and_over_two_rails(tmp_path, more, ends):
    local = {**HOROVOD["testbed"]["local"], **more}
    run, _ = as_theory_says(tmp_path, {**HOROVOD, "testbed": {"local": local}})
    sources = {row["src"] for row in run.rows("capture_flows") if row["kind"] == "training"}
    assert sources
    assert all(source.startswith(ends) for source in sources)
