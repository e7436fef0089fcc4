"""The command `orch traffic`: generate and check cross traffic without an experiment, and fit that of trainings."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.units import duration_text, span_text

if TYPE_CHECKING:
    from cross_traffic.agents.flow_drawing import StreamSpec
    from cross_traffic.agents.flow_sender import RecordedSpec, SenderSpec
    from cross_traffic.agents.flow_sink import SinkSpec
    from cross_traffic.schedule_files import BurstShape, Tally
    from orchestrator.analysis.traffic.generative import Model, Pair
    from orchestrator.analysis.windows.generated_flows import FlowLog

PORT = 15201
PLOTTED_S = 0.1
MODEL = "model.json"
SOURCES = "traffic.yaml"
MOST_BURSTS = 12  # that are printed
MOST_MODEL_BYTES = 1 << 30


def register(group: Group) -> None:
    """Add `orch traffic`."""
    traffic = group.add(
        "traffic",
        "generate and check cross traffic without an experiment",
        example="orch traffic schedule --load 10gbit --burst 1ms,10ms,3 --plot burst",
    )
    _add_options(traffic)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `orch traffic`."""
    commands = parser.add_subparsers(dest="traffic", metavar="COMMAND", required=True)

    def command(name: str, action: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.set_defaults(action=action)
        return sub

    sub = command("schedule", _schedule, "generate a random schedule of flows, and print its load, flows and bursts")
    _shape(sub, required=True)
    sub.add_argument("--to", default="", metavar="HOST", help="name of the receiver to write into the file")
    sub.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the flows, one a line: start_s,bytes,to")
    sub.add_argument("--plot", type=Path, metavar="STEM", help="plot its first tenth of a second: STEM.svg, STEM.pdf")

    sub = command("fit", _fit, "fit a model of a training's traffic, and write files of it for the source `replay`")
    options.results_to_read(sub)
    sub.add_argument("run", metavar="RUN|MODEL", help=f"a captured run, or the {MODEL} of an earlier fit")
    sub.add_argument("--window", metavar="NAME", help="the window whose iterations are fitted (the first one)")
    sub.add_argument("--job", metavar="NAME", help="the training, where several share the network")
    sub.add_argument(
        "--from",
        dest="senders",
        action="append",
        metavar="HOST",
        help="write the file of this sender alone; may be repeated (all)",
    )
    sub.add_argument("--iterations", type=int, metavar="N", help="how many to draw (as many as were measured)")
    sub.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random numbers (1)")
    sub.add_argument("--recorded", action="store_true", help="write the iterations as they were measured, draw none")
    sub.add_argument("--json", action="store_true", help="print the parameters as a JSON object instead of text")
    sub.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help=f"a new folder for HOST.csv, {SOURCES} and {MODEL}"
    )

    sub = command("serve", _serve, "receive flows and discard them, until Ctrl-C")
    sub.add_argument("--address", required=True, help="the only address to listen on")
    _ports(sub)
    sub.add_argument(
        "--from",
        dest="senders",
        action="append",
        required=True,
        metavar="ADDRESS",
        help="a sender's address; may be repeated: the senders start together, once all of them are connected",
    )
    sub.add_argument("--log", type=Path, required=True, metavar="DIR", help="a new folder for the counts")

    sub = command("send", _send, "send a schedule to where `orch traffic serve` listens, and check what happened")
    _shape(sub, required=False)
    sub.add_argument("--schedule", type=Path, metavar="FILE", help="send the flows of this file, not random ones")
    sub.add_argument("--to", required=True, metavar="ADDRESS", help="address of the receiver")
    _ports(sub)
    sub.add_argument("--from", dest="source", default="", metavar="ADDRESS", help="address to send from")
    sub.add_argument("--log", type=Path, required=True, metavar="DIR", help="a new folder for the log")
    sub.add_argument("--workers", type=int, metavar="N", help="sending processes (default: one for each 10 Gbit/s)")
    sub.add_argument("--pool", action="store_true", help="reuse idle connections")
    sub.add_argument("--congestion", default="", metavar="NAME", help="TCP congestion control")
    sub.add_argument("--dscp", type=int, default=0, metavar="N", help="differentiated services code point (0 to 63)")
    sub.add_argument("--realtime", action="store_true", help="send with real-time priority, where that is allowed")
    sub.add_argument("--most-open", type=int, default=8000, metavar="N", help="flows that may be open at once (8000)")

    sub = command(
        "check", _check, "summarize a sender's log: requested and acknowledged load, lateness, completion times"
    )
    sub.add_argument("log", type=Path, metavar="LOG", help="the folder that `send` wrote, or a sender's in a run")


