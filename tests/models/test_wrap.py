"""A model that the caller has loaded: what is taken, what is refused, and that it is left as it
is."""

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import ByT5Tokenizer, GPT2Config, GPT2LMHeadModel, LlamaModel

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, watch
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models import wrap
from naive_speculate.models.translation.tokens import translation_between
from tests.tiny import tiny_llama, words

GREEDY = SamplingParams(max_tokens=6, temperature=0)


def gpt2():
    torch.manual_seed(0)
    dropout = {"embd_pdrop": 0.9, "attn_pdrop": 0.9, "resid_pdrop": 0.9}
    shape = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    return GPT2LMHeadModel(GPT2Config(**shape, **dropout, bos_token_id=None, eos_token_id=None))


def dropping_llama():
    return tiny_llama(2, seed=0, attention_dropout=0.9)


def greedy(language_model):
    decoder = SpeculativeDecoder(ModelPair(language_model))
    return decoder.generate([5, 17, 33], GREEDY, num_draft_tokens=0).token_ids


@pytest.mark.parametrize("make", [gpt2, dropping_llama])
def test_a_model_that_is_trained_stays_so_and_is_decoded_without_dropout(make):
    wanted = greedy(wrap(make().eval(), "transformers"))
    model = make().train()
    model.get_input_embeddings().eval()  # as where a part is frozen
    modes = [module.training for module in model.modules()]
    wrapped = wrap(model, "transformers")
    assert greedy(wrapped) == wanted
    assert [module.training for module in model.modules()] == modes
    with torch.no_grad():  # its parameters are the same, so the next update is seen
        for parameter in model.parameters():
            parameter.neg_()
    changed = greedy(wrapped)
    assert changed == greedy(wrap(model.eval(), "transformers")) != wanted


def test_a_model_in_evaluation_mode_is_not_copied():
    model = gpt2().eval()
    assert wrap(model).model is model


@pytest.mark.parametrize("executor", ["auto", "transformers"])
def test_of_a_compiled_model_the_original_is_taken(executor):
    model = tiny_llama(1, seed=0)
    assert greedy(wrap(torch.compile(model), executor)) == greedy(wrap(model, executor))
    with pytest.raises(ValueError, match=r"naive_speculate\.models\.wrap must wrap"):
        ModelPair(torch.compile(model))


@pytest.mark.parametrize("make", [wrap, TransformersLanguageModel])
def test_what_is_no_causal_language_model_of_transformers_is_named(make):
    for given, name in ((torch.nn.Linear(2, 2), "Linear"), ("gpt2", "str"), (None, "NoneType")):
        with pytest.raises(ValueError, match=rf"^model must be a causal .* got {name}$"):
            make(given)
    if make is wrap:
        headless = LlamaModel(tiny_llama(1, seed=0).config)
        with pytest.raises(ValueError, match=r"^model must be .* LlamaModel has no logits"):
            wrap(headless)


def test_a_tokenizer_without_a_fast_backend_is_named_whoever_takes_it():
    model = wrap(tiny_llama(1, seed=0))
    for slow in (Tokenizer(models.BPE()), ByT5Tokenizer()):
        kind = "a transformers tokenizer with a fast backend"
        said = rf"tokenizer must be {kind}, got {type(slow).__name__}$"
        with pytest.raises(ValueError, match=f"^{said}"):
            ModelPair(model, tokenizer=slow)
        with pytest.raises(ValueError, match=f"^draft_{said}"):
            translation_between(words(), slow)
    with pytest.raises(ValueError, match=f"^{said}"):
        watch(tiny_llama(1, seed=0), tiny_llama(1, seed=1), [5, 6], tokenizer=slow)
