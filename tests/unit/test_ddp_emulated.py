"""The emulated model, without a framework around it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import workloads.training  # noqa: E402

# Programs find each other in their own folder; last, since `trace` is also a module of Python's.
sys.path.extend(path for path in workloads.training.__path__ if path not in sys.path)

from workloads.training.emulated import EmulatedModel  # noqa: E402
from workloads.training.iteration_log import IterationLog  # noqa: E402

CPU = torch.device("cpu")


def model(layers: list[tuple[float, float, list[int]]]) -> EmulatedModel:
    return EmulatedModel(layers, seed=1, device=CPU)


def test_gradients_come_last_layer_first_each_at_its_time() -> None:
    net = model([(0.0, 0.02, [3]), (0.0, 0.0, [2, 2]), (0.0, 0.03, [5])])
    start, seen = 0.0, []
    for index, weight in enumerate(net.weights):
        weight.register_hook(lambda _gradient, index=index: seen.append((index, time.monotonic() - start)))
    loss = net()
    start = time.monotonic()
    loss.backward()
    first, *middle, last = [index for index, _ in seen]
    assert (first, set(middle), last) == (3, {1, 2}, 0)
    assert all(0.03 <= at < 0.05 for _, at in seen[:3])
    assert 0.05 <= seen[3][1] < 0.15
    assert all(weight.grad is not None and weight.grad.shape == weight.shape for weight in net.weights)


def test_delays_do_not_add_up() -> None:
    """Each layer is delayed by something else for half of its share: the passes still take what they should."""
    net = model([(0.001, 0.002, [4])] * 50)
    for weight in net.weights:
        weight.register_hook(lambda _gradient: time.sleep(0.001))
    start = time.monotonic()
    loss = net()
    middle = time.monotonic()
    loss.backward()
    end = time.monotonic()
    assert 0.05 <= middle - start < 0.09
    assert 0.1 <= end - middle < 0.14, "0.15 if the delays added up"


def test_a_first_layer_whose_parameters_vanished_still_takes_its_time() -> None:
    net = model([(0.0, 0.03, []), (0.0, 0.01, [2])])
    loss = net()
    start = time.monotonic_ns()
    loss.backward()
    assert 0.04e9 <= net.pace.last_gradient_ns - start <= time.monotonic_ns() - start < 0.12e9


def test_the_loss_is_the_mean_square_of_the_last_weights() -> None:
    net = model([(0.0, 0.0, [3]), (0.0, 0.0, [2])])
    assert net().item() == 1.0
    with torch.no_grad():
        net.weights[-1].copy_(torch.tensor([1.0, 3.0]))
    assert net().item() == 5.0


def test_a_seed_gives_its_own_gradients() -> None:
    plan = [(0.0, 0.0, [1000])]
    drawn = []
    for seed in (1, 1, 2):
        net = EmulatedModel(plan, seed=seed, device=CPU)
        net().backward()
        drawn.append(net.weights[0].grad)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_log_line_is_in_the_file_at_once_and_cheap(tmp_path: Path) -> None:
    log = IterationLog(tmp_path / "log")
    log.write({"iteration": 0, "loss": float("nan")})
    assert (tmp_path / "log").read_text() == '{"iteration":0,"loss":NaN}\n'
    record = {f"column{index}": time.monotonic_ns() for index in range(12)}
    spent = []
    for _ in range(200):
        start = time.perf_counter()
        log.write(record)
        spent.append(time.perf_counter() - start)
    log.close()
    assert sorted(spent)[100] < 0.0003
    assert len((tmp_path / "log").read_text().splitlines()) == 201
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1]) == record
