"""Damaged files of targets, drafts and heads: one line that names the file, and exit status 2."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from naive_speculate import load_pair
from naive_speculate.infer.files import load_error
from tests.heads import head_config, head_tensors, save_head
from tests.programs import refusal
from tests.tiny import save_model, tiny_llama

WEIGHTS = "model.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    save_model(tiny_llama(6, seed=0), folder / "model")
    save_head(folder / "head", "eagle", head_config(), head_tensors(head_config()))
    return folder


def loaded(whole, role, folder):
    return load_pair(**{"target": whole / "model", "device": "cpu"} | {role: folder})


def spoiled(whole, role, folder, file, content):
    """A copy with one file that holds other bytes, or what a function makes of its own."""
    shutil.copytree(whole / ("head" if role == "head" else "model"), folder)
    path = folder / file
    path.write_bytes(content if isinstance(content, bytes) else content(path.read_bytes()))
    return folder


def changed(**values):
    """What changes values of a JSON file."""
    return lambda own: json.dumps(json.loads(own) | values).encode()


@pytest.mark.parametrize("role", ["target", "draft", "head"])
@pytest.mark.parametrize(
    "content",
    [lambda own: own[:1000], lambda own: own[:5], lambda own: own[:-100], b"", POINTER, bytes(range(256)) * 50],
    ids=["cut in its header", "cut in its length", "cut at its end", "empty", "a pointer", "noise"],
)
def test_a_damaged_weight_file_is_named_in_one_line(tmp_path, whole, role, content):
    folder = spoiled(whole, role, tmp_path / "x", WEIGHTS, content)
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: model.safetensors is damaged.*\)$") as caught:
        loaded(whole, role, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("tokenizer.json", content) for content in (b"", b"{}", b"[]", b'{"added_tokens": null, "model": 3}', b"\0\xff" * 9)),
        ("tokenizer.json", lambda own: own[:200]),
        ("tokenizer.json", b'{"version":"1.0","added_tokens":[],"model":{"type":"Nope"}}'),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"\xff\xfe\0"),
        ("config.json", b"[" * 100_000),
        ("generation_config.json", b"[]"),
        ("chat_template.jinja", b"\xff\xfe\0"),
    ],
)
def test_a_damaged_tokenizer_or_configuration_is_named_in_one_line(tmp_path, whole, role, file, content):
    folder = spoiled(whole, role, tmp_path / "x", file, content)
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: {file} is damaged \(.*\)$") as caught:
        loaded(whole, role, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_weights_that_are_not_those_of_the_configuration_are_refused(tmp_path, whole, role):
    """transformers makes up what is missing."""
    folder = tmp_path / "x"
    shutil.copytree(whole / "model", folder)
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor for name, tensor in tensors.items() if "layers.3.mlp" not in name}, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"its safetensors files lack model.layers.3.mlp.down_proj.weight and 2 more$"):
        loaded(whole, role, folder)
    save_file(tensors | {"lm_head.weight": torch.ones(97, 8)}, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"lm_head.weight is \[97, 8\], its configuration requires \[97, 32\]$"):
        loaded(whole, role, folder)


@pytest.mark.parametrize("role", ["target", "draft", "head"])
@pytest.mark.parametrize(
    "values",
    [{"num_attention_heads": 0}, {"rms_norm_eps": [1]}, {"head_dim": {"a": 1}}, {"hidden_size": "x"}, {"rope_theta": "x"}],
    ids=str,
)
def test_a_wrong_value_of_a_configuration_is_answered_in_one_line_that_names_the_file(tmp_path, whole, role, values):
    if role != "head" and "rope_theta" in values:
        values = {"rope_parameters": {"rope_type": "default"} | values}
    folder = spoiled(whole, role, tmp_path / "x", "config.json", changed(**values))
    with pytest.raises(
        ValueError, match=rf"^{role}='.*' cannot be loaded: a value in its config.json .*is wrong \(.*"
    ) as caught:
        loaded(whole, role, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"hidden_act": "nope"}, r"a value in its config.json is wrong \(KeyError\('nope'\)\)"),
        ({"tie_word_embeddings": "false"}, r"a value in its config.json is wrong \(.*tie_word_embeddings.*\)"),
        ({"model_type": "qwen2_5_vl"}, "transformers has no causal language model of model_type 'qwen2_5_vl'"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}, "it needs code of its own, which is not run"),
    ],
)
def test_a_configuration_that_transformers_cannot_use_is_answered_by_its_value(tmp_path, whole, values, why):
    folder = spoiled(whole, "target", tmp_path / "x", "config.json", changed(**values))
    with pytest.raises(ValueError, match=rf"^target='.*' cannot be loaded: {why}$"):
        loaded(whole, "target", folder)


@pytest.mark.parametrize("known", [True, False])
def test_weights_in_fp8_are_computed_with_their_scales_or_refused(tmp_path, whole, known):
    """transformers dequantises them to the files' dtype, whatever is requested; scales of methods that it lacks it ignores."""
    method = {"quant_method": "fp8", "weight_block_size": [128, 128]} if known else {"quant_method": "modelopt"}
    folder = spoiled(whole, "target", tmp_path / "x", "config.json", changed(quantization_config=method))
    plain = shutil.copytree(whole / "model", tmp_path / "plain")
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(folder / WEIGHTS).items()}
    numbers = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items() if "proj" in name}
    save_file(tensors | {name: 0.5 * tensor.bfloat16() for name, tensor in numbers.items()}, plain / WEIGHTS)
    end = "_scale_inv" if known else "_scale"
    save_file(tensors | numbers | {name + end: torch.full((1, 1), 0.5) for name in numbers}, folder / WEIGHTS)
    if not known:
        with pytest.raises(ValueError, match=r"^target='.*' cannot be loaded: its weights are quantised .* ignores .*_scale$"):
            loaded(whole, "target", folder)
        return
    found, expected = (
        model.forward(torch.arange(8)[None], model.new_cache(1))
        for model in (loaded(whole, "target", each).target for each in (folder, plain))
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("values", [{"model_max_length": "x"}, {"tokenizer_class": 3}, {"eos_token": 3}], ids=str)
def test_a_wrong_value_of_a_tokenizer_s_configuration_is_found_as_it_loads(tmp_path, whole, role, values):
    folder = spoiled(whole, role, tmp_path / "x", "tokenizer_config.json", changed(**values))
    with pytest.raises(
        ValueError, match=rf"^{role}='.*' cannot be loaded: a value in its .*tokenizer_config.json is wrong \(.*"
    ):
        loaded(whole, role, folder)


@pytest.mark.parametrize("role", ["target", "draft", "head"])
@pytest.mark.parametrize("pickled", [True, False])
def test_a_folder_without_weights_is_answered_by_the_file_that_it_lacks(tmp_path, whole, role, pickled):
    folder = spoiled(whole, role, tmp_path / "x", WEIGHTS, b"")
    (folder / WEIGHTS).rename(folder / ("pytorch_model.bin" if pickled else "other"))
    why = r" \(pytorch_model.bin is not read, .*\)" if pickled else ""
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: it has no {WEIGHTS}{why}$"):
        loaded(whole, role, folder)


def test_a_quantised_head_is_refused_in_one_line(tmp_path, whole):
    tensors = {name: tensor.to(torch.int8) for name, tensor in load_file(whole / "head" / WEIGHTS).items()}
    folder = spoiled(whole, "head", tmp_path / "x", WEIGHTS, b"")
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"^head='.*' cannot be loaded: .* is torch.int8; quantised heads are not supported$"):
        loaded(whole, "head", folder)


