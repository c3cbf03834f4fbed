"""Writes a transformers model as a GGUF file for llama.cpp: the Llama family and Gemma 2, with
byte-level BPE.

Command line: `python -m naive_speculate.infer.gguf.export FOLDER FILE.gguf`. For other models
use llama.cpp's own script.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from naive_speculate.infer.end_tokens import end_tokens

_ARCHITECTURES = {
    "llama": "LLAMA",
    "mistral": "LLAMA",
    "qwen2": "QWEN2",
    "qwen3": "QWEN3",
    "gemma2": "GEMMA2",
}
_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DTYPES = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "q8_0": "Q8_0",
    "q5_1": "Q5_1",
    "q4_1": "Q4_1",
    "q4_0": "Q4_0",
}


def export(model: Any, tokenizer: Any, path: str | Path, dtype: str = "float32") -> None:
    """Write a transformers causal language model as a GGUF file.

    The tokenizer must be byte-level BPE with GPT-2's pre-tokenizer; None writes token numbers.
    `dtype` is the type of the matrices, a name in `DTYPES`; norms and biases are float32.
    Quantised types need rows of whole blocks of 32 numbers. Raises `ValueError` if model,
    tokenizer or rows are not supported.
    """
    config = model.config
    if config.model_type not in _ARCHITECTURES:
        raise ValueError(
            f"model is {config.model_type!r}; {', '.join(_ARCHITECTURES)} can be exported"
        )
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    architecture = gguf.MODEL_ARCH[_ARCHITECTURES[config.model_type]]
    writer = gguf.GGUFWriter(str(path), gguf.MODEL_ARCH_NAMES[architecture])
    _write_shape(writer, config)
    writer.add_file_type(
        gguf.LlamaFileType[f"{'ALL' if dtype == 'float32' else 'MOSTLY'}_{DTYPES[dtype]}"]
    )
    _write_tokens(
        writer,
        config,
        tokenizer,
        end_tokens(getattr(model, "generation_config", None), config, model.name_or_path),
    )
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    tied = config.tie_word_embeddings
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise ValueError(f"model has {name!r}, which GGUF has no name for")
        values = _in_llama_cpp_layout(name, tensor.detach().float().cpu(), config)
        kind = gguf.GGMLQuantizationType[DTYPES["float32" if values.dim() < 2 else dtype]]
        writer.add_tensor(
            found, gguf.quants.quantize(values.contiguous().numpy(), kind), raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_shape(writer: Any, config: Any) -> None:
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        raise ValueError(
            f"model has rotary positions of type {rope['rope_type']!r}; only 'default' can be"
            " exported"
        )
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
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    elif getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        raise ValueError(
            "model has a sliding window, which llama.cpp does not compute for this family"
        )


def _write_tokens(writer: Any, config: Any, tokenizer: Any, ends: Sequence[int]) -> None:
    kinds = [gguf.TokenType.UNUSED] * config.vocab_size
    pieces = [f"[PAD{token}]" for token in range(config.vocab_size)]
    merges: list[str] = []
    if tokenizer is None:
        kinds = [gguf.TokenType.NORMAL] * config.vocab_size
    else:
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        is_gpt2 = (state["pre_tokenizer"] or {}).items() >= _GPT2.items()
        if state["model"]["type"] != "BPE" or state["normalizer"] is not None or not is_gpt2:
            raise ValueError(
                "tokenizer is not byte-level BPE with GPT-2's pre-tokenizer, the only kind that can"
                " be exported"
            )
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
    adders = (
        writer.add_eos_token_id,
        writer.add_eot_token_id,
        writer.add_eom_token_id,
    )  # llama.cpp ends a text at each
    for add, token in zip(
        adders, (token for token in ends if 0 <= token < config.vocab_size), strict=False
    ):
        add(token)
    writer.add_add_bos_token(tokenizer is not None and tokenizer("a").input_ids[0] == bos)


def _in_llama_cpp_layout(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    if config.model_type == "gemma2":
        return tensor + 1 if name.endswith("norm.weight") else tensor
    if config.model_type in ("llama", "mistral") and ".self_attn." in name:
        for part, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
        ):
            if (
                part in name
            ):  # llama.cpp stores rotary pairs adjacent, transformers half a head apart
                return (
                    tensor.view(heads, 2, -1, *tensor.shape[1:])
                    .transpose(1, 2)
                    .reshape(tensor.shape)
                )
    return tensor


def main() -> None:
    """Write a saved model as a GGUF file."""
    parser = argparse.ArgumentParser(
        prog="python -m naive_speculate.infer.gguf.export", description=main.__doc__
    )
    parser.add_argument("folder", help="a model as transformers saves it, with its tokenizer")
    parser.add_argument("path", help="the file to write")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default="float32",
        help="type of the matrices (default: %(default)s)",
    )
    options = parser.parse_args()
    try:
        model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
        export(model, AutoTokenizer.from_pretrained(options.folder), options.path, options.dtype)
    except (OSError, ValueError) as error:
        parser.error(" ".join(str(error).split())[:300])


if __name__ == "__main__":
    main()
