"""How mpirun's agent shows a host that it knows the key of their run, without sending it."""

from __future__ import annotations

import hashlib
import hmac


def proof(key: str, *, address: str, once: str, text: bytes) -> str:
    """What only who knows the key can say of a text at this address (with its port), for a number that is used once.

    The address is part of it, so that what was said at one host cannot be handed on to another.
    """
    return hmac.new(key.encode(), f"{address}\n{once}\n".encode() + text, hashlib.sha256).hexdigest()
