"""Terms of an iteration's time, of one rank: computing, and each kind of communication (Li, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Seconds of an iteration of a rank. `hidden_s` is communication beside computing, which adds nothing to it.

    `embedding_s` is the sum of the embedding table's gradients over first and last stage, `bubble_s` waiting for other
    stages, `other_s` what is none of these: the optimizer, logs. Emulated compute that ends late is compute.
    """

    compute_s: float = 0.0
    tensor_s: float = 0.0
    pipeline_s: float = 0.0
    data_s: float = 0.0
    embedding_s: float = 0.0
    bubble_s: float = 0.0
    other_s: float = 0.0
    hidden_s: float = 0.0

    @property
    def iteration_s(self) -> float:
        """Equation 1, and what it leaves out."""
        return sum(self.parts().values())

    @property
    def exposed_s(self) -> float:
        """Communication that computing does not hide."""
        return self.tensor_s + self.pipeline_s + self.data_s + self.embedding_s

    def parts(self) -> dict[str, float]:
        """Return the terms that make up the iteration, by name."""
        return {name.removesuffix("_s"): getattr(self, name) for name in NAMES}


NAMES = tuple(field.name for field in fields(Terms) if field.name != "hidden_s")
