"""Counters for the sampler as `nic` samples them, but for the driver's, which come from a list: no such NIC is here."""

from __future__ import annotations

import array
import json

import nic_source  # type: ignore[import-not-found]  # beside it on the host

RECORDED = "ethtool.json"  # name -> value


class RecordedCounters(nic_source.DriverCounters):  # type: ignore[misc]
    """A driver that has every counter of the file; the kernel is asked nothing."""

    def names(self) -> list[str]:
        with open(RECORDED) as file:  # noqa: PTH123 - as the sampler's own sources
            self.recorded = json.load(file)
        self.values = array.array("Q", self.recorded.values())
        return list(self.recorded)

    def ioctl(self, buffer: array.array[int]) -> None:
        buffer[1:] = self.values


def open_streams(arguments: list[str]) -> list[object]:
    nic_source.DriverCounters = RecordedCounters
    found: list[object] = nic_source.open_streams(arguments)
    return found
