"""Counters of network devices for the sampler: the kernel's, the driver's (ethtool -S) and the RDMA device's.

Arguments: seconds between samples of the kernel's counters, seconds between samples of the slow ones, 1 to keep the
driver's counters of single queues, the folder where sysfs is mounted, then the devices.
"""

# ruff: noqa: PTH119, PTH123, PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
import sys
import time

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
SPARE = 4096  # counters that a driver may have got since it was asked how many it has

QUEUES = ("q", "rxq", "txq", "rq", "sq", "cq", "vq", "queue", "ring", "channel", "ch", "vec", "rvec")
SMALLEST_FRAME = 64
AWAY_S = 10.0  # for which devices may be gone, as while a driver is loaded anew


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Patience:
    """A limit on how long a device may be missing, as while its driver is reloaded, before it counts as gone."""

    def __init__(self) -> None:
        self.since: float | None = None

    def told(self, there: bool, what: str) -> None:
        """Note whether the device is there; OSError where it has been missing for too long."""
        if there:
            self.since = None
        elif self.since is None:
            self.since = time.monotonic()
        elif time.monotonic() - self.since > AWAY_S:
            raise OSError(what)


class KernelCounters:
    """The kernel's counters of every device: one RTM_GETSTATS request a device, so a row is of one instant."""

    name = "nic"

    def __init__(self, devices: list[str], every_s: float) -> None:
        self.every_s = every_s
        self.columns = ["%s|%s" % (device, counter) for device in devices for counter in KERNEL_COUNTERS]
        self.devices = devices
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self.socket.settimeout(1.0)
        self.requests = [self.request(socket.if_nametoindex(device)) for device in devices]
        self.lost: set[str] = set()
        self.patience = Patience()

    @staticmethod
    def request(index: int) -> bytes:
        return struct.pack("=IHHIIBBHII", 28, RTM_GETSTATS, NLM_F_REQUEST, 0, 0, 0, 0, 0, index, IFLA_STATS_LINK_64)

    def rows(self) -> list[list[object]]:
        row: list[object] = []
        for place, device in enumerate(self.devices):
            if device in self.lost:
                self.look_again(place)
            self.socket.send(self.requests[place])
            row.extend(self.answer(device, self.socket.recv(65536)))
        self.patience.told(len(self.lost) < len(self.devices), "no device is left of " + ", ".join(self.devices))
        return [row]

    def look_again(self, place: int) -> None:
        """Look up the index of a device that was missing: a reloaded driver gives it another."""
        try:
            self.requests[place] = self.request(socket.if_nametoindex(self.devices[place]))
        except OSError:
            return
        self.lost.discard(self.devices[place])
        say("nic: %s is back" % self.devices[place])

    def answer(self, device: str, message: bytes) -> tuple[object, ...]:
        """Return the values of KERNEL_COUNTERS.

        Empty where there is no such device, or the kernel has no such counter.
        """
        kind = struct.unpack_from("=H", message, 4)[0]
        if kind == NLMSG_ERROR:
            if device not in self.lost:
                code = -struct.unpack_from("=i", message, 16)[0]
                say("nic: %s: %s" % (device, os.strerror(code)))
                self.lost.add(device)
            return ("",) * len(KERNEL_COUNTERS)
        at = 28
        while at + 4 <= len(message):
            length, attribute = struct.unpack_from("=HH", message, at)
            if attribute == IFLA_STATS_LINK_64:
                count = min(len(KERNEL_COUNTERS), (length - 4) // 8)  # older kernels have fewer
                return (*struct.unpack_from("=%dQ" % count, message, at + 4), *[""] * (len(KERNEL_COUNTERS) - count))
            at += max(4, (length + 3) & ~3)
        raise OSError("the kernel's answer for %s holds no counters" % device)


class DriverCounters:
    """Counters that `ethtool -S` shows, by the same ioctl; columns follow the names when the counters change."""

    def __init__(self, device: str, every_s: float, queues: bool) -> None:
        self.name = "ethtool." + device
        self.every_s = every_s
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.device = device
        self.patience = Patience()
        self.told: set[str] = set()
        now = self.names()
        self.kept = [one for one in counted(now) if one[0] and (queues or not of_one_queue(one[0]))]
        self.columns = ["%s|ethtool.%s" % (device, name) for name, _ in self.kept]
        self.settle(now)

    def settle(self, now: list[str]) -> None:
        """Set the names of the counters, in their order."""
        self.count = len(now)
        at = {one: place for place, one in enumerate(counted(now))}
        self.places = [at.get(one) for one in self.kept]
        # A driver may have more counters by the time when it is asked for them, and the kernel writes all of them.
        self.buffer = array.array("Q", bytes(8 * (1 + len(now) + SPARE)))

    def ioctl(self, buffer: array.array[int]) -> None:
        request = struct.pack("16sP16x", self.device.encode(), buffer.buffer_info()[0])
        fcntl.ioctl(self.socket, SIOCETHTOOL, request)

    def number(self) -> int:
        """Return how many counters the driver has now."""
        buffer = array.array("B", struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0))
        self.ioctl(buffer)
        _, _, mask, count = struct.unpack("=IIQI", buffer.tobytes())
        return int(count) if mask else 0

    def names(self) -> list[str]:
        count = self.number()
        if not count:
            return []
        head = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count)
        buffer = array.array("B", head + bytes((count + SPARE) * ETH_GSTRING_LEN))
        self.ioctl(buffer)
        text = buffer.tobytes()[len(head) :]
        cut = [text[i * ETH_GSTRING_LEN : (i + 1) * ETH_GSTRING_LEN] for i in range(count)]
        return [part.split(b"\0")[0].decode("ascii", "replace").strip() for part in cut]

    def rows(self) -> list[list[object]]:
        try:
            if self.number() != self.count:
                now = self.names()
                self.tell("it has %d counters and had %d: names decide which is which" % (len(now), self.count))
                self.settle(now)
            self.buffer[0] = struct.unpack("=Q", struct.pack("=II", ETHTOOL_GSTATS, self.count))[0]
            self.ioctl(self.buffer)
        except OSError as error:  # the device is gone, or its driver is being loaded anew
            self.tell("no counters: %s" % error.strerror)
            self.patience.told(False, "no counters for %.0f s" % AWAY_S)
            return [[""] * len(self.kept)]
        self.patience.told(True, "")
        said = struct.unpack("=II", struct.pack("=Q", self.buffer[0]))[1]
        if said != self.count:  # it changed meanwhile
            return [[""] * len(self.kept)]
        return [["" if place is None else self.buffer[1 + place] for place in self.places]]

    def tell(self, what: str) -> None:
        if what not in self.told:
            self.told.add(what)
            say("%s: %s" % (self.name, what))


