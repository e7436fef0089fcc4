"""What a manifest says of the jobs of a run before it begins."""

from __future__ import annotations

import pytest

from orchestrator.execution import provenance
from orchestrator.experiment import documents, plan, validation
from orchestrator.experiment.experiment import model

EXPERIMENT = """
name: x
testbed: {{local: {{hosts: 2, link: 1gbit}}}}
workload: {{{workload}}}
measure: {{iterations: 5}}
"""


@pytest.mark.parametrize(
    ("workload", "compute"),
    [
        ("ddp: {model: resnet50, compute_time: 10ms}", "emulated"),
        ("ddp: {model: resnet50, compute: real}", "real"),
        ("ptd: {model: gpt-3b, compute_time: 1s, pipeline: 2}", "emulated"),
        ("fsdp: {model: resnet50, compute_time: 10ms}", "emulated"),
        ("collective: {operations: [all-reduce], sizes: [1mb]}", None),
    ],
)
def test_emulated_compute_is_named_whatever_the_workload(workload, compute):
    text = EXPERIMENT.format(workload=workload).encode()
    (run,) = plan.build(validation.validate(documents.parse(text, name="e", needs="all"), model()))
    (job,) = provenance.collect(run, ["orch"], run="r1").jobs
    assert job.compute == compute