def _shape(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--load", required=required, metavar="RATE", help="layer-2 load on the wire, such as 10gbit")
    parser.add_argument("--duration", default="30s", metavar="TIME", help="how long (30s)")
    parser.add_argument("--distribution", default="websearch", metavar="NAME|FILE", help="flow sizes (websearch)")
    parser.add_argument(
        "--arrivals",
        choices=("poisson", "poisson-gaps", "compound-poisson"),
        default="poisson",
        help="when flows start (poisson)",
    )
    parser.add_argument(
        "--burst",
        metavar="WIDTH,PERIOD,HEIGHT",
        help="send in bursts: of WIDTH, one each PERIOD, at HEIGHT times the mean load, such as 1ms,10ms,3",
    )
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="divide load and flow sizes by this (1)")
    parser.add_argument("--mtu", type=int, default=1500, metavar="BYTES", help="largest IP packet (1500)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the random numbers (1)")


def _ports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=PORT, metavar="PORT", help=f"the first TCP port ({PORT})")
    parser.add_argument("--sinks", type=int, default=1, metavar="N", help="receiving processes, a port each (1)")


def _quantity(kind: str, text: str, option: str) -> float:
    """Return a rate or a duration, written as in files, in SI units."""
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.core.fields import Duration, Rate

    adapter: TypeAdapter[float] = TypeAdapter({"rate": Rate, "duration": Duration}[kind])
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise ConfigError(f"{option}: {text!r} is {error.errors()[0]['ctx']['error']}") from None


def _spec(arguments: argparse.Namespace) -> StreamSpec:
    from cross_traffic import distributions, drawn_schedules, schedule_files

    if arguments.scale < 1 or not 576 <= arguments.mtu <= 65535:
        raise ConfigError("--scale must be at least 1, --mtu between 576 and 65535")
    burst = None
    if arguments.burst:
        parts = arguments.burst.split(",")
        try:
            height = float(parts[2])
        except (IndexError, ValueError):
            raise ConfigError(f"--burst: {arguments.burst!r} is not width,period,height, such as 1ms,10ms,3") from None
        width, period = (_quantity("duration", part, "--burst") for part in parts[:2])
        burst = schedule_files.BurstShape(width_s=width, period_s=period, height=height)
    return drawn_schedules.stream_spec(
        distributions.find(arguments.distribution),
        load_bps=_quantity("rate", arguments.load, "--load") / arguments.scale,
        mtu=arguments.mtu,
        seed=arguments.seed,
        factor=1 / arguments.scale,
        arrivals=arguments.arrivals,
        burst=burst,
        duration_s=_seconds(arguments),
        pool=getattr(arguments, "pool", False),
    )


def _seconds(arguments: argparse.Namespace) -> float:
    return _quantity("duration", arguments.duration, "--duration")


