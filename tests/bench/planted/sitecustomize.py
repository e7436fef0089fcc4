"""Plant a cause of slowness in one rank, as its interpreter starts: ranks of a run get this folder by PYTHONPATH.

The variable PLANTED says what, a list as JSON; without it nothing happens. A rank's settings lie in its working folder.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

_SETTINGS = Path("config.json")


def slow_rank(factor):
    """Have all passes of this rank take `factor` times as long."""
    settings = json.loads(_SETTINGS.read_text())
    settings["layers"] = [
        [factor * forward, factor * backward, sizes] for forward, backward, sizes in settings["layers"]
    ]
    _SETTINGS.write_text(json.dumps(settings))


def jittery_rank(spread, seed):
    """Have the passes of this rank vary from iteration to iteration, by exponential factors of this mean above 1."""
    settings = json.loads(_SETTINGS.read_text())
    draw = random.Random(seed)  # noqa: S311 - repeatable, and no secret
    factors = [1 + draw.expovariate(1 / spread) for _ in range(200)]
    settings["jitter"] = {"factors": factors, "stretch": 1.0, "common": False, "seed": seed}
    _SETTINGS.write_text(json.dumps(settings))


def small_window(size):
    """Have connections to this host get a receive buffer of `size` bytes."""
    Path("/proc/sys/net/ipv4/tcp_rmem").write_text(f"{size} {size} {size}")


def checkpoint(every, seconds):
    """Stop this rank for so many seconds after each `every` optimizer steps."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = 0

    def save(*_):
        nonlocal steps
        steps += 1
        if steps % every == 0:
            time.sleep(seconds)

    register_optimizer_step_post_hook(save)


def slow_disk(every, mb, mb_s):
    """Have this rank write so many MB past the page cache after each `every` optimizer steps, to a disk of `mb_s` MB/s.

    The limit is of a control group of its own (blkio, version 1), which the bench removes after the run.
    """
    import mmap

    from torch.optim.optimizer import register_optimizer_step_post_hook

    group = Path(f"/sys/fs/cgroup/blkio/orch-planted-{os.getpid()}")
    group.mkdir()
    device = Path().stat().st_dev
    limit = f"{os.major(device)}:{os.minor(device)} {mb_s * 1_000_000}"
    (group / "blkio.throttle.write_bps_device").write_text(limit)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    block = mmap.mmap(-1, 1 << 20)
    file = os.open("checkpoint", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    steps = 0

    def save(*_):
        nonlocal steps
        steps += 1
        for _ in range(mb if steps % every == 0 else 0):
            os.pwrite(file, block, 0)

    register_optimizer_step_post_hook(save)


def slow_reader(mb_s):
    """Have this process read so many MB/s from its connections at most: it starts again, with its reads replaced.

    Buffers of its host grow to 256 kB, and not to the 6 MB that would hold all of an iteration.
    """
    if "SLOW_READER_BYTES_S" not in os.environ:
        Path("/proc/sys/net/ipv4/tcp_rmem").write_text("4096 131072 262144")
        library = Path("slow_reader.so").absolute()
        source = Path(__file__).with_name("slow_reader.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        slowed = {"LD_PRELOAD": str(library), "SLOW_READER_BYTES_S": str(1_000_000 * mb_s)}
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **slowed})  # noqa: S606 - itself


def busy_processor(processes):
    """Have so many processes beside this rank compute for as long as it lives."""
    endless = "import os\nmine = os.getppid()\nwhile os.getppid() == mine:\n    sum(range(100000))"
    for _ in range(processes):
        subprocess.Popen([sys.executable, "-S", "-c", endless], env={"PATH": os.environ.get("PATH", "")})


def _plant(text):
    for wanted in json.loads(text):
        if os.environ.get("RANK") == str(wanted["rank"]) and _SETTINGS.is_file():
            globals()[wanted["what"]](**wanted["how"])


if "PLANTED" in os.environ:
    _plant(os.environ["PLANTED"])
