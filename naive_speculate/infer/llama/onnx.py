"""Runs a Llama-like model with ONNX Runtime on the CPU, in float32."""

from collections.abc import Sequence

import numpy as np
import torch

from naive_speculate.infer.llama.onnx_graph import LlamaGraph, residual
from naive_speculate.infer.llama.onnx_session import OnnxSession, token_array
from naive_speculate.infer.llama.weights import LlamaShape, LlamaWeights, RotaryTable
from naive_speculate.infer.memory import on_disk
from naive_speculate.infer.ragged_cache import CacheRows


class OnnxLlama(OnnxSession):
    """A forward of a Llama-like model, like `TorchLlama`, of float32 weights on the CPU. ONNX Runtime copies all but the
    embedding table, which is moved to a file."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> None:
        super().__init__(LlamaGraph(shape, weights), rotary)
        self.table = on_disk(self.table)

    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `TorchLlama.forward`; all tensors are float32. Raises `ValueError` if a token is not in the vocabulary, or tokens
        are not int64."""
        query = token_array(token_ids)
        count, num_new = query.shape
        logits = np.empty((count, num_logits, self.shape.vocab_size), np.float32)
        states = {layer: np.empty((count, num_new, self.shape.hidden_size), np.float32) for layer in layers}
        self.run({"token_ids": query}, rows, {"logits": logits} | {residual(layer): array for layer, array in states.items()})
        features = torch.from_numpy(np.concatenate([states[layer] for layer in layers], axis=-1)) if layers else None
        return torch.from_numpy(logits), features
