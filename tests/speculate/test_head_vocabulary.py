"""A head that has few tokens, where others are banned, padding, or missing in it: output stays the target's."""

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import load_head
from tests.heads import VOCAB, head_config, head_tensors, save_head
from tests.speculate.rows import same_as_plain
from tests.tiny import save_model, tiny_llama

PROMPT = [5, 17, 80, 3]


@pytest.fixture(scope="module")
def target():
    return TransformersLanguageModel(tiny_llama(4, seed=0))


def decoder_of(folder, target, known, tokenizer=None, draft=None):
    """With a head that has only these tokens."""
    config = head_config()
    tensors = head_tensors(config, known=len(known))
    tensors["d2t"] = torch.tensor(known) - torch.arange(len(known))
    tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, torch.tensor(known), True)
    head = load_head(save_head(folder, "eagle", config, tensors), target, target.device, torch.float32)
    return SpeculativeDecoder(ModelPair(target, draft, tokenizer, head=head))


def sampled_where_greedy_is_plain(decoder, **more):
    params = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True, **more)
    same_as_plain(decoder, PROMPT, params, drafter="head", num_draft_tokens=4)
    sampled = SamplingParams(max_tokens=16, seed=2, ignore_eos=True, **more)
    return decoder.generate(PROMPT, sampled, drafter="head", num_draft_tokens=4)


@pytest.mark.parametrize("allowed", [None, [3, 9, 40], [70, 71, 72]], ids=["all", "some", "none"])
def test_what_a_head_lacks_comes_from_the_target(tmp_path, target, allowed):
    decoder = decoder_of(tmp_path, target, [2, 3, 9, 11, 40, 66])
    result = sampled_where_greedy_is_plain(decoder, **({} if allowed is None else {"allowed_token_ids": allowed}))
    assert len(result.token_ids) == 16
    assert allowed is None or set(result.token_ids) <= set(allowed)
    proposed = {event.token_id for event in result.trace if event.kind == "proposed"}
    if allowed != [70, 71, 72]:
        assert proposed <= {2, 3, 9, 11, 40, 66}


def test_padding_that_no_tokenizer_uses_is_never_drafted(tmp_path, target):
    config = tiny_llama(1, seed=1).config
    config.vocab_size = 90  # of the target's 97
    small = LlamaForCausalLM(config)
    save_model(small, tmp_path / "words")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "words")
    decoder = decoder_of(tmp_path / "head", target, [4, 9, 60, 91, 95], tokenizer, TransformersLanguageModel(small))
    assert decoder.pair.vocab_size == 90
    result = sampled_where_greedy_is_plain(decoder)
    assert all(event.token_id < 90 for event in result.trace if event.token_id is not None)
