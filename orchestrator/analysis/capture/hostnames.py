"""Numbers the addresses of a capture, and writes each as text once."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.capture.stages import decoding

Ints = np.ndarray[Any, np.dtype[np.int64]]
Addresses = tuple[Ints, Ints, Ints]  # scope (of decoding), and the two words of each


class HostNumbers:
    """Addresses by number, in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of an address, the next one where it is new."""
        found = self._numbers.setdefault(name, len(self.names))
        if found == len(self.names):
            self.names.append(name)
        return found


def numbered(hosts: HostNumbers, columns: Sequence[Addresses]) -> list[Ints]:
    """The numbers of columns of addresses, new ones in their order, column after column."""
    scope, high, low = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    code = _codes(scope, high, low)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    number = np.zeros(len(first), np.int64)
    for place in np.argsort(first):
        row = int(first[place])
        number[place] = hosts.number(address_text(int(scope[row]), int(high[row]), int(low[row])))
    return np.split(number[inverse.ravel()], np.cumsum([len(column[0]) for column in columns])[:-1])


def _codes(scope: Ints, high: Ints, low: Ints) -> Ints:
    """A number for each address, the same for the same and another one for another."""
    if not np.any(high) and np.all((low >= 0) & (low < 1 << 48)):
        return low | scope << 48
    table = np.ascontiguousarray(np.stack((scope, high, low), axis=1))
    return np.unique(table, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def address_text(scope: int, high: int, low: int) -> str:
    """An address of the words that the reader keeps, as people write it; empty where there is none."""
    if scope == decoding.SCOPE_V4:
        return socket.inet_ntoa(struct.pack(">I", low & 0xFFFFFFFF))
    if scope == decoding.SCOPE_V6:
        return str(ipaddress.IPv6Address(((high & (1 << 64) - 1) << 64) | (low & (1 << 64) - 1)))
    return low.to_bytes(6, "big").hex(":") if scope == decoding.SCOPE_LINK else ""
