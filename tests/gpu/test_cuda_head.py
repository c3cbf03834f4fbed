"""On CUDA, a draft head does what it does on the CPU. Run with `pytest -m gpu` on a machine that has a GPU."""

import pytest
from transformers import AutoConfig

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models import BUNDLED_PAIR
from tests import heads
from tests.heads import head_config, head_tensors, save_head

pytestmark = pytest.mark.gpu

PROMPTS = ["Once upon a time", "The old king said", "In the forest there was"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = AutoConfig.from_pretrained(BUNDLED_PAIR / "target")
    config = head_config(hidden_size=64, head_dim=16, vocab_size=target.vocab_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "TARGET_WIDTH", target.hidden_size)
        tensors = head_tensors(config, known=1000)
    return save_head(tmp_path_factory.mktemp("head"), "speculators", config, tensors)


@pytest.mark.parametrize("k", [1, 4, "auto"])
def test_greedy_tokens_with_a_head_are_those_of_plain_decoding(folder, k):
    decoder = SpeculativeDecoder(load_pair(head=folder, device="cuda", dtype="float32"))
    params = SamplingParams(temperature=0, max_tokens=48)
    plain = decoder.generate(PROMPTS, params, num_draft_tokens=0)
    for _ in range(2):  # the second time with what the first has captured
        drafted = decoder.generate(PROMPTS, params, drafter="head", num_draft_tokens=k)
        assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]


def test_a_head_drafts_in_half_precision(folder):
    decoder = SpeculativeDecoder(load_pair(head=folder, device="cuda"))
    params = [SamplingParams(max_tokens=24, seed=seed) for seed in range(len(PROMPTS))]
    results = decoder.generate(PROMPTS, params, drafter="head", num_draft_tokens=4)
    assert all(result.metrics.num_draft_tokens > 0 for result in results)
