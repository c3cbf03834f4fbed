"""Loading pairs: local folders, other tokenizers, padded vocabularies, draft heads and those
that do not fit."""

import json
import re

import pytest
import torch
from safetensors.torch import save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate import pair as pairs
from naive_speculate.__main__ import main
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.costs import CostTable
from naive_speculate.models.translation.tokens import translation_between
from naive_speculate.pair import BUNDLED_PAIR
from tests.heads import LAYOUTS, head_config, head_tensors, save_head
from tests.speculate.rows import same_as_plain
from tests.tiny import save_model, tiny_llama
from tests.tokenizers_of_tests import byte_level, letters, llama, save, unigram


def test_the_bundled_pair_has_names_and_one_vocabulary(bundled_pair):
    roles = [role for role in ("target", "draft", "head") if (BUNDLED_PAIR / role).is_dir()]
    assert bundled_pair.names == {role: f"bundled {role}" for role in roles}
    assert {"target", "draft"} <= set(roles)
    assert bundled_pair.vocab_size == len(bundled_pair.tokenizer)


@pytest.mark.parametrize(
    "how",
    [{"executor": name} for name in ("transformers", "torch", "onnx")] + [{"device_map": "cpu"}],
    ids=str,
)
def test_every_executor_and_layers_spread_over_devices_give_the_greedy_text_of_transformers(
    pair_folder, how
):
    pair = load_pair(pair_folder / "target", pair_folder / "draft", device="cpu", **how)
    assert "device_map" not in how or isinstance(pair.target, TransformersLanguageModel)
    found = (
        SpeculativeDecoder(pair)
        .generate([3, 5, 8], SamplingParams(max_tokens=16, temperature=0))
        .token_ids
    )
    expected = tiny_llama(6, seed=0).generate(
        torch.tensor([[3, 5, 8]]), max_new_tokens=16, do_sample=False, pad_token_id=0
    )
    assert found == expected[0, 3:].tolist()


def test_a_draft_with_another_tokenizer_is_translated(tmp_path):
    target = save(llama(byte_level(), 0), byte_level(), tmp_path / "target")
    draft = save(llama(unigram(), 1), unigram(), tmp_path / "draft")
    pair = load_pair(target, draft, device="cpu")
    assert pair.translation.counts["shared"] > 100
    params = SamplingParams(max_tokens=12, temperature=0)
    same_as_plain(SpeculativeDecoder(pair), "The fox", params)
    assert load_pair(target, target, device="cpu").translation is None


def test_a_draft_with_too_few_common_tokens_is_refused(tmp_path, bundled_pair):
    few, (target, draft, tokenizer) = (
        letters("a", "b", "ab"),
        (bundled_pair.target, bundled_pair.draft, bundled_pair.tokenizer),
    )
    with pytest.raises(
        ValueError, match=r"^draft='.*' shares \d of the target's \d+ tokens, fewer than a tenth$"
    ):
        load_pair(BUNDLED_PAIR / "target", save(llama(few, 0), few, tmp_path / "draft"))
    translation = translation_between(letters("a", "b", "c"), letters("a", "b", "d"))
    for parts, lacking in (((target, None, tokenizer), "draft"), ((target, draft), "tokenizer")):
        with pytest.raises(ValueError, match=f"^translation was given without a {lacking}$"):
            ModelPair(*parts, translation=translation)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draft": "x"}, "draft='x' was given without a target"),
        ({"target": "/no/such"}, "target='/no/such': there is no such folder"),
        ({"device": "toaster"}, "device='toaster' is not available"),
        ({"dtype": "int8"}, "dtype must be 'auto' or a floating-point type"),
        (
            {"draft": "x", "executor": "abacus"},  # before anything is looked for
            "executor must be one of auto, onnx, torch, transformers, got 'abacus'",
        ),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        load_pair(**options)


