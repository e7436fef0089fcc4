"""Counters of network devices for the sampler: the kernel's, the driver's (ethtool -S) and the RDMA device's.

Arguments: seconds between samples of the kernel's counters, seconds between samples of the slow ones, 1 to keep the
driver's counters of single queues, the folder where sysfs is mounted, then the devices.
"""

# ruff: noqa: PTH119, PTH123, PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
import sys

# rtnl_link_stats64 in <linux/if_link.h>; the names are those of /sys/class/net/DEVICE/statistics, which shows the same.
KERNEL_COUNTERS = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
    "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
    "tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler",
)  # fmt: skip

NETLINK_ROUTE, RTM_GETSTATS, RTM_NEWSTATS, NLM_F_REQUEST, NLMSG_ERROR = 0, 94, 92, 1, 2
IFLA_STATS_LINK_64 = 1

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO, ETH_SS_STATS = 0x1B, 0x1D, 0x37, 1
ETH_GSTRING_LEN = 32


class KernelCounters:
    """What the kernel counts for every device: one RTM_GETSTATS request a device, so a row is of one instant."""

    name = "nic"

    def __init__(self, devices: list[str], every_s: float) -> None:
        self.every_s = every_s
        self.columns = ["%s|%s" % (device, counter) for device in devices for counter in KERNEL_COUNTERS]
        self.devices = devices
        self.numbers = struct.Struct("=%dQ" % len(KERNEL_COUNTERS))
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self.socket.settimeout(1.0)
        self.requests = [self.request(socket.if_nametoindex(device)) for device in devices]
        self.lost: set[str] = set()

    @staticmethod
    def request(index: int) -> bytes:
        return struct.pack("=IHHIIBBHII", 28, RTM_GETSTATS, NLM_F_REQUEST, 0, 0, 0, 0, 0, index, IFLA_STATS_LINK_64)

    def rows(self) -> list[list[object]]:
        row: list[object] = []
        for device, request in zip(self.devices, self.requests):  # noqa: B905 - Python 3.8
            self.socket.send(request)
            row.extend(self.answer(device, self.socket.recv(65536)))
        if len(self.lost) == len(self.devices):
            raise OSError("no device is left of " + ", ".join(self.devices))
        return [row]

    def answer(self, device: str, message: bytes) -> tuple[object, ...]:
        kind = struct.unpack_from("=H", message, 4)[0]
        if kind == NLMSG_ERROR:
            if device not in self.lost:
                code = -struct.unpack_from("=i", message, 16)[0]
                print("nic: %s: %s" % (device, os.strerror(code)), file=sys.stderr, flush=True)
                self.lost.add(device)
            return ("",) * len(KERNEL_COUNTERS)
        at = 28
        while at + 4 <= len(message):
            length, attribute = struct.unpack_from("=HH", message, at)
            if attribute == IFLA_STATS_LINK_64:
                return self.numbers.unpack_from(message, at + 4)
            at += max(4, (length + 3) & ~3)
        raise OSError("the kernel's answer for %s holds no counters" % device)


class DriverCounters:
    """What `ethtool -S` shows, through the same ioctl."""

    name = "ethtool"

    def __init__(self, device: str, every_s: float, queues: bool) -> None:
        self.name = "ethtool." + device
        self.every_s = every_s
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.device = device
        names = self.names()
        self.kept = [i for i, name in enumerate(names) if name and (queues or not of_one_queue(name))]
        self.columns = ["%s|ethtool.%s" % (device, names[i]) for i in self.kept]
        self.buffer = array.array("Q", [0] * (1 + len(names)))
        self.head = struct.pack("=II", ETHTOOL_GSTATS, len(names))

    def ioctl(self, buffer: array.array[int]) -> None:
        request = struct.pack("16sP16x", self.device.encode(), buffer.buffer_info()[0])
        fcntl.ioctl(self.socket, SIOCETHTOOL, request)

    def names(self) -> list[str]:
        buffer = array.array("B", struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
        self.ioctl(buffer)
        _, _, mask, count = struct.unpack("=IIQI", buffer.tobytes())
        if not mask or not count:
            return []
        head = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count)
        buffer = array.array("B", head + bytes(count * ETH_GSTRING_LEN))
        self.ioctl(buffer)
        text = buffer.tobytes()[len(head) :]
        cut = [text[i * ETH_GSTRING_LEN : (i + 1) * ETH_GSTRING_LEN] for i in range(count)]
        return [part.split(b"\0")[0].decode("ascii", "replace").strip() for part in cut]

    def rows(self) -> list[list[int]]:
        self.buffer[0] = struct.unpack("=Q", self.head)[0]
        self.ioctl(self.buffer)
        return [[self.buffer[1 + i] for i in self.kept]]


def of_one_queue(name: str) -> bool:
    """Whether a counter is of one ring or channel: "rx3_packets", "tx-0.bytes", "[0]: rx_drops", "rx_queue_1_drops"."""
    if name.startswith("[") or (name[:2] in ("rx", "tx", "ch") and name[2:].lstrip("-_")[:1].isdigit()):
        return True
    return name.partition("queue_")[2][:1].isdigit()


class RdmaCounters:
    """Counters of the RDMA device behind a network device, which neither the kernel's counters nor tcpdump see.

    Names and units are those of sysfs: port_xmit_data and port_rcv_data count words of four bytes.
    """

    def __init__(self, device: str, every_s: float, files: list[str]) -> None:
        self.name = "rdma." + device
        self.every_s = every_s
        self.columns = []
        self.files = []
        for path in files:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                os.pread(fd, 64, 0)
            except OSError as error:
                print("rdma: left out %s: %s" % (path, error.strerror), file=sys.stderr, flush=True)
                continue
            self.files.append(fd)
            self.columns.append("%s|rdma.%s" % (device, os.path.basename(path)))

    def rows(self) -> list[list[str]]:
        return [[os.pread(fd, 64, 0).decode().strip() for fd in self.files]]


def listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def rdma_files(device: str, sysfs: str) -> list[str]:
    """Paths of the counters of those ports of RDMA devices whose network device is this one."""
    files: list[str] = []
    for rdma in listing("%s/class/net/%s/device/infiniband" % (sysfs, device)):
        ports = "%s/class/infiniband/%s/ports" % (sysfs, rdma)
        for port in listing(ports):
            try:
                with open("%s/%s/gid_attrs/ndevs/0" % (ports, port)) as file:
                    owner = file.read().strip()
            except OSError:
                owner = device  # not said: a device of InfiniBand proper, or an old kernel
            if owner == device:
                for group in ("counters", "hw_counters"):
                    folder = "%s/%s/%s" % (ports, port, group)
                    files.extend("%s/%s" % (folder, name) for name in listing(folder) if name != "lifespan")
    return files


def open_streams(arguments: list[str]) -> list[object]:
    every_s, slow_s, queues, sysfs = float(arguments[0]), float(arguments[1]), arguments[2] == "1", arguments[3]
    devices = arguments[4:]
    present = {name for _, name in socket.if_nameindex()}
    for device in devices:
        if device not in present:
            raise OSError("there is no network device %s" % device)
    streams: list[object] = [KernelCounters(devices, every_s)]
    for device in devices:
        try:
            driver = DriverCounters(device, slow_s, queues)
        except OSError as error:
            print("ethtool: nothing of %s: %s" % (device, error.strerror), file=sys.stderr, flush=True)
        else:
            streams.extend([driver] if driver.columns else [])
        rdma = RdmaCounters(device, slow_s, rdma_files(device, sysfs))
        streams.extend([rdma] if rdma.columns else [])
    return streams
