"""A gate of another package is found, has its key, is judged, and is on the page, by its one module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.testing import GateCase, MadeWindow, gate_checks
from orchestrator.validity import registry
from orchestrator.validity.window import JobIterations

ROOT = Path(__file__).parents[2]
GOOD = JobIterations(name="a", iterations=50, incomplete=0, ranks=4, ranks_seen=4)
SHORT = JobIterations(name="a", iterations=5, incomplete=1, ranks=4, ranks_seen=4)
CASE = GateCase(name="iterations", passes=(MadeWindow(jobs=(GOOD,)),), fails=(MadeWindow(jobs=(SHORT,)),))

GATE = '''
"""Gate `busy-port`: no host received more than a limit, by the counters of its network devices."""

import math

from orchestrator.core.fields import Size
from orchestrator.validity.declaration import GateSpec, Limit, verdict

NAME = "busy-port"
ORDER = 500
COUNTERS = ("rx_bytes",)
MOST = Limit(key="busy_port", kind=Size, default=1e15, help="Most bytes that a host may receive in a window.")
GATES = (GateSpec(name="busy-port", passes="no host received too much", limit=MOST, remedy="Request less."),)


def judge(window):
    limit = MOST.number(window.manifest.validity)
    for host in window.manifest.topology.hosts:
        grown = [window.growth(host.name, "rx_bytes", port=device) for device in host.devices]
        total = math.fsum(grown)
        known = not math.isnan(total)
        text = f"{host.name} received {total / 1e9:.3g} GB" if known else f"{host.name}: not known what it received"
        passed = total <= limit if known else None
        yield verdict("busy-port", passed, text, measured=total, limit=limit, required=known)
'''
TRIED = """
import json, sys
from pathlib import Path
from tests.helpers.sealed_run import loose, make_run
from documentation import gates, keys
from orchestrator.experiment import editorschema
from orchestrator.store.manifests.manifest import load
from orchestrator.testing import GateCase, MadeWindow, gate_checks
from orchestrator.validity import registry

folder = Path(sys.argv[1])
runs = [make_run(folder / str(most), tolerances={**loose(), "busy_port": most}, iterations=40) for most in (1e15, 1e3)]
windows = [load(run / "manifest.json").windows[0] for run in runs]
port = {("h1", "eth7", "rx_bytes"): 0.0, ("h2", "eth7", "rx_bytes"): 0.0}
port |= {("h3", "eth7", "rx_bytes"): 0.0, ("h4", "eth7", "rx_bytes"): 0.0}
case = GateCase(
    name="busy-port",
    passes=(MadeWindow(grown=port),),
    fails=(MadeWindow(grown={**port, ("h1", "eth7", "rx_bytes"): 1e16}),),
)
for check in gate_checks(case):
    check(folder)
print(json.dumps({
    "page": [line for line in gates.page().splitlines() if line.startswith("| `busy-port` |")],
    "keys": "`busy_port`" in keys.page(),
    "schema": "busy_port" in json.dumps(editorschema.of("experiment")),
    "last": [module.NAME for module in registry.modules()][-1],
    "valid": [window.valid for window in windows],
    "verdicts": [[gate.passed for gate in window.gates if gate.name == "busy-port"] for window in windows],
}))
"""


@pytest.fixture
def installed(tmp_path):
    """What runs a command where a package is installed that offers gates, each by its name and its module's text."""

    def command(gates, *argv):
        site = tmp_path / "site"
        about = site / "lab_parts-2.5.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-parts\nVersion: 2.5\n")
        lines = [f"{name} = lab_{name.replace('-', '_')}" for name in gates]
        (about / "entry_points.txt").write_text("\n".join(["[orch.gates]", *lines, ""]))
        for name, text in gates.items():
            (site / f"lab_{name.replace('-', '_')}.py").write_text(text)
        path = os.pathsep.join(map(str, (site, ROOT)))
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, *argv], cwd=tmp_path, capture_output=True, text=True, env=env, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return command


@pytest.mark.parametrize("check", gate_checks(CASE), ids=str)
def test_a_gate_of_ours_keeps_the_contract(check, tmp_path):
    check(tmp_path)


def test_gates_and_keys_have_one_owner_and_an_order():
    names = [spec.name for spec in registry.specs()]
    assert len(names) == len(set(names))
    orders = [module.ORDER for module in registry.modules()]
    assert orders == sorted(set(orders))
    assert all(module.NAME for module in registry.modules())


@pytest.mark.parametrize("module", registry.modules(), ids=lambda module: module.NAME)
def test_no_gate_fails_a_window_of_which_nothing_is_known(module):
    assert not [one for one in module.judge(MadeWindow()) if one.required and not one.passed]


def test_one_module_makes_a_gate(installed, tmp_path):
    code, out, error = installed({"busy-port": GATE}, "-c", TRIED, str(tmp_path / "runs"))
    assert code == 0, error
    told = json.loads(out)
    assert (told["keys"], told["schema"], told["last"]) == (True, True, "busy-port")
    (row,) = told["page"]
    assert row.startswith("| `busy-port` | no host received too much | `1000000gb`, by `validity: {busy_port: ...}` | ")
    assert told["valid"] == [True, False]
    assert told["verdicts"] == [[True] * 4, [False] * 4]


def test_its_key_is_one_of_an_experiment_while_it_is_installed(installed):
    quickstart = ROOT / "playbooks/experiments/quickstart.yaml"
    orch = ("-m", "orchestrator.cli.main", "plan", str(quickstart), "--set", "validity.busy_port=5gb")
    assert installed({"busy-port": GATE}, *orch)[0] == 0
    code, _, error = installed({}, *orch)
    assert code == 2
    assert "validity.busy_port: unknown key" in error


def test_a_gate_that_takes_our_names_or_lacks_something_is_told_and_not_used(installed):
    broken = {
        "load": GATE.replace('NAME = "busy-port"', 'NAME = "load"'),
        "second": GATE.replace('NAME = "busy-port"', 'NAME = "second"').replace('name="busy-port"', 'name="load"'),
        "third": GATE.replace('NAME = "busy-port"', 'NAME = "third"').replace('key="busy_port"', 'key="drift"'),
        "silent": GATE.replace('NAME = "busy-port"', 'NAME = "silent"').replace("def judge", "def other"),
        "bare": 'NAME = "bare"\n',
    }
    _, out, _ = installed(broken, "-m", "orchestrator.cli.main", "doctor")
    for name, why in (
        ("load", "this name is that of a part of orch"),
        ("second", "the gate load is another gate's"),
        ("third", "the key of `validity:` drift is another gate's"),
        ("silent", "lacks ORDER or judge"),
        ("bare", "has no GATES"),
    ):
        (line,) = [line for line in out.splitlines() if f"gate {name} of the package lab-parts 2.5 cannot be" in line]
        assert why in line


def test_a_gate_that_raises_could_not_be_judged_and_is_told_with_its_package(installed, tmp_path):
    raising = GATE.replace("    limit = MOST", "    raise KeyError('eth9')\n    limit = MOST")
    script = "import sys, json\nfrom pathlib import Path\nfrom tests.helpers.sealed_run import loose, make_run\n"
    script += "run = make_run(Path(sys.argv[1]), tolerances=loose(), iterations=40)\n"
    script += "print((run / 'manifest.json').read_text())"
    code, out, error = installed({"busy-port": raising}, "-c", script, str(tmp_path / "runs"))
    assert code == 0, error
    manifest = json.loads(out)
    why = "the gate busy-port of the package lab-parts 2.5 failed: KeyError: 'eth9'"
    assert manifest["reasons"] == [f"w1: {why}"]
