"""Images that a model learns from, whatever the framework: their format, whose share they are, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.experiment import sweepfile
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Link, Node, Rail, Topology
from workloads import ddp, horovod, p2p, tensorflow
from workloads.models import catalog
from workloads.rank.compute import image_sets
from workloads.readers.evaluations import read_evaluations

RECORD = 3073


def test_gratings_are_the_same_again_and_no_pixel_tells_their_class() -> None:
    drawn = image_sets.gratings(2500, seed=[3, 0])
    again = image_sets.gratings(2500, seed=[3, 0])
    assert np.array_equal(drawn.pixels, again.pixels)
    assert np.array_equal(drawn.labels, again.labels)
    assert not np.array_equal(drawn.pixels, image_sets.gratings(2500, seed=[4, 0]).pixels)
    assert drawn.pixels.shape == (2500, 3, 32, 32)
    assert sorted(set(drawn.labels.tolist())) == list(range(10))
    # The nearest mean image of a class is right about as often as chance: 10 %, with a deviation of 1 %.
    train, test = slice(0, 1500), slice(1500, 2500)
    means = np.stack([drawn.pixels[train][drawn.labels[train] == one].mean(axis=0) for one in range(10)])
    apart = ((drawn.pixels[test][:, None].astype(float) - means) ** 2).sum(axis=(2, 3, 4))
    assert (apart.argmin(axis=1) == drawn.labels[test]).mean() < 0.16


def test_files_are_those_of_the_binary_version_of_cifar_10(tmp_path: Path) -> None:
    training, held_out = image_sets.gratings(23, seed=1), image_sets.gratings(7, seed=2)
    image_sets.write_cifar(tmp_path / image_sets.CIFAR_FOLDER, training, held_out)
    raw = (tmp_path / image_sets.CIFAR_FOLDER / "data_batch_1.bin").read_bytes()
    assert len(raw) == 4 * RECORD
    assert raw[0] == training.labels[0]
    assert raw[1:33] == training.pixels[0, 0, 0].tobytes(), "the first row of red"
    assert raw[1 + 1024] == training.pixels[0, 1, 0, 0], "then green"
    read, kept = image_sets.load_images(str(tmp_path), training=None, held_out=5, seed=0)
    assert np.array_equal(read.pixels, training.pixels)
    assert np.array_equal(read.labels, training.labels)
    assert np.array_equal(kept.pixels, held_out.pixels[:5])


def test_what_is_wrong_with_files_is_said_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / image_sets.CIFAR_FOLDER

    def refused(**counts: int | None) -> str:
        with pytest.raises(RuntimeError) as error:
            image_sets.load_images(str(tmp_path), seed=0, **{"training": None, "held_out": None, **counts})
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "data_batch_1.bin: No such file" in refused()
    image_sets.write_cifar(folder, image_sets.gratings(10, seed=1), image_sets.gratings(4, seed=2))
    assert "has 10 images for samples, and 11 are requested" in refused(training=11)
    assert "has 4 images for held_out, and 5 are requested" in refused(held_out=5)
    whole = (folder / "data_batch_3.bin").read_bytes()
    (folder / "data_batch_3.bin").write_bytes(whole[:-1])
    assert f"data_batch_3.bin: {2 * RECORD - 1} bytes are no whole records of 3073" in refused()
    (folder / "data_batch_3.bin").write_bytes(b"\x0a" + whole[1:])
    assert "a label of 10" in refused()


def test_ranks_share_each_epoch_and_no_image_is_twos() -> None:
    images = image_sets.ImageSet(np.zeros((103, 3, 32, 32), np.uint8), np.arange(103, dtype=np.uint8))
    feeds = [image_sets.EpochBatches(images, batch=8, rank=rank, world=3, seed=5) for rank in range(3)]
    assert [feed.steps for feed in feeds] == [4, 4, 4]
    orders = []
    for _ in range(2):
        seen = [np.concatenate([feed.next()[1] for _ in range(feed.steps)]).tolist() for feed in feeds]
        flat = [label for one in seen for label in one]
        assert len(flat) == len(set(flat)) == 96
        orders.append(seen)
    assert orders[0] != orders[1], "another order each epoch"
    with pytest.raises(RuntimeError, match="103 images are too few for batches of 40 on 3 ranks"):
        image_sets.EpochBatches(images, batch=40, rank=0, world=3, seed=5)


def test_each_held_out_image_is_looked_at_by_one_rank_after_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = image_sets.ImageSet(np.zeros((601, 3, 32, 32), np.uint8), (np.arange(601) % 10).astype(np.uint8))
    rows = []
    for rank in range(2):
        home = tmp_path / str(rank)
        home.mkdir()
        monkeypatch.chdir(home)
        looked = image_sets.Evaluation(
            images, lambda _, labels: (int((labels < 3).sum()), 2.0 * len(labels)), steps=4, rank=rank, world=2
        )
        for iteration in range(9):
            looked(iteration)
        output = LaunchOutput(
            folder=home, node="h1", launch="x", job="j", rank=rank, window=None, source=None, offset_ns=0
        )
        rows.append(read_evaluations(output)["accuracy"])
    assert [list(one["epoch"]) for one in rows] == [[1, 2], [1, 2]]
    assert [list(one["iteration"]) for one in rows] == [[3, 7], [3, 7]]
    assert [list(one["samples"]) for one in rows] == [[301, 301], [300, 300]]
    assert sum(one["correct"][0] for one in rows) == (images.labels < 3).sum()
    assert rows[0]["loss"][0] == pytest.approx(2.0)


def test_a_damaged_line_of_an_evaluation_is_left_out(tmp_path: Path) -> None:
    good = {"epoch": 1, "iteration": 3, "end_ns": 10, "evaluation_s": 0.5, "samples": 4, "correct": 2, "loss": 1.0}
    texts = [json.dumps(good), json.dumps({**good, "correct": 5}), json.dumps({**good, "epoch": None}), '{"epoch": 2']
    (tmp_path / "accuracy.jsonl").write_text("\n".join(texts))
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job="j", rank=1, window=None, source=None, offset_ns=7
    )
    rows = read_evaluations(output)["accuracy"]
    assert list(rows["end_ns"]) == [17]
    assert list(rows["correct"]) == [2]


def test_the_catalog_has_the_small_networks_shapes() -> None:
    held = catalog.load(image_sets.SMALL_CNN)
    values = image_sets.small_cnn_weights(1)
    assert [size for layer in held.layers for size in layer.sizes] == [array.size for array in values]
    assert held.parameters == sum(array.size for array in values) == 139_930


REAL = {"model": "small_cnn", "compute": "real", "data": "gratings"}
MIRRORED = {"strategy": "multi-worker-mirrored"}


@pytest.mark.parametrize(
    ("workload", "options", "at"),
    [
        (ddp, {"model": "small_cnn", "compute": "real"}, "data"),
        (ddp, {**REAL, "model": "inception_v3", "classes": 10}, "data"),
        (ddp, {**REAL, "model": "resnet50"}, "classes"),
        (ddp, {"model": "resnet50", "optimizer": "adam"}, "optimizer"),
        (p2p, {"model": "resnet50", "strategy": "ring", "samples": 10}, "samples"),
        (horovod, {**REAL, "model": "gpt2"}, "model"),
        (horovod, {**REAL, "model": "resnet50", "framework": "tensorflow"}, "model"),
        (horovod, {"model": "resnet50", "learning_rate": 0.1}, "learning_rate"),
        (tensorflow, {**REAL, "model": "resnet50", **MIRRORED}, "model"),
        (tensorflow, {**REAL, **MIRRORED, "compute_time": "1s"}, "compute_time"),
        (tensorflow, {**REAL, "strategy": "parameter-server"}, "compute"),
    ],
)
def test_what_cannot_be_learned_is_refused(workload, options: dict[str, object], at: str) -> None:
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, 4))
    where = Topology(kind="local", nodes=nodes, links=tuple(Link(host=n.name, device="eth0", rate=1e9) for n in nodes))
    config = workload.Config.model_validate(options)
    assert [problem.at for problem in workload.problems(config, where)] == [(at,)]
    allowed = {
        **REAL,
        **({"strategy": "pair-averaging"} if workload is p2p else MIRRORED if workload is tensorflow else {}),
    }
    assert workload.problems(workload.Config.model_validate(allowed), where) == []


def test_the_playbook_learns_from_one_folder_where_its_first_workload_names_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "playbooks/sweeps/accuracy.yaml").read_text()
    (tmp_path / "cifar.yaml").write_text(text.replace("data: gratings", "data: /data/cifar", 1))
    found = [point.experiment.workload for point in sweepfile.load(tmp_path / "cifar.yaml").points]
    assert len(found) == 6
    told = [next(iter(workload.model_dump(exclude_none=True).values())) for workload in found]
    assert {one["data"] for one in told} == {"/data/cifar"}
