"""A small model's forward has no branches: which form of attention it takes is known before it is called."""

import pytest
import torch

from naive_speculate.infer.llama import onnx
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.ragged_cache import RaggedKVCache
from tests.infer.test_draft_window import executed, small_llama


def operators(graph: object) -> set[str]:
    return {node.op_type for node in graph.model.graph.node}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The graphs of all sessions that are made."""
    made = []
    make = onnx.OnnxSession.__init__

    def noted(self: onnx.OnnxSession, graph: object, rotary: object) -> None:
        made.append(graph)
        make(self, graph, rotary)

    monkeypatch.setattr(onnx.OnnxSession, "__init__", noted)
    return made


def test_rows_and_windows_of_a_small_model_are_computed_without_branches(graphs: list[object]) -> None:
    model = executed(0)
    cache = RaggedKVCache(2)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    for query in (tokens, tokens[:, :1], tokens[:, :2]):
        model.forward(query, cache.all_rows())
    assert model.draft_window(tokens[:, :2], cache.all_rows(), 3, model.vocab_size) is not None
    assert len(graphs) == 3  # one row or one token a row; several of both; a window
    assert all("If" not in operators(graph) for graph in graphs)


def test_a_large_model_keeps_its_weights_once_and_gives_the_same_logits(
    graphs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = executed(0)
    monkeypatch.setattr(onnx, "SMALL", 0)
    large = LlamaLanguageModel.from_transformers(small_llama(0), "onnx")
    caches = RaggedKVCache(2), RaggedKVCache(2)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    for query in (tokens, tokens[:, :1], tokens[:, :2], tokens[:, 1:]):
        logits = [model.forward(query, cache.all_rows()) for model, cache in zip((small, large), caches, strict=True)]
        assert torch.allclose(*logits, atol=1e-5)
        for cache in caches:
            cache.keep(1, 2)  # rows of different lengths
    assert ["If" in operators(graph) for graph in graphs] == [False, True, False]


def test_tokens_of_another_type_are_refused_and_not_read_as_if_they_were_int64() -> None:
    model = executed(0)
    cache, tokens = model.new_cache(1), torch.tensor([[7]])
    model.forward(tokens, cache)
    for others in (tokens.view(torch.int32)[:, :1], torch.tensor([[7]], dtype=torch.int16)):  # the first lies where those lay
        with pytest.raises(ValueError, match=r"query_token_ids must be int64, got torch\.int"):
            model.forward(others, cache)
