"""Damaged files of targets, drafts and heads: one line that names the file."""

import json
import shutil
from itertools import cycle

import pytest
import torch
from safetensors.torch import load, load_file, save, save_file

from naive_speculate import load_pair
from naive_speculate.models.files import load_error
from tests.heads import head_config, head_tensors, save_head
from tests.tiny import save_model, tiny_llama

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
INDEX = f"{WEIGHTS}.index.json"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    save_model(tiny_llama(4, seed=0), folder / "model")
    layers = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    save_head(folder / "head", "eagle", head_config(), head_tensors(head_config()), **layers)
    return folder


def loaded(whole, role, folder):
    return load_pair(**{"target": whole / "model", "device": "cpu"} | {role: folder})


def spoiled(whole, role, folder, changes):
    """A copy with files that hold other bytes, or what a function makes of their own, or that
    are missing (None)."""
    shutil.copytree(whole / ("head" if role == "head" else "model"), folder)
    for file, content in changes.items():
        path = folder / file
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content if isinstance(content, bytes) else content(path.read_bytes()))
    return folder


def changed(**values):
    """What changes values of a JSON file."""
    return lambda own: json.dumps(json.loads(own) | values).encode()


def tensors(change):
    """What changes the tensors of a file."""
    return lambda own: save(change(load(own)))


def shards(weight_map):
    return {WEIGHTS: None, INDEX: json.dumps({"weight_map": weight_map}).encode()}


VALUE = r"a value in its config.json .*is wrong \(.*"
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}
OF_ALL = [  # files of a model or a head, and the message
    ({WEIGHTS: lambda own: own[:1000]}, f"{WEIGHTS} is damaged.*\\)"),
    ({WEIGHTS: lambda own: own[:5]}, f"{WEIGHTS} is damaged.*\\)"),
    ({WEIGHTS: lambda own: own[:-100]}, f"{WEIGHTS} is damaged.*\\)"),
    *(
        ({WEIGHTS: content}, f"{WEIGHTS} is damaged.*\\)")
        for content in (b"", POINTER, bytes(range(256)) * 50)
    ),
    *(
        ({WEIGHTS: None, INDEX: content}, f"{INDEX} is damaged \\(.*\\)")
        for content in (b"[", b"[]", b"{}")
    ),
    *(
        (shards(names), f"{INDEX} is damaged \\(.*\\)")
        for names in ([], {}, {"fc.weight": 3}, {"a": "/x"})
    ),
    ({WEIGHTS: None}, f"it has no {WEIGHTS}"),
    (
        {WEIGHTS: None, "pytorch_model.bin": b""},
        f"it has no {WEIGHTS} \\(pytorch_model.bin is not read, .*\\)",
    ),
    ({CONFIG: changed(num_attention_heads=0)}, VALUE),
    ({CONFIG: changed(rms_norm_eps=[1])}, VALUE),
    ({CONFIG: changed(head_dim={"a": 1})}, VALUE),
    ({CONFIG: changed(hidden_size="x")}, VALUE),
]
OF_MODELS = [
    *(
        ({TOKENIZER: content}, f"{TOKENIZER} is damaged \\(.*\\)")
        for content in (b"", b"{}", b"[]", b"\0\xff" * 9)
    ),
    ({TOKENIZER: b'{"added_tokens": null, "model": 3}'}, f"{TOKENIZER} is damaged \\(.*\\)"),
    ({TOKENIZER: lambda own: own[:200]}, f"{TOKENIZER} is damaged \\(.*\\)"),
    (
        {TOKENIZER: b'{"version":"1.0","added_tokens":[],"model":{"type":"Nope"}}'},
        f"{TOKENIZER} is damaged \\(.*\\)",
    ),
    *(
        ({"tokenizer_config.json": content}, r"tokenizer_config.json is damaged \(.*\)")
        for content in (b"{", b"[]")
    ),
    *(
        ({CONFIG: content}, r"config.json is damaged \(.*\)")
        for content in (b"{", b"[]", b"\xff\xfe\0", b"[" * 100_000)
    ),
    ({"generation_config.json": b"[]"}, r"generation_config.json is damaged \(.*\)"),
    ({"chat_template.jinja": b"\xff\xfe\0"}, r"chat_template.jinja is damaged \(.*\)"),
    *(
        (
            {"tokenizer_config.json": changed(**values)},
            r"a value in its .*tokenizer_config.json is wrong \(.*",
        )
        for values in ({"model_max_length": "x"}, {"tokenizer_class": 3}, {"eos_token": 3})
    ),
    ({CONFIG: changed(**ROPE)}, VALUE),
    (  # transformers makes up what is missing
        {
            WEIGHTS: tensors(
                lambda own: {name: each for name, each in own.items() if "layers.3.mlp" not in name}
            )
        },
        "its safetensors files lack model.layers.3.mlp.down_proj.weight and 2 more",
    ),
    (
        {WEIGHTS: tensors(lambda own: own | {"lm_head.weight": torch.ones(97, 8)})},
        r"lm_head.weight is \[97, 8\], its configuration requires \[97, 32\]",
    ),
    (  # for some classes transformers makes a tokenizer of the special tokens alone
        {
            CONFIG: lambda own: own.replace(b'"llama"', b'"qwen2"'),
            TOKENIZER: None,
            "tokenizer_config.json": None,
        },
        f"it has no {TOKENIZER}.*",
    ),
]
OTHERS = [
    (
        "target",
        {CONFIG: changed(hidden_act="nope")},
        r"a value in its config.json is wrong \(KeyError\('nope'\)\)",
    ),
    (
        "target",
        {CONFIG: changed(tie_word_embeddings="false")},
        r"a value in its config.json is wrong \(.*tie_word_embeddings.*\)",
    ),
    (
        "target",
        {CONFIG: changed(model_type="qwen2_5_vl")},
        "transformers has no causal language model of model_type 'qwen2_5_vl'",
    ),
    (
        "target",
        {CONFIG: changed(model_type="own", auto_map={"AutoConfig": "own.Own"})},
        "it needs code of its own, which is not run",
    ),
    ("target", shards({"a": "model-1.safetensors"}), ".*model-1.safetensors.*"),
    (
        "head",
        shards({"fc.weight": "model-1.safetensors"}),
        "it has no model-1.safetensors, which model.saf.* names",
    ),
    ("head", {CONFIG: b"{"}, r"config.json is damaged.*"),
    ("head", {CONFIG: None}, "it has no config.json"),
    ("head", {CONFIG: changed(rope_theta="x")}, VALUE),
    (
        "head",
        {WEIGHTS: tensors(lambda own: {name: each.to(torch.int8) for name, each in own.items()})},
        ".* is torch.int8; quantised heads are not supported",
    ),
]


