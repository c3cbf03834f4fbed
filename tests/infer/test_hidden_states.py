"""Hidden states of chosen layers, in every executor: those of transformers, with the same logits
as without; also of trees."""

import threading
from itertools import product

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from naive_speculate.infer import DynamicKVCache, TransformersLanguageModel
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.infer.slots import SlotPool
from tests.models.llama.llamas import EXECUTORS, FAMILIES, WAYS, made, own_features, random_model
from tests.models.test_architectures import ARCHITECTURES, built
from tests.speculate.toys import ToyModel
from tests.tiny import shape, tiny_llama


@pytest.fixture(
    scope="module", params=product(("llama", "qwen3", "mistral window"), EXECUTORS), ids=" / ".join
)
def pair(request):
    """A model of ours and the one of transformers whose weights it has; `test_architectures.py`
    has transformers' own."""
    family, executor = request.param
    source = random_model(FAMILIES[family]())
    return made(source, executor), source


@pytest.fixture(scope="module", params=WAYS)
def model(request):
    """One architecture in each executor, for what depends on nothing else."""
    return made(random_model(FAMILIES["mistral window"]()), request.param)


def tokens(rows: int, count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(2, 97, (rows, count), generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


def test_features_are_those_of_transformers_in_the_given_order(pair):
    model, source = pair
    ids = tokens(2, 14)
    for layers, cache in (((1, 0, 2), model.new_cache(2)), ((1, 1), DynamicKVCache())):
        found = []
        for part in ids.split([9, 1, 4], dim=1):
            logits, features = model.forward(part, cache, layers=layers, num_logits=1)
            assert logits.shape == (2, 1, 97)
            assert features.dtype == torch.float32
            found.append(features)
        close(torch.cat(found, dim=1), own_features(source, ids, layers))


def test_ragged_rows_have_the_features_they_have_alone(pair):
    model, layers = pair[0], (0, 2)
    long, short = tokens(1, 30, seed=1), tokens(1, 12, seed=2)
    expected = [model.forward(row, model.new_cache(1), layers=layers)[1] for row in (long, short)]
    cache = model.new_cache(4)
    model.forward(long[:, :25], cache.rows([3]))
    model.forward(short[:, :7], cache.rows([0]))
    for _ in range(3):  # a captured window, too, has none the third time
        model.forward(torch.cat([long[:, 25:], short[:, 7:]]), cache.rows([3, 0]))
        cache.rows([3, 0]).crop(5)
    found = model.forward(
        torch.cat([long[:, 25:], short[:, 7:]]), cache.rows([3, 0]), layers=layers
    )[1]
    close(found[:1], expected[0][:, 25:])
    close(found[1:], expected[1][:, 7:])


def test_logits_and_cache_are_the_same_with_features_and_without(model):
    first, second = tokens(2, 10), tokens(2, 3, seed=1)
    plain, asked = model.new_cache(2), model.new_cache(2)
    for query in (first, second, second, second):
        with_features = model.forward(query, asked, layers=(2, 0))[0]
        without = model.forward(query, plain)
        close(with_features, without)
        close(model.forward(query[:, :1], asked), model.forward(query[:, :1], plain))
        for cache in (plain, asked):
            cache.crop(1)
    assert plain.lengths == asked.lengths


def test_a_layer_that_is_not_there_is_refused(model):
    for layer in (-1, 99):
        with pytest.raises(
            ValueError, match=rf"layers must be between 0 \(the embeddings\) and 2, got {layer}"
        ):
            model.forward(tokens(1, 2), model.new_cache(1), layers=(0, layer))
    assert model.forward(tokens(1, 2), model.new_cache(1)).shape == (1, 2, 97)


def test_rows_at_the_end_of_the_positions_have_features_where_they_have_tokens():
    source = built(*ARCHITECTURES["GPTNeo"])  # goes through rows of different lengths one by one
    model, ids = TransformersLanguageModel(source), tokens(1, 78)
    cache = model.new_cache(3)
    model.forward(tokens(1, 80, seed=3), cache.rows([2]))
    model.forward(ids, cache.rows([1]))
    logits, features = model.forward(
        tokens(3, 4, seed=4), cache.all_rows(), layers=(1, 2), num_logits=4, lengths=[4, 2, 0]
    )
    assert logits.shape == (3, 4, 97)
    assert features.shape == (3, 4, 64)
    expected = own_features(source, torch.cat([ids, tokens(3, 4, seed=4)[1:2, :2]], dim=1), (1,))
    close(features[1:2, :2, :32], expected[:, -2:])
    assert not features[1, 2:].any()
    assert not features[2].any()


def test_threads_that_share_a_model_do_not_see_each_others_features():
    model = TransformersLanguageModel(random_model(FAMILIES["llama"]()))
    model.probe()
    queries = [tokens(1, 5, seed=seed) for seed in range(4)]
    layers = [(1,), (), (0, 2), (2,)]
    expected = [
        model.forward(query, model.new_cache(1), layers=which)
        for query, which in zip(queries, layers, strict=True)
    ]
    wrong: list[int] = []

    def repeat(number: int) -> None:
        for _ in range(12):
            found = model.forward(queries[number], model.new_cache(1), layers=layers[number])
            pairs = zip(found, expected[number], strict=True)
            if not all(torch.allclose(mine, known, atol=1e-4) for mine, known in pairs):
                wrong.append(number)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_plain_model_has_no_features():
    model = as_batch_model(ToyModel(5, 1))
    cache = model.new_cache(1)
    with pytest.raises(
        ValueError,
        match=r"layers: ToyModel is a plain LanguageModel and returns no hidden states, got \[1\]",
    ):
        model.forward(torch.tensor([[1]]), cache.rows([0]), layers=[1])
    assert cache.lengths == [0]


class Silent(TransformersLanguageModel):
    """Does not know of features, though it takes the word."""

    def forward(self, query_token_ids, kv_cache, *, num_logits=None, layers=()):
        return super().forward(query_token_ids, kv_cache, num_logits=num_logits)


def test_a_model_that_returns_none_where_they_are_wanted_is_refused():
    pool = SlotPool(Silent(random_model(FAMILIES["llama"]())))
    view = pool.view([pool.allocate()])
    message = (
        r"Silent.forward must return logits and hidden states .* \[1, 3, 2 \* hidden_size\], got"
        r" None"
    )
    with pytest.raises(ValueError, match=message):
        pool.forward(tokens(1, 3), view, layers=[0, 1])


# One forward over a tree gives every node the logits and hidden states of its own continuation


TRUNK = [5, 9, 3, 8, 1]
TOKENS = [7, 2, 6, 4, 4, 1, 9]
PARENTS = [-1, -1, 0, 0, 1, 2, 4]
PATHS = {0: [7], 1: [2], 2: [7, 6], 3: [7, 4], 4: [2, 4], 5: [7, 6, 1], 6: [2, 4, 9]}
LAYERS = (0, 1, 2)


def sliding(window: int) -> MistralForCausalLM:
    """Layers whose tokens attend to the last few only."""
    torch.manual_seed(0)
    config = MistralConfig(
        **shape(num_hidden_layers=2), sliding_window=window, initializer_range=0.3
    )
    return MistralForCausalLM(config).eval()


@pytest.fixture(scope="module", params=product(["torch", "onnx", "transformers"], [False, True]))
def tree_model(request):
    executor, slides = request.param
    return made(sliding(4) if slides else tiny_llama(2, seed=0), executor)


def alone(tree_model, tokens):
    logits, features = tree_model.forward(
        torch.tensor([tokens]), tree_model.new_cache(1).rows([0]), layers=LAYERS
    )
    return torch.cat([logits[0], features[0]], dim=-1)


@pytest.mark.parametrize("levels", [[7], [2, 3, 2]])
def test_a_node_sees_its_own_path_only(tree_model, levels):
    """All nodes at once, as the target does, or level by level, as a drafter does; in the second
    of two rows."""
    assert tree_model.takes_trees
    cache = tree_model.new_cache(2)
    for row in (0, 1):
        tree_model.forward(torch.tensor([TRUNK]), cache.rows([row]))
    tree, found = TreeRows(cache, 1, len(TRUNK), PARENTS), []
    for first, count in zip([sum(levels[:n]) for n in range(len(levels))], levels, strict=True):
        logits, features = tree_model.forward(
            torch.tensor([TOKENS[first : first + count]]), tree, layers=LAYERS
        )
        found.append(torch.cat([logits[0], features[0]], dim=-1))
    for node, path in PATHS.items():
        torch.testing.assert_close(
            torch.cat(found)[node], alone(tree_model, TRUNK + path)[-1], atol=2e-4, rtol=1e-4
        )

    cache.keep_path(1, len(TRUNK), [len(TRUNK) + node for node in (1, 4, 6)])
    assert cache.lengths == [len(TRUNK), len(TRUNK) + 3]
    after = tree_model.forward(torch.tensor([[8]]), cache.rows([1]), layers=LAYERS)
    torch.testing.assert_close(
        torch.cat([after[0][0, 0], after[1][0, 0]]),
        alone(tree_model, [*TRUNK, 2, 4, 9, 8])[-1],
        atol=2e-4,
        rtol=1e-4,
    )
