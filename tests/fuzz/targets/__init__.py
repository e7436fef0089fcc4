"""Every target by its name; a share is out of a thousand inputs."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import captures, channel, files, journal, operations, outputs, ssh, store, traces

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *files.TARGETS,
        *channel.TARGETS,
        *journal.TARGETS,
        *store.TARGETS,
        *captures.TARGETS,
        *outputs.TARGETS,
        *ssh.TARGETS,
        *operations.TARGETS,
        *traces.TARGETS,
    )
}
