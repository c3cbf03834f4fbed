"""Pairs whose models know different numbers of tokens, and heads with few: the target's
distribution stays whole."""

from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.guides.guided import GuidedDecodingParams
from naive_speculate.guides.words import WordList
from naive_speculate.models import wrap
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.translation.tokens import translation_between
from naive_speculate.speculate.request import GivenDraft
from tests.heads import VOCAB, head_config, head_tensors, save_head
from tests.models.llama.llamas import made
from tests.speculate.rows import same_alone, same_as_plain
from tests.speculate.toys import ToyModel, check_lossless
from tests.tiny import tiny_llama, words
from tests.tokenizers_of_tests import byte_level, llama, shuffled


class Knows(ToyModel):
    """Refuses tokens that it does not know, as an embedding does."""

    def forward(self, query_token_ids, kv_cache):
        assert query_token_ids.max() < self.vocab_size
        return super().forward(query_token_ids, kv_cache)


@pytest.mark.parametrize(
    ("target_size", "draft_size", "strategy", "params"),
    [
        (4, 2, "speculative_sampling", {"max_tokens": 2}),
        (4, 2, "block_verification", {"max_tokens": 2, "allowed_token_ids": [2, 3]}),
        (3, 2, "block_verification", {"max_tokens": 3}),
        (2, 3, "speculative_sampling", {"max_tokens": 3}),
    ],
)
def test_the_target_s_distribution_stays_whole_whatever_the_draft_has(
    target_size, draft_size, strategy, params
):
    """Several tokens, one and none that the draft does not know, the prompt's last among them,
    or all that are allowed."""
    target, draft = Knows(target_size, 1, zeros=False), Knows(draft_size, 2, zeros=False)
    prompt, params = [1, target_size - 1], SamplingParams(**params)
    found = check_lossless(
        ModelPair(target, draft), params, prompt=prompt, verify_strategy=strategy
    )
    assert {token for tokens in found for token in tokens} == set(
        params.allowed_token_ids or range(target_size)
    )


def test_a_batch_with_a_draft_of_fewer_tokens_gives_what_its_rows_give_alone(tiny_pair):
    """Real caches on both sides, prompts with tokens that the draft does not know, and a copied
    prefill."""
    draft = tiny_llama(1, seed=5)
    draft.resize_token_embeddings(60)
    decoder = SpeculativeDecoder(ModelPair(tiny_pair.target, made(draft, "torch")))
    prompts = [[96, 70, 3], [5, 61], list(range(70, 97))]
    params = [
        SamplingParams(max_tokens=8, seed=3, temperature=temperature) for temperature in (0, 1, 1)
    ]
    rows = same_alone(decoder, prompts, params)
    assert all(row.metrics.num_draft_tokens for row in rows)
    assert max(max(row.token_ids) for row in rows) >= 60
    assert (
        rows[0].token_ids == decoder.generate(prompts[0], params[0], num_draft_tokens=0).token_ids
    )
    assert len(decoder.generate(prompts[2], SamplingParams(max_tokens=4, seed=3, n=2)).outputs) == 2


def test_only_padding_that_no_token_uses_is_cut(bundled_pair):
    size = len(bundled_pair.tokenizer)
    for target_size, draft_size, expected in (
        (size + 64, size + 16, size + 16),
        (size + 16, size + 64, size + 16),
        (size + 64, size - 100, size),
        (size, size, size),
    ):
        pair = ModelPair(ToyModel(target_size, 1), ToyModel(draft_size, 2), bundled_pair.tokenizer)
        assert pair.vocab_size == expected
    assert ModelPair(ToyModel(size - 2, 1), None, bundled_pair.tokenizer).vocab_size == size - 2


IMAGE = "<image_soft_token>"


def tokenizer_with_one_more():
    """As Gemma 3's, whose token for images has no logits."""
    tokenizer = words(unk_token="w0", eos_token="w96")
    tokenizer.add_tokens([IMAGE], special_tokens=True)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return tokenizer


@pytest.fixture(scope="module")
def one_more():
    """Whose draft has one token more than its logits, too."""
    models = [tiny_llama(2, seed=0), tiny_llama(1, seed=1)]
    for model in models:
        model.generation_config.eos_token_id = [1, 97]
    return SpeculativeDecoder(ModelPair(*map(wrap, models), tokenizer_with_one_more()))


def test_a_tokenizer_with_more_tokens_than_logits_decodes(one_more):
    model, ids = tiny_llama(2, seed=0), torch.tensor([[5, 17, 33]])
    options = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": False,
        "max_new_tokens": 12,
        "pad_token_id": 0,
    }
    expected = model.generate(ids, **options)[0, 3:].tolist()
    params = SamplingParams(temperature=0, max_tokens=12)
    assert one_more.admission.vocab_size == 97
    assert one_more.admission.eos_token_ids == (1,)
    for drafter in ("model", "suffix"):
        assert one_more.generate("w5 w17 w33", params, drafter=drafter).token_ids == expected
    assert one_more.generate("w5 w17 w33", params, chat=True).token_ids == expected


