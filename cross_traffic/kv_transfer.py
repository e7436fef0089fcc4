"""KV transfers of disaggregated serving: requests come at random, and each one's cache goes from prefill to decode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from cross_traffic import distributions, drawn_schedules, flow_launches, flow_records, periodic
from cross_traffic.agents import flow_drawing
from cross_traffic.agents.flow_drawing import Arrivals, StreamSpec
from cross_traffic.distributions import Distribution
from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Model
from orchestrator.core.units import size_text, span_text
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "kv-transfer"
LONGEST_SEEN_S = 10.0  # over which a mean is looked at before ranks begin

# Bytes of keys and values of a token in 16 bits: two times layers x heads x size of a head; of DeepSeek-V3 layers x
# (latent 512 + rotary 64). Llama 3 (arXiv 2407.21783, table 3); DeepSeek-V3's and others' in arXiv 2505.09343, table 1.
MODELS: Mapping[str, int] = {
    "llama-3.1-8b": 2 * 32 * 8 * 128 * 2,
    "llama-3.1-70b": 2 * 80 * 8 * 128 * 2,
    "llama-3.1-405b": 2 * 126 * 8 * 128 * 2,
    "deepseek-v3": 61 * (512 + 64) * 2,
}


class Attention(Model):
    """A model's attention: what it keeps of each token is 2 x layers x kv_heads x head x bytes."""

    layers: int = Field(ge=1, le=10_000)
    """Layers that keep keys and values."""
    kv_heads: int = Field(ge=1, le=10_000)
    """Heads of keys and values of a layer."""
    head: int = Field(ge=1, le=100_000)
    """Numbers of a head."""
    bytes: int = Field(default=2, ge=1, le=8)
    """Bytes of each number."""


def _contexts(named: str, info: ValidationInfo) -> str:
    return drawn_schedules.named_distribution(named, info, folder=distributions.CONTEXTS)