def saved(folder, architecture, **config):
    save_model(
        AutoModelForCausalLM.from_config(CONFIG_MAPPING[architecture](vocab_size=97, **config)),
        folder,
    )
    return folder


GEMMA2 = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("gemma2", {**GEMMA2, "intermediate_size": 64}),
        ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    ],
)
def test_architectures_without_sdpa_are_loaded_and_run_eagerly(tmp_path, architecture, config):
    pair = load_pair(saved(tmp_path, architecture, **config))
    assert pair.target.model.config._attn_implementation == "eager"
    params = SamplingParams(temperature=0, max_tokens=8)
    same_as_plain(SpeculativeDecoder(pair), [3, 5, 8, 3, 5], params, drafter="prompt_lookup")


def test_a_model_that_cannot_be_decoded_is_refused_when_it_is_loaded(tmp_path):
    folder = saved(tmp_path, "openai-gpt", n_embd=32, n_layer=2, n_head=4)
    with pytest.raises(ValueError, match=r"\(openai-gpt\) cannot be decoded with a cache"):
        load_pair(folder)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_transformers_model_that_is_not_wrapped_is_named(bundled_pair, role):
    raw = LlamaForCausalLM(
        LlamaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    )
    models = {"target": bundled_pair.target, role: raw}
    with pytest.raises(
        ValueError,
        match=rf"^{role} is transformers' LlamaForCausalLM, which naive_speculate.models.wrap",
    ):
        ModelPair(**models)


