"""docs/first-cluster.md, step by step, on hosts that nobody prepared: stock sshd, a jump host, sudo for one program."""

from __future__ import annotations

import os
import shlex

import pytest
import yaml

from tests.helpers.foreign_hosts import USER, up
from tests.helpers.orch_runs import ROOT, last_json, nothing_is_left, orch

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.alone,
    pytest.mark.variants,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks between containers are root's to make"),
]

INSTALLED = "/usr/local/sbin/orch-agent"
WRITABLE = "/srv/orch-agent"  # of the containers, which have this machine's own /usr and /opt
PAGE = (ROOT / "docs/first-cluster.md").read_text()
# Two cores carry four hosts of 10 Gbit/s: a smaller model, less traffic, once; times are those of other work, too.
SMALLER = (
    "workload.ddp.model=mobilenet_v2",
    "workload.ddp.compute_time=40ms",
    "measure.iterations=20",
    "repetitions=1",
    "validity.processor=ignore",
    "validity.drift=ignore",
)
LESS_TRAFFIC = ("traffic.0.iperf.load=100mbit", "traffic.0.iperf.streams=2")


def lines(begins):
    """The lines of the page's commands that begin so."""
    found = [line.strip() for line in PAGE.splitlines() if line.startswith(f"    {begins}")]
    assert found, f"docs/first-cluster.md has no command {begins!r}"
    return found


def orch_as_written(command, folder, *options):
    """Run a command of `orch` that the page has, on the files of this folder."""
    assert command in lines(command), f"docs/first-cluster.md has no command {command!r}"
    words = [str(folder / word) if (folder / word).is_file() else word for word in shlex.split(command)[1:]]
    return orch(*words, *options)


def prepare(hosts, folder):
    """Step 1, as root on every host: the user may run one program by sudo, and nothing else."""
    root = [line for begins in ("visudo", "install", "groupadd") for line in lines(begins)]
    for name in hosts.names:
        hosts.on(name, "rm", f"/etc/sudoers.d/{USER}")
        for file in ("orch-agent", "sudoers-orch"):
            text = (folder / file).read_text().replace(INSTALLED, WRITABLE)
            hosts.on(name, "sh", "-c", f"mkdir -p /root && printf %s {shlex.quote(text)} > /root/{file}")
        for line in root:
            own = line.replace(INSTALLED, WRITABLE).replace("-aG orch measure", f"-aG orch {USER}")
            hosts.on(name, "sh", "-c", f"mkdir -p /srv && cd /root && {own}")


def settings(*texts):
    return [word for text in texts for word in ("--set", text)]


def test_a_first_cluster_as_its_page_says(tmp_path):
    with up("h1", "h2", "h3", "h4") as hosts:
        folder, results = tmp_path / "rack", ("--results", tmp_path / "results")
        assert orch("init", "cluster", folder)[0] == 0
        prepare(hosts, folder)
        rack = hosts.inventory(sudo=WRITABLE)
        (folder / "rack.yaml").write_text(yaml.safe_dump(rack))
        for command, options in (
            ("orch doctor rack.yaml", []),
            ("orch plan first.yaml", settings(*SMALLER, *LESS_TRAFFIC)),
            ("orch doctor first.yaml", []),
        ):
            status, out, err = orch_as_written(command, folder, *options)
            assert status == 0, command + out + err
        for command, more in (
            ("orch run first.yaml --local", LESS_TRAFFIC),
            ("orch run first.yaml --set 'traffic=[]'", ()),
            ("orch run first.yaml", LESS_TRAFFIC),
        ):
            status, out, err = orch_as_written(
                command, folder, *settings(*SMALLER, *more), *results, "--json", "--no-report"
            )
            assert status == 0, command + out + err
            (run,) = last_json(out)["runs"]
            assert run["windows"][0]["valid"]
            nothing_is_left(run["run"])
        for command, options in (
            ("orch ls", results),
            ("orch recover --testbed rack.yaml", results),
            ("orch clean rack.yaml", ()),
        ):
            status, out, err = orch_as_written(command, folder, *options)
            assert status == 0, command + out + err
