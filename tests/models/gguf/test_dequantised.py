"""Models in GGUF files: every weight is what transformers' reader makes of it, every
token what its tokenizer does."""

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Regex, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models.gguf.metadata import BY_LLAMA_CPP, StoredTensor, read_metadata
from naive_speculate.models.gguf.tokenizer import _SPLITS, gguf_tokenizer
from naive_speculate.models.gguf.weights import dequantised, read_gguf_llama
from naive_speculate.models.llama.weights import weights_in
from tests.heads import head_config, head_tensors, save_head
from tests.models.gguf.files import DTYPES, written
from tests.speculate.rows import same_as_plain
from tests.tiny import noised
from tests.tokenizers_of_tests import ODD, byte_level, letters, llama, save

CPU = torch.device("cpu")
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
FAMILIES = {
    "llama": (LlamaConfig, {}),
    "untied": (LlamaConfig, {"tie_word_embeddings": False}),
    "biased": (LlamaConfig, {"attention_bias": True}),
    "qwen2": (Qwen2Config, {}),
    "qwen3": (Qwen3Config, {"head_dim": 32}),
    "gemma2": (Gemma2Config, {"head_dim": 16, "pad_token_id": None, "tie_word_embeddings": True}),
}


def model_of(family: str, **more: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    config_class, options = FAMILIES[family]
    tied = {
        "tie_word_embeddings": True,
        "vocab_size": len(byte_level()),
        "eos_token_id": byte_level().eos_token_id,
    }
    model = AutoModelForCausalLM.from_config(
        config_class(**SIZES | tied | options | {"bos_token_id": None} | more)
    )
    for name, parameter in model.named_parameters():
        if name.endswith(("norm.weight", "bias")):  # else these are ones and zeros
            torch.nn.init.normal_(parameter.data, 0.5)
    return model.eval()


@pytest.fixture
def llama_file(tmp_path):
    return written(model_of("llama"), tmp_path / "model.gguf", byte_level())


def parts(weights: Any) -> dict[str, torch.Tensor]:
    found = {"embedding": weights.embedding, "norm": weights.norm, "head": weights.head}
    for index, layer in enumerate(weights.layers):
        found |= {
            f"{index}.{name}": tensor for name, tensor in vars(layer).items() if tensor is not None
        }
    return found


def assert_same_weights(path: Path, model: PreTrainedModel) -> None:
    stored = read_gguf_llama(path, CPU, torch.float32)
    assert stored is not None
    ours, theirs = (
        parts(stored.weights),
        parts(weights_in(model.state_dict(), model.config.num_hidden_layers)),
    )
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@pytest.mark.parametrize("family", ["llama", "untied", "biased", "qwen2", "qwen3"])
def test_a_file_in_float32_is_the_model_that_was_written(tmp_path, family):
    model = model_of(family)
    path = written(model, tmp_path / "model.gguf", byte_level())
    assert_same_weights(path, model)
    assert read_gguf_llama(path, CPU, torch.float32).num_parameters == model.num_parameters()


def test_everything_that_a_forward_reads_is_on_the_device_of_the_weights(llama_file):
    stored = read_gguf_llama(llama_file, torch.device("meta"), torch.float32)
    tensors = {"rotary": stored.rotary.up_to(4)[0], **parts(stored.weights)}
    assert {name for name, tensor in tensors.items() if tensor.device.type != "meta"} == set()


@pytest.mark.parametrize(
    ("family", "dtype"),
    [*(("llama", dtype) for dtype in DTYPES), ("untied", "q8_0"), ("qwen2", "q4_1")],
)
def test_every_weight_is_what_the_reader_of_transformers_makes_of_it(tmp_path, family, dtype):
    path = written(model_of(family), tmp_path / "model.gguf", byte_level(), dtype)
    assert_same_weights(
        path,
        AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32),
    )


