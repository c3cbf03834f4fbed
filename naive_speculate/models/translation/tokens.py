"""Matches the tokens of two tokenizers by their bytes, so that a draft of another family can
draft for a target.

Token-level intersection: Timor et al. 2025 (arXiv 2502.05202, Algorithm 4).
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

MIN_SHARE = 0.1  # least share of the target's tokens that a draft must have

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_log = logging.getLogger(__name__)


class Translation:
    """The tokens that two tokenizers share, and the draft's tokens for a text; a `ValueError` if
    a tenth is not shared.

    Tokens match if their bytes are equal. Special tokens match if both end a sequence, or have
    the same text. If several tokens of one tokenizer have the same bytes, ordinary tokens come
    before byte tokens, then the lowest id counts.
    """

    def __init__(self, tokenizer: Any, draft_tokenizer: Any) -> None:
        ours, theirs = _Forms(tokenizer), _Forms(draft_tokenizer)
        by_form = theirs.ids
        # The draft's token for each shared token of the target; the bytes of the target's tokens,
        # without special ones.
        self.to_draft = {
            token: by_form[form] for form, token in ours.ids.items() if form in by_form
        }
        self.target_bytes = ours.bytes
        shared, total = len(self.to_draft), len(tokenizer.get_vocab())
        self.counts = {"shared": shared, "target": total, "draft": len(draft_tokenizer.get_vocab())}
        if shared < MIN_SHARE * total:
            raise ValueError(f"shares {shared} of the target's {total} tokens, fewer than a tenth")
        bos = draft_tokenizer.bos_token_id
        # What opens the draft's texts, if anything; a token of the draft for positions without a
        # match; whether the first token's leading space is not part of the text; the draft's tokens
        # for single bytes.
        self.opening = (
            [bos] if bos is not None and _ids(draft_tokenizer, "a", True)[:1] == [bos] else []
        )
        self.opens_target: int | None = tokenizer.bos_token_id
        candidates = (bos, draft_tokenizer.eos_token_id, 0)
        self.filler = next(int(token) for token in candidates if token is not None)
        self.drops_space = ours.spaced or ours.bytes.get(
            next(iter(_ids(tokenizer, "a", False)), -1), b""
        ).startswith(b" ")
        self.byte_ids = {
            form[0]: token
            for form, token in by_form.items()
            if isinstance(form, bytes) and len(form) == 1
        }
        self._begin, self._go_on = _encoders(draft_tokenizer.backend_tokenizer)

    def encode(self, text: str, begins: bool) -> tuple[list[int], list[tuple[int, int]]]:
        """The draft's tokens for a text, none of them special; at the beginning of a text
        (`begins`), a space may be added. Returns token ids, and each token's character range in
        the text."""
        encoding = (self._begin if begins else self._go_on).encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


@lru_cache(maxsize=2)
def translation_between(tokenizer: Any, draft_tokenizer: Any) -> Translation | None:
    """The translation of a pair; None if both have the same tokens, a `ValueError` if they share
    too few."""
    # Tokenizers are compared, since vocabulary sizes differ by padding within one family.
    if tokenizer.get_vocab() == draft_tokenizer.get_vocab():
        return None
    translation = Translation(tokenizer, draft_tokenizer)
    _log.info(
        "the draft has another tokenizer and shares %(shared)d of the target's %(target)d tokens",
        translation.counts,
    )
    return translation


def token_bytes(tokenizer: Any) -> dict[int, bytes]:
    """The bytes of each token of a transformers tokenizer, without special ones."""
    return _Forms(tokenizer).bytes


Form = bytes | str  # a token's bytes, or a special token's text

_END = "end of sequence"


class _Forms:
    """The forms of a tokenizer's tokens: `bytes` by id, without special tokens, and one id per
    form (`ids`); `spaced` if tokens are words with an implicit space before each."""

    def __init__(self, tokenizer: Any) -> None:
        backend = tokenizer.backend_tokenizer
        parts = [part for step in (backend.decoder, backend.pre_tokenizer) for part in _parts(step)]
        kinds = {part["type"] for part in parts}
        self._by_byte = "ByteLevel" in kinds
        self._markers = {part["replacement"] for part in parts if part["type"] == "Metaspace"}
        self._markers |= {
            part["pattern"]["String"]
            for part in _parts(backend.decoder)
            if part["type"] == "Replace"
            and part.get("content") == " "
            and "String" in part["pattern"]
        }
        self._byte_tokens = "ByteFallback" in kinds or bool(
            getattr(backend.model, "byte_fallback", False)
        )
        self._suffix_mark = next(
            (part["prefix"] for part in parts if part["type"] == "WordPiece"), None
        )
        self.spaced = self._suffix_mark is not None or not (
            self._by_byte or self._markers or backend.decoder is not None
        )
        added = tokenizer.added_tokens_decoder
        special = {
            *tokenizer.all_special_ids,
            *(token for token, entry in added.items() if entry.special),
        }
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        self.bytes = {
            token: self._bytes(piece, token in added)
            for piece, token in vocabulary
            if token not in special
        }
        self.ids: dict[Form, int] = {}
        if tokenizer.eos_token_id is not None:
            self.ids[_END] = tokenizer.eos_token_id
        # Byte tokens last: the tokenizer never uses them for a letter with its own token.
        for piece, token in sorted(vocabulary, key=lambda item: self._is_byte_token(item[0])):
            if token != tokenizer.eos_token_id:
                self.ids.setdefault(piece if token in special else self.bytes[token], token)

    def _is_byte_token(self, piece: str) -> bool:
        return self._byte_tokens and _BYTE_TOKEN.fullmatch(piece) is not None

    def _bytes(self, piece: str, added: bool) -> bytes:
        if self._is_byte_token(piece):
            return bytes([int(piece[3:5], 16)])
        if self._by_byte:
            values = None if added else [_BYTE_OF.get(letter) for letter in piece]
            return (
                piece.encode()
                if values is None or None in values
                else bytes(byte for byte in values if byte is not None)
            )
        if self._suffix_mark and piece.startswith(self._suffix_mark):
            return piece.removeprefix(self._suffix_mark).encode()
        if self.spaced:
            return b" " + piece.encode()
        for marker in self._markers:
            piece = piece.replace(marker, " ")
        return piece.encode(errors="replace")


# the letters for bytes in byte-level BPE
_BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}


def _parts(step: Any) -> Iterator[dict[str, Any]]:
    """The parts of a fast tokenizer's step as plain values, sequences flattened."""
    if step is not None:
        yield from _flat(json.loads(step.__getstate__()))


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, list):
        for one in part:
            yield from _flat(one)
    elif isinstance(part, dict) and "type" in part:
        yield part
        for name in ("decoders", "pretokenizers", "normalizers"):
            yield from _flat(part.get(name))


