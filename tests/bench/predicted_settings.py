"""Settings that predictions are held against, as data: runs of short windows, each of which is a setting.

Nothing is fitted to any of them. What predictions know comes from `fitted_to`: benchmarks of messages, and of each
training a run alone on other links. Conditions and loads are those that trainings share a network with; of each kind
there are light and heavy ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.commands import ROOT

LINK, OTHER_LINK = "25gbit", "32gbit"
SCALE = 400  # four hosts that fill links of 25 Gbit/s at scale 100 keep both cores busy, and wait for them
PAPERS_SCALE = 100
WARMUP, ITERATIONS = 3, 22
FOUR = ["h1", "h2", "h3", "h4"]
PAIRED = [f"h{1 + rank // 2}" for rank in range(8)]  # eight ranks on four hosts
CROSSED = ["h1", "h2", "h1", "h2", "h3", "h4", "h3", "h4"]
RECORDED = str(ROOT / "playbooks" / "recordings" / "resnet50-ddp")

Window = tuple[str, list[dict[str, Any]]]  # its name and its traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An experiment whose windows are settings of a kind; `ranked` are settings whose order is predicted, too."""

    kind: str
    data: Mapping[str, Any]
    ranked: bool = False

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def windows(self) -> list[str]:
        """The names of its windows, in order."""
        return [window["name"] for window in self.data["windows"]]


def iperf(load: str, *, source: str = "h1", to: str = "h5", streams: int = 4) -> list[dict[str, Any]]:
    """Return iperf's flows of a load, such as 8gbit."""
    return [{"iperf": {"from": source, "to": to, "load": load, "streams": streams}}]


def web_search(load: str, *, source: str = "h5", to: str = "h1", **more: Any) -> list[dict[str, Any]]:
    """Return web-search flows of a load."""
    return [{"websearch": {"from": source, "to": to, "load": load, **more}}]


ALONE: Window = ("alone", [])
THREE: tuple[Window, ...] = (ALONE, ("iperf", iperf("8gbit")), ("websearch", web_search("8gbit")))


def experiment(
    name: str,
    trained: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    windows: Sequence[Window] = (ALONE,),
    *,
    testbed: Mapping[str, Any] | None = None,
    conditions: Sequence[Mapping[str, Any]] = (),
    **measured: Any,
) -> dict[str, Any]:
    """Return an experiment on five hosts: a workload, or several jobs, in these windows; `testbed` has other keys."""
    local = {"hosts": 5, "link": LINK, "scale": SCALE, **(testbed or {})}
    jobs: dict[str, Any] = {"workload": dict(trained)} if isinstance(trained, Mapping) else {"jobs": list(trained)}
    return {
        "name": name,
        "testbed": {"local": {key: value for key, value in local.items() if value is not None}},
        "conditions": [{"congestion-control": "cubic"}, *map(dict, conditions)],
        **jobs,
        "windows": [{"name": window, "traffic": traffic} for window, traffic in windows],
        "collect": ["nic"],
        "measure": {"warmup": WARMUP, "iterations": ITERATIONS, "at_most": "60s", **measured},
        "validity": {"processor": "ignore", "drift": "ignore", "load": "as-achieved"},
    }


def ddp(model: str = "resnet50", hosts: Sequence[str] = FOUR, **more: Any) -> dict[str, Any]:
    """Return a data-parallel training with emulated compute."""
    return {"ddp": {"model": model, "hosts": list(hosts), **more}}


