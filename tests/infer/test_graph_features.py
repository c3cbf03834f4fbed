"""Hidden states come out of captured windows, too: drafters that read them keep CUDA graphs."""

import torch

from naive_speculate.infer.llama.cuda_graphs import GraphLlama
from tests.infer.llamas import FAMILIES, compute_again, made, random_model, tokens


def test_captured_windows_give_hidden_states_with_their_logits() -> None:
    source = random_model(FAMILIES["llama"]())
    graphs, lean = made(source, "graphs"), made(source, "torch")
    captured: list[object] = []
    assert isinstance(graphs._forward, GraphLlama)
    graphs._forward._capture = lambda compute: (captured.append(compute), compute_again(compute))[1]
    caches = [model.new_cache(2) for model in (graphs, lean)]
    for number, layers in enumerate([(3, 1), (3, 1), (), (3, 1), (), (0,), (3, 1), (0,)]):
        query = tokens(2, 4)
        found, expected = (
            model.forward(query, cache, layers=layers) for model, cache in zip((graphs, lean), caches, strict=True)
        )
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for cache in caches:
            cache.crop([number % 4, 1])
    assert len(captured) == 3  # once for each choice of layers
    states = graphs.forward(tokens(2, 4), caches[0], layers=(3, 1))[1].clone()
    kept = states.clone()
    graphs.forward(tokens(2, 4), caches[0], layers=(3, 1))
    torch.testing.assert_close(states, kept, rtol=0, atol=0)  # later windows write elsewhere


def test_where_not_all_logits_are_wanted_nothing_is_captured() -> None:
    graphs = made(random_model(FAMILIES["llama"]()), "graphs")
    cache = graphs.new_cache(1)
    for _ in range(3):
        logits, features = graphs.forward(tokens(1, 5), cache, layers=(1,), num_logits=1)
        assert logits.shape[1] == 1
        assert features.shape == (1, 5, 64)
    assert not any(windows.captured for windows in graphs._forward._caches.values())
