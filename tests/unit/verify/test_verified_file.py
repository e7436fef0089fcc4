"""The page of a verification, and its file without names: odd names are planted everywhere, and found nowhere there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.core.exitcodes import Exit
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.verify import anonymous, claims, experiments, page
from orchestrator.verify.claims import DeviceSeen, Evidence, HostSeen, Judged, Ran, Undone
from orchestrator.verify.verifying import Verified
from tests.helpers import manifests

HOST, OTHER, DEVICE, RDMA = "zzquark", "zzgluon", "zzeth", "zzmlx:1"
ADDRESS, USER, PATH, SWITCH = "198.51.100.77", "zzuser", "/zzhome/zzsecret", "zzspine"
COUNTERS = ("rx_bytes", "ethtool.rx_discards_phy", f"ethtool.{DEVICE}_frames", f"rdma.{ADDRESS}")
PLANTED = ("zz", ADDRESS, "198.51", "4242")
TOPOLOGY = Topology(
    kind="inventory",
    nodes=tuple(
        Node(name=name, rails=(Rail(address=ADDRESS, device=DEVICE, rdma=RDMA),), python=f"{PATH}/python3", work=PATH)
        for name in (HOST, OTHER)
    ),
    links=tuple(Link(host=name, device=DEVICE, switch=SWITCH, rate=25e9) for name in (HOST, OTHER)),
)


def planted(name, **more):
    """A verdict that says every name there is."""
    text = f"{HOST}:{DEVICE} in: at {ADDRESS} as {USER} in {PATH} by {SWITCH}"
    return {"name": name, "passed": True, "measured": 0.01, "limit": 0.02, "message": text, **more}


def run(*gates, **more):
    return Ran(
        manifests=(
            manifests.made(
                run=f"20260101T000000000-{HOST}",
                windows=[{"name": one, **manifests.NOT_JUDGED, "gates": list(gates)} for one in experiments.LOADS],
                launches=[manifests.launch("meter", node=HOST, part="collector.meter", role="collector")],
                **more,
            ),
        )
    )


def verified(**more):
    evidence = Evidence(
        hosts=(
            HostSeen(host=HOST, reached_s=0.4, offset_s=1e-6, uncertainty_s=1e-4, kernel="6.8", python="3.11"),
            HostSeen(host=OTHER, trouble=f"{USER}@{ADDRESS}: permission denied ({PATH}/key)"),
        ),
        gpu_hosts=2,
        rdma=True,
        ran={
            experiments.LOAD: run(planted("load", passed=False), planted("gap")),
            experiments.CAPTURES: run(*map(planted, ("clock", "capture", "capture-nic", "meter-in"))),
            experiments.NCCL_TCP: run(outcome="failed", error=f"{HOST}: {PATH} is gone"),
            "horovod": Ran(
                code="lacking", why=f"{HOST} lacks horovod; remedy: {PATH}", lack=("horovod", f"{PATH}/mpirun", HOST)
            ),
            "kungfu": Ran(code="refused", why=f"{PATH}:1:2: testbed: {HOST}"),
        },
        devices=(
            DeviceSeen(
                host=HOST,
                device=DEVICE,
                driver="mlx5_core",
                counters=frozenset(
                    {"rx_bytes", "ethtool.rx_discards_phy", f"ethtool.{DEVICE}_frames", f"rdma.{ADDRESS}"}
                ),
            ),
            DeviceSeen(host=OTHER, device=DEVICE, driver=f"{HOST}-driver", counters=frozenset()),
        ),
        undone=Undone(back_s=3.0, changes=2, left=(f"{HOST}: process 4242 was still there",)),
    )
    return Verified(
        testbed=f"{PATH}/zzrack.yaml",
        topology=TOPOLOGY,
        quick=True,
        began_ns=1_795_000_000_000_000_000,
        seconds=321.0,
        evidence=evidence,
        judged=tuple((claim, claim.judge(evidence)) for claim in claims.claims()),
        **more,
    )


def test_the_file_has_every_claim_with_figures_and_none_of_the_names(tmp_path):
    found = verified()
    path = tmp_path / "anonymous.json"
    anonymous.write(found, path)
    text = path.read_text()
    assert [name for name in PLANTED if name in text.lower()] == []
    data = json.loads(text)
    told = {one["name"]: one for one in data["claims"]}
    assert told.keys() == {claim.name for claim in claims.claims()}
    assert told["load-at50"]["verdict"] == "broken"
    assert {"what": "load", "value": 0.01, "unit": "", "limit": 0.02} in told["load-at50"]["figures"]
    assert told["bytes-horovod"] == {
        "name": "bytes-horovod", "verdict": "not judged", "code": "lacking", "lack": ["horovod"], "figures": [],
    }  # fmt: skip
    assert [one["reached"] for one in data["hosts"]] == [True, False]
    assert data["devices"][0] == {
        "driver": "mlx5_core", "counters": ["ethtool.rx_discards_phy", "rx_bytes"], "counters_left_out": 2,
    }  # fmt: skip
    assert data["devices"][1]["driver"] == ""


def test_the_names_are_planted_where_the_owner_sees_them(tmp_path):
    """What is not in the file would be in it if it were copied: the page has it."""
    text = page.write(verified(), tmp_path / "page.html").read_text()
    assert [name for name in (HOST, OTHER, DEVICE, ADDRESS, USER, PATH, SWITCH, "4242") if name not in text] == []


def test_a_short_name_of_a_host_hides_counters_that_have_it_as_a_part():
    topology = replace(TOPOLOGY, nodes=(replace(TOPOLOGY.nodes[0], name="p0"), *TOPOLOGY.nodes[1:]))
    private = anonymous._private(topology)
    assert anonymous._names("ethtool.rx_p0_bytes", private)
    assert not anonymous._names("ethtool.rx_p01_bytes", private)


def test_the_page_says_what_is_broken_and_escapes_what_hosts_say(tmp_path):
    found = verified()
    claim, _ = found.judged[0]
    odd = Judged(verdict="broken", why="<script>alert(1)</script>")
    text = page.write(replace(found, judged=((claim, odd), *found.judged[1:])), tmp_path / "page.html").read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert all(claim.says in text.replace("&#39;", "'") for claim in claims.claims())


@pytest.mark.parametrize(
    ("verdicts", "interrupted", "status"),
    [
        (("held", "not judged"), False, Exit.OK),
        (("held", "broken"), False, Exit.BROKEN),
        (("not judged", "not judged"), False, Exit.INCONCLUSIVE),
        (("held", "broken"), True, Exit.INTERRUPTED),
    ],
)
def test_the_exit_code_follows_from_the_verdicts(verdicts, interrupted, status):
    judged = tuple(
        (claim, Judged(verdict=verdict, why="so")) for claim, verdict in zip(claims.claims(), verdicts, strict=False)
    )
    assert replace(verified(interrupted=interrupted), judged=judged).status == status
