"""Rows 17 to 21 and 41: disks that are full, folders that cannot be used, and what processes leave in them."""

from __future__ import annotations

import subprocess

from tests.faults import checks
from tests.faults.breaking import small_disk
from tests.faults.checks import LINE
from tests.faults.interrupts import MEASURED
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.places import Hosts
from tests.faults.scene import Scene

# Beside a rank's output: a pipe and a link in the place of files, a folder that is closed, and a file of a tebibyte.
LEAVINGS = """
cd "$1"/*.h1/*rank*0 && mkfifo pipe trace.jsonl && ln -s /etc/shadow link && mkdir -p closed/in && chmod 0 closed &&
truncate -s 1T core
"""

NO_ROOM = "o space left|has room for|is full|disk is full"


@row(17, "the disk of the results fills up in the window", on=(LOCAL,), about_s=20, root=True)
def results_full(scene: Scene) -> None:
    with small_disk(scene.folder / "run-results", "12m") as disk:
        run = scene.run()
        run.must_end_untold(1, 3, within_s=120)
        scene.held(LINE, checks.mention(run.said(), NO_ROOM))
        disk.grow("400m")
        run.must_be_safe("failed|completed")


@row(18, "the disk of a host fills up in the window", on=(INVENTORY,), about_s=20)
def host_full(scene: Scene) -> None:
    with scene.rack.mounted("h2", scene.rack.work, "tmpfs", "size=3m,mode=0755"):
        run = scene.run()
        run.must_end(1, told=r"h\d: ", within_s=120)
        scene.held(LINE, checks.mention(run.said(), "no space on h2"))
        run.must_be_safe("failed", iterations=6)


@row(19, "the disk of the results is too small for what the hosts have", on=(INVENTORY,), about_s=25)
def controller_full(scene: Scene) -> None:
    with small_disk(scene.folder / "run-results", "1m") as disk:
        run = scene.run(scene.path(**MEASURED))
        run.must_end_untold(0, 1, 3, within_s=120)
        scene.held(LINE, checks.mention(run.said(), NO_ROOM))
        disk.grow("400m")
        if run.folder().name.endswith(".partial"):
            run.must_be_recoverable(iterations=20)
        else:
            run.must_be_completed_later("completed|failed", iterations=20)


@row(20, "/tmp of a host is full", variant="tmp", on=(INVENTORY,), about_s=15)
def tmp_full(scene: Scene) -> None:
    with scene.rack.mounted("h2", "/tmp", "tmpfs", "size=4k,mode=1777"):
        scene.rack.inside("h2", "sh", "-c", "cat /dev/zero > /tmp/full 2>/dev/null || true")
        run = scene.run(scene.path(**MEASURED))
        run.must_be_completed(within_s=120)


@row(20, "the work folder of a host is read-only", variant="read-only", on=(INVENTORY,), about_s=8, ci=True)
def work_read_only(scene: Scene) -> None:
    with scene.rack.mounted("h2", scene.rack.work, "tmpfs", "ro,mode=0755"):
        run = scene.run()
        run.must_end(1, told="h2: .*ead-only", within_s=60)
        run.must_be_home("failed")


@row(20, "the work folder of a host is mounted noexec", variant="noexec", on=(INVENTORY,), about_s=15)
def work_noexec(scene: Scene) -> None:
    with scene.rack.mounted("h2", scene.rack.work, "tmpfs", "noexec,mode=0755"):
        run = scene.run(scene.path(**MEASURED))
        run.must_be_completed(within_s=120)


@row(21, "the work folder of a host belongs to another user", on=(INVENTORY,), about_s=8, ci=True)
def work_of_another(scene: Scene) -> None:
    with scene.rack.mounted("h2", scene.rack.work, "tmpfs", "uid=12345,mode=0755"):
        run = scene.run()
        run.must_end(1, told="h2: .*12345", within_s=60)
        run.must_be_home("failed")


@row(41, "a rank leaves a pipe, a link, a closed folder and a file of a tebibyte", on=(LOCAL, INVENTORY), about_s=15)
def leavings(scene: Scene) -> None:
    """All else comes home from everywhere, and one line names each."""
    run = scene.measuring(scene.path(**MEASURED))
    if isinstance(scene.place, Hosts):
        scene.rack.inside("h1", "sh", "-c", LEAVINGS, "sh", scene.rack.work)
    else:
        subprocess.run(["sh", "-c", LEAVINGS, "sh", str(run.folder() / "hosts/h1")], check=True)
    run.must_be_completed(within_s=180)
    scene.held(LINE, checks.mention("\n".join(run.manifest()["notes"]), "h1: .*pipe.* .a pipe"))
    scene.held(LINE, checks.mention("\n".join(run.manifest()["notes"]), "h1: .*core .*holes"))
    if isinstance(scene.place, Hosts):
        scene.clean("--stayed", "0s")
