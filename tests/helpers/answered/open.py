"""What papers leave open: Reno leaves more unused than CUBIC; links keep their pace down to what they need; effective
bandwidth grows with the message and falls with groups that share a host; a model hides less than it could."""

from __future__ import annotations

SPREAD = 0.01

CAPACITY, NEEDED, UNCAPPED_S = 25.0, 9.0, 0.88


def controls(draw):
    rows = []
    for control, unused in (("cubic", 1.4), ("reno", 1.7)):
        for repetition in (1, 2, 3):
            seconds = 830.0 * 8 / 1e3 / (CAPACITY - 16.0 - unused * draw.normal(1, 0.005))
            keys = {"workload": "ddp", "model": "vgg16", "traffic": "iperf", "control": control, "capped": None}
            keys |= {"repetition": repetition}
            loads = {"requested_gbps": 16.0, "load_gbps": 16.0, "capacity_gbps": CAPACITY}
            rows.append({**keys, **loads, "run": f"{control} {repetition}", "theory_mb": 830.0, "seconds": seconds})
    return rows


def links(draw):
    rows = []
    for cap in (25.0, 11.0, 6.5):
        for repetition in (1, 2, 3):
            seconds = UNCAPPED_S * max(1.0, NEEDED / cap) * draw.normal(1, 0.003)
            for host in ("h1", "h2", "h3", "h4"):
                for way in ("out", "in"):
                    fullest = (host, way) == ("h1", "out")
                    needed = CAPACITY if fullest else NEEDED * draw.normal(1, 0.003)
                    keys = {"model": "vgg16", "load_bps": 16e9, "cap_bps": cap * 1e9, "repetition": repetition}
                    rows.append(
                        {
                            **keys,
                            "run": f"{cap} {repetition}",
                            "host": host,
                            "way": way,
                            "rate_gbps": CAPACITY,
                            "needed_gbps": needed,
                            "slack_pct": 100 * (1 - needed / CAPACITY),
                            "slowest": fullest,
                            "seconds": seconds,
                        }
                    )
    return rows


PLACED = ((4, 4, 1), (2, 2, 1), (8, 2, 4), (8, 2, 1))  # ranks, hosts, groups


def bandwidths(draw):
    rows = []
    for operation in ("all-reduce", "send-receive"):
        for ranks, hosts, groups in PLACED:
            for size in (1e5, 1e6, 5e6, 2e7, 8e7):
                for repetition in (1, 2, 3):
                    alone = 8e9 * (size / 1e6) ** 0.8 / groups**0.6 / (ranks / groups) ** 0.2
                    keys = {"operation": operation, "bytes": size, "ranks": ranks, "hosts": hosts, "groups": groups}
                    of = {
                        "group_ranks": ranks // groups,
                        "group_hosts": hosts,
                        "placement": f"{ranks} {hosts} {groups}",
                    }
                    bus_bps = alone * draw.normal(1, SPREAD)
                    run = f"{ranks} {hosts} {groups} {repetition}"
                    rows.append({**keys, **of, "bus_bps": bus_bps, "run": run, "repetition": repetition})
    return rows


def overlaps(draw):
    rows = []
    for model, hidden, could in (("resnet50", 0.4, 0.85), ("vgg16", 0.15, 0.5)):
        for repetition in (1, 2, 3):
            for rank in (0, 1, 2):
                keys = {"model": model, "link_bps": 10e9, "load": None, "repetition": repetition, "rank": rank}
                shares = {"of_bytes": hidden * draw.normal(1, SPREAD), "could": could, "across": could}
                times = {"seconds": 0.5, "compute_s": 0.15, "sending_s": 0.11}
                rows.append({**keys, **shares, **times, "ranks": 3, "run": f"{model} {repetition}"})
    return rows


def sent(draw):
    rows = []
    told = {
        "training": {"sending_gbps": 37.3, "duty": 0.687, "period_s": 0.128, "strength": 0.82, "together": 0.83},
        "replay": {"sending_gbps": 37.4, "duty": 0.688, "period_s": 0.1275, "strength": 0.79, "together": 0.84},
        "poisson": {"sending_gbps": 26.0, "duty": 0.99, "period_s": float("nan"), "strength": 0.05, "together": 0.02},
    }
    for sender, values in told.items():
        for repetition in (1, 2, 3):
            varied = {name: value * draw.normal(1, 0.003) for name, value in values.items()}
            mean = 25.7 * draw.normal(1, 0.003)
            rows.append(
                {
                    "workload": "ddp" if sender == "training" else "command",
                    "model": "resnet50" if sender == "training" else "-",
                    "ranks": 3 if sender == "training" else 1,
                    "line": "training" if sender == "training" else "cross",
                    "poisson_bps": 8.99e9 if sender == "poisson" else None,
                    "compute": 0.112 if sender == "training" else None,
                    "run": f"{sender} {repetition}",
                    "repetition": repetition,
                    "mean_gbps": mean,
                    "peak_gbps": 70.0 * draw.normal(1, 0.01),
                    **varied,
                    "period_mb": mean * varied["period_s"] / 8 * 1e3,
                }
            )
    return rows


FIRST = {
    "Training traffic without the training: a fitted model, replayed": sent,
    "Congestion controls, scored by what they leave unused": controls,
    "Reclaimed oversupply: links that are not the slowest": links,
    "What sets effective bandwidth": bandwidths,
    "Headroom of overlap": overlaps,
}
