"""Switch off a network device's offloads that make one packet of many frames."""

from __future__ import annotations

import re
from types import MappingProxyType

from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.parts.launch import Change, PresenceCheck, Requirement

# As `ethtool -k` calls them and as `ethtool -K` does; every device tells the first three.
_EVERYWHERE = MappingProxyType(
    {"tcp-segmentation-offload": "tso", "generic-segmentation-offload": "gso", "generic-receive-offload": "gro"}
)
_SOMEWHERE = MappingProxyType({"large-receive-offload": "lro", "rx-gro-hw": "rx-gro-hw"})


def requirements(node: str, needed_by: str) -> list[Requirement]:
    """Return what a node needs for the change."""
    remedy = packages.remedy("ethtool")
    return [
        Requirement(node=node, kind="program", what="ethtool", remedy=remedy, needed_by=needed_by),
        Requirement(node=node, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=needed_by),
    ]


def off(kind: str, node: str, device: str) -> Change:
    """Have a device's packets be single frames; what its driver does not let anybody change stays."""

    def put(state: str) -> list[tuple[str, ...]]:
        return [("ethtool", "-K", device, *state.split())]

    def without(state: str) -> str:
        return re.sub(r"\bon\b", "off", state)

    return Change(
        node=node,
        name=f"offloads of {node}:{device}",
        kind=kind,
        read=("ethtool", "-k", device),
        parse=parse,
        apply=lambda old: put(without(old)),
        undo=put,
        expect=without,
        presence=lambda old: PresenceCheck(read=("ethtool", "-k", device), pattern=_turned_off(old)),
        shared=True,
    )


def _turned_off(old: str) -> str:
    """Return a pattern that finds an offload off that was on: one that was off anyway tells nothing."""
    words = old.split()
    states = dict(zip(words[::2], words[1::2], strict=True))
    was_on = [name for name, short in (_EVERYWHERE | _SOMEWHERE).items() if states.get(short) == "on"]
    return rf"^({'|'.join(was_on)}): off" if was_on else r"(?!)"


def parse(output: str) -> str:
    """Return the state of a device's offloads as `ethtool -K` takes it, from `ethtool -k`: "tso on gso on gro off".

    Versions up to 2.6.38 put spaces into some names.
    """
    output = re.sub(
        r"^(?:tcp|generic) segmentation offload:", lambda name: name[0].replace(" ", "-"), output, flags=re.MULTILINE
    )
    found = dict(re.findall(r"^(\S+): (on|off)", output, re.MULTILINE))
    changeable = dict(re.findall(r"^(\S+): (on|off)\s*$", output, re.MULTILINE))
    if not _EVERYWHERE.keys() <= found.keys():
        raise ValueError("ethtool does not tell whether tso, gso and gro are on")
    states = [(short, found[name]) for name, short in _EVERYWHERE.items()]
    states += [(short, changeable[name]) for name, short in _SOMEWHERE.items() if name in changeable]
    return " ".join(f"{short} {state}" for short, state in states)
