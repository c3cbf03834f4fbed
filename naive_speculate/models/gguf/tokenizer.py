"""The tokenizer of a GGUF file, as a fast tokenizer of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from naive_speculate.models.gguf.metadata import BY_LLAMA_CPP, read_metadata
from naive_speculate.text import one_line

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # kinds of tokens, with the format's numbers

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_END_WITH_SLASH = _END.replace(r"\n]*", r"\n/]*")
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_WORDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{_END}"
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"s\p{L}", r"s\p{L}\p{M}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}{_END_WITH_SLASH}"
_GPT4O = _TEKKEN.replace("+|[", f"+{_WORDS}?|[").replace(
    r"*|\p{N}|", rf"*{_WORDS}?|\p{{N}}{{1,3}}|"
)
_KIMI = r"[\p{Han}]+|" + _GPT4O.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace("/", "")
_DIGITS = r"\p{N}{1,3}"
_DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    name: splits
    for splits, names in {
        (
            _GPT2,
        ): "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum",
        (r"\p{N}", _GPT2): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        (
            _LLAMA3,
        ): "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe"
        " glm4 chatglm-bpe",
        (_QWEN2,): "qwen2 stablelm2 deepseek-r1-qwen hunyuan megrez kormo solar-open grok-2",
        (_QWEN35,): "qwen35",
        (_TEKKEN,): "tekken",
        (_GPT4O,): "gpt-4o llama4 kanana2 talkie minimax-m2",
        (r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O): "tiny_aya cohere2moe",
        (_KIMI,): "kimi-k2",
        (_DIGITS, "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK): "deepseek-v3 hunyuan-dense joyai-llm",
        (_DIGITS, _LLAMA3.replace("{1,3}", "+")): "minicpm5",
    }.items()
    for name in names.split()
}
"""The patterns by which a text of byte-level BPE is split, one after the other, by llama.cpp's name
of the pre-tokenizer (llama-vocab.cpp), as the models' own tokenizer.json has them."""
_WITH_BOS = {name for name, split in _SPLITS.items() if split in ((_LLAMA3,), (_TEKKEN,))} - {
    *("dbrx", "smaug-bpe", "glm4", "chatglm-bpe")
}
"""Pre-tokenizers that add a beginning-of-sequence token by default."""
_WHOLE = {*_WITH_BOS, "minicpm5"}  # those that ignore merges for pieces that are tokens


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
    backend = _backend(metadata, ignore_merges=pre in _WHOLE)
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[pre]]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
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
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
