from __future__ import annotations

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.parts.topology import Node, Rail
from orchestrator.report.run import run_tables, schedules
from orchestrator.report.run.report_page import render
from orchestrator.report.runs import load
from tests.helpers import manifests
from tests.helpers.sealed_run import loose, make_run

FEW = ("counters", "sockets")  # drawing is most of the time


class Balanced(HTMLParser):
    VOID = frozenset({"meta", "br", "link", "img", "hr", "input", "path", "use", "rect"})

    def __init__(self):
        super().__init__()
        self.open, self.loaded = [], []

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in {"src", "data"} or (tag == "link" and name == "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def page(output):
    text = output.read_text()
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert parser.loaded == []
    assert "url(http" not in text
    assert "@import" not in text
    return text


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = make_run(folder, tolerances=loose(), change=lambda made: made["windows"][0].update(earliest={"training": 0}))
    output = render([run], folder / "report.html")
    return run, output, page(output)


def test_the_page_stands_alone_and_its_figures_lie_beside_it(good):
    _, output, text = good
    figures = output.with_name("report-figures")
    names = {"iterations", "cdf", "loads", "bytes", "throughput", "queue", "tcp"}
    drawn = {f"{name}.{kind}" for name in names for kind in ("svg", "pdf", "csv")}
    assert {path.name for path in figures.iterdir()} == drawn | {"timeline.json.gz"}
    assert text.count("<svg") == len(names)
    assert (figures / "cdf.pdf").read_bytes().startswith(b"%PDF")
    for name in names:
        assert "var(--" not in (figures / f"{name}.svg").read_text()


def test_ids_in_the_page_are_not_used_twice_for_different_things(good):
    _, _, text = good
    paths = re.findall(r'<clipPath id="([^"]+)">\s*(<rect[^>]+>)', text)
    assert len(dict(paths)) == len(set(paths))


def test_a_valid_run_shows_its_numbers_multiplied_back(good):
    _, _, text = good
    assert '<section class="verdict valid">' in text
    assert "INVALID" not in text
    assert re.search(r"15 Gbit/s of 15 Gbit/s", text)
    assert re.search(r"<small>5 left out as warm-up</small>", text)
    assert re.search(r"<td class=\"n\">[+-]\d+\.\d%<small>[+-]\d+\.\d% to [+-]\d+\.\d%</small></td>", text)  # drift
    assert re.search(r"raw 150 Mbit/s", text)
    assert "theory 195 MB" in text
    assert "Scale model, 1:100" in text
    assert "compute was emulated" in text
    assert "unknown" in text


def test_provenance_says_what_was_in_force(good):
    _, _, text = good
    for part in (
        "6.1.0-18-amd64",
        "cubic",
        "tso off, gso off, gro on",
        "8e56fa4",
        "playbooks/resnet load.yaml",
        "+1 ± 80 µs",
        "torch 2.13.0",
        "ring all-reduce",
    ):
        assert part in text, part


def test_an_invalid_run_is_loud_and_says_why(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), achieved=0.8, dropped=5000, iterations=40, skip=FEW)
    text = page(render([run], tmp_path / "r.html"))
    assert "INVALID: do not use these numbers" in text
    assert "12gbit of 15gbit arrived (-20.0%)" in text
    assert "dropped 5000 of" in text
    assert "this is the maximum" in text
    assert "<details open><summary>Validity gates, " in text


def test_several_runs_are_told_apart(tmp_path):
    runs = [make_run(tmp_path, tolerances=loose(), repetition=n, iterations=30, skip=FEW) for n in (1, 2)]
    text = page(render(runs, tmp_path / "r.html"))
    assert "resnet-load #1" in text
    assert "resnet-load #2" in text
    drawn = {path.stem for path in (tmp_path / "r-figures").iterdir()}
    assert drawn == {"iterations", "cdf", "loads", "bytes"}, "of traffic and hosts a run's own report has figures"


def test_runs_of_one_name_are_told_apart_by_when_they_began_and_then_by_their_id(tmp_path):
    paths = []
    for number, began in enumerate([10**18, 10**18 + 10**11, 10**18 + 10**11]):
        about = {"run": f"id{number}", "experiment": "x", "repetition": 1, "outcome": "lost", "began_ns": began}
        paths.append(manifests.left(tmp_path / str(number), **about))
    assert [run.name for run in load(paths)] == [
        "x #1, 09-09 01:46:40",
        "x #1, 09-09 01:48:20, id1",
        "x #1, 09-09 01:48:20, id2",
    ]


