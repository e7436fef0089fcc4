"""Rows 24 to 28: what sudo grants, which Python a host has, whose keys hosts have, a jump host that drops logins."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import checks
from tests.faults.checks import LINE
from tests.faults.interrupts import MEASURED, interrupted
from tests.faults.matrix import INVENTORY, SUDO, row
from tests.faults.scene import Scene
from tests.helpers.rack import on_inventory
from tests.helpers.sshd_help import keygen
from tests.helpers.sudo_hosts import ALL, ONLY_THE_WRAPPER


@row(24, "the user has sudo for all, without a password", variant="all", on=(SUDO,), about_s=15)
def sudo_works(scene: Scene) -> None:
    scene.users.hosts.sudo(ALL)
    interrupted(scene)


@row(24, "sudo grants our wrapper alone, on a terminal of its own (use_pty)", variant="use_pty", on=(SUDO,), about_s=15)
def sudo_use_pty(scene: Scene) -> None:
    scene.users.hosts.install()
    scene.users.hosts.sudo("Defaults:USER use_pty", ONLY_THE_WRAPPER)
    scene.users.sudo = str(scene.users.hosts.wrapper)
    interrupted(scene)


def sudo_refuses(scene: Scene, rules: Sequence[str], remedy: str) -> None:
    scene.users.hosts.sudo(*rules)
    run = scene.run()
    run.must_end(1, told="[ab]: its agent did not start: the channel to the agent ended", within_s=60)
    scene.held(LINE, checks.line(run.said(), remedy, begins="  remedy: "))
    run.must_be_home("failed")


row(24, "sudo asks for a password", variant="password", on=(SUDO,), about_s=8)(
    partial(sudo_refuses, rules=["USER ALL=(root) ALL"], remedy="without a password")
)
row(24, "sudo wants a terminal (requiretty)", variant="requiretty", on=(SUDO,), about_s=8)(
    partial(sudo_refuses, rules=[ALL, "Defaults:USER requiretty"], remedy="!requiretty")
)


@row(25, "the Python of a host is older (PyPy 3.9)", on=(INVENTORY,), about_s=25)
def older_python(scene: Scene) -> None:
    pypy = shutil.which("pypy3")
    assert pypy, "pypy3 is not installed"
    inventory = scene.rack.inventory()
    inventory["hosts"]["h2"]["python"] = pypy
    run = scene.run(scene.path(testbed={"inventory": inventory}, **MEASURED))
    run.must_be_completed(within_s=180)


def known_hosts(scene: Scene) -> str:
    return (scene.rack.config.parent / "known_hosts").read_text()


def knowing(scene: Scene, text: str, **changes: Any) -> Path:
    """An experiment whose known_hosts is this."""
    known, config = scene.folder / "known_hosts", scene.folder / "ssh_config"
    known.write_text(text)
    own = str(scene.rack.config.parent / "known_hosts")
    config.write_text(scene.rack.config.read_text().replace(own, str(known)))
    return scene.path(testbed={"inventory": scene.rack.inventory(config=str(config))}, **changes)


def ssh_config(scene: Scene, *, direct: Collection[str]) -> Path:
    """The hosts' configuration, where some are reached at their own addresses."""
    blocks = scene.rack.config.read_text().split("Host ")[1:]
    addresses = {host: f"198.18.0.{number}" for number, host in enumerate(scene.rack.names, 1)}
    texts = []
    for block in blocks:
        name, *lines = block.splitlines()
        if name in direct:
            lines = [f"    HostName {addresses[name]}", f"    HostKeyAlias {name}"] + [
                line for line in lines if "ProxyCommand" not in line
            ]
        texts.append("\n".join([f"Host {name}", *lines]))
    path = scene.folder / "direct_config"
    path.write_text("\n".join(texts) + "\n")
    return path


@row(26, "the key of a host is not known", variant="unknown", on=(INVENTORY,), about_s=8, ci=True)
def key_unknown(scene: Scene) -> None:
    run = scene.run(knowing(scene, ""))
    run.must_end(1, told="h1: its key is not known|h1: .*is not known", within_s=60)
    run.must_be_home("failed")


@row(26, "the key of a host has changed", variant="changed", on=(INVENTORY,), about_s=8, ci=True)
def key_changed(scene: Scene) -> None:
    stranger = keygen(scene.folder / "stranger")
    own = known_hosts(scene)
    run = scene.run(knowing(scene, own.replace("h1,", "", 1) + f"h1 {stranger}\n"))
    run.must_end(1, told="h1: .*has changed", within_s=60)
    run.must_be_home("failed")


@row(27, "known_hosts has lines with @cert-authority and @revoked", variant="others", on=(INVENTORY,), about_s=15)
def marked_lines(scene: Scene) -> None:
    stranger = keygen(scene.folder / "stranger")
    lines = f"@cert-authority * {stranger}\n@revoked * {stranger}\n@cert-authority * !!!\n"
    run = scene.run(knowing(scene, lines + known_hosts(scene), **MEASURED))
    run.must_be_completed(within_s=120)


@row(27, "known_hosts has the key of the hosts as @revoked", variant="revoked", on=(INVENTORY,), about_s=8, ci=True)
def key_revoked(scene: Scene) -> None:
    own = known_hosts(scene)
    run = scene.run(knowing(scene, own + re.sub(r"^\S+", "@revoked *", own)))
    run.must_end(1, told="h1: .*revoked", within_s=60)
    run.must_be_home("failed")


@row(28, "a jump host with MaxStartups 2:100:3 before ten hosts", on=(INVENTORY,), about_s=40, hosts=11)
def jump_drops_logins(scene: Scene) -> None:
    """The last of the hosts is the gate; the others are reached at their addresses, from there."""
    *behind, gate = scene.rack.names
    scene.rack.sshd_with(gate, "MaxStartups 2:100:3")
    inventory = scene.rack.inventory(config=str(ssh_config(scene, direct=behind)), jump=gate)
    del inventory["hosts"][gate]
    run = scene.run(scene.write(on_inventory(inventory, **MEASURED)))
    run.must_be_completed(within_s=180)
