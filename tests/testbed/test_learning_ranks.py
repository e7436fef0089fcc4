"""Ranks that really learn: all frameworks do so from the same batches, and what they are worth is logged each epoch."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch, Listening
from tests.helpers.rank_processes import PATIENCE_S, SEED, loopback, running
from workloads import ddp, horovod, p2p, tensorflow
from workloads.common import environments
from workloads.rank.compute import image_sets

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

EPOCHS, STEPS = 3, 20
LEARNING = {
    "model": "small_cnn",
    "compute": "real",
    "data": "gratings",
    "batch": 32,
    "samples": 2 * 32 * STEPS,
    "held_out": 501,
    "optimizer": "adam",
    "learning_rate": 0.003,
}


def learned(workload: Any, folder: Path, **options: object) -> list[dict[str, list[Any]]]:
    """The table `accuracy` of two ranks that have learned for EPOCHS epochs."""
    folder.mkdir()
    launches = loopback(workload, 2, scale=1, **{**LEARNING, **options})
    with ExitStack() as open_:
        servers = [launch for launch in launches if launch.rank is None]
        open_.enter_context(running(servers, folder))
        wait_listening(servers)
        started = open_.enter_context(running([one for one in launches if one.rank is not None], folder))
        started.wait_ready()
        started.go()
        started.wait_iterations(EPOCHS * STEPS + 1)
        assert started.end() == [0, 0]
        return [started.read(workload, rank, "accuracy") for rank in range(2)]


def wait_listening(servers: list[Launch]) -> None:
    def listens(port: int) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", port)) == 0

    for launch in servers:
        assert isinstance(launch.ready, Listening)
        port = launch.ready.port
        Deadline.after(PATIENCE_S).poll(lambda port=port: listens(port), every_s=0.05, waiting_for=launch.name)


def shares(tables: list[dict[str, list[Any]]]) -> list[float]:
    """The share of all held-out images that was right after each epoch."""
    assert [list(table["epoch"][:EPOCHS]) for table in tables] == [[1, 2, 3]] * 2
    assert [list(table["iteration"][:EPOCHS]) for table in tables] == [[19, 39, 59]] * 2
    assert [set(table["samples"]) for table in tables] == [{251}, {250}], "each image is one rank's"
    return [sum(table["correct"][epoch] for table in tables) / 501 for epoch in range(EPOCHS)]


def test_all_reduce_however_carried_learns_the_same(tmp_path: Path) -> None:
    by_ddp = learned(ddp, tmp_path / "ddp")
    assert shares(by_ddp)[-1] > 0.25, "ten classes: a tenth by chance"
    by_ring = learned(p2p, tmp_path / "ring", strategy="ring")
    assert shares(by_ring) == pytest.approx(shares(by_ddp), abs=0.03)


def test_pair_averaging_learns_too(tmp_path: Path) -> None:
    assert shares(learned(p2p, tmp_path / "pairs", strategy="pair-averaging"))[-1] > 0.2


MODES = [
    pytest.param(
        workload,
        options,
        id=f"{workload.NAME}-{environment}",
        marks=[
            pytest.mark.frameworks,
            pytest.mark.skipif(not environments.is_built(environment), reason="run `make frameworks`"),
        ],
    )
    for workload, environment, options in (
        (horovod, "torch", {}),
        (horovod, "tensorflow", {"framework": "tensorflow"}),
        (tensorflow, "tensorflow", {"strategy": "multi-worker-mirrored"}),
    )
]


@pytest.mark.parametrize(("workload", "options"), MODES)
def test_other_frameworks_learn_the_same(workload: Any, options: dict[str, object], tmp_path: Path) -> None:
    found = shares(learned(workload, tmp_path / "other", **options))
    assert found == pytest.approx(shares(learned(ddp, tmp_path / "ddp")), abs=0.06)


@pytest.mark.parametrize("optimizer", ["rmsprop", "sgd"])
def test_optimizers_differ(optimizer: str, tmp_path: Path) -> None:
    """With the learning rate that suits Adam, SGD has learned next to nothing after so few epochs."""
    rows = learned(ddp, tmp_path / "ddp", optimizer=optimizer)
    assert (shares(rows)[-1] < 0.25) == (optimizer == "sgd")


def test_a_folder_in_the_format_of_cifar_10_is_learned_from(tmp_path: Path) -> None:
    training, held_out = image_sets.load_images("gratings", training=2 * 32 * STEPS, held_out=501, seed=SEED)
    image_sets.write_cifar(tmp_path / "set" / image_sets.CIFAR_FOLDER, training, held_out)
    whole = {"data": str(tmp_path / "set"), "samples": None, "held_out": None}
    assert shares(learned(ddp, tmp_path / "files", **whole)) == shares(learned(ddp, tmp_path / "made"))


def test_a_set_with_a_file_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    image_sets.write_cifar(
        tmp_path / image_sets.CIFAR_FOLDER, image_sets.gratings(100, seed=1), image_sets.gratings(50, seed=2)
    )
    missing = tmp_path / image_sets.CIFAR_FOLDER / "data_batch_4.bin"
    missing.unlink()
    options = {**LEARNING, "data": str(tmp_path), "samples": None, "held_out": None}
    with running(loopback(ddp, 2, scale=1, **options), tmp_path) as started:
        for rank, process in enumerate(started.processes):
            assert process.wait(PATIENCE_S) == 1
            (line,) = started.stderr(rank).splitlines()
            assert line.startswith(f"rank {rank}: could not build the model: {missing}: No such file or directory; ")
