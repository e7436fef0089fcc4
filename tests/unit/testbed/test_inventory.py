"""The file that lists real machines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.cli.main import main
from orchestrator.testbed.inventory import Inventory, requirements, topology

EXAMPLE = Path(__file__).parents[3] / "playbooks/testbeds/example-rack.yaml"


def host(address: str = "10.0.0.1/24", **more) -> dict:
    return {"ssh": "h.example", "data": {"address": address, "device": "eth1"}, **more}


def rails(*addresses: str) -> list[dict]:
    return [
        {"address": address, "device": f"ens{rail}f0", "rdma": f"mlx5_{rail}"} for rail, address in enumerate(addresses)
    ]


def inventory(**more) -> Inventory:
    return Inventory.model_validate({"link": "25gbit", "hosts": {"h1": host()}, **more})


def test_the_example_is_what_it_says():
    read = Inventory.model_validate(yaml.safe_load(EXAMPLE.read_text()))
    seen = topology(read)
    assert [node.name for node in seen.hosts] == ["h1", "h2", "h3", "h4"]
    assert seen.mtu == 9000
    assert seen.link("h1").rate == 25e9
    assert seen.link("h4").rate == 10e9
    assert (seen.node("h4").first.device, seen.node("h1").address) == ("ens2f1", "10.0.0.1")
    assert {(link.switch, link.switch_port) for link in seen.links} == {("tor1", "")}
    assert read.value("h2", "sudo") == "/usr/local/sbin/orch-agent"


def test_a_host_overrides_what_holds_for_all():
    hosts = {"a": host(gpus=0, python="py"), "b": host("10.0.0.2/24")}
    read = inventory(defaults={"gpus": 8, "work": "/scratch/orch"}, hosts=hosts)
    first, second = topology(read).nodes
    assert (first.gpus, second.gpus) == (0, 8)
    assert (first.python, second.python) == ("py", "python3")
    assert (first.work, second.work) == ("/scratch/orch", "/scratch/orch")


def test_a_host_with_several_nics_has_a_rail_each():
    hosts = {f"h{i}": host(data=rails(f"fd00:0:0:1::{i}/64", f"fd00:0:0:2::{i}/64")) for i in (1, 2)}
    seen = topology(inventory(hosts=hosts))
    one = seen.node("h2")
    assert (seen.rails, seen.ip) == (2, 6)
    assert one.addresses == ("fd00:0:0:1::2", "fd00:0:0:2::2")
    assert (one.devices, one.rdma) == (("ens0f0", "ens1f0"), ("mlx5_0:1", "mlx5_1:1"))
    assert [link.device for link in seen.links_of("h1")] == ["ens0f0", "ens1f0"]
    needed = [(need.kind, need.what) for need in requirements(seen, ["h1"])]
    assert ("speed", "25000 Mbit/s on ens1f0") in needed
    assert ("link", "ens0f0") in needed


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"link": 25}, "not a rate"),
        ({"hosts": {}}, "at least 1"),
        ({"hosts": {"h 1": host()}}, "not a name"),
        ({"hosts": {"../h": host()}}, "not a name"),
        ({"hosts": {"h1": host("10.0.0.1")}}, "needs its prefix"),
        ({"hosts": {"h1": host("10.0.0.999/24")}}, "not an IP address"),
        ({"hosts": {"h1": host(), "h2": host()}}, "same data address 10.0.0.1"),
        ({"hosts": {"h1": host(ssh="-oProxyCommand=x")}}, "not a host name"),
        ({"hosts": {"h1": host(jump="-oProxyCommand=x")}}, "not hosts to jump"),
        ({"hosts": {"h1": host(jump="a\n ProxyCommand x")}}, "not hosts to jump"),
        ({"hosts": {"h1": host(work="tmp")}}, "absolute"),
        ({"hosts": {"h1": host(work="/")}}, "folder of its own"),
        ({"hosts": {"h1": host(work="/home")}}, "folder of its own"),
        ({"hosts": {"h1": host(port=0)}}, "greater than"),
        ({"hosts": {"h1": host(colour="red")}}, "Extra inputs"),
        ({"switch": {"name": "s", "ports": {"h9": "swp1"}}}, "no host 'h9'"),
        ({"mtu": 100}, "greater than"),
        ({"hosts": {"h1": host("fe80::1/64")}}, "of one link alone"),
        ({"hosts": {"h1": host(), "h2": host("fd00::2/64")}}, "addresses of h1 are of IPv4"),
        (
            {"hosts": {"h1": host(), "h2": host(data=rails("10.0.0.2/24", "10.0.1.2/24"))}},
            "h2 has 2 rails and h1 has 1",
        ),
        ({"hosts": {"h1": host(data=[*rails("10.0.0.1/24"), *rails("10.0.1.1/24")])}}, "share a device"),
        ({"hosts": {"h1": host(data=[])}}, "at least 1"),
        ({"hosts": {"h1": host(data=rails("10.0.0.1/24", "10.0.0.1/24"))}}, "same data address 10.0.0.1"),
    ],
)
def test_mistakes_are_told(wrong, said):
    with pytest.raises(ValidationError, match=said):
        inventory(**wrong)


def test_every_key_is_described():
    schema = Inventory.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for name, entry in model.get("properties", {}).items():
            assert entry.get("description"), (model["title"], name)


def test_it_needs_no_ssh_library():
    import subprocess
    import sys

    modules = "orchestrator.testbed.inventory, orchestrator.remote.agent_client"
    code = f"import sys, {modules}; sys.exit('paramiko' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=EXAMPLE.parents[2], check=False).returncode == 0


FOR_A_SHELL = ["$(id)", "`id`", "a;id", "a|id", "a&id", "a>x", "a<x", "a'b", 'a"b', "a\\b",
               "a b", "a\nb", "a\tb", "(a)", "{a,b}",
               "a*", "a?", "~a", "a!b", "#a", "$HOME",
               "a$b", "-a", "-oProxyCommand=id", "", "a\0b", "a\x1bb", "a^b", "a=b"]  # fmt: skip


@pytest.mark.parametrize("key", ["ssh", "user", "jump"])
@pytest.mark.parametrize("value", FOR_A_SHELL, ids=ascii)
def test_what_a_shell_gives_a_meaning_to_is_no_name(key, value):
    for where in ({"hosts": {"h1": host(**{key: value})}}, {"defaults": {key: value}, "hosts": {"h1": host()}}):
        if "defaults" in where and key == "ssh":
            continue
        with pytest.raises(ValueError, match=key):
            inventory(**where)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("ssh", name)
            for name in (
                "h1",
                "h_1",
                "h1.example.org",
                "10.0.0.1",
                "::1",
                "fe80::1%eth0",
                "[::1]",
                "h1:2222",
                "_alias",
                "rack-1.node-2",
                "bücher.example",
                "fe80::1%br-lan.10",
            )
        ),
        *(("user", name) for name in ("ada", "_svc", "ada.l", "ada-l", "ada@example.org", "a+b", "0day")),
        *(
            ("jump", name)
            for name in (
                "gate",
                "ada@gate",
                "ada@gate:2222",
                "gate:22,ada@inner",
                "ada@[::1]:22",
                "ada@example.org@gate",
                "fe80::1%eth0",
                "none",
            )
        ),
    ],
)
def test_names_as_they_are_used_pass(key, value):
    assert inventory(hosts={"h1": host(**{key: value})}).value("h1", key) == value


def test_no_shell_runs_what_an_inventory_puts_into_a_proxy_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config").write_text("Host *\n  ProxyCommand echo %h %r\n")
    said = "link: 1gbit\ndefaults: {config: config}\nhosts:\n  h1:\n    ssh: $(touch${IFS}planted)\n"
    Path("rack.yaml").write_text(said + "    data: {address: 10.0.0.1/24, device: e0}\n")
    status = main(["doctor", "rack.yaml"])
    assert not Path("planted").exists()
    assert status == 2
    assert capsys.readouterr().err.startswith("rack.yaml:5:5: hosts.h1.ssh: '$(touch${IFS}planted)' is not a host name")
