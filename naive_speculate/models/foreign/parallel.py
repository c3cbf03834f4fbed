"""A draft head that drafts a whole window in one forward (P-EAGLE).

After the target's states it reads mask tokens, each with one learned state instead of the
target's. Names and computation follow vLLM's speculators 0.9.0 (`peagle`).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch

from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.models.heads.model import Head, TorchHead
from naive_speculate.models.heads.weights import HeadWeights
from naive_speculate.models.llama.weights import LlamaShape, RotaryTable


class ParallelHead(Head):
    """EAGLE-3's layers; the j-th mask after a text drafts its token j + 1.

    Args:
        weights, shape, rotary, layers, name: See `DraftHead`.
        mask_token_id: The target's token whose embedding a mask reads.
        mask_state: What a mask reads in place of the target's hidden states, `[len(layers) * t]`.
    """

    role: ClassVar[str] = "block"

    def __init__(
        self,
        weights: HeadWeights,
        shape: LlamaShape,
        rotary: RotaryTable,
        layers: Sequence[int],
        name: str,
        mask_token_id: int,
        mask_state: torch.Tensor,
    ) -> None:
        super().__init__(weights, shape, layers, name, "torch")
        self.mask_token_id, self.mask_state = mask_token_id, mask_state
        self._forward = TorchHead(shape, weights, rotary)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        states: torch.Tensor,
        rows: CacheRows,
        last: Sequence[int],
        of_target: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `DraftHead.forward`; the states are the target's. `last`: one index per row, then
        the next of each row, and so on."""
        rows.cache.require(self._shape, self.dtype, self.device)
        logits, hidden = self._forward.forward(token_ids, self._fused(states), rows, last)
        rows.advance(token_ids.shape[1])
        return self._in_target_tokens(logits), hidden
