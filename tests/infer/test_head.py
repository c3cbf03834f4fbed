"""Draft heads in both layouts: what they compute, and what is said about those that do not fit."""

import json

import pytest
import torch

from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import is_head, load_head
from tests.heads import (
    LAYOUTS,
    TARGET_WIDTH,
    VOCAB,
    eager_fused,
    eager_layers,
    eager_logits,
    head_config,
    head_tensors,
    save_head,
)
from tests.tiny import tiny_llama

SLIDING = ["sliding_attention", "full_attention"]
KINDS = {
    "fewer tokens": ({}, {}, {}),
    "all tokens": ({}, {"known": None}, {}),
    "own embeddings": ({}, {"own_embeddings": True}, {}),
    "narrower": ({"hidden_size": 16, "head_dim": 8}, {}, {}),
    "wider": ({"hidden_size": 48, "num_key_value_heads": 4}, {"known": None}, {}),
    "norm before residual": ({}, {}, {"norm_before_residual": True}),
    "three layers": ({"num_hidden_layers": 3}, {}, {}),
    "two layers, norm before residual": ({"num_hidden_layers": 2}, {"known": None}, {"norm_before_residual": True}),
    "states normed": ({}, {"normed_input": True}, {}),
    "a sliding layer": ({"num_hidden_layers": 2, "layer_types": SLIDING, "sliding_window": 5}, {}, {}),
    "states added to embeddings": ({}, {"adds": True}, {}),
    "added, and two layers": ({"num_hidden_layers": 2, "hidden_size": 16, "head_dim": 8}, {"known": None, "adds": True}, {}),
}
EXECUTORS = ("torch", "onnx")


@pytest.fixture(scope="module")
def target():
    return TransformersLanguageModel(tiny_llama(6, seed=0))


def loaded(folder, target, executor="torch", dtype=None):
    return load_head(folder, target, torch.device("cpu"), dtype, executor)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_computes_what_its_definition_says(tmp_path, target, kind, layout, executor):
    """In pieces, through a cache, two rows of different lengths side by side, with rejected places in between."""
    changes, how, options = KINDS[kind]
    config = head_config(**changes)
    tensors = head_tensors(config, **how)
    head = loaded(save_head(tmp_path, layout, config, tensors, **options), target, executor)
    embedding = tensors.get("embed_tokens.weight", target.input_embeddings)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCAB, (2, 40), generator=generator)
    features = torch.randn(2, 40, 3 * TARGET_WIDTH, generator=generator)
    states = eager_fused(tensors, config, features)
    torch.testing.assert_close(head.fuse(features), states, atol=1e-4, rtol=1e-4)
    assert head.fuse(features[0, 0]).shape == states[0, 0].shape
    assert head.fuse(features[:, :0]).shape == states[:, :0].shape
    expected = [
        eager_layers(tensors, config, embedding, row.tolist(), own, **options) for row, own in zip(tokens, states, strict=True)
    ]
    cache = head.new_cache(2)
    for lengths in ((7, 3), (1, 4), (5, 5), (1, 1), (9, 2), (2, 10)):
        begins = list(cache.lengths)
        width = max(lengths)
        query = torch.stack([tokens[row, begin : begin + width] for row, begin in enumerate(begins)])
        beside = torch.stack([states[row, begin : begin + width] for row, begin in enumerate(begins)])
        logits, hidden = head.forward(query, beside, cache.all_rows(), [length - 1 for length in lengths])
        for row, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            wanted = expected[row][begin + length - 1]
            torch.testing.assert_close(hidden[row], wanted, atol=2e-4, rtol=2e-4)
            torch.testing.assert_close(logits[row], eager_logits(tensors, config, wanted), atol=1e-3, rtol=1e-3)
            cache.keep(row, begin + length)
    assert head.vocab_size == VOCAB
    assert head.target_hidden_size == TARGET_WIDTH


@pytest.mark.parametrize(
    ("layout", "more", "expected"),
    [
        ("eagle", {}, (2, 3, 3)),  # 2, n / 2, n - 3 of six layers
        ("speculators", {}, (2, 3, 3)),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [0, 2, 6]}, (0, 2, 6)),
        ("eagle", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}}, (2, 3, 5)),  # what leaves layer i
    ],
)
def test_the_layers_are_those_that_the_configuration_means(tmp_path, target, layout, more, expected):
    config = head_config()
    head = loaded(save_head(tmp_path, layout, config, head_tensors(config), **more), target)
    assert head.layers == expected


def test_a_head_stored_in_shards_and_in_half_precision_is_loaded(tmp_path, target):
    from safetensors.torch import load_file, save_file

    config = head_config()
    tensors = head_tensors(config)
    save_head(tmp_path, "eagle", config, {k: t.half() if t.is_floating_point() else t for k, t in tensors.items()})
    stored = load_file(tmp_path / "model.safetensors")
    names = sorted(stored)
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: stored[name] for name in names if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    head = loaded(tmp_path, target, dtype=torch.float32)
    features = torch.randn(1, 3, 3 * TARGET_WIDTH)
    torch.testing.assert_close(head.fuse(features), features @ tensors["fc.weight"].half().float().T)
    assert loaded(tmp_path, target).dtype == torch.float16


