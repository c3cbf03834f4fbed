"""One forward over a tree gives every node the logits and hidden states of its own continuation, in every executor."""

from itertools import product

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from naive_speculate.infer.ragged_cache import TreeRows
from tests.infer.llamas import made
from tests.tiny import shape, tiny_llama

TRUNK = [5, 9, 3, 8, 1]
TOKENS = [7, 2, 6, 4, 4, 1, 9]
PARENTS = [-1, -1, 0, 0, 1, 2, 4]
PATHS = {0: [7], 1: [2], 2: [7, 6], 3: [7, 4], 4: [2, 4], 5: [7, 6, 1], 6: [2, 4, 9]}
LAYERS = (0, 1, 2)


def sliding(window: int) -> MistralForCausalLM:
    """Layers whose tokens attend to the last few only."""
    torch.manual_seed(0)
    config = MistralConfig(**shape(num_hidden_layers=2), sliding_window=window, initializer_range=0.3)
    return MistralForCausalLM(config).eval()


@pytest.fixture(scope="module", params=product(["torch", "onnx", "transformers"], [False, True]))
def model(request):
    executor, slides = request.param
    return made(sliding(4) if slides else tiny_llama(2, seed=0), executor)


def alone(model, tokens):
    logits, features = model.forward(torch.tensor([tokens]), model.new_cache(1).rows([0]), layers=LAYERS)
    return torch.cat([logits[0], features[0]], dim=-1)


@pytest.mark.parametrize("levels", [[7], [2, 3, 2]])
def test_a_node_sees_its_own_path_only(model, levels):
    """All nodes at once, as the target does, or level by level, as a drafter does; in the second of two rows."""
    assert model.takes_trees
    cache = model.new_cache(2)
    for row in (0, 1):
        model.forward(torch.tensor([TRUNK]), cache.rows([row]))
    tree, found = TreeRows(cache, 1, len(TRUNK), PARENTS), []
    for first, count in zip([sum(levels[:n]) for n in range(len(levels))], levels, strict=True):
        logits, features = model.forward(torch.tensor([TOKENS[first : first + count]]), tree, layers=LAYERS)
        found.append(torch.cat([logits[0], features[0]], dim=-1))
    for node, path in PATHS.items():
        torch.testing.assert_close(torch.cat(found)[node], alone(model, TRUNK + path)[-1], atol=2e-4, rtol=1e-4)

    cache.keep_path(1, len(TRUNK), [len(TRUNK) + node for node in (1, 4, 6)])
    assert cache.lengths == [len(TRUNK), len(TRUNK) + 3]
    after = model.forward(torch.tensor([[8]]), cache.rows([1]), layers=LAYERS)
    torch.testing.assert_close(
        torch.cat([after[0][0, 0], after[1][0, 0]]), alone(model, [*TRUNK, 2, 4, 9, 8])[-1], atol=2e-4, rtol=1e-4
    )