@pytest.mark.parametrize(
    "kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
)
def test_blocks_that_only_llama_cpp_writes_are_dequantised(tmp_path, kind):
    kind = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, width = 300, 512  # of more numbers than are dequantised at once
    # no scale is infinite
    stored = np.random.default_rng(0).integers(0, 60, (rows, width // block * size), np.uint8)
    (tmp_path / "blocks").write_bytes(b"before" + stored.tobytes())
    found = dequantised(tmp_path / "blocks", StoredTensor((rows, width), int(kind), 6))
    assert torch.equal(found, torch.from_numpy(gguf.quants.dequantize(stored, kind)))


def test_factors_of_the_rotary_frequencies_are_those_of_llama3(tmp_path):
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    scaled = model_of("llama", rope_parameters=rope | {"original_max_position_embeddings": 64})
    plain = model_of("llama")
    factors = plain.model.rotary_emb.inv_freq / scaled.model.rotary_emb.inv_freq
    path = with_tensor(
        written(plain, tmp_path / "model.gguf", byte_level()), "rope_freqs.weight", factors
    )
    found = read_gguf_llama(path, CPU, torch.float32).rotary.up_to(100)[0]
    assert torch.allclose(
        found, (torch.arange(100.0)[:, None] * scaled.model.rotary_emb.inv_freq).cos(), atol=1e-5
    )
    with pytest.raises(
        ValueError,
        match=r"its rotary frequencies have factors .*, which transformers does not read",
    ):
        load_pair(path, executor="transformers")


@pytest.mark.parametrize("key", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_without_a_kind_scales_linearly_as_in_llama_cpp(tmp_path, key):
    scaled = model_of(
        "llama", rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    )
    path = written(model_of("llama"), tmp_path / "model.gguf", byte_level())
    entry = struct.pack("<Q", 6 + len(key)) + f"llama.{key}".encode() + struct.pack("<If", 6, 4.0)
    filler = (
        struct.pack("<Q", 1)
        + b"x"
        + struct.pack("<IQ", 8, -(len(entry) + 21) % 32)
        + bytes(-(len(entry) + 21) % 32)
    )
    content = path.read_bytes()
    count = struct.unpack_from("<Q", content, 16)[0]
    path.write_bytes(content[:16] + struct.pack("<Q", count + 2) + entry + filler + content[24:])
    assert_same_weights(path, scaled)
    found = read_gguf_llama(path, CPU, torch.float32).rotary.up_to(100)[0]
    assert torch.allclose(
        found, (torch.arange(100.0)[:, None] * scaled.model.rotary_emb.inv_freq).cos(), atol=1e-5
    )
    with pytest.raises(
        ValueError,
        match=r"its rotary positions are scaled \(linear\), which transformers does not read",
    ):
        load_pair(path, executor="transformers")


def with_tensor(path: Path, name: str, tensor: torch.Tensor) -> Path:
    """The file with one more tensor, after all others."""
    content, reader = path.read_bytes(), gguf.GGUFReader(str(path))
    begin = reader.data_offset
    table_end = max(
        field.offset + sum(part.nbytes for part in field.parts)
        for field in (t.field for t in reader.tensors)
    )
    count = struct.unpack_from("<Q", content, 8)[0]
    data = content[begin:]
    text = name.encode()
    entry = (
        struct.pack("<Q", len(text))
        + text
        + struct.pack("<IQIQ", 1, len(tensor), 0, -(-len(data) // 32) * 32)
    )
    head = content[:8] + struct.pack("<Q", count + 1) + content[16:table_end] + entry
    head += bytes(-len(head) % 32)
    found = path.with_name("more.gguf")
    found.write_bytes(head + data + bytes(-len(data) % 32) + tensor.float().numpy().tobytes())
    return found


def test_a_tensor_that_is_not_known_is_refused_by_name(llama_file):
    path = with_tensor(llama_file, "blk.0.other.weight", torch.ones(64))
    with pytest.raises(
        ValueError,
        match=r"^target='.*more.gguf' cannot be loaded: it holds blk.0.other.weight, which is not",
    ):
        load_pair(path, executor="torch")


@pytest.mark.parametrize("executor", ["torch", "transformers"])
@pytest.mark.parametrize(
    ("key", "value", "neutral"),
    [
        ("attention.scale", 0.5, 0.25),
        ("logit_scale", 0.5, 1.0),
        ("residual_scale", 0.5, 1.0),
        ("embedding_scale", 12.0, 1.0),
        ("attn_logit_softcapping", 50.0, 0.0),
        ("final_logit_softcapping", 30.0, 0.0),
        ("attention.sliding_window", 16, 4096),
        ("attention.causal", False, True),
        ("rope.scaling.attn_factor", 2.0, 1.0),
        ("attention.of_2027", 1, None),
    ],
)
def test_a_key_that_is_not_read_is_refused_by_name_unless_it_changes_nothing(
    tmp_path, executor, key, value, neutral
):
    model = model_of("llama")
    path = written(model, tmp_path / "model.gguf", byte_level(), keys={key: value})
    said = rf"cannot be loaded: it sets llama.{key} to {value}"
    with pytest.raises(ValueError, match=said):
        load_pair(path, executor=executor, device="cpu")
    if neutral is not None:
        width = model.config.hidden_size // model.config.num_attention_heads
        keys = {key: width**-0.5 if key == "attention.scale" else neutral}
        load_pair(written(model, path, byte_level(), keys=keys), executor=executor, device="cpu")


def test_an_architecture_that_transformers_does_not_read_is_refused_with_the_way_out(llama_file):
    llama_file.write_bytes(llama_file.read_bytes().replace(b"llama", b"lumma"))
    with pytest.raises(ValueError, match=rf"does not read it \(.*lumma.*\); {BY_LLAMA_CPP}$"):
        load_pair(llama_file, executor="torch", device="cpu")


def test_a_tokenizer_that_transformers_does_not_read_is_refused_with_the_way_out(llama_file):
    content = llama_file.read_bytes().replace(b"llama", b"lumma")
    llama_file.write_bytes(content.replace(b"\x04\0\0\0\0\0\0\0gpt2", b"\x04\0\0\0\0\0\0\0rwkv"))
    with pytest.raises(ValueError, match=rf"read its tokenizer \(.*\); {BY_LLAMA_CPP}$"):
        load_pair(llama_file)


def test_a_file_that_was_not_copied_in_full_is_one_clear_line(llama_file):
    llama_file.write_bytes(llama_file.read_bytes()[:-4096])
    with pytest.raises(
        ValueError,
        match=r"^target='.*' cannot be loaded: it is damaged, or was not copied in full$",
    ):
        load_pair(llama_file, executor="torch")


@pytest.mark.parametrize("executor", ["onnx", "torch", "transformers"])
def test_a_quantised_file_decodes_as_generate_of_transformers_does(tmp_path, executor):
    path = written(
        model_of("llama", initializer_range=0.3), tmp_path / "model.gguf", byte_level(), "q4_1"
    )
    pair = load_pair(path, path, executor=executor)
    assert (
        pair.target.executor == executor
        if executor != "transformers"
        else pair.target.model is not None
    )
    assert pair.names == {"target": "model.gguf", "draft": "model.gguf"}
    reference = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    )
    query = byte_level()(ODD[0], return_tensors="pt").input_ids
    wanted = reference.generate(query, max_new_tokens=24, do_sample=False)[
        0, query.shape[1] :
    ].tolist()
    result = SpeculativeDecoder(pair).generate(
        ODD[0], SamplingParams(max_tokens=24, temperature=0), detail="full"
    )
    assert result.token_ids == wanted
    assert result.trace.started.weights == pair.weights == "Q4_1 weights, dequantised"


def test_a_head_reads_the_hidden_states_of_a_gguf_file(tmp_path):
    model = model_of("llama")
    path = written(model, tmp_path / "model.gguf", byte_level())
    config = head_config(vocab_size=model.config.vocab_size)
    tensors = head_tensors(config, known=None, own_embeddings=True) | {
        "fc.weight": torch.randn(32, 3 * 64) * 0.3
    }
    head = save_head(
        tmp_path / "head", "eagle", config, tensors, eagle_aux_hidden_state_layer_ids=[0, 1, 2]
    )
    decoder = SpeculativeDecoder(load_pair(path, head=head))
    params = SamplingParams(max_tokens=12, temperature=0)
    found, plain = (
        decoder.generate("The fox", params, drafter="head", num_draft_tokens=k) for k in (3, 0)
    )
    assert found.token_ids == plain.token_ids
    assert found.metrics.num_draft_tokens > 0


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_transformers_reads_a_file_as_the_model_that_was_written(tmp_path, family):
    """Its heads are smaller than the 128 that transformers assumes for Qwen3."""
    model = model_of(family)
    pair = load_pair(written(model, tmp_path / "model.gguf", byte_level()), executor="transformers")
    query = torch.tensor([[1, 2, 3, 4]])
    found = pair.target.forward(query, pair.target.new_cache(1))
    assert torch.allclose(found, model(query).logits, atol=1e-4)
    assert pair.names == {"target": "model.gguf"}


# Tokenizers


def test_text_becomes_the_tokens_of_the_tokenizer_that_was_written(llama_file):
    ours = gguf_tokenizer(llama_file)
    for text in ODD:
        assert ours(text).input_ids == byte_level()(text).input_ids
        assert ours.decode(ours(text).input_ids) == text
    assert ours.eos_token == byte_level().eos_token
    assert ours("a<|end|>b").input_ids == byte_level()("a<|end|>b").input_ids


def renamed(path: Path, pre: str) -> Path:
    """The file with another pre-tokenizer's name."""
    old, new = (struct.pack("<Q", len(name)) + name.encode() for name in ("gpt-2", pre))
    content = path.read_bytes()
    assert content.count(old) == 1
    found = path.with_name(f"{pre}.gguf")
    found.write_bytes(content.replace(old, new))
    return found


PIECES = "In 2023:\n\n1. It's"
SPLIT = {
    "gpt-2": ["In", "Ġ2023", ":", "Ċ", "Ċ", "1", ".", "ĠIt", "'s"],
    "smollm": ["In", "Ġ", "2", "0", "2", "3", ":", "ĊĊ", "1", ".", "ĠIt", "'s"],
    "llama-bpe": ["In", "Ġ", "202", "3", ":ĊĊ", "1", ".", "ĠIt", "'s"],
    "qwen2": ["In", "Ġ", "2", "0", "2", "3", ":ĊĊ", "1", ".", "ĠIt", "'s"],
}


def splits_by(path: Path) -> Any:
    return gguf_tokenizer(path).backend_tokenizer.pre_tokenizer.pre_tokenize_str


def test_text_is_split_as_the_files_pre_tokenizer_says(llama_file):
    for pre, wanted in SPLIT.items():
        split = splits_by(llama_file if pre == "gpt-2" else renamed(llama_file, pre))
        assert [piece for piece, _ in split(PIECES)] == wanted, pre


def test_smollm_splits_digits_as_its_own_tokenizer_does(llama_file):
    split = splits_by(renamed(llama_file, "smollm"))
    own = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in [*ODD, PIECES, "x²³ ½ ٣٤\t 5", "  7  8\n"]:
        assert split(text) == own.pre_tokenize_str(text)


MIXED = [
    "HTTPServer's",
    "naïve cafe\u0301s",
    "x=12345;\n\n\t//",
    "日本語かな漢字A",
    "L'été DON'T 7²",
]


def test_pre_tokenizers_split_as_transformers_and_the_models_authors_do(llama_file):
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    own = {name: [split] for name, split in GGUF_PRE_TOKENIZER_SPLITS.items() if name in _SPLITS}
    own["deepseek-v3"] = own["hunyuan-dense"] = [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
    own["glm4"] = own["llama-bpe"]
    own["minicpm5"] = [r"\p{N}{1,3}", own["llama-bpe"][0].replace("{1,3}", "+")]
    own["tiny_aya"] = [r"\d{1,3}(?=(?:\d{3})*\b)", own["gpt-4o"][0]]
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    own["kimi-k2"] = [
        own["gpt-4o"][0]
        .replace(f"[{upper}]", f"[{upper}&&[^\\p{{Han}}]]")
        .replace(f"[{lower}]", f"[{lower}&&[^\\p{{Han}}]]")
        .replace("/", "")
        + r"|[\p{Han}]+"
    ]
    assert {"qwen35", "gpt-4o", "tekken", "llama4"} <= own.keys()
    for name, splits in own.items():
        ours = splits_by(renamed(llama_file, name))
        theirs = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(split), "isolated") for split in splits]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        for text in [*ODD, PIECES, *MIXED]:
            assert ours(text) == theirs.pre_tokenize_str(text), (name, text)


def test_a_pre_tokenizer_that_is_not_known_is_refused_by_name(llama_file):
    path = renamed(llama_file, "other")
    assert read_metadata(path)["tokenizer.ggml.pre"] == "other"
    why = f"its pre-tokenizer 'other' is not supported; {BY_LLAMA_CPP}"
    message = rf"^target='.*' cannot be loaded: {why}$"
    with pytest.raises(ValueError, match=message):
        load_pair(path, executor="torch")


def test_the_end_tokens_are_those_of_the_generation_configuration(tmp_path):
    model = model_of("llama")
    model.generation_config.eos_token_id = [7, 5, -1, 9]
    file = written(model, tmp_path / "model.gguf", byte_level())
    assert read_gguf_llama(file, CPU, torch.float32).eos_token_ids == (7, 5, 9)
    assert load_pair(file, device="cpu", executor="transformers").target.eos_token_ids == (7, 5, 9)


def test_a_file_that_names_no_special_tokens_has_none(tmp_path):
    tokenizer = letters("a", "b")
    model = llama(tokenizer, 0)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    pair = load_pair(written(model, tmp_path / "model.gguf", tokenizer), device="cpu")
    assert pair.tokenizer.eos_token_id is None
    assert pair.target.eos_token_ids == ()


def test_a_chat_template_is_taken_over(tmp_path):
    tokenizer = letters("a", "b", "c")
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.content }}<|end|>{% endfor %}"
    )
    found = gguf_tokenizer(written(llama(tokenizer, 0), tmp_path / "model.gguf", tokenizer))
    messages = [{"role": "user", "content": "ab"}]
    ids = found.apply_chat_template(messages, return_dict=False)
    assert ids == tokenizer.apply_chat_template(messages, return_dict=False)


