"""Writes the tiny random models of a trial in the engines' formats.

One folder has the target and the draft as safetensors in the Hub's layout (`target`, `draft`) and
as GGUF files (`target.gguf`, `draft.gguf`, and in float16 `target-f16.gguf`, `draft-f16.gguf`).
Sampled texts are tried with it: its draft is far from the target, so that a wrong rule shows. For
greedy texts, the folder `close` in it has the same target with a draft that it often accepts, and
`perfect` the target as its own draft. `near` has a sharper draft, which is often accepted and
differs from step to step: wrong residuals and ratios show that a far draft hides.
"""

from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB, WIDTH, HEADS, LAYERS = 16, 64, 2, 1
END = 0  # ends a text
ROPE_BASE = 10_000.0
TOKENS = ["<e>", *(chr(97 + index) for index in range(VOCAB - 2)), "ab"]
PROMPT, GREEDY_TOKENS = [3, 5, 3, 5, 3], 24
CLOSE, NEAR, PERFECT = "close", "near", "perfect"
SHARE = 0.1  # of the close draft's weights, the part of the other draft: 74% of its favourites are
# the target's, of the other one's 3%


def write(folder: Path) -> None:
    """Write all of them."""
    target, draft = llama(1), llama(2)
    _write_pair(folder, target, draft)
    _write_pair(folder / CLOSE, target, between(target, draft, SHARE))
    _write_pair(folder / NEAR, target, near(target))
    _write_pair(folder / PERFECT, target, target)


def between(target: LlamaForCausalLM, draft: LlamaForCausalLM, share: float) -> LlamaForCausalLM:
    """The target with a share of another model's weights."""
    model = llama(1)
    with torch.no_grad():
        for own, one, other in zip(
            model.parameters(), target.parameters(), draft.parameters(), strict=True
        ):
            own.copy_(one.lerp(other, share))
    return model.half().float()


def near(target: LlamaForCausalLM) -> LlamaForCausalLM:
    """The draft of `near`: found by computing which of many drafts shows which wrong rule."""
    model = between(target, llama(16), 0.25)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    return model


def _write_pair(folder: Path, target: LlamaForCausalLM, draft: LlamaForCausalLM) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        tokenizer().save_pretrained(folder / name)
        write_gguf(model, folder / f"{name}.gguf")
        write_gguf(model, folder / f"{name}-f16.gguf", half=True)


def llama(seed: int) -> LlamaForCausalLM:
    """A random Llama with logits that differ by a few units."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=256,
        initializer_range=0.15,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
    )
    model = LlamaForCausalLM(config).eval()
    return model.half().float()  # float16 has the same weights


def tokenizer() -> PreTrainedTokenizerFast:
    """One letter per token, a pair of letters, and an end token."""
    bpe = Tokenizer(models.BPE({text: index for index, text in enumerate(TOKENS)}, [("a", "b")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(["<e>"])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<e>")


def write_gguf(model: LlamaForCausalLM, path: Path, half: bool = False) -> None:
    """The same weights as GGUF, in float32, or with matrices in float16. llama.cpp rotates
    neighbouring dimensions, so rows of the query and key projections are reordered."""
    writer, head = gguf.GGUFWriter(str(path), "llama"), WIDTH // HEADS
    writer.add_name("tiny")
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(ROPE_BASE)
    kinds = gguf.LlamaFileType
    writer.add_file_type(kinds.MOSTLY_F16 if half else kinds.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_array("tokenizer.ggml.merges", ["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    for name, tensor in model.state_dict().items():
        values = tensor.float()
        if "q_proj" in name or "k_proj" in name:
            values = values.view(HEADS, 2, head // 2, WIDTH).transpose(1, 2).reshape(WIDTH, WIDTH)
        if half and values.ndim > 1:
            values = values.half()
        writer.add_tensor(_gguf_name(name), values.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    mapping = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    gguf_name = mapping.get_name(name, try_suffixes=(".weight",))
    assert gguf_name is not None, name
    return gguf_name
