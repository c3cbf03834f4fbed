"""What the draft token before adds to a block drafter's logits, for the kinds that draw a block in
order.

Names and computation follow vLLM's speculators 0.9.0 (`dspark`, `dflash2`, `xpress`) and, for
DFlash 2, z-lab/dflash 0.1.0.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F


@dataclass
class BlockOutput:
    """What a block drafter computed for one block per row, and what a chain remembers of it."""

    hidden: torch.Tensor  # states of all positions of the block, after the norm, `[rows, size, d]`
    logits: torch.Tensor  # of its draft tokens, `[rows, count, draft_vocab_size]`
    first: int  # the position of the block that drafts the first token: 0 or 1
    remembered: list[torch.Tensor] = field(default_factory=list)


class Chain(ABC):
    """Draws the tokens of a block one after the other."""

    def begin(self, block: BlockOutput, token_ids: torch.Tensor) -> None:
        """Read the block's first position, where it drafts nothing. `token_ids`: each row's last
        two tokens, int64 `[rows, 2]`."""
        block.remembered = []

    @abstractmethod
    def logits(self, block: BlockOutput, index: int, token_ids: torch.Tensor) -> torch.Tensor:
        """The logits of draft token `index` after the tokens `[rows]` before it, `[rows,
        draft_vocab_size]`. Called in order."""

    @abstractmethod
    def tensors(self) -> Sequence[torch.Tensor]:
        """Its weights."""


@dataclass
class MarkovChain(Chain):
    """DSpark: an embedding of low rank of the token before, projected onto the draft tokens.

    `gate` is a layer that weighs the embedding by the block's state ("gated"); `joint` one that
    carries a state along the block ("rnn"). Both read states and embeddings, concatenated.
    """

    embedding: torch.Tensor  # `[vocab_size, rank]`
    output: torch.Tensor  # `[draft_vocab_size, rank]`
    gate: tuple[torch.Tensor, torch.Tensor] | None = None  # weight `[rank, d + rank]` and bias
    joint: tuple[torch.Tensor, torch.Tensor] | None = None  # `[3 * rank, 2 * rank + d]` and bias

    def begin(self, block: BlockOutput, token_ids: torch.Tensor) -> None:
        if self.joint is not None:
            block.remembered = [block.hidden.new_zeros(len(token_ids), self.output.shape[1])]
            if block.first:
                self._carried(block, 0, token_ids[:, 1])

    def logits(self, block: BlockOutput, index: int, token_ids: torch.Tensor) -> torch.Tensor:
        if self.joint is not None:
            read = self._carried(block, block.first + index, token_ids)
        else:
            read = F.embedding(token_ids, self.embedding)
            if self.gate is not None:
                both = torch.cat([block.hidden[:, block.first + index], read], -1)
                read = torch.sigmoid(F.linear(both, *self.gate)) * read
        return block.logits[:, index] + F.linear(read, self.output)

    def _carried(self, block: BlockOutput, position: int, token_ids: torch.Tensor) -> torch.Tensor:
        """What is projected at a position; the state is carried on."""
        assert self.joint is not None
        (state,), read = block.remembered, F.embedding(token_ids, self.embedding)
        joint = F.linear(torch.cat([state, read, block.hidden[:, position]], -1), *self.joint)
        gate, candidate, output = joint.chunk(3, -1)
        gate = torch.sigmoid(gate)
        block.remembered = [gate * state + (1 - gate) * torch.tanh(candidate)]
        return torch.tanh(output)

    def tensors(self) -> Sequence[torch.Tensor]:
        return [self.output, *(self.gate or ()), *(self.joint or ())]


@dataclass
class CandidateSelector(Chain):
    """DFlash 2: of the `top_k` likeliest tokens of a position, one is chosen by their logits plus
    Σ predecessor * projected state * successor. All others have no probability."""

    predecessors: torch.Tensor  # `[vocab_size, rank]`
    successors: torch.Tensor  # `[vocab_size, rank]`
    projection: torch.Tensor  # `[rank, d]`
    top_k: int

    def logits(self, block: BlockOutput, index: int, token_ids: torch.Tensor) -> torch.Tensor:
        unary = block.logits[:, index]
        top, candidates = unary.topk(self.top_k, -1)
        context = F.linear(block.hidden[:, block.first + index], self.projection)
        context = context * F.embedding(token_ids, self.predecessors)
        scores = top + (F.embedding(candidates, self.successors) @ context[..., None])[..., 0]
        return torch.full_like(unary, -torch.inf).scatter_(-1, candidates, scores)

    def tensors(self) -> Sequence[torch.Tensor]:
        return [self.projection]


@dataclass
class Refiner(Chain):
    """XPress: a small network mixes the tokens and states of the block up to each position.

    The engines refine a whole block several times in parallel, from the argmax of its logits. In
    order, each token reads the final tokens before it, which is what those passes converge to;
    as many passes as draft tokens give the same.
    """

    embedding: torch.Tensor  # `[vocab_size, rank]`
    down_state: torch.Tensor  # `[rank, d]`
    down_mean: torch.Tensor  # `[rank, d]`, of the block's mean state
    project: torch.Tensor  # `[rank, 3 * rank]`
    mix: torch.Tensor  # `[rank, size, size]`, of which the lower triangle counts
    gate: torch.Tensor  # `[inner, rank]`
    up: torch.Tensor  # `[inner, rank]`
    down: torch.Tensor  # `[rank, inner]`
    output: torch.Tensor  # `[draft_vocab_size, rank]`

    def begin(self, block: BlockOutput, token_ids: torch.Tensor) -> None:
        block.remembered = []
        if block.first:
            block.remembered.append(self._read(block, 0, token_ids[:, 0]))

    def logits(self, block: BlockOutput, index: int, token_ids: torch.Tensor) -> torch.Tensor:
        position = block.first + index
        block.remembered.append(self._read(block, position, token_ids))
        read = torch.stack(block.remembered, -1)  # `[rows, rank, position + 1]`
        hidden = read[..., -1] + (read * self.mix[:, position, : position + 1]).sum(-1)
        inner = F.silu(F.linear(hidden, self.gate)) * F.linear(hidden, self.up)
        hidden = hidden + F.linear(inner, self.down)
        return block.logits[:, index] + F.linear(hidden, self.output)

    def _read(self, block: BlockOutput, position: int, token_ids: torch.Tensor) -> torch.Tensor:
        parts = [
            F.linear(block.hidden[:, position], self.down_state),
            F.linear(block.hidden.mean(1), self.down_mean),
            F.embedding(token_ids, self.embedding),
        ]
        return F.linear(torch.cat(parts, -1), self.project)

    def tensors(self) -> Sequence[torch.Tensor]:
        return [tensor for name, tensor in vars(self).items() if name != "embedding"]
