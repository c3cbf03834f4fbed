"""A token's logits are bit for bit the same alone and in company, in float32 and in 8 bits: in one
pass or in many, in a batch or alone, whatever the cache's size."""

import pytest
import torch
from transformers import LlamaConfig

from naive_speculate import load_pair
from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.models.llama.kernels import row_difference
from naive_speculate.models.llama.model import LlamaLanguageModel
from naive_speculate.models.llama.rounded import Rounding
from tests.models.llama.llamas import FAMILIES, SHAPE, random_model, tokens

NAMES = ("llama tied", "llama all heads", "llama narrow heads", "mistral window", "qwen3")
SMALL = {name: FAMILIES[name] for name in NAMES} | {
    "heads of 2 numbers": lambda: LlamaConfig(**SHAPE, head_dim=2),
    "heads of 6 numbers": lambda: LlamaConfig(**SHAPE, head_dim=6),
}
WIDTHS = range(2, 18)
FORMS = ("float32", "int8")


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module", params=SMALL)
def model(request, form):
    config = SMALL[request.param]()
    config.intermediate_size, config.max_position_embeddings = 96, 2000
    return LlamaLanguageModel.from_transformers(
        random_model(config), "onnx", Rounding() if form == "int8" else None
    )


@pytest.fixture(scope="module")
def smollm2(form):
    return load_pair("smollm2", weights=form).target


def logits(model, ids, widths, step=128) -> torch.Tensor:
    """The logits of all tokens of the rows, in passes over so many tokens, the last width
    repeated; the cache has at least so much space."""
    cache, found, begin = RaggedKVCache(len(ids), step), [], 0
    for width in widths:
        found.append(model.forward(ids[:, begin : begin + width], cache))
        begin += width
    while begin < ids.shape[1]:
        found.append(model.forward(ids[:, begin : begin + widths[-1]], cache))
        begin += widths[-1]
    return torch.cat(found, dim=1)


def test_a_pass_over_2_to_17_tokens_has_the_bits_of_passes_over_one(model):
    ids = tokens(1, 1 + sum(WIDTHS))
    assert torch.equal(logits(model, ids, [1]), logits(model, ids, [1, *WIDTHS], step=400))


@pytest.mark.parametrize("context", [200, 1200])
def test_after_long_contexts_and_prefill_in_chunks_too(model, context):
    ids = tokens(1, context + 17)
    whole, chunks = logits(model, ids, [context, 1]), logits(model, ids, [77, 50, 17], step=700)
    assert torch.equal(whole, chunks)
    assert torch.equal(whole, logits(model, ids, [context, 17]))


@pytest.mark.parametrize("num_new", [1, 2, 5])
def test_a_row_of_a_batch_has_the_bits_of_the_row_alone(model, num_new):
    """Of rows of different lengths, not all of which are next to each other."""
    ids, lengths = tokens(4, 60), (1, 9, 50, 30)
    together = RaggedKVCache(4)
    for row, length in enumerate(lengths):
        model.forward(ids[row : row + 1, :length], together.rows([row]))
    chosen = [0, 2, 3]
    query = torch.stack([ids[row, lengths[row] : lengths[row] + num_new] for row in chosen])
    found = model.forward(query, together.rows(chosen))
    for row, own in zip(chosen, found, strict=True):
        end = lengths[row] + num_new
        assert torch.equal(own, logits(model, ids[row : row + 1, :end], [1])[0, -num_new:])


def test_so_it_is_for_smollm2(smollm2):
    """Over more tokens than the cache has space for at first."""
    ids = torch.randint(0, 49152, (2, 145), generator=torch.Generator().manual_seed(0))
    chunks = logits(smollm2, ids[:1], [118, 2, 3, 5, 17])
    assert torch.equal(chunks, logits(smollm2, ids[:1], [90, 40, 1]))
    assert torch.equal(chunks, logits(smollm2, ids, [70, 66, 9])[:1])


@pytest.mark.parametrize("form", FORMS)
def test_the_check_at_load_finds_the_same_bits_on_this_processor(form):
    assert row_difference(form == "int8") == 0
