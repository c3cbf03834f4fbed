"""The weights of a draft head of the EAGLE-3 kind.

Names and computation as in the authors' `eagle/model/cnets.py` (SafeAILab/EAGLE) and vLLM's `llama_eagle3.py`.
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
        fuse: From the target's hidden states to one of the head's width, `[d, len(layers) * t]`.
        hidden_norm: Norm of the hidden state before attention, `[d]`.
        layer: The decoder layer. Its `attention_norm` is that of the embedding, and `qkv` reads both side by side, the
            embedding first: `[..., 2 * d]`.
        norm: Norm before the logits, `[d]`.
        head: `[draft_vocab_size, d]`.
        token_ids: The target's token of each of the head's, int64, `[draft_vocab_size]`; None where they are the same.
        norm_before_residual: Whether the normed hidden state, not the plain one, goes into the residual stream.
    """

    embedding: torch.Tensor
    input_norm: torch.Tensor | None
    fuse: torch.Tensor
    hidden_norm: torch.Tensor
    layer: LlamaLayer
    norm: torch.Tensor
    head: torch.Tensor
    token_ids: torch.Tensor | None
    norm_before_residual: bool

    def as_llama(self) -> LlamaWeights:
        """What is as in a Llama of one layer."""
        return LlamaWeights(self.embedding, [self.layer], self.norm, self.head)

    @property
    def num_parameters(self) -> int:
        """Number of parameters that a draft reads, the embedding table apart, of which it reads a row a token."""
        parts = vars(self) | vars(self.layer) | {"embedding": None, "token_ids": None}
        return sum(part.numel() for part in parts.values() if isinstance(part, torch.Tensor))
