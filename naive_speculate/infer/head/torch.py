"""Runs a draft head with plain torch operations, on any device and in any dtype."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from naive_speculate.infer.device import on_device
from naive_speculate.infer.head.weights import HeadWeights
from naive_speculate.infer.llama.torch import TorchLlama
from naive_speculate.infer.llama.weights import LlamaShape, RotaryTable
from naive_speculate.infer.ragged_cache import CacheRows


class TorchHead:
    """A forward of a draft head, whose weights are all on one device and in one dtype."""

    def __init__(self, shape: LlamaShape, weights: HeadWeights, rotary: RotaryTable) -> None:
        self.shape = shape
        self._weights = weights
        self._llama = TorchLlama(shape, weights, rotary)

    @torch.inference_mode()
    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, rows: CacheRows, last: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute logits and write keys and values after the rows' ends; the ends do not move. See `DraftHead.forward`. Returns
        logits, shape `[rows, draft_vocab_size]`, and the state for the next draft token, shape `[rows, d]`. Raises `ValueError`
        if a token is not in the vocabulary (on the CPU; CUDA ends the process)."""
        llama, weights, num_new = self._llama, self._weights, token_ids.shape[1]
        tables = llama.rotary.up_to(rows.get_num_tokens() + num_new)
        rotation = llama.rotation(tables, rows.positions(num_new, llama.device))
        masks = llama.masks(rows, num_new)
        embedded, normed = llama.embed(token_ids), llama.norm(states, weights.hidden_norm)
        if weights.state_projection is None:
            hidden = normed if weights.norm_before_residual else states
            read = torch.cat([llama.norm(embedded, weights.layers[0].attention_norm), normed], dim=-1)
        else:
            hidden = embedded + F.linear(normed, weights.state_projection)
            read = llama.norm(hidden, weights.layers[0].attention_norm)
        for index, layer in enumerate(weights.layers):
            if index:
                read = llama.norm(hidden, layer.attention_norm)
            hidden = hidden + llama.attend(index, layer, read, rows.write, rotation, masks[self.shape.windows[index]])
            if index + 1 == len(weights.layers):  # the rest needs only the last tokens
                at = on_device(last, llama.device)
                hidden = hidden[torch.arange(len(at), device=llama.device) % len(hidden), at]
            hidden = hidden + llama.mlp(layer, hidden)
        normed = llama.norm(hidden, weights.norm)
        return F.linear(normed, weights.head), normed if weights.norm_output else hidden
