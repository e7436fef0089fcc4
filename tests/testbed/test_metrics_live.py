"""Live metrics of a real run, and the dashboard's panels asked of a real Prometheus."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from orchestrator.execution.observers import metrics
from tests.helpers import machine
from tests.helpers.metrics_help import a_run, expressions, logged, results, sample
from tests.helpers.orch_runs import light, manifest_of, start, wait_for, write

pytestmark = pytest.mark.testbed


def page(port, path="/metrics"):
    """What a server of this machine says; empty while it is not up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def values(text, name, **labels):
    """The values of a metric whose labels are these, or more."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if re.match(rf"{name}[{{ ]", line)]
    return [float(line.rpartition(" ")[2]) for line in lines if all(one in line for one in wanted)]


@pytest.mark.alone
def test_a_run_is_told_while_it_goes_on(tmp_path):
    port = machine.free_port()
    file = write(tmp_path, light(measure={"warmup": 2, "at_most": "6s"}))
    process = start("run", file, "--results", tmp_path / "r", "--no-report", "--metrics", port)

    def measuring():
        text = page(port)
        sent = values(text, "orch_host_transmit_bits_per_second", host="h1")
        return text if sent and values(text, "orch_load_received_bits_per_second", host="h3") else None

    try:
        text = wait_for(measuring, 360, "the metrics of hosts and loads")
    finally:
        _, err = process.communicate(timeout=300)
    manifest, _ = manifest_of(tmp_path / "r")
    assert manifest["outcome"] == "completed", err
    assert values(text, "orch_phase", phase="window") == [1]
    assert values(text, "orch_run_info", run=manifest["run"]) == [1]
    for rank in (0, 1):
        assert values(text, "orch_iteration_seconds_count", rank=rank)[0] > 2
    assert values(text, "orch_load_requested_bits_per_second", host="h3") == [5e9]
    assert values(text, "orch_load_received_bits_per_second", host="h3")[0] == pytest.approx(5e9, rel=0.3)
    assert values(text, "orch_host_transmit_bits_per_second", host="h1")[0] > 3e9
    assert values(text, "orch_host_retransmits_total", host="h1")[0] >= 0
    assert page(port) == "", "the endpoint goes with the run"


@contextlib.contextmanager
def prometheus(folder, ports):
    """A Prometheus of our own on loopback that scrapes these ports five times a second; its port."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's package prometheus")
    targets = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: orch, honor_labels: true, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    port = machine.free_port()
    argv = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: "Ready" in page(port, "/-/ready"), 60, "Prometheus")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def text_file_served(folder):
    """What a node exporter's text-file collector would say of this folder's file `metrics`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_panel_of_the_dashboard_shows_something_in_a_real_prometheus(tmp_path):
    (tmp_path / "nightly").mkdir()
    results(tmp_path / "nightly" / "metrics")
    port = machine.free_port()
    empty = expressions()
    with (
        metrics.served(str(port)) as live,
        text_file_served(tmp_path / "nightly") as nightly,
        prometheus(tmp_path, [port, nightly]) as database,
    ):
        a_run(live)
        a_run(live, ended=False)
        ends, second = time.monotonic() + 120, 2
        while empty and time.monotonic() < ends:
            live.iteration(logged(second, 0.2), job="training", rank=0)
            live.hosts({"h1": sample(second=second, grown=1000 * second)}, scale=1)
            second += 1
            empty = [expression for expression in empty if not asked(database, expression)]
    assert empty == []


def asked(database, expression):
    """What an expression gives now; none of it is no number."""
    answer = json.loads(page(database, "/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    assert answer["status"] == "success", (expression, answer)
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]


def test_promtool_finds_no_fault_with_the_metrics(tmp_path):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs Debian's package prometheus")
    live = metrics.Metrics()
    a_run(live)
    a_run(live, ended=False)
    for text in (metrics.exposition(live), results(tmp_path / "f").read_text()):
        done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        faults = (done.stdout + done.stderr).splitlines()
        # Rates are in bits everywhere here, as this field tells them.
        assert [fault for fault in faults if not fault.endswith('use base unit "bytes" instead of "bits"')] == []
