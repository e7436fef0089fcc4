"""When a window begins and ends, and whether the load is on the link."""

from __future__ import annotations

import io
import threading
import time
from types import SimpleNamespace

import pytest

from orchestrator.core.errors import AgentError, DeadlineExceeded, OrchError
from orchestrator.core.interrupts import Interrupts
from orchestrator.execution import measuring
from orchestrator.execution.actions.host_counters import Receivers
from orchestrator.execution.actions.window_events import WindowEvents
from orchestrator.execution.measuring import Measurement, preflight
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.session import Session
from orchestrator.execution.watch import Watch
from orchestrator.experiment import documents, plan, validation
from orchestrator.experiment.experiment import model
from orchestrator.remote.events import LineRead
from tests.helpers.experiments import GOOD, IPERF, WORKLOAD

MS = 1_000_000
TWO_JOBS = "".join(["jobs:\n", *(f"  - name: {name}\n    workload: {{ddp: {{model: resnet50}}}}\n" for name in "ab")])


def planned(measure, *, jobs=False, traffic="", more=""):
    text = GOOD.replace("traffic:\n" + IPERF, traffic).replace("  iterations: 10\n", f"  {measure}\n") + more
    text = text.replace(WORKLOAD, TWO_JOBS) if jobs else text
    document = documents.parse(text.encode(), name="e", needs="all")
    return plan.build(validation.validate(document, model()))[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(measuring, "TICK_S", 0.01)
    monkeypatch.setattr(measuring, "SAMPLE_S", 0.01)


class Counter:
    """A client that knows a device's counters, which grow by so many bits in each second of the node's clock.

    The device counts `joined` frames of 1514 bytes as one packet.
    """

    def __init__(self, rate_bps, step_ns=600 * MS, text=None, joined=1):
        self.rate_bps, self.step_ns, self.text, self.now_ns = rate_bps, step_ns, text, 10**18
        self.joined = joined

    def read(self, paths, _deadline):
        assert paths == [f"/sys/class/net/eth0/statistics/rx_{what}" for what in ("bytes", "packets")]
        self.now_ns += self.step_ns
        counted = told(self.grown((self.now_ns - 10**18) / 1e9), self.joined)
        texts = dict.fromkeys(paths) if self.text == "gone" else dict(zip(paths, counted, strict=True))
        return SimpleNamespace(wall_ns=self.now_ns, texts=texts)

    def grown(self, seconds):
        return seconds * self.rate_bps / 8


def told(size, joined=1):
    """Bytes and packets that a device counts of so many bytes on the wire."""
    packets = int(size / 1514 / joined)
    return str(packets * (66 + joined * 1448)), str(packets)


@pytest.fixture
def session_of(tmp_path):
    def make(run, clients=None):
        watch = Watch(EventLog(tmp_path / "events.jsonl"))
        for launch in run.launches():
            watch.add(launch)
        session = Session(
            SimpleNamespace(topology=run.topology),
            run="r",
            events=EventLog(tmp_path / "session.jsonl"),
            watch=watch,
            interrupts=Interrupts(),
        )
        session.clients.update(clients or {})
        return session

    return make


def log(session, run, number, start_ns, end_ns, *, job=0, ranks=slice(None)):
    text = f'{{"iteration": {number}, "start_ns": {start_ns}, "end_ns": {end_ns}}}'
    for rank in run.jobs[job].launches[ranks]:
        session.watch.inbox.put(LineRead(rank.node, rank.name, text, 1))


def measurement(run, session, window=0, **instants):
    events = WindowEvents([], None, run.windows[window].name)
    return Measurement(
        run, run.windows[window], session, Progress(io.StringIO()), events, **{"since_ns": 0, **instants}
    )


def test_one_job_gets_exactly_what_was_asked(session_of):
    run = planned("{warmup: 5, iterations: 10}")
    session = session_of(run)
    for number in range(40):
        log(session, run, number, number * 100 * MS, (number + 1) * 100 * MS)
    measured = measurement(run, session)
    measured.warm_up()
    window = measured.measure()
    assert window.iterations == {"training": (5, 14)}
    assert (window.name, window.start_ns, window.end_ns) == ("w1", 500 * MS, 1500 * MS)


def test_a_window_ends_as_soon_as_it_is_lost_and_says_why(session_of, monkeypatch):
    monkeypatch.setattr(measuring, "JUDGE_EVERY_S", 0.0)
    run = planned("{warmup: 0, iterations: 40}")
    session = session_of(run)
    asked = []

    def lost(window):
        asked.append(window)
        log(session, run, len(asked) + 3, (len(asked) + 3) * 100 * MS, (len(asked) + 4) * 100 * MS)
        return "half of the load is missing" if window.measured.get("training", 0) >= 10 else ""

    for number in range(4):
        log(session, run, number, number * 100 * MS, (number + 1) * 100 * MS)
    window = measurement(run, session, lost=lost).measure()
    first, last = window.iterations["training"]
    assert (first, window.lost) == (0, "half of the load is missing")
    assert 9 <= last < 39
    assert asked[-1].share == pytest.approx(asked[-1].measured["training"] / 40)
    assert set(asked[-1].seconds["training"]) == {0.1}


def test_the_mean_of_a_load_is_over_all_that_was_counted(session_of):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    counter = Counter(50e6, step_ns=1000 * MS)
    receivers = Receivers(session_of(run, {"h3": counter}), [d for s in run.windows[0].sources for d in s.demands])
    receivers.sample()
    assert receivers.means() == {"h3": None}
    for _ in range(10):
        receivers.sample()
    assert receivers.means()["h3"] == pytest.approx(50e6, rel=0.01)


def test_warm_up_chosen_from_the_data_makes_a_bound_more_and_says_where_it_may_begin(session_of):
    run = planned("{warmup_most: 8, iterations: 10}")
    session = session_of(run)
    for number in range(40):
        log(session, run, number, number * 100 * MS, (number + 1) * 100 * MS)
    measured = measurement(run, session, since_ns=1, steady_ns=250 * MS)
    measured.warm_up()
    window = measured.measure()
    assert window.iterations == {"training": (9, 18)}
    assert window.earliest == {"training": 3}


def test_warm_up_waits_for_its_last_iteration(session_of):
    run = planned("{warmup: 3, iterations: 1}")
    session = session_of(run)
    measured = measurement(run, session)
    thread = threading.Thread(target=measured.warm_up)
    thread.start()
    for number in range(2):
        log(session, run, number, number, number + 1)
    thread.join(0.1)
    assert thread.is_alive()
    log(session, run, 2, 2, 3)
    thread.join(60)
    assert not thread.is_alive()


def test_no_warm_up_counts_from_the_first(session_of):
    run = planned("{warmup: 0, iterations: 2}")
    session = session_of(run)
    for number in range(3):
        log(session, run, number, number * MS, (number + 1) * MS)
    measured = measurement(run, session)
    measured.warm_up()
    assert measured.measure().iterations == {"training": (0, 1)}


@pytest.mark.parametrize(("warmup", "first"), [(0, 16), (1, 17), (4, 20)])
def test_an_iteration_under_way_when_the_traffic_changes_is_of_neither_traffic(session_of, warmup, first):
    run = planned(f"{{warmup: {warmup}, iterations: 3}}")
    session = session_of(run)
    for number in range(15):
        log(session, run, number, number * MS, (number + 1) * MS)
    session.watch.take(time.monotonic())
    measured = measurement(run, session, since_ns=15 * MS + 1)
    for number in range(15, 30):
        log(session, run, number, number * MS, (number + 1) * MS)
    measured.warm_up()
    assert measured.measure().iterations == {"training": (first, first + 2)}


@pytest.mark.parametrize(("steady_ms", "first"), [(15, 17), (17, 17), (20, 20), (20.5, 21)])
def test_what_began_before_the_traffic_stood_is_warm_up_at_best(session_of, steady_ms, first):
    run = planned("{warmup: 2, iterations: 3}")
    session = session_of(run)
    for number in range(15, 30):
        log(session, run, number, number * MS, (number + 1) * MS)
    measured = measurement(run, session, since_ns=15 * MS, steady_ns=int(steady_ms * MS))
    measured.warm_up()
    assert measured.measure().iterations == {"training": (first, first + 2)}


def test_a_rank_that_is_a_little_behind_is_waited_for(session_of):
    run = planned("{warmup: 0, iterations: 2, stall_timeout: 5s}")
    session = session_of(run)
    for number in range(3):
        log(session, run, number, number * MS, (number + 1) * MS, ranks=slice(1))
    measured = measurement(run, session)
    window = []
    thread = threading.Thread(target=lambda: window.append(measured.measure()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    for number in range(2):
        log(session, run, number, number * MS, (number + 1) * MS, ranks=slice(1, None))
    thread.join(60)
    assert not thread.is_alive()
    assert window[0].iterations == {"training": (0, 1)}


def test_jobs_are_measured_over_the_same_time(session_of):
    run = planned("{warmup: 1, iterations: 5}", jobs=True)
    session = session_of(run)
    for number in range(40):  # a: 10 ms each
        log(session, run, number, number * 10 * MS, (number + 1) * 10 * MS)
    for number in range(7):  # b: 30 ms each, begun 5 ms later
        log(session, run, number, (5 + number * 30) * MS, (5 + (number + 1) * 30) * MS, job=1)
    measured = measurement(run, session)
    measured.warm_up()
    window = measured.measure()
    assert (window.start_ns, window.end_ns) == (35 * MS, 185 * MS)  # b's iterations 1 to 5
    assert window.iterations == {"a": (4, 17), "b": (1, 5)}


def test_it_ends_by_time_with_what_has_ended_by_then(session_of):
    run = planned("{warmup: 0, at_most: 100ms}")
    session = session_of(run)
    began = time.monotonic()
    for number in range(4):
        log(session, run, number, number * MS, (number + 1) * MS)
    window = measurement(run, session).measure()
    assert time.monotonic() - began >= 0.1
    assert window.iterations == {"training": (0, 3)}
    assert (window.start_ns, window.end_ns) == (0, 4 * MS)


def test_whichever_end_comes_first(session_of):
    run = planned("{warmup: 0, iterations: 2, at_most: 600s}")
    session = session_of(run)
    for number in range(4):
        log(session, run, number, number * MS, (number + 1) * MS)
    began = time.monotonic()
    assert measurement(run, session).measure().iterations == {"training": (0, 1)}
    assert time.monotonic() - began < 600


@pytest.mark.parametrize("jobs", [False, True])
def test_a_window_in_which_nothing_ended_is_empty(session_of, jobs):
    run = planned("{warmup: 0, at_most: 50ms}", jobs=jobs)
    session = session_of(run)
    if jobs:  # the other one does not count without it
        log(session, run, 0, 0, MS)
    window = measurement(run, session).measure()
    assert window.iterations == {}
    assert window.start_ns == window.end_ns


@pytest.mark.parametrize("phase", ["warm_up", "measure"])
def test_a_training_that_stands_still_is_given_up(session_of, phase):
    run = planned("{iterations: 5, stall_timeout: 50ms}", jobs=True)
    session = session_of(run)
    for number in range(3):
        log(session, run, number, number, number + 1)
    with pytest.raises(DeadlineExceeded, match=r"no iteration of job [ab] has ended for 50ms \(the last was"):
        getattr(measurement(run, session), phase)()


def test_a_rest_before_a_window_is_no_stall(session_of):
    run = planned("{warmup: 1, iterations: 1, stall_timeout: 300ms}")
    session = session_of(run)
    measured = measurement(run, session)
    session.watch.jobs["training"].heard -= 1000
    for number in range(2):
        log(session, run, number, number, number + 1)
    measured.warm_up()
    session.watch.jobs["training"].heard -= 1000
    assert measured.measure().iterations == {"training": (1, 1)}


TRAFFIC = "traffic:\n  - iperf: {from: h1, to: h3, load: 200mbit}\n  - iperf: {from: h2, to: h3, load: 300mbit}\n"


@pytest.mark.parametrize("share", [0.96, 1.0, 1.04])
def test_preflight_is_content_when_every_receiver_gets_what_is_asked(session_of, share):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    session = session_of(run, {"h3": Counter(50e6 * share)})  # scale 10, both sources together
    landing = preflight(run, run.windows[0], session)
    assert landing.short == frozenset()
    assert landing.rates == {"h3": pytest.approx(50e6 * share, rel=1e-3)}


@pytest.mark.parametrize("joined", [2, 44])
def test_preflight_counts_the_frames_that_a_device_counts_joined(session_of, joined):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    session = session_of(run, {"h3": Counter(50e6, joined=joined)})
    assert preflight(run, run.windows[0], session).rates == {"h3": pytest.approx(50e6, rel=0.01)}


def test_receivers_are_asked_at_once(session_of):
    run = planned("{iterations: 5}", traffic=TRAFFIC + "  - iperf: {from: h1, to: h2, load: 500mbit}\n")
    together = threading.Barrier(2)

    class Slow(Counter):
        def read(self, paths, deadline):
            together.wait(60)
            return super().read(paths, deadline)

    landing = preflight(run, run.windows[0], session_of(run, {"h2": Slow(50e6), "h3": Slow(50e6)}))
    assert landing.rates.keys() == {"h2", "h3"}


class Within:
    """A deadline on a counter's clock."""

    def __init__(self, counter, seconds):
        self.counter, self.ends_ns = counter, counter.now_ns + seconds * 1e9

    @property
    def expired(self):
        return self.counter.now_ns >= self.ends_ns


def told_by(counter, monkeypatch):
    """The counter, whose clock the waiting goes by, too."""
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: counter.now_ns / 1e9 - 1e9))
    monkeypatch.setattr(measuring, "Deadline", SimpleNamespace(after=lambda seconds: Within(counter, seconds)))
    return counter


@pytest.mark.parametrize("share", [0.0, 0.5, 1.2])
def test_preflight_tells_by_how_much_the_load_is_missed(session_of, share, monkeypatch):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    session = session_of(run, {"h3": told_by(Counter(50e6 * share), monkeypatch)})
    got = {0.0: "0bit", 0.5: "250mbit", 1.2: "600mbit"}[share]
    with pytest.raises(OrchError, match=f"preflight of window w1: .* h3 receives {got} of 500mbit") as caught:
        preflight(run, run.windows[0], session)
    assert "as-achieved" in str(caught.value.hint)


def test_preflight_takes_the_load_as_achieved_where_that_is_said(session_of, monkeypatch):
    run = planned("{iterations: 5}", traffic=TRAFFIC, more="validity: {load: as-achieved}\n")
    session = session_of(run, {"h3": told_by(Counter(7e6, step_ns=100 * MS), monkeypatch)})
    assert preflight(run, run.windows[0], session).rates == {"h3": pytest.approx(7e6, rel=1e-2)}


def test_preflight_gives_up_at_once_on_a_load_that_stands_short_when_it_can_be_raised(session_of, monkeypatch):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    session = session_of(run, {"h3": told_by(Counter(30e6, step_ns=100 * MS), monkeypatch)})
    landing = preflight(run, run.windows[0], session, escalatable={"h3"})
    assert landing.short == {"h3"}
    assert landing.text(10) == "h3 receives 300mbit of 500mbit"


def test_a_load_that_still_grows_is_not_raised_yet(session_of, monkeypatch):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    counter = told_by(Counter(0.0, step_ns=100 * MS), monkeypatch)
    session = session_of(run, {"h3": counter})
    # Six seconds of the node's clock to get there.
    counter.grown = lambda seconds: (seconds**2 / 12 if seconds < 6 else seconds - 3) * 50e6 / 8
    assert preflight(run, run.windows[0], session, escalatable={"h3"}).short == frozenset()


def test_preflight_judges_the_last_second_not_what_was_before(session_of):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    counter = Counter(0.0)
    session = session_of(run, {"h3": counter})
    counter.grown = lambda seconds: max(0.0, seconds - 3) * 50e6 / 8  # nothing at first, then what is asked
    assert preflight(run, run.windows[0], session).rates == {"h3": pytest.approx(50e6, rel=1e-3)}


def test_a_counter_that_cannot_be_read_is_said(session_of):
    run = planned("{iterations: 5}", traffic=TRAFFIC)
    with pytest.raises(OrchError, match="h3: /sys/class/net/eth0/statistics cannot be read"):
        preflight(run, run.windows[0], session_of(run, {"h3": Counter(1, text="gone")}))


def test_what_fails_while_the_load_is_watched_comes_through(session_of):
    run = planned("{iterations: 5}", traffic=TRAFFIC)

    class Broken(Counter):
        def read(self, _paths, _deadline):
            raise AgentError("refused", node="h3")

    with pytest.raises(AgentError):
        preflight(run, run.windows[0], session_of(run, {"h3": Broken(0.0)}))


def test_progress_is_told_of_the_slowest_job_and_the_load(session_of):
    run = planned("{warmup: 0, iterations: 4}", jobs=True, traffic=TRAFFIC)
    session = session_of(run, {"h3": Counter(50e6, step_ns=2000 * MS)})
    said = io.StringIO()
    events = WindowEvents([], None, run.windows[0].name)
    measured = Measurement(run, run.windows[0], session, Progress(said), events, since_ns=0)
    session.watch.take(time.monotonic())
    for number in range(4):
        log(session, run, number, number * MS, (number + 1) * MS)
        if number < 2:
            log(session, run, number, number * MS, (number + 2) * MS, job=1)

    def finish():
        time.sleep(0.1)
        for number in (2, 3):
            log(session, run, number, number * MS, (number + 2) * MS, job=1)

    threading.Thread(target=finish).start()
    measured.measure()
    assert "iteration 2/4, 2 ms each" in said.getvalue()
