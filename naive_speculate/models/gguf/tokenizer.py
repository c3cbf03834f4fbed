"""The tokenizer of a GGUF file, as a fast tokenizer of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from naive_speculate.models.gguf.metadata import BY_LLAMA_CPP, read_metadata
from naive_speculate.text import one_line

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # kinds of tokens, with the format's numbers

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DIGIT = r"\p{N}"
_SPLITS = dict.fromkeys(("gpt-2", "mpt", "olmo", "jais"), "") | {
    name: split
    for split, names in {
        _DIGIT: "smollm starcoder refact command-r codeshell exaone minerva-7b",
        _LLAMA3: "llama3 llama-v3 llama-bpe falcon3 pixtral dbrx smaug-bpe",
        _LLAMA3.replace("{1,3}", ""): "qwen2 stablelm2 deepseek-r1-qwen hunyuan megrez",
    }.items()
    for name in names.split()
}
"""The split pattern of byte-level BPE, by llama.cpp's name of the pre-tokenizer
(`llama_vocab::impl::load` and `llm_tokenizer_bpe` in llama-vocab.cpp). Empty for GPT-2's own
rule alone, which also applies after digits are split."""
_WITH_BOS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral")
"""Pre-tokenizers that add a beginning-of-sequence token by default, and that ignore merges for
pieces that are tokens."""


def gguf_tokenizer(path: str | Path) -> Any:
    """The tokenizer: byte-level BPE from the file's tokens and merges, other kinds by
    transformers. Raises `ValueError` if it is not a GGUF file, or its tokenizer is not
    supported."""
    metadata = read_metadata(path)
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        from transformers import AutoTokenizer  # slow to import

        file = Path(path)
        try:
            return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        except Exception as error:  # of any kind, such as for an architecture
            said = one_line(error).rstrip(".")
            raise ValueError(
                f"transformers does not read its tokenizer ({said}); {BY_LLAMA_CPP}"
            ) from None
    pre = metadata.get("tokenizer.ggml.pre")
    if pre not in _SPLITS:
        raise ValueError(f"its pre-tokenizer {pre!r:.40} is not supported; {BY_LLAMA_CPP}")
    backend, split = _backend(metadata, ignore_merges=pre in _WITH_BOS), _SPLITS[pre]
    if split:
        parts = [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=split == _DIGIT),
        ]
        backend.pre_tokenizer = pre_tokenizers.Sequence(parts)
    ends = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    if metadata.get("tokenizer.ggml.add_bos_token", pre in _WITH_BOS) and ends["bos"] is not None:
        bos = metadata["tokenizer.ggml.tokens"][ends["bos"]]
        backend.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", bos, "$B:1"], special_tokens=[(bos, ends["bos"])]
        )
    return PreTrainedTokenizerFast(**_options(metadata, backend, ends))


def _options(
    metadata: Mapping[str, Any], backend: Tokenizer, ends: Mapping[str, int | None]
) -> dict[str, Any]:
    """Arguments of a fast tokenizer, special tokens included."""
    pieces = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type") or [0] * len(pieces)
    control = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == _CONTROL]
    backend.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in control]
    )
    backend.add_tokens(
        [
            AddedToken(piece, normalized=False)
            for piece, kind in zip(pieces, kinds, strict=True)
            if kind == _USER_DEFINED
        ]
    )
    named = {
        f"{name}_token": None if token is None else pieces[token] for name, token in ends.items()
    }
    others = [piece for piece in control if piece not in named.values()]
    template = metadata.get("tokenizer.chat_template")
    return {
        "tokenizer_object": backend,
        "extra_special_tokens": others,
        "chat_template": template,
        **named,
    }


def _backend(metadata: Mapping[str, Any], ignore_merges: bool) -> Tokenizer:
    """A fast tokenizer with the file's tokens and merges."""
    pieces = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type") or [0] * len(pieces)
    vocabulary = {
        piece: token
        for token, piece in reversed(list(enumerate(pieces)))
        if kinds[token] != _UNUSED
    }
    pairs = [pair.partition(" ")[::2] for pair in metadata.get("tokenizer.ggml.merges", [])]
    merges = [pair for pair in pairs if vocabulary.keys() >= {*pair, "".join(pair)}]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
