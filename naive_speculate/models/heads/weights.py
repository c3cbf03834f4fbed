"""The weights of a draft head: EAGLE-3, or one that adds states to the embedding.

For EAGLE-3, names and computation follow the authors' `eagle/model/cnets.py` (SafeAILab/EAGLE)
and vLLM's `llama_eagle3.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from naive_speculate.models.llama.rounded import rounded, turned_columns, width_of
from naive_speculate.models.llama.weights import LlamaWeights


@dataclass
class HeadWeights(LlamaWeights):
    """All weights; `d` is the head's own width, `t` the target's. As in a Llama, `embedding` are
    those of the target's tokens, `[vocab_size, d]`, shared with the target if the head has none;
    `norm` is before the logits, and `head` is `[draft_vocab_size, d]`."""

    # from the target's hidden states to one of the head's width, `[d, len(layers) * t]`
    fuse: torch.Tensor
    hidden_norm: torch.Tensor  # norm of the hidden state before attention, `[d]`
    # norm of the features before they are fused, `[len(layers) * t]`; optional
    input_norm: torch.Tensor | None = None
    # `[d, d]`; the projected normed hidden state is added to the embedding, and the sum enters
    # layers as in a Llama, similar to multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437,
    # section 2.2). None for EAGLE-3: there the first layer's `attention_norm` norms the embedding,
    # its `qkv` reads embedding and hidden state, concatenated, `[..., 2 * d]`, and the residual
    # stream is the hidden state alone
    state_projection: torch.Tensor | None = None
    # the target token of each of the head's tokens, int64, `[draft_vocab_size]`; None where they
    # are the same
    token_ids: torch.Tensor | None = None
    # for EAGLE-3: whether the residual stream is the normed hidden state
    norm_before_residual: bool = False
    # norms of each target layer's hidden state before fusing, `[len(layers), t]` (EAGLE-3.1's
    # `fc_norm`); optional
    layer_norms: torch.Tensor | None = None
    # whether the state for the next draft token is taken after `norm`, not before it (EAGLE-3.1,
    # arXiv 2605.09992)
    norm_output: bool = False

    def with_matrices(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "HeadWeights":
        """These weights with every matrix changed but the embedding, which the target may share."""
        layers = [
            replace(
                layer,
                **{
                    name: change(getattr(layer, name))
                    for name in ("qkv", "output", "gate_up", "down")
                },
            )
            for layer in self.layers
        ]
        projection = None if self.state_projection is None else change(self.state_projection)
        return replace(
            self,
            layers=layers,
            fuse=change(self.fuse),
            state_projection=projection,
            head=change(self.head),
        )

    def rounded(self) -> "HeadWeights":
        """These weights with every matrix but the embedding rounded to 8 bits, which halves the
        time of a draft token; `fuse` and `down` are for turned inputs."""
        layers = [replace(layer, down=turned_columns(layer.down)) for layer in self.layers]
        turned = replace(self, fuse=turned_columns(self.fuse), layers=layers)
        return turned.with_matrices(rounded)

    @property
    def num_parameters(self) -> int:
        """Number of parameters without the embedding table, of which a forward reads only one
        row per token."""
        own = vars(self) | {"embedding": None, "token_ids": None}
        parts = [part for each in (own, *map(vars, self.layers)) for part in each.values()]
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        return sum(part.numel() // part.shape[-1] * width_of(part) for part in tensors)
