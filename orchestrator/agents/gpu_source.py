"""GPUs by NVML, for the sampler: use, memory, clocks, power, temperature, and traffic over PCI Express and NVLink.

Arguments: seconds between samples, then the library's name (libnvidia-ml.so.1). What a GPU or driver does not tell is
left out. Numbers of fields and layouts are those of nvml.h, whose interface is kept stable by its versioned names.
"""

from __future__ import annotations

import ctypes
import math
import sys

SM_CLOCK, MEMORY_CLOCK = 1, 2
TEMPERATURE_OF_GPU = 0
ALL_LINKS = 0xFFFFFFFF
UNKNOWN = 13  # NVML_ERROR_FUNCTION_NOT_FOUND
DOUBLE, UINT = 0, 1  # kinds of a field's value; the others are integers of 64 bits
# Counters that a call of a few 100 us gives; nvmlDeviceGetPcieThroughput measures for 20 ms a direction instead.
FIELDS = {
    "pcie_tx_bytes": (197, 0),
    "pcie_rx_bytes": (198, 0),
    "nvlink_tx_kib": (138, ALL_LINKS),
    "nvlink_rx_kib": (139, ALL_LINKS),
}


class Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of the last sample period."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class MemoryApart(ctypes.Structure):
    """nvmlMemory_v2_t, in bytes: what the driver reserves for itself stands apart from what is used."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Value(ctypes.Union):
    """nvmlValue_t."""

    _fields_ = [("double", ctypes.c_double), ("uint", ctypes.c_uint), ("ulonglong", ctypes.c_ulonglong)]


class Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("status", ctypes.c_int),
        ("value", Value),
    ]


class Gpu:
    """One GPU; `columns` are those for which it has values when it is opened."""

    def __init__(self, nvml: ctypes.CDLL, index: int, every_s: float) -> None:
        self.name = "gpu%d" % index
        self.every_s = every_s
        self.nvml = nvml
        self.handle = ctypes.c_void_p()
        check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.handle)), "GPU %d" % index)
        self.fields = (Field * len(FIELDS))()
        self.kept = [name for name, value in self.read().items() if value != ""]
        self.columns = ["%s|gpu.%s" % (self.name, name) for name in self.kept]

    def rows(self) -> list[list[object]]:
        now = self.read()
        return [[now[name] for name in self.kept]]

    def read(self) -> dict[str, object]:
        """Read every value, by its name; empty where the GPU does not tell."""
        use, memory, apart = Utilization(), Memory(), MemoryApart()
        values: dict[str, object] = {}
        used = self.call("nvmlDeviceGetUtilizationRates", ctypes.byref(use)) == 0
        values["busy_percent"] = use.gpu if used else ""
        values["memory_busy_percent"] = use.memory if used else ""
        apart.version = ctypes.sizeof(apart) | 2 << 24
        if self.call("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(apart)) == 0:
            values["memory_used_bytes"] = apart.used
        else:  # an older driver: with what it reserves
            answered = self.call("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)) == 0
            values["memory_used_bytes"] = memory.used if answered else ""
        values["sm_clock_mhz"] = self.number("nvmlDeviceGetClockInfo", SM_CLOCK)
        values["memory_clock_mhz"] = self.number("nvmlDeviceGetClockInfo", MEMORY_CLOCK)
        values["power_mw"] = self.number("nvmlDeviceGetPowerUsage")
        values["temperature_c"] = self.number("nvmlDeviceGetTemperature", TEMPERATURE_OF_GPU)
        reasons = ctypes.c_ulonglong()
        answered = self.call("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(reasons)) == 0
        values["throttle_reasons"] = reasons.value if answered else ""
        values.update(self.counted())
        return values

    def number(self, function: str, *arguments: int) -> object:
        found = ctypes.c_uint()
        return found.value if self.call(function, *arguments, ctypes.byref(found)) == 0 else ""

    def counted(self) -> dict[str, object]:
        for place, (number, scope) in enumerate(FIELDS.values()):
            field = self.fields[place]
            field.field, field.scope, field.status = number, scope, UNKNOWN
        self.call("nvmlDeviceGetFieldValues", len(FIELDS), self.fields)
        return {name: value_of(self.fields[place]) for place, name in enumerate(FIELDS)}

    def call(self, function: str, *arguments: object) -> int:
        """Call a function of NVML for this GPU and return its status; a driver may be too old for one, or too new."""
        try:
            called = getattr(self.nvml, function)
        except AttributeError:
            return UNKNOWN
        return int(called(self.handle, *arguments))


def value_of(field: Field) -> object:
    if field.status != 0:
        return ""
    if field.kind == DOUBLE:
        return int(field.value.double) if math.isfinite(field.value.double) else ""
    return field.value.uint if field.kind == UINT else field.value.ulonglong


def check(status: int, what: str) -> None:
    if status != 0:
        raise OSError("%s: NVML error %d" % (what, status))


def open_streams(arguments: list[str]) -> list[object]:
    """Return a stream for each GPU. OSError without the library, or without a GPU."""
    nvml = ctypes.CDLL(arguments[1])
    check(nvml.nvmlInit_v2(), "starting")
    count = ctypes.c_uint()
    check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "counting GPUs")
    if not count.value:
        raise OSError("there is no GPU")
    found: list[object] = []
    for index in range(count.value):
        try:
            found.append(Gpu(nvml, index, float(arguments[0])))
        except OSError as error:  # it has fallen off the bus, or this user may not see it
            print("gpu: left out %s" % error, file=sys.stderr, flush=True)
    if not found:
        raise OSError("no GPU answers")
    return found