def test_a_beginning_of_sequence_token_is_added_where_the_file_requires_one(tmp_path):
    tokenizer = letters("a", "b")
    model = llama(tokenizer, 0)
    model.config.bos_token_id = 0
    path = written(model, tmp_path / "model.gguf", tokenizer)
    assert gguf_tokenizer(path)("ab").input_ids == [1, 2]
    reader = gguf.GGUFReader(path, "r+")
    reader.fields["tokenizer.ggml.add_bos_token"].parts[-1][0] = True
    reader.data.flush()
    assert gguf_tokenizer(path)("ab").input_ids == [0, 1, 2]
    assert gguf_tokenizer(path)("ab", add_special_tokens=False).input_ids == [1, 2]


def test_a_gguf_draft_drafts_for_a_target_in_a_folder(tmp_path):
    tokenizer = byte_level()
    target = save(llama(tokenizer, 0, 2), tokenizer, tmp_path / "target")
    draft = written(noised(llama(tokenizer, 0, 2), 0.03), tmp_path / "draft.gguf", tokenizer)
    decoder = SpeculativeDecoder(load_pair(target, draft, device="cpu"))
    assert decoder.pair.translation is None
    found = same_as_plain(decoder, "The old king", SamplingParams(max_tokens=30, temperature=0))
    assert found.metrics.num_accepted_draft_tokens > 0