def test_what_is_built_from_the_tokenizer_fits_the_logits(one_more):
    for options in (
        {"bad_words": [IMAGE, f"w5 {IMAGE}"]},
        {"filter_words": WordList(["w33", "image"])},
        {"guided_decoding": GuidedDecodingParams(regex="(w2|w3)+")},
        {"min_tokens": 8, "repetition_penalty": 1.3, "logprobs": -1, "prompt_logprobs": 2},
    ):
        found = same_as_plain(
            one_more, "w5 w17 w33", SamplingParams(temperature=0, max_tokens=8, **options)
        )
        assert found.finish_reason != "error", options


REFUSED = (
    r"holds (token 97, but the vocabulary ends at 96|97 \('<image_soft_token>'\), expected token"
    r" ids from 0 to 96)$"
)


def test_only_naming_a_token_without_logits_is_refused(one_more):
    for name, prompt, options in (
        ("prompt", f"w5 {IMAGE}", {}),
        ("prompt", [5, 97], {}),
        ("allowed_token_ids", "w5", {"allowed_token_ids": [3, 97]}),
        ("logit_bias", "w5", {"logit_bias": {97: 1.0}}),
        ("stop_token_ids", "w5", {"stop_token_ids": [97]}),
    ):
        with pytest.raises(ValueError, match=f"^{name} {REFUSED}"):
            one_more.generate(prompt, SamplingParams(max_tokens=2, **options))
    with pytest.raises(ValueError, match=f"^prompt {REFUSED}"):
        one_more.generate(f"w5 {IMAGE}", chat=True)
    with pytest.raises(ValueError, match=f"^given_draft {REFUSED}"):
        one_more.generate("w5", given_draft=GivenDraft(IMAGE, 0.5), num_draft_tokens=2)


def test_tokenizers_with_more_tokens_than_logits_are_translated():
    tokenizers = [shuffled(byte_level())[0], byte_level()]
    models = [llama(tokenizer, seed) for seed, tokenizer in enumerate(tokenizers)]
    for model in models:
        model.resize_token_embeddings(len(byte_level()) - 3)
    translation = translation_between(*tokenizers)
    pair = ModelPair(*map(wrap, models), tokenizers[0], translation=translation)
    decoder, params = SpeculativeDecoder(pair), SamplingParams(temperature=0, max_tokens=16)
    known = [
        token for token in tokenizers[0]("The little fox").input_ids if token < pair.vocab_size
    ]
    same_as_plain(decoder, known, params)


# A head that has few tokens, where others are banned, padding, or missing in it


TOKENS = [5, 17, 80, 3]


@pytest.fixture(scope="module")
def target():
    return made(tiny_llama(4, seed=0), "torch")


def decoder_of(folder, target, known, tokenizer=None, draft=None):
    """With a head that has only the tokens `known`."""
    config = head_config()
    tensors = head_tensors(config, known=len(known))
    tensors["d2t"] = torch.tensor(known) - torch.arange(len(known))
    tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, torch.tensor(known), True)
    head = load_head(
        save_head(folder, "eagle", config, tensors), target, target.device, torch.float32
    )
    return SpeculativeDecoder(ModelPair(target, draft, tokenizer, head=head))


def sampled_where_greedy_is_plain(decoder, **more):
    params = SamplingParams(max_tokens=8, temperature=0, seed=2, ignore_eos=True, **more)
    same_as_plain(decoder, TOKENS, params, drafter="head", num_draft_tokens=4)
    return decoder.generate(
        TOKENS, replace(params, temperature=1.0), drafter="head", num_draft_tokens=4
    )


def test_what_a_head_lacks_comes_from_the_target(tmp_path, target):
    known = [2, 3, 9, 11, 40, 66]
    decoder = decoder_of(tmp_path, target, known)
    for allowed in (None, [3, 9, 40], [70, 71, 72]):  # of those that it has all, some, and none
        result = sampled_where_greedy_is_plain(decoder, allowed_token_ids=allowed)
        assert len(result.token_ids) == 8
        assert allowed is None or set(result.token_ids) <= set(allowed)
        proposed = {event.token_id for event in result.trace if event.kind == "proposed"}
        assert proposed <= set(known) or allowed == [70, 71, 72]


def test_padding_that_no_tokenizer_uses_is_never_drafted(tmp_path, target):
    config = tiny_llama(1, seed=1).config
    config.vocab_size = 90  # of the target's 97
    small = LlamaForCausalLM(config)
    decoder = decoder_of(tmp_path, target, [4, 9, 60, 91, 95], words(90), made(small, "torch"))
    assert decoder.pair.vocab_size == 90
    result = sampled_where_greedy_is_plain(decoder)
    assert all(event.token_id < 90 for event in result.trace if event.token_id is not None)