def test_without_scale_nothing_is_said_of_it(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), scale=1, iterations=30, skip=FEW)
    text = page(render([run], tmp_path / "r.html"))
    assert "Scale model" not in text
    assert "raw" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL).replace("draw", "")


@pytest.mark.parametrize("skip", [("packets",), ("iterations", "packets", "counters", "sockets")])
def test_what_was_not_collected_is_not_drawn(tmp_path, skip):
    run = make_run(tmp_path, tolerances=loose(), skip=skip, iterations=30)
    page(render([run], tmp_path / "r.html"))


def test_a_run_that_failed_early_has_a_report(tmp_path):
    run = manifests.left(
        tmp_path / "x",
        run="x",
        experiment="<script>alert(1)",
        outcome="failed",
        stage="preflight",
        error="h1: no tcpdump & more",
    )
    text = page(render([run], tmp_path / "r.html"))
    assert "FAILED" in text
    assert "at stage preflight: h1: no tcpdump &amp; more" in text
    assert "<script>" not in text
    assert "No window was measured" in text


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(StoreError, match="at least one run"):
        render([], tmp_path / "r.html")
    with pytest.raises(StoreError, match=r"manifest\.json: cannot be read"):
        render([tmp_path], tmp_path / "r.html")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(StoreError, match=r"manifest\.json: expected `object`"):
        render([tmp_path], tmp_path / "r.html")


def test_the_page_is_the_same_each_time_but_for_when_it_was_made(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), iterations=30, skip=("packets", *FEW))
    first, second = (render([run], tmp_path / folder / "r.html").read_text() for folder in ("a", "b"))
    stamp = r"report made [^<]+"
    assert re.sub(stamp, "", first) == re.sub(stamp, "", second)


def host(address: str) -> Node:
    return Node(name="h1", rails=(Rail(device="eth0", address=address),))


def test_the_congestion_control_is_that_of_the_route():
    connected = {"dst": "10.0.0.0/24", "dev": "eth0", "prefsrc": "10.0.0.1", "metrics": [{"congestion": "cubic"}]}
    other = {"dst": "10.1.0.0/24", "dev": "eth1", "prefsrc": "10.1.0.1", "metrics": [{"congestion": "reno"}]}
    facts = {"/proc/sys/net/ipv4/tcp_congestion_control": "bbr", "routes": [other, connected]}
    assert run_tables._congestion(facts, host("10.0.0.1")) == "cubic"
    assert run_tables._congestion(facts, host("10.9.0.1")) == "bbr"
    of_ipv6 = {"dst": "fd00::/64", "dev": "eth0", "metrics": [{"congestion": "reno"}]}
    six = Node(name="h1", rails=(Rail(device="eth0", address="fd00::1", prefix=64),))
    assert run_tables._congestion({**facts, "routes6": [of_ipv6]}, six) == "reno"
    assert run_tables._congestion({**facts, "routes": "not JSON"}, host("10.0.0.1")) == "bbr"
    assert run_tables._congestion({}, host("10.0.0.1")) == ""


def test_what_generated_traffic_was_drawn_from_is_told():
    common = {
        "source": "websearch0",
        "window_name": "w1",
        "dst": "h1",
        "zero_ns": 0,
        "load_bps": 1e7,
        "flow_bytes": 272,
    }
    rows = [
        {
            **common,
            "arrivals": "compound-poisson",
            "largest_bytes": 300_000,
            "burst_width_s": None,
            "burst_period_s": None,
            "burst_height": None,
        },
        {
            **common,
            "dst": "h2",
            "arrivals": "poisson",
            "largest_bytes": 67_900,
            "burst_width_s": 0.001,
            "burst_period_s": 0.01,
            "burst_height": 3.0,
        },
    ]
    run = SimpleNamespace(scale=100, rows=lambda name: rows if name == "schedules" else [])
    plain, burst = schedules.generator_lines(run)
    assert "compound Poisson process" in plain
    assert plain.endswith("flows of at most 30 MB")
    assert "bursts of 3 times the mean, 1ms every 10ms, whose periods hold no larger flows" in burst
    assert burst.endswith("flows of at most 6.79 MB")
    assert schedules.generator_lines(SimpleNamespace(scale=1, rows=lambda _: [])) == []
