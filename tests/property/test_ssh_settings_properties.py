"""Generated SSH configurations: the record of a host and the chain of its jumps are OpenSSH's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.remote.transport.ssh_config import SshSettings, SshTarget, route

PATIENCE_S = 60
EXAMPLES = int(os.environ.get("ORCH_SSH_EXAMPLES", "60"))
MOST_HOPS = 17  # ours, the target included
NAMES = ("h1", "h2", "gate", "inner", "10.0.0.7")

jumps = st.sampled_from(
    ["gate", "inner", "u@gate:2222", "gate,inner", "ssh://v@inner:23", "[::1]:24", "10.0.0.7", "none"]
)
options = st.one_of(
    st.sampled_from([f"HostName {name}" for name in ("%h.example", "10.0.0.9", "other", "::1")]),
    st.sampled_from(
        ["User a", "User=b", 'User "c d"', "Port 2222", "Port = 23", "HostKeyAlias rack", "HostKeyAlias %n"]
    ),
    st.sampled_from(["UserKnownHostsFile /k1 ~/k2", "UserKnownHostsFile none", "GlobalKnownHostsFile /g"]),
    st.sampled_from(["StrictHostKeyChecking no", "StrictHostKeyChecking accept-new", "StrictHostKeyChecking yes"]),
    st.sampled_from(["IdentityFile ~/.ssh/%h", 'IdentityFile "/a b/c"', "IdentityFile none", "CertificateFile /c"]),
    st.sampled_from(["IdentitiesOnly yes", "IdentityAgent none", "IdentityAgent $AGENT", "HashKnownHosts yes"]),
    st.sampled_from(["ConnectTimeout 5", "AddressFamily inet", "BindAddress 127.0.0.1", "Compression yes"]),
    st.sampled_from(["ProxyCommand nc %h %p", "ProxyCommand none", "PubkeyAuthentication no", "Ciphers aes256-ctr"]),
    jumps.map("ProxyJump {}".format),
    jumps.map("proxyjump={}".format),
)
heads = st.sampled_from(
    ["Host h1", "Host h*", "Host gate inner", "Host *", "Host !h1 *", "Host 10.0.0.?", "Host *.example", "# Host h1",
     "Match host h1", "Match originalhost h2,gate", "Match all", "Match user a", "Match !host h1", "Match final all",
     "Match host *.example"]
)  # fmt: skip
lines = st.lists(st.one_of(options, heads, st.just("Include FOLDER/inc*"), st.just("  ")), max_size=9).map("\n".join)


def ssh_says(argv: list[str]) -> dict[str, list[str]] | None:
    """What `ssh -G` prints, by the names of options; None where it refuses."""
    done = subprocess.run(["ssh", "-G", *argv], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        said.setdefault(name, []).append(value)
    return said


def ssh_goes(folder: Path, config: Path, host: str, *given: str) -> list[dict[str, list[str]]] | None:
    """The way that ssh itself would take, asked step by step: a program in place of `ssh` tells how it would jump."""
    folder.mkdir(exist_ok=True)
    (folder / "ssh").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/asked\nexit 1\n')
    (folder / "ssh").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    argv = ["-F", str(config), *given, host]
    way: list[dict[str, list[str]]] = []
    while len(way) < MOST_HOPS:
        said = ssh_says(argv)
        if said is None:
            return None
        way.insert(0, said)
        if "proxyjump" not in said:
            return way
        (folder / "asked").unlink(missing_ok=True)
        subprocess.run(
            ["ssh", "-o", "BatchMode=yes", *argv, "true"],
            executable=shutil.which("ssh"),
            env=environment,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        asked = (folder / "asked").read_text().splitlines()
        at = asked.index("-W")
        argv = [*asked[:at], *asked[at + 2 :]]
    return None


def shown(found: SshSettings) -> dict[str, object]:
    """The record in the words of `ssh -G`, as far as one of them stands for one of ours."""
    flags = ("no", "yes")
    return {
        "hostname": [found.hostname],
        "user": [found.user],
        "port": [str(found.port)],
        "addressfamily": [found.addressfamily],
        "bindaddress": [found.bindaddress] if found.bindaddress else None,
        "connecttimeout": [str(found.connecttimeout or "none")],
        "identitiesonly": [flags[found.identitiesonly]],
        "hashknownhosts": [flags[found.hashknownhosts]],
        "compression": [flags[found.compression]],
        "identityfile": [*found.identityfile] or ["none"],
        "certificatefile": [*found.certificatefile] or None,
        "hostkeyalias": [found.hostkeyalias] if found.hostkeyalias else None,
        "stricthostkeychecking": [found.stricthostkeychecking],
        "userknownhostsfile": [" ".join(found.userknownhostsfile) or "none"],
        "globalknownhostsfile": [" ".join(found.globalknownhostsfile)],
        "proxyjump": [found.proxyjump] if found.proxyjump else None,
        "proxycommand": [found.proxycommand] if found.proxycommand else None,
        "ciphers": [",".join(found.ciphers)],
        "casignaturealgorithms": [",".join(found.casignaturealgorithms)],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ssh")


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(text=lines, included=lines, host=st.sampled_from(NAMES), jump=st.one_of(st.none(), jumps))
@example(text="Host h1\nInclude FOLDER/inc*\nPort 2222", included="User a\nHost h2\nUser b", host="h1", jump=None)
@example(text="Include FOLDER/inc*\nUser a", included="Host h2\nPort 23", host="h1", jump=None)
@example(text="HostKeyAlias rack\nUser a", included="", host="h1", jump="gate,inner")
@example(text="Host gate\nProxyJump none\nHost *\nProxyJump gate", included="", host="h1", jump=None)
@example(text="Include FOLDER/inc*\nIdentityFile ~/.ssh/%h", included="IdentityFile none", host="h1", jump=None)
@example(text="Match final all\nProxyJump gate\nMatch host *.example\nUser a", included="", host="h1", jump=None)
def test_the_way_is_the_one_that_ssh_takes(folder, text, included, host, jump):
    config = folder / "config"
    config.write_text(text.replace("FOLDER", str(folder)))
    (folder / "included").write_text(included.replace("Include FOLDER/inc*", "").replace("FOLDER", str(folder)))
    given_jump = ["-J", jump] if jump is not None else []
    expected = ssh_goes(folder / "stub", config, host, *given_jump)
    try:
        way = route(SshTarget(name="n", host=host, config=config, jump=jump), Deadline.after(PATIENCE_S))
    except OrchError:
        assert expected is None
        return
    assert expected is not None
    assert len(way) == len(expected)
    for hop, said in zip(way, expected, strict=True):
        ours = shown(hop.settings)
        files = [name for name in said["identityfile"] if name != "none"]  # beside others ssh passes it over
        assert ours == {name: said.get(name) for name in ours} | {"identityfile": files or ["none"]}
