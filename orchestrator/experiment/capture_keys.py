"""What an experiment file says of captures as a whole, whatever makes them."""

from __future__ import annotations

from orchestrator.core.fields import Model


class Captures(Model):
    """What becomes of captures once they are made."""

    stay: bool = False
    """Each host reduces its captures itself and keeps them; tables and hashes come home. Hosts of this machine write
    captures into the run's folder anyway."""