def fitted_to(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    """Yield what predictions of these runs know.

    That are messages over links of three rates, within hosts and in groups, and then, before the first run that is
    predicted by it, real compute or each training alone on links of another rate than any run has.
    """
    sizes = ["100kb", "1mb", "5mb", "20mb", "80mb"]
    ring = {"collective": {"operations": ["all-reduce"], "sizes": sizes, "repeats": 3, "hosts": FOUR}}
    for link in ("5gbit", "25gbit", "100gbit"):
        yield experiment(f"ring-{link}", ring, testbed={"link": link}, iterations=6, warmup=2)
    yield experiment("ring-dilated", ring, testbed={"dilation": 5}, iterations=4, warmup=1)
    both = {"operations": ["all-reduce", "send-receive"], "sizes": sizes, "repeats": 3, "groups": 4}
    for name, hosts in (("within", PAIRED), ("across", CROSSED)):
        yield experiment(f"groups-{name}", {"collective": {**both, "hosts": hosts}}, iterations=6, warmup=2)
    known: set[str] = set()
    for run in runs:
        for model, training in REAL.items():
            if run.data.get("workload") == training and model not in known:
                known.add(model)
                yield experiment(f"computing-{model}", training, testbed=REAL_TESTBED)
        for name, workload in trainings(run.data):
            testbed = {key: run.data["testbed"]["local"].get(key) for key in ("scale", "dilation")}
            text = json.dumps([workload, testbed], sort_keys=True)
            if text not in known:
                known.add(text)
                yield experiment(f"alone-{name}", workload, testbed={**testbed, "link": OTHER_LINK})


def trainings(data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the emulated trainings of an experiment with names of their own, on the first hosts in their order."""
    for job in data.get("jobs") or [{"name": "", "workload": data["workload"]}]:
        ((kind, options),) = job["workload"].items()
        if kind != "collective" and options.get("compute") != "real":
            named = [*options["hosts"], *(servers if isinstance(servers := options.get("servers"), list) else ())]
            place = {host: f"h{number}" for number, host in enumerate(sorted(set(named), key=named.index), 1)}
            placed = {"hosts": [place[host] for host in options["hosts"]]}
            placed |= {"servers": [place[host] for host in servers]} if isinstance(servers, list) else {}
            yield "-".join(filter(None, (data["name"], job["name"]))), {kind: {**options, **placed}}


def held_out() -> Iterator[Run]:
    """Yield every run of settings that are predicted."""
    for kind in (_workloads, _loads, _sources, _network, _jobs, _fabrics, _real, _salamy):
        yield from kind()


def workloads() -> dict[str, dict[str, Any]]:
    """Return by name the trainings of all workloads that can be predicted."""
    found: dict[str, dict[str, Any]] = {
        "ddp-resnet50": ddp(),
        "ddp-vgg16": ddp("vgg16"),
        "ddp-bert-base": ddp("bert-base"),
        "ddp-densenet161-5mb": ddp("densenet161", bucket="5mb", compute_time="120ms"),
        "ddp-resnet101-100mb": ddp("resnet101", bucket="100mb", compute_time="120ms"),
        "ddp-fp16-twice": ddp("vgg16", compression="fp16", accumulate=2, compute_time="80ms"),
        "fsdp-resnet50": {"fsdp": {"model": "resnet50", "hosts": FOUR}},
        "fsdp-kept": {"fsdp": {"model": "vgg16", "reshard": False, "compute_time": "200ms", "hosts": FOUR}},
        "chakra": {"chakra": {"traces": RECORDED, "hosts": FOUR[:3]}},
    }
    for strategy in ("ring", "halving-doubling", "star", "tree", "binary-tree-star", "clique"):
        found[f"p2p-{strategy}"] = {"p2p": {"strategy": strategy, "model": "resnet50", "hosts": FOUR}}
    averaged = {"strategy": "pair-averaging", "peers": "round-robin", "model": "mobilenet_v2", "compute_time": "100ms"}
    found["p2p-pair-averaging"] = {"p2p": {**averaged, "hosts": FOUR}}
    for order in ("layer", "random", "ready"):
        served = {"strategy": "parameter-server", "servers": 2, "order": order, "model": "resnet50", "bucket": "4mb"}
        found[f"p2p-servers-{order}"] = {"p2p": {**served, "compute_time": "200ms", "hosts": FOUR}}
    split = {"model": "gpt2", "batch": 4, "microbatches": 4, "compute_time": "250ms", "hosts": PAIRED}
    for mapping in ("default", "customized"):
        found[f"ptd-{mapping}"] = {"ptd": {**split, "pipeline": 2, "tensor": 2, "data": 2, "mapping": mapping}}
    found["ptd-deep"] = {"ptd": {**split, "pipeline": 4, "tensor": 1, "data": 2}}
    found["moe"] = {"moe": {"model": "gpt2", "experts": 8, "batch": 1, "compute_time": "60ms", "hosts": PAIRED}}
    for operation in ("all-reduce", "all-to-all", "all-gather", "reduce-scatter", "broadcast"):
        found[operation] = {"collective": {"operations": [operation], "sizes": ["40mb"], "repeats": 2, "hosts": FOUR}}
    small = {"model": "mobilenet_v2", "compute_time": "100ms", "hosts": FOUR}
    found["horovod"] = {"horovod": {**small, "cycle_time": "5ms"}}
    found["kungfu"] = {"kungfu": {**small, "strategy": "BINARY_TREE_STAR"}}
    found["tensorflow-mirrored"] = {"tensorflow": {**small, "strategy": "multi-worker-mirrored"}}
    served = {**small, "strategy": "parameter-server", "servers": ["h1"], "hosts": FOUR[1:], "order": "any"}
    found["tensorflow-servers"] = {"tensorflow": served}
    for stage in (1, 3):
        found[f"deepspeed-{stage}"] = {"deepspeed": {**small, "zero_stage": stage}}
    return found


def _workloads() -> Iterator[Run]:
    """Each workload alone, beside iperf on a link that it sends by, and web search on one that it receives by."""
    for name, workload in workloads().items():
        yield Run(kind="workloads", data=experiment(name, workload, THREE))


def _loads() -> Iterator[Run]:
    """A model that mostly computes and one that mostly sends, beside iperf and web search at five loads."""
    for model in ("resnet50", "vgg16"):
        windows = [(f"load-{load}", iperf(load)) for load in ("4gbit", "8gbit", "12gbit", "16gbit", "20gbit")]
        yield Run(kind="iperf", data=experiment(f"iperf-{model}", ddp(model), windows))
        windows = [(f"load-{load}", web_search(load)) for load in ("2gbit", "6gbit", "10gbit", "14gbit", "18gbit")]
        yield Run(kind="web search", data=experiment(f"websearch-{model}", ddp(model), windows))


def _sources() -> Iterator[Run]:
    """Every other source of traffic, beside the same training."""
    two = ["h5", "h6"]
    windows: list[Window] = [
        ("bursts", web_search("8gbit", burst={"width": "1ms", "period": "10ms", "height": 3})),
        ("incast", [{"incast": {"from": ["h2", "h3", "h5", "h6"], "to": "h1", "answer": "4mib", "period": "100ms"}}]),
        ("udp", [{"udp": {"from": "h5", "to": "h1", "load": "8gbit"}}]),
        ("serving", [{"kv-transfer": {"from": ["h1"], "to": two, "requests": 10, "model": "llama-3.1-8b"}}]),
        ("weights", [{"weight-sync": {"from": "h1", "to": two, "parameters": 1.0e9, "period": "3s", "way": "chain"}}]),
        ("checkpoint", [{"checkpoint": {"from": FOUR, "to": two, "parameters": 1.0e9, "period": "3s"}}]),
        ("two", [*iperf("6gbit"), *web_search("6gbit", source="h6", to="h2")]),
    ]
    data = experiment("sources", ddp(), windows, testbed={"hosts": 6}, iterations=30)
    yield Run(kind="other sources", data=data)


def _network() -> Iterator[Run]:
    """Delays, rates of links and lengths of queues, for a model that mostly sends."""
    two = (ALONE, THREE[2])
    for time in ("200us", "1ms", "3ms", "10ms"):
        delay = [{"delay": {"host": "h1", "time": time}}]
        yield Run(kind="delays", data=experiment(f"delay-{time}", ddp("vgg16"), two, conditions=delay))
    for rate in ("8gbit", "15gbit", "40gbit"):
        quick = ddp("resnet101", compute_time="150ms")
        load = f"{int(rate.removesuffix('gbit')) // 3}gbit"
        windows = (ALONE, ("iperf", iperf(load)), ("websearch", web_search(load)))
        yield Run(kind="rates", data=experiment(f"rate-{rate}", quick, windows, testbed={"link": rate}))
    slow = [{"rate": {"host": "h2", "where": "nic", "rate": "10gbit"}}]
    yield Run(kind="rates", data=experiment("rate-of-one", ddp(), THREE, conditions=slow))
    for queue in ("1ms", "3ms", "15ms", "40ms"):
        yield Run(kind="queues", data=experiment(f"queue-{queue}", ddp("vgg16"), two, testbed={"queue": queue}))


def job(name: str, workload: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return one of several jobs."""
    return {"name": name, "workload": dict(workload), **more}


def _jobs() -> Iterator[Run]:
    """Two jobs on the same hosts, free or in turns that begin at eight offsets."""
    pairs = {
        "alike": (ddp("vgg16", compute_time="200ms"), ddp("vgg16", compute_time="220ms")),
        "unlike": (ddp("vgg16"), ddp("resnet50", compute_time="150ms")),
        "overlapping": (ddp(hosts=FOUR[:3]), ddp("resnet101", FOUR[1:], compute_time="150ms")),
    }
    for name, (one, other) in pairs.items():
        both = [job("first", one), job("second", other)]
        windows = (ALONE, ("websearch", web_search("4gbit")))
        yield Run(kind="two jobs", data=experiment(f"jobs-{name}", both, windows))
    sent = ddp("vgg16", FOUR[:2], compute_time="100ms")
    for offset_ms in range(0, 200, 25):
        both = [
            job("first", sent, every="400ms"),
            job("second", sent, every="400ms", start={"after": "first", "by": f"{offset_ms}ms"}),
        ]
        data = experiment(f"offset-{offset_ms}ms", both, iterations=16)
        yield Run(kind="offsets", data=data, ranked=True)


def _fabrics() -> Iterator[Run]:
    """Fabrics at two oversubscriptions, and eight placements of ranks on one with a single path."""
    for by in (2, 4):
        fabric = {"leaves": 2, "spines": 2, "hosts": 3, "oversubscription": by}
        windows: Sequence[Window] = (
            ALONE,
            ("iperf", iperf("4gbit", source="h3", to="h6")),
            ("websearch", web_search("4gbit", source="h6", to="h3")),
        )
        ranks = ddp(hosts=["h1", "h4", "h2", "h5"])
        testbed = {"hosts": None, "fabric": fabric}
        yield Run(kind="fabrics", data=experiment(f"fabric-{by}", ranks, windows, testbed=testbed))
    fabric = {"leaves": 2, "spines": 1, "hosts": 4, "oversubscription": 4}
    for placed in ("1234", "1235", "1256", "1526", "1567", "5678", "1637", "2348"):
        ranks = ddp("resnet101", [f"h{host}" for host in placed], compute_time="150ms")
        windows = [("websearch", web_search("3gbit", source="h4", to="h8"))]
        data = experiment(f"placed-{placed}", ranks, windows, testbed={"hosts": None, "fabric": fabric})
        yield Run(kind="placements", data=data, ranked=True)


REAL_TESTBED = {"hosts": 3, "scale": 1, "link": "250mbit"}
REAL = {
    "small_cnn": {"ddp": {"model": "small_cnn", "compute": "real", "data": "gratings", "batch": 16}},
    "mobilenet_v2": {"ddp": {"model": "mobilenet_v2", "compute": "real", "classes": 10, "batch": 4}},
}


def _real() -> Iterator[Run]:
    """Two small models that really compute, at other rates and beside traffic than in the run that tells how long."""
    for model, training in REAL.items():
        for link, load in (("100mbit", "30mbit"), ("200mbit", "80mbit")):
            windows = (ALONE, ("iperf", iperf(load, to="h2")), ("websearch", web_search(load, source="h2")))
            hosts = {**REAL_TESTBED, "link": link}
            yield Run(kind="real compute", data=experiment(f"real-{model}-{link}", training, windows, testbed=hosts))


def _salamy() -> Iterator[Run]:
    """The points of the quick study of Salamy's thesis (playbooks/papers/salamy/quick-*.yaml), each once."""
    streams = {"0gbit": 1, "8gbit": 1, "14.1gbit": 1, "16.5gbit": 2, "17.9gbit": 2, "18.4gbit": 2, "18.6gbit": 4}
    streams["20.8gbit"] = 4
    points = {
        "vgg16": ("0gbit", "8gbit", "14.1gbit", "16.5gbit", "18.6gbit"),
        "resnet50": ("0gbit", "17.9gbit", "18.4gbit", "20.8gbit"),
    }
    for model, loads in points.items():
        windows: Sequence[Window] = [
            (f"load-{load.replace('.', '-')}", iperf(load, streams=streams[load])) for load in loads
        ]
        data = experiment(f"salamy-{model}", ddp(model), windows, testbed={"scale": PAPERS_SCALE}, iterations=20)
        yield Run(kind="Salamy", data=data)
    three = ddp(hosts=FOUR[:3])
    bursts = {"width": "1ms", "period": "10ms", "height": 3}
    for name, load, dilation in (("consistent", "8gbit", 1), ("heavy", "20gbit", 5)):
        beside: dict[str, Any] = {"source": "h4", "to": "h1", "realtime": True}
        windows = (
            ALONE,
            ("websearch", web_search(load, **beside)),
            ("bursts", web_search(load, burst=bursts, **beside)),
        )
        measured = {"iterations": 25} if dilation == 1 else {"iterations": 10, "warmup": 2}
        testbed = {"hosts": 4, "scale": PAPERS_SCALE, "dilation": dilation}
        yield Run(kind="Salamy", data=experiment(f"salamy-{name}", three, windows, testbed=testbed, **measured))
