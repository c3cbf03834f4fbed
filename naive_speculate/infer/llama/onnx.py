"""Runs a Llama-like model with ONNX Runtime on the CPU, in float32."""

from collections.abc import Sequence

import numpy as np
import torch

from naive_speculate.infer.device import Tokens
from naive_speculate.infer.llama.onnx_graph import LlamaGraph, has_fast_form, residual
from naive_speculate.infer.llama.onnx_session import OnnxSession, needs_mask, token_array
from naive_speculate.infer.llama.onnx_window import Windows
from naive_speculate.infer.llama.weights import LlamaShape, LlamaWeights, RotaryTable
from naive_speculate.infer.memory import on_disk
from naive_speculate.infer.ragged_cache import CacheRows
from naive_speculate.sampling.random_source import Race

SMALL = 100_000_000
"""Most weights of a model whose two forms of attention have a session each, with a copy of the weights. In a larger model the
cost of a branch does not matter."""
MAX_WINDOWED = 20_000_000
"""Most weights of a model that drafts several tokens in one call. Each window length has a session with a copy of the weights.
In a larger model the cost of a call does not matter."""


class OnnxLlama(OnnxSession):
    """A forward of a Llama-like model, like `TorchLlama`, of float32 weights on the CPU. ONNX Runtime copies all but the
    embedding table; the table of a large model is moved to a file."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, shape: LlamaShape, weights: LlamaWeights, rotary: RotaryTable) -> None:
        graph = LlamaGraph(shape, weights)
        small = graph.num_weights <= SMALL and all(has_fast_form(shape, layer) for layer in range(shape.num_layers))
        if small:  # no branches: the other form has a session of its own, made for the first batch
            graph = LlamaGraph(shape, weights, by_mask=False)
        super().__init__(graph, rotary)
        if not small:
            self.table = on_disk(self.table)
        self._forms = {False: graph, True: LlamaGraph(shape, weights, by_mask=True)} if small else None
        self._masked: OnnxSession | None = None
        self._windows = Windows(self._forms, graph, rotary) if self._forms and graph.num_weights <= MAX_WINDOWED else None

    @property
    def drafts_windows(self) -> bool:
        """Whether `draft` works for this model."""
        return self._windows is not None

    def draft(
        self, token_ids: Tokens, rows: CacheRows, k: int, vocab_size: int, race: Race | None, with_probs: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Choose k of `vocab_size` tokens, one after the other, in one call; writes the keys and values of k forwards.

        `race` is for sampling; None takes the most probable tokens. Returns the tokens, int64 `[rows, k]`, and their
        distributions, float32 `[rows, k, vocab_size]`; None unless sampled or requested by `with_probs`.
        """
        assert self._windows is not None
        return self._windows.draft({"token_ids": token_array(token_ids)}, rows, k, vocab_size, race, with_probs)

    def forward(
        self, token_ids: torch.Tensor, rows: CacheRows, num_logits: int, layers: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See `TorchLlama.forward`; all tensors are float32. Raises `ValueError` if a token is not in the vocabulary, or tokens
        are not int64."""
        query = token_array(token_ids)
        count, num_new = query.shape
        logits = np.empty((count, num_logits, self.shape.vocab_size), np.float32)
        states = {layer: np.empty((count, num_new, self.shape.hidden_size), np.float32) for layer in layers}
        outputs = {"logits": logits} | {residual(layer): array for layer, array in states.items()}
        self._session_for(rows, num_new).run({"token_ids": query}, rows, outputs)
        features = torch.from_numpy(np.concatenate([states[layer] for layer in layers], axis=-1)) if layers else None
        return torch.from_numpy(logits), features

    def _session_for(self, rows: CacheRows, num_new: int) -> OnnxSession:
        """The session for a query of `num_new` tokens per row."""
        if self._forms is None or not (rows.branches or needs_mask(len(rows.indices), num_new, rows.get_num_tokens())):
            return self
        with self._lock:
            if self._masked is None:
                self._masked = OnnxSession(self._forms[True], self._rotary)
        return self._masked