def _schedule(arguments: argparse.Namespace) -> int:
    from cross_traffic import schedule_files
    from cross_traffic.agents import flow_drawing

    made = _spec(arguments)
    burst = schedule_files.BurstShape(**made["burst"]) if made["burst"] else None
    tally = schedule_files.Tally(framing=flow_drawing.framing(made), burst=burst)

    def lines() -> Iterator[schedule_files.FlowLine]:
        for at, size, _ in flow_drawing.drawn(made):
            tally.add(at / 1e9, size)
            yield schedule_files.FlowLine(start_s=at / 1e9, size=size, to=arguments.to)

    if arguments.output:
        try:
            schedule_files.write_schedule(arguments.output, lines(), comment=_headline(made))
        except OSError as error:
            raise OrchError(f"{arguments.output}: cannot be written: {error.strerror}") from None
    else:
        for _ in lines():
            pass
    print(_tally_text(tally, made, seconds=_seconds(arguments)))
    if arguments.plot:
        from orchestrator.report.run import schedules

        first = itertools.takewhile(lambda flow: flow[0] < PLOTTED_S * 1e9, flow_drawing.drawn(made))
        for path in schedules.plot([(at / 1e9, size) for at, size, _ in first], burst, arguments.plot):
            print(path)
    return 0


def _new_folder(path: Path, option: str = "--log") -> Path:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}", hint="a folder that is not there yet") from None
    return path


def _fit(arguments: argparse.Namespace) -> int:
    """Fit a model, print its parameters, and write what is drawn from it."""
    from orchestrator.analysis.traffic import generative

    if arguments.seed < 0 or (arguments.iterations is not None and arguments.iterations < 1):
        raise ConfigError("--iterations must be at least 1, --seed 0 or more")
    if arguments.recorded and arguments.iterations is not None:
        raise ConfigError("--recorded writes the iterations that were measured: --iterations has no meaning beside it")
    model = _model(arguments)
    senders = _senders(model, arguments.senders)
    if arguments.output:
        count = arguments.iterations or max(len(clock.waits) for clock in model.clocks)
        drawn = generative.recorded(model) if arguments.recorded else generative.draw(model, count, arguments.seed)
        how = "as measured" if arguments.recorded else f"{count:,} iterations, drawn with seed {arguments.seed}"
        _write_model(_new_folder(arguments.output, "--output"), model, senders, *drawn, how=how)
    print(json.dumps(generative.parameters(model)) if arguments.json else _model_text(model))
    return Exit.OK


