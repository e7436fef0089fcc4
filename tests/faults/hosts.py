"""Row 16: a host goes, and comes back as after a reboot."""

from __future__ import annotations

from tests.faults.breaking import by_hand, kill_all
from tests.faults.matrix import INVENTORY, row
from tests.faults.scene import Scene

NEW_BOOT = "11111111-2222-3333-4444-555555555555"


@row(16, "a host is rebooted", on=(INVENTORY,), about_s=15)
def rebooted(scene: Scene) -> None:
    run = scene.measuring()
    boot = scene.folder / "boot_id"
    boot.write_text(NEW_BOOT + "\n")
    kill_all(scene.rack.below("h2"))
    by_hand(run, "h2")  # its network is as after any start
    scene.rack.inside("h2", "mount", "--no-mtab", "--bind", boot, "/proc/sys/kernel/random/boot_id")
    run.must_end(1, told="h2: its agent is gone", within_s=90)
    run.must_be_safe("failed", iterations=6)
