"""GGUF files of small random models of the Llama family and Gemma 2, with byte-level BPE."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import PreTrainedModel

from naive_speculate.infer.end_tokens import end_tokens

DTYPES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "q8_0": "Q8_0",
    "q5_1": "Q5_1",
    "q4_1": "Q4_1",
    "q4_0": "Q4_0",
}


def written(
    model: PreTrainedModel,
    path: Path,
    tokenizer: Any = None,
    dtype: str = "float32",
    keys: Mapping[str, Any] | None = None,
) -> Path:
    """The model as a file. `dtype` is the type of the matrices, one of `DTYPES`; norms and biases
    are float32. The tokenizer has GPT-2's pre-tokenizer; None writes token numbers. `keys`: more
    of the architecture."""
    config = model.config
    architecture = gguf.MODEL_ARCH[config.model_type.upper()]
    writer = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[architecture])
    _write_shape(writer, config)
    adds = {float: writer.add_float32, int: writer.add_uint32, bool: writer.add_bool}
    for key, value in (keys or {}).items():
        adds[type(value)](f"{gguf.MODEL_ARCH_NAMES[architecture]}.{key}", value)
    writer.add_file_type(
        gguf.LlamaFileType[f"{'ALL' if dtype == 'float32' else 'MOSTLY'}_{DTYPES[dtype]}"]
    )
    ends = end_tokens(model.generation_config, config, model.name_or_path)
    _write_tokens(writer, config, tokenizer, ends)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        values = _in_llama_cpp_layout(name, tensor.detach().float(), config)
        kind = gguf.GGMLQuantizationType[DTYPES["float32" if values.dim() < 2 else dtype]]
        stored = gguf.quants.quantize(values.contiguous().numpy(), kind)
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(found, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(writer: Any, config: Any) -> None:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _write_tokens(writer: Any, config: Any, tokenizer: Any, ends: Sequence[int]) -> None:
    kinds = [gguf.TokenType.UNUSED] * config.vocab_size
    pieces = [f"[PAD{token}]" for token in range(config.vocab_size)]
    merges: list[str] = []
    if tokenizer is None:
        kinds = [gguf.TokenType.NORMAL] * config.vocab_size
    else:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        for piece, token in tokenizer.get_vocab().items():
            pieces[token], kinds[token] = piece, gguf.TokenType.NORMAL
        for token, entry in tokenizer.added_tokens_decoder.items():
            kinds[token] = gguf.TokenType.CONTROL if entry.special else gguf.TokenType.USER_DEFINED
        merges = [
            pair if isinstance(pair, str) else " ".join(pair) for pair in state["model"]["merges"]
        ]
        if tokenizer.chat_template:
            writer.add_chat_template(tokenizer.chat_template)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges or ["[ PAD"])  # llama.cpp requires some
    if (bos := config.bos_token_id) is not None:
        writer.add_bos_token_id(bos)
    # llama.cpp ends a text at each
    adders = writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id
    known = (token for token in ends if 0 <= token < config.vocab_size)
    for add, token in zip(adders, known, strict=False):
        add(token)
    writer.add_add_bos_token(tokenizer is not None and tokenizer("a").input_ids[0] == bos)


def _in_llama_cpp_layout(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    if config.model_type == "gemma2":
        return tensor + 1 if name.endswith("norm.weight") else tensor
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = next((part for part in heads if part in name), None)
    if config.model_type != "llama" or part is None:
        return tensor
    # llama.cpp stores rotary pairs adjacent, transformers half a head apart
    pairs = tensor.view(heads[part], 2, -1, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
