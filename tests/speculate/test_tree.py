"""Token trees: the output is that of plain decoding, greedy token by token, sampled in distribution, by exact enumeration."""

import pytest

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.infer.transformers_model import TransformersLanguageModel
from naive_speculate.speculate.tree import parse_tree
from naive_speculate.testing import enumerate_outputs, largest_difference
from naive_speculate.testing.toy_head import pair_with_head
from tests.tiny import noisy_pair

SHAPES = ["1", "3", "4x2x1", "2x1x1x2"]
WRAPS = {
    "torch": lambda model: LlamaLanguageModel.from_transformers(model, "torch"),
    "onnx": lambda model: LlamaLanguageModel.from_transformers(model, "onnx"),
    "transformers": TransformersLanguageModel,
}
PARAMS = {
    "plain": SamplingParams(max_tokens=3, ignore_eos=True),
    "warped": SamplingParams(max_tokens=4, temperature=0.7, top_p=0.9),
    "by history": SamplingParams(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7),
    "greedy": SamplingParams(max_tokens=6, temperature=0),
}


def two_models(size, seed):
    """A target and a draft model that enumeration can follow; both compute trees."""
    return ModelPair(pair_with_head(size, seed).target, pair_with_head(size, seed + 1).target)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("draft_sampling", ["sampled", "argmax"])
@pytest.mark.parametrize(("drafter", "tree"), [("head", "2x1"), ("model", "1x2"), ("model", "3")])
def test_the_output_distribution_is_the_target_s(name, draft_sampling, drafter, tree):
    """Enumerated over all draft tokens, verdicts and next tokens. The head has two of three tokens."""
    pair = pair_with_head(3, 3) if drafter == "head" else two_models(3, 3)
    options = {"drafter": drafter, "detail": "probs", "draft_sampling": draft_sampling}
    found = enumerate_outputs(pair, [1, 2], PARAMS[name], tree=tree, **options)
    plain = enumerate_outputs(pair, [1, 2], PARAMS[name], num_draft_tokens=0, detail="probs")
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    assert largest_difference(found, plain) < 1e-12


@pytest.fixture(scope="module", params=WRAPS)
def pair(request):
    return noisy_pair(WRAPS[request.param])


@pytest.mark.parametrize("detail", ["full", "none"])
@pytest.mark.parametrize("tree", SHAPES)
def test_greedy_text_is_that_of_plain_decoding(pair, tree, detail):
    decoder, params = SpeculativeDecoder(pair), SamplingParams(max_tokens=40, temperature=0)
    prompts = [[5, 9, 3], [8, 8]]
    plain = decoder.generate(prompts, params, num_draft_tokens=0)
    for found, wanted in zip(decoder.generate(prompts, params, tree=tree, detail=detail), plain, strict=True):
        assert found.token_ids == wanted.token_ids
        accepted = {event.num_accepted for event in found.trace if event.kind == EventKind.STEP}
        assert 0 in accepted
        assert max(accepted) >= min(2, len(parse_tree(tree)))