class Config(flow_launches.SendingConfig):
    """Caches of requests from prefill hosts to decode hosts, one flow a request."""

    src: periodic.Hosts = Field(alias="from")
    """Prefill host, or a list of them; each gets as many requests as any other, at random."""
    to: periodic.Hosts
    """Decode host, or a list of them, likewise."""
    requests: float = Field(gt=0, le=1e6)
    """Requests a second of all prefill hosts together, on average."""
    model: Literal["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "deepseek-v3"] | Attention = "llama-3.1-70b"
    """Model that is served, or its attention: {layers, kv_heads, head, bytes}."""
    contexts: Annotated[str, AfterValidator(_contexts)] = "azure-code"
    """Lengths of prompts: "azure-code", "azure-conversation", or the path of a file of lines tokens,cdf, looked up
    beside the file that names it, then from the current folder."""
    arrivals: Arrivals = "poisson"
    """Exponential gaps between requests, drawn until a few seconds have as many bytes as the mean; "compound-poisson"
    takes every request as drawn, so that the load varies as that of a service does; "poisson-gaps": nearly regular."""


def bytes_per_token(config: Config) -> int:
    """Return the bytes of keys and values of one token."""
    if isinstance(config.model, str):
        return MODELS[config.model]
    return 2 * config.model.layers * config.model.kv_heads * config.model.head * config.model.bytes


def sizes(config: Config) -> Distribution:
    """Return the distribution of a request's bytes; ConfigError where its file is none."""
    tokens = distributions.find(config.contexts, folder=distributions.CONTEXTS)
    each = bytes_per_token(config)
    points = tuple((size * each, share) for size, share in tokens.points)
    return Distribution(name=tokens.name, source=tokens.source, points=points)


def _pairs(config: Config) -> Iterator[tuple[str, str]]:
    """Yield each prefill host with each decode host: parts of a Poisson process are Poisson processes themselves."""
    for src in periodic.listed(config.src):
        for dst in periodic.listed(config.to):
            yield src, dst


def _spec(config: Config, distribution: Distribution, topology: Topology | None, *, seed: str, sink: int) -> StreamSpec:
    """Return the schedule of one pair of hosts; without a topology at full size, in packets of 1500 bytes."""
    scale, dilation = (topology.scale, topology.dilation) if topology else (1, 1)
    mtu, ip = (topology.mtu, topology.ip) if topology else (periodic.MTU, 4)
    pool = config.connections == "pool"
    overhead = (flow_drawing.SEGMENT_HEADER_BYTES if pool else flow_drawing.FLOW_WIRE_BYTES)[ip]
    drawn = flow_drawing.Sizes(distribution.points, 1 / scale)
    each = config.requests / len(list(_pairs(config))) / dilation
    return drawn_schedules.stream_spec(
        distribution,
        load_bps=each * drawn.mean_wire(flow_drawing.Framing(mtu, ip, overhead)) * 8,
        mtu=mtu,
        ip=ip,
        seed=seed,
        factor=1 / scale,
        arrivals=config.arrivals,
        pool=pool,
        sink=sink,
        dilation=dilation,
    )


def problems(config: Config, topology: Topology) -> list[Problem]:
    senders, receivers = periodic.listed(config.src), periodic.listed(config.to)
    found = flow_launches.host_problems("from", senders, topology)
    found += flow_launches.host_problems("to", receivers, topology)
    both = sorted(set(senders) & set(receivers))
    if both and not found:
        found.append(Problem(at=("to",), message=f"sends from {both[0]!r} to itself", accepted="other hosts"))
    if found:
        return found
    try:
        asked = demands(config)
    except ConfigError as error:
        return [Problem(at=("contexts",), message=error.message, accepted=error.hint or "a file of lines tokens,cdf")]
    return periodic.overloads(
        asked, topology, at="requests", accepted=lambda share: f"at most {config.requests * share * 0.995:.3g}"
    )


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    return flow_launches.requirements(config, periodic.listed(config.src), needed_by=NAME)


def demands(config: Config) -> list[Demand]:
    spec = _spec(config, sizes(config), None, seed="", sink=0)
    over_s = min(_block_s(config, spec), LONGEST_SEEN_S)
    pairs = list(_pairs(config))
    # Gaps are exponential: of so many only one in a thousand windows of ten minutes has a longer one.
    each = config.requests / len(pairs)
    pause_s = math.log(max(math.e, 1000 * 600 * each)) / each
    return [
        Demand(src=src, dst=dst, rate=spec["load_bps"], over_s=over_s, pause_s=pause_s, rail=config.rail)
        for src, dst in pairs
    ]


def _block_s(config: Config, spec: StreamSpec) -> float:
    """Return over how long requests between two hosts carry the mean load."""
    blocks = drawn_schedules.COMPOUND_BLOCKS if config.arrivals == "compound-poisson" else 1
    return flow_drawing.process(spec).block_s * blocks


def remarks(config: Config, topology: Topology) -> list[str]:  # noqa: ARG001 - the same on every testbed
    """Describe the requests: bytes of a token and of a mean request, and over how long their load is the mean."""
    distribution = sizes(config)
    each = size_text(bytes_per_token(config))
    mean = size_text(float(f"{flow_drawing.Sizes(distribution.points).mean():.3g}"))
    over_s = _block_s(config, _spec(config, distribution, None, seed="", sink=0))
    return [
        f"{config.requests:g} requests a second, {each} a token, {mean} a request "
        f"on average; between two hosts {span_text(over_s)} carry about the mean load"
    ]


def escalate(config: Config) -> Escalation | None:  # noqa: ARG001 - it opens a connection a flow from the first
    return None


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return launches of sinks, then of senders, which draw endless schedules by themselves."""
    distribution, receivers = sizes(config), periodic.listed(config.to)
    specs: dict[str, list[StreamSpec]] = {}
    for number, (src, dst) in enumerate(_pairs(config)):
        spec = _spec(config, distribution, topology, seed=f"{source.seed}/{number}", sink=receivers.index(dst))
        specs.setdefault(src, []).append(spec)
    senders = [
        flow_launches.Sender(host=host, sinks=receivers, rate=sum(one["load_bps"] for one in mine), streams=tuple(mine))
        for host, mine in specs.items()
    ]
    each = sum(sender.rate for sender in senders) / len(receivers)
    return flow_launches.launches(config, source, topology, senders=senders, receiving=dict.fromkeys(receivers, each))


def sent(config: Config, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the flows that the launches will send."""
    return flow_launches.sent(launches(config, source, topology), source, topology, rail=config.rail)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a request, and of the schedule; from the sinks rows of `counters`."""
    return flow_records.read(output)
