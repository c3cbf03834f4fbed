"""A draft head is lossless, to 1e-12: the decoder's output distribution with it, enumerated, is that of the target alone."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, VerifyStrategy
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import load_head
from tests.heads import TARGET_WIDTH, head_config, head_tensors, save_head
from tests.speculate.toys import enumerate_outputs, largest_difference

VOCAB = 4
PARAMS = (
    SamplingParams(max_tokens=3, ignore_eos=True),
    SamplingParams(max_tokens=3, temperature=1.6, top_k=3, presence_penalty=0.7, ignore_eos=True),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """In float64; the head knows three of the four tokens."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=TARGET_WIDTH,
        intermediate_size=40,
        num_hidden_layers=5,
        num_attention_heads=4,
        max_position_embeddings=32,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=0,
    )
    target = TransformersLanguageModel(LlamaForCausalLM(config).double())
    own = head_config(vocab_size=VOCAB)
    folder = save_head(tmp_path_factory.mktemp("head"), "eagle", own, head_tensors(own, known=3))
    return ModelPair(target, head=load_head(folder, target, target.device, torch.float64))


@pytest.mark.parametrize("strategy", [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION])
@pytest.mark.parametrize("params", PARAMS, ids=["plain", "warped"])
@pytest.mark.parametrize("prompt", [[1, 2, 1], [3]], ids=len)
def test_the_output_distribution_is_the_target_s(pair, prompt, params, strategy):
    plain = enumerate_outputs(pair, prompt, params, num_draft_tokens=0, detail="probs")
    found = enumerate_outputs(
        pair, prompt, params, num_draft_tokens=2, drafter="head", verify_strategy=strategy, detail="probs"
    )
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert largest_difference(found, plain) < 1e-12


def test_greedy_decoding_has_one_output(pair):
    params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    plain = enumerate_outputs(pair, [1, 2], params, num_draft_tokens=0)
    for strategy in VerifyStrategy:
        assert enumerate_outputs(pair, [1, 2], params, num_draft_tokens=3, drafter="head", verify_strategy=strategy) == plain
