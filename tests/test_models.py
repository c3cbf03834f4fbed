"""Loading pairs: local folders, other tokenizers, padded vocabularies."""

import re
import shutil

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models import BUNDLED_PAIR
from tests.speculate.rows import same_as_plain
from tests.tokenizers_of_tests import byte_level, letters, llama, save, unigram


def test_the_bundled_pair_has_names_and_one_vocabulary(bundled_pair):
    roles = [role for role in ("target", "draft", "head") if (BUNDLED_PAIR / role).is_dir()]
    assert bundled_pair.names == {role: f"bundled {role}" for role in roles}
    assert {"target", "draft"} <= set(roles)
    assert bundled_pair.vocab_size == len(bundled_pair.tokenizer)


def test_layers_can_be_spread_over_devices(small_pair, small_decoder):
    pair = load_pair(*small_pair, device="cpu", device_map="cpu")
    assert isinstance(pair.target, TransformersLanguageModel)
    params = SamplingParams(max_tokens=12, temperature=0)
    assert SpeculativeDecoder(pair).generate("The fox", params).text == small_decoder.generate("The fox", params).text


@pytest.mark.parametrize("executor", ["transformers", "torch", "onnx"])
def test_every_executor_gives_the_same_greedy_text(small_pair, small_decoder, executor):
    decoder = SpeculativeDecoder(load_pair(*small_pair, executor=executor, device="cpu"))
    params = SamplingParams(max_tokens=16, temperature=0)
    assert decoder.generate("The fox", params).token_ids == small_decoder.generate("The fox", params).token_ids


def test_a_draft_with_another_tokenizer_is_translated(tmp_path):
    target = save(llama(byte_level(), 0), byte_level(), tmp_path / "target")
    draft = save(llama(unigram(), 1), unigram(), tmp_path / "draft")
    pair = load_pair(target, draft, device="cpu")
    assert pair.translation.counts["shared"] > 100
    params = SamplingParams(max_tokens=12, temperature=0)
    same_as_plain(SpeculativeDecoder(pair), "The fox", params)
    assert load_pair(target, target, device="cpu").translation is None


def test_a_draft_with_too_few_common_tokens_is_refused(tmp_path, bundled_pair):
    few = letters("a", "b", "ab")
    with pytest.raises(ValueError, match=r"^draft='.*' shares \d of the target's \d+ tokens, fewer than a tenth$"):
        load_pair(BUNDLED_PAIR / "target", save(llama(few, 0), few, tmp_path / "draft"))
    with pytest.raises(ValueError, match=r"^draft_tokenizer shares . of the target's"):
        ModelPair(bundled_pair.target, bundled_pair.draft, bundled_pair.tokenizer, draft_tokenizer=few)
    with pytest.raises(ValueError, match=r"^draft_tokenizer was given without a draft"):
        ModelPair(bundled_pair.target, None, bundled_pair.tokenizer, draft_tokenizer=few)
    with pytest.raises(ValueError, match=r"^draft_tokenizer was given without a tokenizer"):
        ModelPair(bundled_pair.target, bundled_pair.draft, draft_tokenizer=few)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft": "x"}, "draft='x' was given without a target"),
        ({"target": "/no/such"}, "target='/no/such': there is no such folder"),
        ({"device": "toaster"}, "device='toaster' is not available"),
        ({"dtype": "int8"}, "dtype must be 'auto' or a floating-point type"),
        ({"executor": "abacus"}, "executor must be one of auto, onnx, torch, transformers, got 'abacus'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        load_pair(**options)


def test_pickled_weights_are_refused(tmp_path, bundled_pair):
    shutil.copy(BUNDLED_PAIR / "draft" / "config.json", tmp_path)
    bundled_pair.tokenizer.save_pretrained(tmp_path)
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_pair(tmp_path)


def saved(folder, pair, architecture, **config):
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    configuration = CONFIG_MAPPING[architecture](vocab_size=len(pair.tokenizer), **config)
    AutoModelForCausalLM.from_config(configuration).save_pretrained(folder)
    pair.tokenizer.save_pretrained(folder)
    return folder


GEMMA2 = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gemma2", {**GEMMA2, "intermediate_size": 64}),
        ("gptj", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "bos_token_id": 0, "eos_token_id": 0}),
        ("codegen", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "bos_token_id": 0, "eos_token_id": 0}),
        ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
        ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    ],
)
def test_architectures_without_sdpa_are_loaded_and_run_eagerly(tmp_path, bundled_pair, architecture, config):
    pair = load_pair(saved(tmp_path, bundled_pair, architecture, **config))
    assert pair.target.model.config._attn_implementation == "eager"
    params = SamplingParams(temperature=0, max_tokens=8)
    same_as_plain(SpeculativeDecoder(pair), "The fox and the fox", params, drafter="prompt_lookup")


def test_a_model_that_cannot_be_decoded_is_refused_when_it_is_loaded(tmp_path, bundled_pair):
    folder = saved(tmp_path, bundled_pair, "openai-gpt", n_embd=32, n_layer=2, n_head=4)
    with pytest.raises(ValueError, match=r"\(openai-gpt\) cannot be decoded with a cache"):
        load_pair(folder)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_transformers_model_that_is_not_wrapped_is_named(bundled_pair, role):
    raw = LlamaForCausalLM(LlamaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=1, num_attention_heads=2))
    models = {"target": bundled_pair.target, role: raw}
    with pytest.raises(ValueError, match=rf"^{role} is transformers' LlamaForCausalLM, which naive_speculate.models.wrap"):
        ModelPair(**models)


@pytest.mark.parametrize("drafter", ["nonsense", "head", "suffix+head", 3])
def test_a_fastest_drafter_that_the_pair_has_not_is_refused(bundled_pair, drafter):
    said = f"fastest_drafter must be 'model' or 'head' or 'suffix' or 'suffix+head' and in the pair, got {drafter!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        ModelPair(bundled_pair.target, bundled_pair.draft, fastest_drafter=drafter)
    with pytest.raises(ValueError, match=r"got 'model'$"):
        ModelPair(bundled_pair.target, fastest_drafter="model")