_NO_SPACE_BEFORE: dict[str, dict[str, Any]] = {
    "Metaspace": {"prepend_scheme": "never"},
    "ByteLevel": {"add_prefix_space": False},
    "Prepend": {"prepend": ""},
}
"""By the type of a tokenizer's part, the setting that adds no space before a text."""


def _encoders(backend: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
    """Copies that add no tokens to a text and read special tokens as text; the second adds no
    space before it."""
    state = json.loads(backend.to_str()) | {
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    _hide_special(state)
    states = [json.dumps(state)]
    for part in _flat([state["normalizer"], state["pre_tokenizer"]]):
        part.update(_NO_SPACE_BEFORE.get(part["type"], {}))
    states.append(json.dumps(state))
    begin, plain = map(Tokenizer.from_str, states)
    begin.encode_special_tokens = plain.encode_special_tokens = True
    return begin, plain


def _hide_special(state: dict[str, Any]) -> None:
    """Rename special tokens to names that no text contains, since some models find them anywhere
    in a text."""
    model, hidden = state["model"], dict[str, str]()
    for entry in state["added_tokens"]:
        if entry["special"] and entry["content"] != model.get("unk_token"):
            name = hidden[entry["content"]] = _NONCHARACTER + entry["content"]
            entry["content"] = name
    if isinstance(model["vocab"], dict):
        model["vocab"] = {
            hidden.get(piece, piece): token for piece, token in model["vocab"].items()
        }
    else:
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]


_NONCHARACTER = "\ufdd0"


def _ids(tokenizer: Any, text: str, special: bool) -> Sequence[int]:
    return list(tokenizer(text, add_special_tokens=special).input_ids)
