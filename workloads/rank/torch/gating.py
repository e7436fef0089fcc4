"""Gate tokens to experts and learn to balance them: the experts of each token, and the balancing loss."""

from __future__ import annotations

import torch
from torch import nn

FEATURES = 32  # of a token, as its gate sees it; as many as are enough to tell tokens apart


class Tokens:
    """Tokens of a rank, fresh in each iteration: noise around a direction that all ranks share.

    That direction is what makes an untrained gate prefer some experts, as the embeddings of real words do.
    """

    def __init__(self, count: int, *, seed: int, rank: int) -> None:
        shared = torch.Generator().manual_seed(seed)
        self._direction: torch.Tensor = torch.randn(FEATURES, generator=shared) / FEATURES**0.5
        self._draw = torch.Generator().manual_seed(seed + 1 + rank)
        self._count = count

    def next(self) -> torch.Tensor:
        """Return features of shape (count, FEATURES)."""
        noise: torch.Tensor = torch.randn(self._count, FEATURES, generator=self._draw) / FEATURES**0.5
        return self._direction + noise

    def chance(self, count: int) -> torch.Tensor:
        """Return uniform random numbers of shape (tokens, count)."""
        return torch.rand(self._count, count, generator=self._draw)


class Gate(nn.Module):
    """A linear gate on top-k experts.

    The first expert of a token is always taken; a further one with a probability of `top` times its share of the gates
    that were chosen, at most one: GShard's random routing (Lepikhin et al., 2021, algorithm 1), for any `top`.
    """

    def __init__(self, experts: int, *, top: int, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(2.0 * torch.randn(experts, FEATURES, generator=draw))
        self.top = top

    def forward(self, tokens: torch.Tensor, chance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many copies of tokens go to each expert, shape (experts,), and the balancing loss.

        The loss is that of Switch Transformers (Fedus et al., 2022, eq. 4): experts times the sum over experts of the
        share of tokens whose first choice it is, times its mean gate. It is one when all is even.
        """
        gates = torch.softmax(tokens @ self.weight.T, dim=1)
        experts = gates.shape[1]
        best, chosen = gates.topk(self.top, dim=1)
        taken = chance < self.top * (best / best.sum(dim=1, keepdim=True)).detach()
        taken[:, 0] = True
        first = torch.bincount(chosen[:, 0], minlength=experts) / len(tokens)
        return torch.bincount(chosen[taken], minlength=experts), experts * (first * gates.mean(dim=0)).sum()