@pytest.mark.parametrize("drafter", ["nonsense", "head", "suffix+head", 3])
def test_a_fastest_drafter_that_the_pair_has_not_is_refused(bundled_pair, drafter):
    said = (
        "fastest_drafter must be 'model' or 'head' or 'suffix' or 'suffix+head' and in the pair,"
        f" got {drafter!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        ModelPair(bundled_pair.target, bundled_pair.draft, fastest_drafter=drafter)
    with pytest.raises(ValueError, match=r"got 'model'$"):
        ModelPair(bundled_pair.target, fastest_drafter="model")


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    save_model(tiny_llama(6, seed=0), folder / "target")
    save_model(tiny_llama(1, seed=1), folder / "draft")
    for layout in LAYOUTS:
        save_head(folder / layout, layout, head_config(), head_tensors(head_config()))
    narrow = head_config(hidden_size=16, head_dim=8)
    save_head(folder / "narrow", "speculators", narrow, head_tensors(narrow, known=20))
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_draft_that_is_a_head_is_taken_as_one(pair_folder, layout):
    pair = load_pair(pair_folder / "target", pair_folder / layout, device="cpu")
    assert pair.draft is None
    assert pair.head is not None
    assert pair.head.layers == (2, 3, 3)
    assert pair.names == {"target": "target", "head": layout}
    assert pair.default_drafter == "head"
    both = load_pair(
        pair_folder / "target", pair_folder / "draft", pair_folder / layout, device="cpu"
    )
    assert both.default_drafter == "model"  # nothing was measured
    assert both.names == {"target": "target", "draft": "draft", "head": layout}
    greedy = SamplingParams(max_tokens=12, temperature=0)
    decoder = SpeculativeDecoder(both)
    plain = decoder.generate("w3 w5 w8", greedy, num_draft_tokens=0)
    for drafter in ("model", "head"):
        assert decoder.generate("w3 w5 w8", greedy, drafter=drafter).token_ids == plain.token_ids
    with pytest.raises(
        ValueError, match=r"^draft='.*' is a draft head, and head='x' was given too$"
    ):
        load_pair(pair_folder / "target", pair_folder / layout, "x")


@pytest.mark.parametrize("fastest", [None, "head", "model"])
def test_a_head_that_ships_with_the_bundled_target_is_in_the_pair_and_the_fastest_drafts(
    pair_folder, monkeypatch, tmp_path, fastest
):
    """With a head that is narrower than its target, and has few of its tokens."""
    for name, source in {"target": "target", "draft": "draft", "head": "narrow"}.items():
        (tmp_path / name).symlink_to(pair_folder / source)
    monkeypatch.setattr("naive_speculate.models.pairs.BUNDLED_PAIR", tmp_path)
    if fastest is None:  # nothing was measured of this pair
        monkeypatch.setattr(pairs, "BUNDLED_PAIR", tmp_path)
        pair = load_pair(device="cpu")
        assert pair.names == {
            "target": "bundled target",
            "draft": "bundled draft",
            "head": "bundled head",
        }
        assert pair.default_drafter == "model"
        assert pair.costs("head").draft < 1
        assert pair.costs("head").verify == pair.costs("model").verify
        same_as_plain(
            SpeculativeDecoder(pair),
            "w3",
            SamplingParams(max_tokens=6, temperature=0),
            drafter="head",
        )
        return
    measured = {
        "draft": 0.1,
        "verify": [1.0, 1.2],
        "head": {"draft": 0.04, "verify": [1.0, 1.3]},
        "fastest_drafter": fastest,
    }
    in_8_bits = measured | {"head": {"draft": 0.08, "verify": [1.0, 1.6]}}
    (tmp_path / "costs.json").write_text(
        json.dumps(measured | {"int8": in_8_bits}), encoding="utf-8"
    )
    pair = load_pair(device="cpu")
    assert pair.default_drafter == fastest
    assert pair.costs("head") == CostTable(0.04, (1.0, 1.3))
    assert pair.costs("model") == CostTable(0.1, (1.0, 1.2))
    rounded = load_pair(device="cpu", weights="int8")
    assert rounded.costs("head") == CostTable(0.08, (1.0, 1.6))


def test_a_head_for_another_target_and_one_of_eagle_1_are_named_in_one_line(pair_folder, tmp_path):
    wide = head_tensors(head_config(), own_embeddings=True) | {"fc.weight": torch.zeros(32, 3 * 48)}
    other = save_head(tmp_path / "other", "eagle", head_config(), wide)
    tensors = {
        "fc.weight": torch.zeros(32, 64),
        "layers.0.self_attn.q_proj.weight": torch.zeros(32, 32),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], **head_config()})
    )
    none = (
        r"^head='.*' cannot be loaded: it is no EAGLE-3 head and none of `python -m train`: it"
        r" has no "
    )
    for parts, said in (
        ({"head": other}, r"^head '.*' is for a target with hidden_size \d+, this one's is 32$"),
        ({"head": pair_folder / "draft"}, f"{none}fc.weight$"),
        ({"draft": tmp_path}, f"{none}hidden_norm.weight$"),
    ):
        with pytest.raises(ValueError, match=said):
            load_pair(pair_folder / "target", device="cpu", **parts)


def test_the_command_line_drafts_with_a_head(pair_folder, capsys):
    options = [
        "--target",
        str(pair_folder / "target"),
        "--head",
        str(pair_folder / "eagle"),
        "--device",
        "cpu",
    ]
    more = ["--max-tokens", "6", "--temperature", "0", "--drafter", "head", "--json"]
    assert main(["generate", "w3 w5 w8", *options, *more]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["settings"]["drafter"] == "head"
    assert events[0]["models"]["head"] == "eagle"
    assert any(event["kind"] == "proposed" for event in events)
    missing = ["--target", str(pair_folder / "target"), "--head", "/no/such"]
    assert main(["generate", "w3", *missing]) == 2
    assert "head='/no/such': there is no such folder" in capsys.readouterr().err


def test_half_precision_is_the_target_s(pair_folder):
    pair = load_pair(
        pair_folder / "target", head=pair_folder / "speculators", device="cpu", dtype="bfloat16"
    )
    assert pair.head is not None
    assert pair.head.dtype == torch.bfloat16
    params = SamplingParams(max_tokens=8, seed=1)
    assert len(SpeculativeDecoder(pair).generate("w1 w2", params, drafter="head").token_ids) == 8