def test_whether_something_is_a_head_is_read_from_its_configuration(tmp_path):
    config = head_config()
    for layout in LAYOUTS:
        assert is_head(save_head(tmp_path / layout, layout, config, head_tensors(config)))
    tiny_llama(1, seed=0).save_pretrained(tmp_path / "llama")
    assert not is_head(tmp_path / "llama")
    assert not is_head(tmp_path / "nowhere")


def spoiled(**changes):
    def spoil(tensors):
        for name, tensor in changes.items():
            name = name.replace("__", ".")
            if tensor is None:
                del tensors[name]
            else:
                tensors[name] = tensor(tensors[name]) if name in tensors else tensor

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoiled(fc__weight=None), "fc.weight is missing"),
        (spoiled(fc__weight=lambda t: t[:, :-1]), r"fc.weight is \[32, 95\], which does not fit 3 layers"),
        (spoiled(norm__weight=lambda t: t[:-1]), r"norm.weight is \[31\], its configuration says \[32\]"),
        (spoiled(layer__mlp__up_proj__weight=lambda t: t.T), r"layers.0.mlp.up_proj.weight is \[32, 40\]"),
        (spoiled(d2t=lambda t: t + 60), "d2t leads to token"),
        (spoiled(d2t=lambda t: t * 0), "t2d and d2t do not agree"),
        (spoiled(d2t=lambda t: t - torch.arange(60)), "d2t leads to a token twice|d2t leads to token"),
        (spoiled(d2t=lambda t: t[:5]), r"d2t is \[5\], lm_head.weight has 60 tokens"),
        (spoiled(d2t=None), "d2t is missing"),
        (spoiled(extra__weight=torch.ones(2)), "it holds extra.weight, which is not known here"),
        (spoiled(hidden_norm__weight=torch.ones(32)), "it holds hidden_norm.weight, which is not known here"),
        (spoiled(state_proj__weight=torch.ones(32, 32)), "hidden_norm.weight is missing"),
    ],
)
def test_a_checkpoint_that_does_not_fit_together_is_told_in_one_line(tmp_path, target, spoil, message):
    config = head_config()
    tensors = head_tensors(config)
    spoil(tensors)
    folder = save_head(tmp_path, "speculators", config, tensors)
    with pytest.raises(ValueError, match=rf"^head='.*' cannot be loaded: .*({message})") as caught:
        loaded(folder, target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({"num_hidden_layers": 2}, {}, "layers.1.input_layernorm.weight is missing"),
        ({"hidden_act": "gelu"}, {}, "hidden_act is gelu, not silu"),
        ({}, {"speculators_model_type": "dflash"}, "speculators_model_type is 'dflash', not 'eagle3'"),
        ({}, {"norm_output": True}, "norm_output is True, which is not known here"),
    ],
)
def test_a_head_of_another_kind_is_told_in_one_line(tmp_path, target, changes, more, message):
    config = head_config()
    folder = save_head(tmp_path, "speculators", config | changes, head_tensors(config), **more)
    with pytest.raises(ValueError, match=rf"^head='.*' cannot be loaded: {message}"):
        loaded(folder, target)


def test_a_residual_that_an_adding_head_has_not_is_refused(tmp_path, target):
    config = head_config()
    folder = save_head(tmp_path, "speculators", config, head_tensors(config, adds=True), norm_before_residual=True)
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: norm_before_residual is not known here for a head"):
        loaded(folder, target)


def test_broken_files_are_told_in_one_line(tmp_path, target):
    config = head_config()
    folder = save_head(tmp_path, "eagle", config, head_tensors(config))
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:300])
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: model.safetensors is broken"):
        loaded(folder, target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: it has no model.safetensors$"):
        loaded(folder, target)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"it has no model.safetensors \(pytorch_model.bin is not read"):
        loaded(folder, target)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: "):
        loaded(folder, target)
    with pytest.raises(ValueError, match=r"^head='/no/such' cannot be loaded: there is no such folder"):
        loaded("/no/such", target)


def test_a_head_without_embeddings_needs_a_target_with_some_of_its_width(tmp_path):
    config = head_config()
    folder = save_head(tmp_path, "eagle", config, head_tensors(config), eagle_aux_hidden_state_layer_ids=[0, 1, 2])
    with pytest.raises(ValueError, match="has no input_embeddings to share"):
        loaded(folder, object())


def test_a_configuration_with_words_for_numbers_is_refused_in_one_line(tmp_path, target):
    """Also where all is told, so that transformers' class does not look at it."""
    whole = head_config(dtype="float32", eos_token_id=0, tie_word_embeddings=False, head_dim=8)
    whole["rope_parameters"] = {"rope_type": "default", "rope_theta": "ten"}
    folder = save_head(tmp_path, "speculators", whole, head_tensors(whole))
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: [^\n]+$"):
        loaded(folder, target)
