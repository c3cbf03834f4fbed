"""The weights of a draft head: of the EAGLE-3 kind, or one whose states are added to the embedding.

Names and computation of the first as in the authors' `eagle/model/cnets.py` (SafeAILab/EAGLE) and vLLM's `llama_eagle3.py`.
"""

from dataclasses import dataclass

import torch

from naive_speculate.infer.llama.weights import LlamaLayer, LlamaWeights


@dataclass
class HeadWeights:
    """All weights; `d` is the head's own width, `t` the target's.

    Attributes:
        embedding: Of the target's tokens, `[vocab_size, d]`; the target's own where the head has none.
        input_norm: Norm of the features before they are fused, `[len(layers) * t]`; None where there is none.
        layer_norms: Norms of the hidden state of each of the target's layers before they are fused, `[len(layers), t]`
            (EAGLE-3.1's `fc_norm`); None where there are none.
        fuse: From the target's hidden states to one of the head's width, `[d, len(layers) * t]`.
        hidden_norm: Norm of the hidden state before attention, `[d]`.
        state_projection: `[d, d]`; what it makes of the normed hidden state is added to the embedding, and the sum is read by
            layers as in a Llama, as in a module for multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section
            2.2). None for EAGLE-3: there the first layer's `attention_norm` is that of the embedding, its `qkv` reads both
            side by side, the embedding first, `[..., 2 * d]`, and the hidden state alone is the residual stream.
        layers: The decoder layers.
        norm: Norm before the logits, `[d]`.
        head: `[draft_vocab_size, d]`.
        token_ids: The target's token of each of the head's, int64, `[draft_vocab_size]`; None where they are the same.
        norm_before_residual: Whether the normed hidden state, not the plain one, is the residual stream; of EAGLE-3.
        norm_output: Whether the state that the next draft token reads is the one after `norm`, not before it (EAGLE-3.1,
            arXiv 2605.09992).
    """

    embedding: torch.Tensor
    input_norm: torch.Tensor | None
    fuse: torch.Tensor
    hidden_norm: torch.Tensor
    state_projection: torch.Tensor | None
    layers: list[LlamaLayer]
    norm: torch.Tensor
    head: torch.Tensor
    token_ids: torch.Tensor | None
    norm_before_residual: bool
    layer_norms: torch.Tensor | None = None
    norm_output: bool = False

    def as_llama(self) -> LlamaWeights:
        """What is as in a Llama."""
        return LlamaWeights(self.embedding, self.layers, self.norm, self.head)

    @property
    def num_parameters(self) -> int:
        """Number of parameters that a window reads, the fusing of states included, the embedding table apart, of which it reads
        a row a token."""
        own = vars(self) | {"embedding": None, "token_ids": None}
        parts = [part for each in (own, *map(vars, self.layers)) for part in each.values()]
        return sum(part.numel() for part in parts if isinstance(part, torch.Tensor))