def counted(names: list[str]) -> list[tuple[str, int]]:
    """Return each name with its earlier occurrences in the list: drivers may name counters of several queues alike."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        found.append((name, seen.get(name, 0)))
        seen[name] = seen.get(name, 0) + 1
    return found


def of_one_queue(name: str) -> bool:
    """Return whether a counter is of one ring or channel, by the number in its name.

    Such as "rx3_packets", "tx-0.bytes", "[0]: rx_drops", "0: rcv_pkts", "rx_queue_1_drops", "rxq0: rx_bytes",
    "ptp_rx0_packets", "rx_posted_desc[0]" and "Tx Queue#", but not "rx_prio3_pause", "rx_65_to_127_bytes_phy" or
    "[hw] rx frames".
    """
    text = name.lower()
    if text.endswith("#") and text.rstrip("# ").endswith(QUEUES):
        return True
    at = 0
    while at < len(text):
        end = at
        while end < len(text) and "0" <= text[end] <= "9":
            end += 1
        if end > at and queues_number(text[:at], int(text[at:end]), text[end:]):
            return True
        at = end + 1
    return False


def queues_number(before: str, number: int, after: str) -> bool:
    """Return whether a number in a name is that of a queue, by what stands before and after it."""
    if (before.endswith("[") and after.startswith("]")) or (not before.strip() and after.startswith(":")):
        return True
    bare = before.rstrip("-_ .#")
    word = bare[len(bare.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
    if word in QUEUES:
        return True
    if word not in ("rx", "tx"):
        return False
    if before[len(bare) :] != "_":
        return before[len(bare) :] in ("", "-")
    # "rx_0_packets" is of a queue, "rx_64_bytes" and "rx_65_to_127_bytes" are of frames of a size.
    sized = after.startswith(("_to", "to", "b", "-", "_max", "_plus", "plus"))
    return not sized and not (number >= SMALLEST_FRAME and after.startswith(("_byte", "_oct")))


class RdmaCounters:
    """Counters of the RDMA device behind a network device, which neither the kernel's counters nor tcpdump see.

    Names and units are those of sysfs: port_xmit_data and port_rcv_data count words of four bytes. Each file is read by
    itself; what is no number, such as "N/A (no PMA)", is an empty cell, and the file is named.
    """

    def __init__(self, device: str, every_s: float, files: list[str]) -> None:
        self.name = "rdma." + device
        self.every_s = every_s
        self.columns = []
        self.files = []
        self.paths = []
        self.patience = Patience()
        self.told: set[str] = set()
        for path in files:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                say("rdma: left out %s: %s" % (path, error.strerror))
                continue
            self.files.append(fd)
            self.paths.append(path)
            self.columns.append("%s|rdma.%s" % (device, os.path.basename(path)))

    def rows(self) -> list[list[str]]:
        texts = [self.text(place) for place in range(len(self.files))]
        self.patience.told(any(text is not None for text in texts), "none of its files can be read")
        return [[self.number(text, path) for text, path in zip(texts, self.paths)]]

    def text(self, place: int) -> str | None:
        try:
            return os.pread(self.files[place], 64, 0).decode("ascii", "replace").strip()
        except OSError as error:
            self.tell(self.paths[place], error.strerror)
            if error.errno == errno.ENODEV:
                self.look_again(place)
            return None

    def look_again(self, place: int) -> None:
        """Reopen the file of a device that was missing: a reloaded driver makes another of the same name."""
        try:
            fd = os.open(self.paths[place], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        os.close(self.files[place])
        self.files[place] = fd

    def number(self, text: str | None, path: str) -> str:
        if text is None or (text.isdigit() and text.isascii()):
            return text or ""
        self.tell(path, "says %r" % text)
        return ""

    def tell(self, path: str, why: str | None) -> None:
        if path not in self.told:
            self.told.add(path)
            say("rdma: no number in %s: %s" % (path, why))


def listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def rdma_files(device: str, sysfs: str) -> list[str]:
    """Return the paths of the counters of those ports of RDMA devices whose network device is this one."""
    files: list[str] = []
    for rdma in listing("%s/class/net/%s/device/infiniband" % (sysfs, device)):
        ports = "%s/class/infiniband/%s/ports" % (sysfs, rdma)
        numbers = listing(ports)
        owners = {port: owners_of("%s/%s/gid_attrs/ndevs" % (ports, port)) for port in numbers}
        for port in numbers:
            # Where no owner is said: a device of InfiniBand proper, or an old kernel.
            alone = not owners[port] and (len(numbers) == 1 or port == port_of(device, sysfs))
            if alone or device in owners[port]:
                for group in ("counters", "hw_counters"):
                    folder = "%s/%s/%s" % (ports, port, group)
                    files.extend("%s/%s" % (folder, name) for name in listing(folder) if name != "lifespan")
        if len(numbers) > 1 and not any(owners.values()) and port_of(device, sysfs) not in numbers:
            say("rdma: left out %s: nothing says which of its ports is that of %s" % (ports, device))
    return files


def owners_of(folder: str) -> set[str]:
    """Return the network devices of a port's addresses; of an address that has none its file cannot be read."""
    found = set()
    for name in listing(folder):
        try:
            with open("%s/%s" % (folder, name), errors="replace") as file:
                found.add(file.read().strip())
        except OSError:
            continue
    return found - {""}


def port_of(device: str, sysfs: str) -> str:
    """Return the port number that a network device has on its adapter, as sysfs counts those of RDMA; empty if unknown.

    Drivers that count by `dev_id` (mlx4) leave `dev_port` at 0 on old kernels.
    """
    found = []
    for name in ("dev_port", "dev_id"):
        try:
            with open("%s/class/net/%s/%s" % (sysfs, device, name), errors="replace") as file:
                found.append(int(file.read().strip(), 0))
        except (OSError, ValueError):
            continue
    return str(max(found) + 1) if found else ""


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
            if error.errno != errno.EOPNOTSUPP:  # which most devices that are no hardware answer
                say("ethtool: nothing of %s: %s" % (device, error.strerror))
        else:
            streams.extend([driver] if driver.columns else [])
        rdma = RdmaCounters(device, slow_s, rdma_files(device, sysfs))
        streams.extend([rdma] if rdma.columns else [])
    return streams
