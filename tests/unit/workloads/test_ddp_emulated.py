"""The emulated model, without a framework around it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from workloads.rank.compute import training
from workloads.rank.logs import IterationLog

if TYPE_CHECKING:
    from workloads.rank.compute.emulated_torch import EmulatedModel


def model(layers: list[tuple[float, float, list[int]]], *, seed: int = 1) -> EmulatedModel:
    import torch  # two seconds, which processes that only collect this do without

    from workloads.rank.compute.emulated_torch import EmulatedModel

    return EmulatedModel(layers, seed=seed, device=torch.device("cpu"))


class Clock:
    """Stands for the module `time`: nothing passes but what is slept."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from workloads.rank.compute import emulated_torch

    made = Clock()
    monkeypatch.setattr(training, "time", made)
    monkeypatch.setattr(emulated_torch, "time", made)
    return made


def test_a_graph_computes_one_layer_at_a_time_of_those_whose_inputs_are_there(clock: Clock) -> None:
    """Two branches after the first layer: the second of them is taken first, and what joins them waits for both."""
    net = model([(0.01, 0.0, [1]), (0.02, 0.0, [1]), (0.04, 0.0, [1]), (0.08, 0.0, [1])])
    began, seen = [], []

    def pick(open_layers) -> int:
        began.append((tuple(open_layers), clock.now))
        return open_layers[-1]

    net.by_graph([[], [0], [0], [1, 2]], pick)
    for index, weight in enumerate(net.weights):
        weight.register_hook(lambda _gradient, index=index: seen.append(index))
    for _ in range(2):
        began.clear()
        start = clock.now
        net().backward()
        assert [layers for layers, _ in began] == [(0,), (1, 2), (1,), (3,)]
        assert [at - start for _, at in began] == pytest.approx([0, 0.01, 0.05, 0.07])
        assert clock.now - start == pytest.approx(0.15)
    assert seen == [3, 2, 1, 0] * 2, "gradients come in the reverse order of layers, whatever computed first"


def test_gradients_come_last_layer_first_each_at_its_time(clock: Clock) -> None:
    net = model([(0.0, 0.02, [3]), (0.0, 0.0, [2, 2]), (0.0, 0.03, [5])])
    start, seen = 0.0, []
    for index, weight in enumerate(net.weights):
        weight.register_hook(lambda _gradient, index=index: seen.append((index, clock.now - start)))
    loss = net()
    start = clock.now
    loss.backward()
    first, *middle, last = [index for index, _ in seen]
    assert (first, set(middle), last) == (3, {1, 2}, 0)
    assert [at for _, at in seen] == pytest.approx([0.03, 0.03, 0.03, 0.05])
    assert all(weight.grad is not None and weight.grad.shape == weight.shape for weight in net.weights)


def test_delays_do_not_add_up(clock: Clock) -> None:
    """Each layer is delayed by something else for half of its share: the passes still take what they should."""
    net = model([(0.001, 0.002, [4])] * 50)
    for weight in net.weights:
        weight.register_hook(lambda _gradient: clock.sleep(0.001))
    start = clock.now
    loss = net()
    middle = clock.now
    loss.backward()
    assert middle - start == pytest.approx(0.05)
    assert clock.now - middle == pytest.approx(0.101), (
        "0.15 if the delays added up: the last one has no layer behind it"
    )


@pytest.mark.parametrize(
    ("hook_s", "passes_s", "absorbed_s"),
    [
        (0.0, 0.15, 0.0),
        (0.001, 0.151, 0.049),  # all but the last layer's, which nothing of the pass follows
        (0.002, 0.152, 0.098),
        (0.005, 0.05 + 0.002 + 50 * 0.005, 0.098),  # more than fits: the rest makes the pass longer
    ],
)
def test_what_hooks_take_from_the_layers_time_is_told(
    clock: Clock, hook_s: float, passes_s: float, absorbed_s: float
) -> None:
    net = model([(0.001, 0.002, [4])] * 50)
    for weight in net.weights:
        weight.register_hook(lambda _gradient: clock.sleep(hook_s))
    start = clock.now
    net().backward()
    assert clock.now - start == pytest.approx(passes_s)
    assert net.clock.end_iteration() == {"absorbed_s": pytest.approx(absorbed_s, abs=1e-6)}
    net().backward()
    net().backward()
    assert net.clock.end_iteration()["absorbed_s"] == pytest.approx(2 * absorbed_s, abs=1e-6), (
        "of all passes of an iteration"
    )


def test_neither_late_awakenings_nor_waiting_for_weights_is_the_ranks_work(clock: Clock) -> None:
    sleep = clock.sleep
    clock.sleep = lambda seconds: sleep(seconds + 60e-6)  # type: ignore[method-assign]
    passed = training.ComputeClock()
    passed.start()
    for layer in range(1, 11):
        sleep(0.005)  # its weights come over the network
        passed.hold(0.005)
        sleep(0.0005)
        passed.sleep_until(layer * 0.002)
    assert passed.end_iteration() == {"absorbed_s": pytest.approx(0.005)}


def test_a_first_layer_whose_parameters_vanished_still_takes_its_time(clock: Clock) -> None:
    net = model([(0.0, 0.03, []), (0.0, 0.01, [2])])
    loss = net()
    start = clock.now
    loss.backward()
    assert net.clock.last_gradient_ns == clock.monotonic_ns()
    assert clock.now - start == pytest.approx(0.04)


def test_the_loss_is_the_mean_square_of_the_last_weights() -> None:
    net = model([(0.0, 0.0, [3]), (0.0, 0.0, [2])])
    assert net().item() == 1.0
    net.weights[-1].data.copy_(net.weights[-1].new_tensor([1.0, 3.0]))
    assert net().item() == 5.0


def test_a_seed_gives_its_own_gradients() -> None:
    plan = [(0.0, 0.0, [1000])]
    drawn = []
    for seed in (1, 1, 2):
        net = model(plan, seed=seed)
        net().backward()
        drawn.append(net.weights[0].grad)
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])


def test_a_log_line_is_in_the_file_at_once(tmp_path: Path) -> None:
    log = IterationLog(tmp_path / "log")
    log.write({"iteration": 0, "loss": float("nan")})
    assert (tmp_path / "log").read_text() == '{"iteration":0,"loss":NaN}\n'
    record = {f"column{index}": time.monotonic_ns() for index in range(12)}
    log.write(record)
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    log.close()
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1]) == record