@pytest.mark.parametrize(
    (
        "role",
        "changes",
        "message",
    ),  # targets and drafts are loaded by the same lines, heads by others
    [
        *(("head", *case) for case in OF_ALL),
        *(
            (role, *case)
            for role, case in zip(cycle(["target", "draft"]), [*OF_ALL, *OF_MODELS], strict=False)
        ),
        *OTHERS,
    ],
)
def test_what_cannot_be_loaded_is_answered_in_one_line_that_names_the_file(
    tmp_path, whole, role, changes, message
):
    folder = spoiled(whole, role, tmp_path / "x", changes)
    with pytest.raises(ValueError, match=rf"^{role}='.*' cannot be loaded: {message}$") as caught:
        loaded(whole, role, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("known", [True, False])
def test_weights_in_fp8_are_computed_with_their_scales_or_refused(tmp_path, whole, known):
    """transformers dequantises them to the files' dtype, whatever is requested; scales of
    methods that it lacks it ignores."""
    method = (
        {"quant_method": "fp8", "weight_block_size": [128, 128]}
        if known
        else {"quant_method": "modelopt"}
    )
    folder = spoiled(whole, "target", tmp_path / "x", {CONFIG: changed(quantization_config=method)})
    plain = shutil.copytree(whole / "model", tmp_path / "plain")
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(folder / WEIGHTS).items()}
    numbers = {
        name: tensor.to(torch.float8_e4m3fn) for name, tensor in tensors.items() if "proj" in name
    }
    save_file(
        tensors | {name: 0.5 * tensor.bfloat16() for name, tensor in numbers.items()},
        plain / WEIGHTS,
    )
    end = "_scale_inv" if known else "_scale"
    save_file(
        tensors | numbers | {name + end: torch.full((1, 1), 0.5) for name in numbers},
        folder / WEIGHTS,
    )
    if not known:
        with pytest.raises(
            ValueError,
            match=r"^target='.*' cannot be loaded: its weights are quantised .* ignores .*_scale$",
        ):
            loaded(whole, "target", folder)
        return
    found, expected = (
        model.forward(torch.arange(8)[None], model.new_cache(1))
        for model in (loaded(whole, "target", each).target for each in (folder, plain))
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("std::bad_alloc")],
    ids=repr,
)
def test_where_memory_is_short_no_file_is_blamed(whole, error):
    assert "does not fit in memory" in str(load_error("target", str(whole / "model"), error))
