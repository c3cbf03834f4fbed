"""The tokenizer of a GGUF file, with the interface of transformers' fast ones."""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerFast

from naive_speculate.infer.gguf.library import ModelFile, llama_cpp
from naive_speculate.infer.gguf.metadata import read_metadata

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5
"""Kinds of tokens, as the format numbers them."""


class GgufTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc, unused-ignore]
    """Made of the file's tokens. Texts become tokens by llama.cpp, which knows every pre-tokenizer; all else, text from tokens
    above all, is done by the fast backend.

    Args:
        path: The file.

    Raises:
        ValueError: If it is no GGUF file, its tokenizer is of a kind that has no such backend, or llama-cpp-python is missing.
    """

    def __init__(self, path: str | Path) -> None:
        metadata = read_metadata(path)
        self._header = ModelFile(path, vocab_only=True)
        pieces, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type")
        kinds = kinds or [0] * len(pieces)
        control = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == _CONTROL]
        backend = _backend(metadata, pieces, kinds)
        backend.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in control])
        backend.add_tokens(
            [AddedToken(piece, normalized=False) for piece, kind in zip(pieces, kinds, strict=True) if kind == _USER_DEFINED]
        )
        found = {name: self._header.special_token(name) for name in ("bos", "eos")}
        named = {f"{name}_token": None if token is None else pieces[token] for name, token in found.items()}
        others = [piece for piece in control if piece not in named.values()]
        template = metadata.get("tokenizer.chat_template")
        super().__init__(tokenizer_object=backend, extra_special_tokens=others, chat_template=template, **named)

    def __call__(self, text: Any = None, *arguments: Any, add_special_tokens: bool = True, **options: Any) -> BatchEncoding:
        """Token ids of a text, the beginning-of-sequence token among them where the file says so."""
        if not isinstance(text, str):
            return super().__call__(text, *arguments, add_special_tokens=add_special_tokens, **options)
        library, data = llama_cpp(), text.encode("utf-8", errors="replace")
        room = len(data) + 8
        tokens = (library.llama_token * room)()
        count = library.llama_tokenize(self._header.vocabulary, data, len(data), tokens, room, add_special_tokens, True)
        return BatchEncoding({"input_ids": tokens[:count]})


def _backend(metadata: dict[str, Any], pieces: list[str], kinds: list[int]) -> Tokenizer:
    """A fast tokenizer with these tokens, where the file's is of a kind that has one."""
    kind = metadata.get("tokenizer.ggml.model")
    vocabulary = {piece: token for token, piece in reversed(list(enumerate(pieces))) if kinds[token] != _UNUSED}
    if kind == "gpt2":
        pairs = [pair.partition(" ")[::2] for pair in metadata.get("tokenizer.ggml.merges", [])]
        merges = [pair for pair in pairs if vocabulary.keys() >= {*pair, "".join(pair)}]
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer
    if kind in ("llama", "t5"):
        scores = metadata.get("tokenizer.ggml.scores") or [0.0] * len(pieces)
        unknown = next((token for token, kind in enumerate(kinds) if kind == _UNKNOWN), None)
        tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unknown, byte_fallback=True))
        prefixed = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefixed else "never", split=False)
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)
        return tokenizer
    raise ValueError(f"its tokenizer is of kind {kind!r}; byte-level BPE ('gpt2') and SentencePiece ('llama', 't5') are known")