def _model(arguments: argparse.Namespace) -> Model:
    """Return the model that a file holds, or that of a run's window."""
    from orchestrator.analysis.traffic import generative

    path = Path(arguments.run)
    if path.suffix == ".json" and path.is_file():
        if arguments.window or arguments.job:
            raise ConfigError(f"{path}: is of one window and job; --window and --job are for runs")
        try:
            if path.stat().st_size > MOST_MODEL_BYTES:
                raise ConfigError(f"{path}: no model of traffic, since it is larger than 1 GiB")
            data = json.loads(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            data = None
        return generative.from_data(data if isinstance(data, dict) else {}, at=str(path))
    from orchestrator.report.runs import Run
    from orchestrator.store import stores

    store = stores.opened(arguments.results)
    run = Run(store.brought(stores.one(store, arguments.run)))
    window = _named("--window", arguments.window, {one.name: one for one in run.windows}, run.id, several=True)
    job = _named("--job", arguments.job, {one.name: one.name for one in run.manifest.jobs}, run.id, several=False)
    if run.traffic is None:
        raise ConfigError(f"{run.id}: its packets were not captured", hint="a run with collect: [tcpdump]")
    ranks = generative.begins(run.table("iterations"), job=job, span_ns=window.span_ns)
    return generative.fit(run.traffic, ranks, run=run.id, window=window.name, job=job, scale=run.scale)


def _named(option: str, name: str | None, found: dict[str, Any], at: str, *, several: bool) -> Any:
    """Return what an option names; without it the first, or the only one."""
    accepted = ", ".join(found) or "none"
    if name is None and found and (several or len(found) == 1):
        return next(iter(found.values()))
    if name is None or name not in found:
        said = f"no {option.removeprefix('--')} {name!r}" if name is not None else f"{option} says which one is meant"
        raise ConfigError(f"{at}: {said}", hint=f"{option} with one of: {accepted}")
    return found[name]


def _senders(model: Model, wanted: Sequence[str] | None) -> list[str]:
    """Return the hosts whose files are written."""
    known = list(dict.fromkeys(sorted(pair.src for pair in model.pairs)))
    for host in wanted or ():
        if host not in known:
            raise ConfigError(f"--from: {host!r} sends nothing of this training", hint=f"one of: {', '.join(known)}")
    return [host for host in known if not wanted or host in wanted]


def _write_model(
    folder: Path, model: Model, senders: Sequence[str], chunks: Sequence[Any], length_s: float, *, how: str
) -> None:
    """Write the model, a schedule file a sender and rail, and the sources of an experiment that replay them."""
    from cross_traffic import schedule_files
    from orchestrator.analysis.traffic import generative

    of_ends: dict[Pair, list[schedule_files.FlowLine]] = {}
    files: dict[int, dict[str, list[schedule_files.FlowLine]]] = {}
    for pair in sorted(model.pairs, key=lambda one: (one.rail, one.src)):
        if pair.src in senders:
            of_ends[pair] = files.setdefault(pair.rail, {}).setdefault(pair.src, [])
    for chunk in chunks:
        if chunk.pair in of_ends:
            line = schedule_files.FlowLine(start_s=chunk.start_s, size=chunk.size, to=chunk.pair.dst)
            of_ends[chunk.pair].append(line)
    length = f"{math.ceil(length_s * 1e6)}us"
    sources = [
        f"# Traffic of {model.job} in run {model.run}, window {model.window}: {how}.",
        "# It stands below `traffic:`.",
    ]
    try:
        for rail, hosts in files.items():
            names = {
                host: f"{host}.rail{rail}.csv" if rail else f"{host}.csv" for host, lines in hosts.items() if lines
            }
            for host, name in names.items():
                comment = (
                    f"what {host} sends for {model.job} in run {model.run}, window {model.window}: {how}\n"
                    f"a model of orch traffic fit; {length_s:.6f} s, then it begins again; full size, undilated"
                )
                schedule_files.write_schedule(folder / name, hosts[host], comment=comment)
            sources += ["- replay:", "    schedules:"]
            sources += [f"      {json.dumps(host)}: {json.dumps(name)}" for host, name in names.items()]
            sources += [f"    length: {length}", "    connections: pool", *([f"    rail: {rail}"] if rail else [])]
        (folder / SOURCES).write_text("\n".join(sources) + "\n", encoding="utf-8")
        (folder / MODEL).write_text(json.dumps(generative.as_data(model)) + "\n", encoding="utf-8")
    except OSError as error:
        raise OrchError(f"{folder}: cannot be written: {error.strerror}") from None


def _model_text(model: Model) -> str:
    """Write a model's parameters for people."""
    from orchestrator.analysis.traffic import generative

    told = generative.parameters(model)
    lines = [
        f"{model.run}, window {model.window}, job {model.job}: {model.share:.1%} of its payload is fitted",
        "clock          all hosts are in step" if told["in_step"] else "clock          each host has its own",
    ]
    for clock in told["clocks"]:
        period, amount = clock["period_s"], clock["bytes"]
        first = ", ".join(f"{value:+.2f}" for value in period["autocorrelation"])
        weights = ", ".join(f"{value:+.2f}" for value in period["autoregression"]) or "none: independent draws"
        lines += [
            "",
            f"period         {span_text(period['mean'])} (deviation {span_text(period['deviation'])}; "
            f"{span_text(period['p5'])} p5, {span_text(period['p50'])} p50, {span_text(period['p95'])} p95), "
            f"of {clock['iterations']} iterations",
            f"autocorrelation {first} at 1 to 3 iterations; autoregression {weights}",
            f"bytes          {amount['mean']:,.0f} an iteration (deviation {amount['deviation']:,.0f})",
            f"slices         {clock['slices']}, of {span_text(clock['slice_s'])} where it sends: "
            f"{clock['sending']:.1%} of the time",
        ]
        bursts = sorted(clock["bursts"], key=lambda one: -one["bytes"])[:MOST_BURSTS]
        for burst in sorted(bursts, key=lambda one: one["at_s"]):
            lines.append(
                f"burst          {burst['bytes']:,.0f} bytes, {span_text(burst['at_s'])} (deviation "
                f"{span_text(burst['at_sd_s'])}) after the cut between iterations, for {span_text(burst['takes_s'])} "
                f"(deviation {span_text(burst['takes_sd_s'])})"
            )
        if len(clock["bursts"]) > MOST_BURSTS:
            lines.append(f"               and {len(clock['bursts']) - MOST_BURSTS} smaller ones")
        for pair in clock["pairs"]:
            rail = f" rail {pair['rail']}" if pair["rail"] else ""
            lines.append(
                f"pair           {pair['src']} to {pair['dst']}{rail}: {pair['bytes']:,.0f} bytes an iteration "
                f"(deviation {pair['deviation']:,.0f})"
            )
    return "\n".join(lines)


def _run(agent: str, spec: SenderSpec | SinkSpec, folder: Path) -> int:
    """Run a traffic agent in a folder until it ends or a signal comes; return its status."""
    import subprocess

    from cross_traffic import flow_launches

    (folder / "spec.json").write_bytes(flow_launches.spec_file(spec))
    argv = [sys.executable, "-I", "-S", "-B", str(flow_launches.AGENTS / agent), "spec.json"]
    process = subprocess.Popen(argv, cwd=folder, start_new_session=True)
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _serve(arguments: argparse.Namespace) -> int:
    spec: SinkSpec = {
        "address": arguments.address,
        "ports": [arguments.port + i for i in range(arguments.sinks)],
        "senders": arguments.senders,
        "starters": len(arguments.senders),
    }
    return _run("flow_sink.py", spec, _new_folder(arguments.log))


def _send(arguments: argparse.Namespace) -> int:
    from cross_traffic import flow_launches

    if (arguments.load is None) == (arguments.schedule is None):
        raise ConfigError("send takes exactly one of --load and --schedule")
    if not 0 <= arguments.dscp <= 63 or arguments.most_open < 1 or (arguments.workers or 1) < 1 or arguments.sinks < 1:
        raise ConfigError("--dscp is 0 to 63; --most-open, --workers and --sinks are at least 1")
    ports = [arguments.port + i for i in range(arguments.sinks)]
    made = _spec(arguments) if arguments.load else None
    recorded: RecordedSpec | None = None
    if arguments.schedule:
        flows = _recorded_lines(arguments.schedule)
        recorded = {"path": "flows.csv", "factor": 1 / arguments.scale, "length_s": None}
    folder = _new_folder(arguments.log)
    if arguments.schedule:
        (folder / "flows.csv").write_text(flows, encoding="ascii")
    spec: SenderSpec = {
        "source": arguments.source,
        "start": {"address": arguments.to, "port": ports[0]},
        "sinks": [{"address": arguments.to, "ports": ports}],
        "streams": [made] if made else [],
        "recorded": recorded,
        "mtu": arguments.mtu,
        "workers": arguments.workers or flow_launches.processes(made["load_bps"] if made else 0.0),
        "most_open": arguments.most_open,
        "drain_s": flow_launches.DRAIN_S,
        "dscp": arguments.dscp,
        "congestion": arguments.congestion,
        "pool": arguments.pool,
        "realtime": arguments.realtime,
    }
    status = _run("flow_sender.py", spec, folder)
    if status:
        raise OrchError(
            f"the sender ended with status {status}", hint="is `orch traffic serve` up, and for this sender?"
        )
    return _tell(folder)


def _recorded_lines(path: Path) -> str:
    from cross_traffic import schedule_files

    return "".join(f"{round(flow.start_s * 1e9)},{flow.size},0\n" for flow in schedule_files.read_schedule(path))


def _check(arguments: argparse.Namespace) -> int:
    return _tell(arguments.log)


def _tell(folder: Path) -> int:
    """Print the summary of a log; return 3 when flows were shed or failed."""
    from orchestrator.analysis.windows import generated_flows

    log = generated_flows.log_summary(folder)
    print(_sent_text(log))
    return Exit.INCONCLUSIVE if log.errors else Exit.OK


def _headline(made: StreamSpec) -> str:
    """Write a schedule in a line: its load, bursts, arrivals and seed."""
    burst = made["burst"]
    shape = (
        "consistent"
        if burst is None
        else "{height:g} times the mean for {width_s:g} s every {period_s:g} s".format(**burst)
    )
    return f"{made['load_bps'] / 1e9:.6g} Gbit/s, {shape}, {made['arrivals']} arrivals, seed {made['seed']}"


def _tally_text(counted: Tally, made: StreamSpec, *, seconds: float) -> str:
    """Write the totals of a schedule of so many seconds, a figure a line."""
    load, requested = counted.load_bps(seconds), made["load_bps"]
    lines = [
        _headline(made),
        f"flows          {counted.flows:,} in {seconds:g} s, {counted.flows / seconds:.5g} a second",
        f"load           {load / 1e9:.6g} Gbit/s on the wire ({load / requested - 1:+.3%} of the requested)",
        f"payload        {counted.payload:,} bytes; {counted.payload / max(1, counted.flows):,.0f} a flow, "
        f"{counted.largest:,} at most",
        f"busiest 1 ms   {counted.busiest_step * 8e3 / 1e9:.5g} Gbit/s start in it",
    ]
    if counted.burst is not None:
        lines.append("burst profile  " + _profile(counted.profile(), counted.burst))
    return "\n".join(lines)


def _profile(profile: Sequence[float], burst: BurstShape) -> str:
    """Write the rate in the burst, and in parts of the rest of its period, as multiples of the mean."""
    height, *rest = (f"{value:.2f}" for value in profile) if profile else ("nothing",)
    return f"{height} times the mean for {duration_text(burst.width_s)}, then {' '.join(rest)}"


def _sent_text(log: FlowLog) -> str:
    """Write figures of a sender's log: volume, lateness, duration and deviation from the schedule, a figure a line."""
    late, late_p99, latest = map(span_text, log.late_s)
    took, took_p99 = map(span_text, log.completion_s[:2])
    lines = [
        f"flows          {log.flows:,} in {log.seconds:.6g} s; " + (_counts(log.errors) or "all acknowledged"),
        f"load           {log.planned_bps / 1e9:.6g} Gbit/s planned on the wire"
        + ("" if math.isnan(log.asked_bps) else f", {log.asked_bps / 1e9:.6g} requested"),
        f"acknowledged   {log.acknowledged_share:.4%} of the planned bytes by the schedule's end, "
        f"{log.settled_share:.4%} a twentieth of a second later",
        f"late           {late} p50, {late_p99} p99, {latest} at most",
        f"completion     {took} p50, {took_p99} p99; {log.retransmits:,} retransmits",
        f"distances      gaps {log.gap_distance:.4f}"
        + ("" if math.isnan(log.size_distance) else f", sizes {log.size_distance:.4f}")
        + " (Kolmogorov-Smirnov, from what was planned)",
    ]
    if log.burst is not None:
        lines += [
            "planned burst  " + _profile(log.profile, log.burst),
            "started burst  " + _profile(log.started_profile, log.burst),
        ]
    return "\n".join(lines)


def _counts(errors: Any) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(errors.items()))
