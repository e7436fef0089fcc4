"""Costs of messages that take no time: what is left is what links and TCP take."""

from __future__ import annotations

from orchestrator.predict.network_costs import Rates

FREE = Rates(
    round_s=0.0,
    link_factor=1.0,
    inside_round_s=0.0,
    inside_byte_s=0.0,
    message_s=0.0,
    byte_s=0.0,
    wake_s=0.0,
    piece_s=0.0,
    step_s=0.0,
)
