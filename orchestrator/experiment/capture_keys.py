"""What an experiment file says of captures as a whole, whatever makes them."""

from __future__ import annotations

from typing import Literal

from orchestrator.core.fields import Model


class Captures(Model):
    """What becomes of captures once they are made."""

    stay: bool = False
    """Each host reduces its captures itself and keeps them; tables and hashes come home. Hosts of this machine write
    captures into the run's folder anyway."""
    reduce: Literal["at-end", "as-they-close"] = "at-end"
    """`at-end`: after the last window. `as-they-close`: captures that stay and rotate are read file by file while the
    run goes on, by processor time that nothing else on the host wants."""
