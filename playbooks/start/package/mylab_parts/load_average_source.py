"""Load averages for orch's sampler. Argument: seconds between samples."""

from pathlib import Path


class LoadAverage:
    """One line of /proc/loadavg a sample; a column is PORT|COUNTER, and the host as a whole has no port."""

    name = "load-average"
    columns = ("|load.1min", "|load.running")

    def __init__(self, every_s):
        self.every_s = every_s

    def rows(self):
        words = Path("/proc/loadavg").read_text().split()
        return [[words[0], words[3].split("/")[0]]]


def open_streams(arguments):
    """What the sampler asks for."""
    return [LoadAverage(float(arguments[0]))]