def test_a_shard_that_is_missing_is_named(tmp_path, whole):
    shutil.copytree(whole / "model", folder := tmp_path / "x")
    (folder / WEIGHTS).unlink()
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}))
    with pytest.raises(ValueError, match=r"^target='.*' cannot be loaded: .*model-1.safetensors"):
        loaded(whole, "target", folder)


@pytest.mark.parametrize("role", ["target", "draft", "head"])
@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"fc.weight": 3}}', '{"weight_map": {"a": "/x"}}'],
)
def test_a_damaged_index_is_named_in_one_line(tmp_path, whole, role, content):
    folder = spoiled(whole, role, tmp_path / "x", WEIGHTS, b"")
    (folder / WEIGHTS).unlink()
    (folder / f"{WEIGHTS}.index.json").write_text(content)
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: {WEIGHTS}.index.json is damaged \(.*\)$"):
        loaded(whole, role, folder)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_tokenizer_that_is_missing_is_not_made_up(tmp_path, whole, role):
    """transformers makes one with the special tokens of some classes alone."""
    folder = spoiled(whole, role, tmp_path / "x", "config.json", lambda own: own.replace(b'"llama"', b'"qwen2"'))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: it has no tokenizer.json"):
        loaded(whole, role, folder)


@pytest.mark.parametrize(
    ("role", "file", "content"),
    [
        ("target", WEIGHTS, lambda own: own[:1000]),
        ("draft", WEIGHTS, POINTER),
        ("head", WEIGHTS, lambda own: own[:-100]),
        ("target", "tokenizer.json", b"{}"),
    ],
)
def test_the_command_line_prints_one_line_and_ends_with_status_2(tmp_path, whole, role, file, content):
    folder = spoiled(whole, role, tmp_path / "x", file, content)
    models = {"--target": whole / "model"} | {f"--{role}": folder}
    given = ["generate", "w5", *(str(part) for pair in models.items() for part in pair)]
    assert f"cannot be loaded: {file} is damaged" in refusal("naive_speculate.__main__", given)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("std::bad_alloc")], ids=repr
)
def test_where_memory_is_short_no_file_is_blamed(whole, error):
    assert "does not fit in memory" in str(load_error("target", str(whole / "model"), error))
