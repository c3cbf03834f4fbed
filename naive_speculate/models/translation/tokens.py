"""Matches the tokens of two tokenizers by their bytes, so that a draft of another family can
draft for a target.

Token-level intersection: Timor et al. 2025 (arXiv 2502.05202, Algorithm 4).
"""

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

from naive_speculate.text import TokenForms, check_tokenizer, flat_parts

MIN_SHARE = 0.1  # least share of the target's tokens that a draft must have

_log = logging.getLogger(__name__)


class Translation:
    """The tokens that two tokenizers share, and the draft's tokens for a text; a `ValueError` if
    a tenth is not shared.

    Tokens match if their bytes are equal. Special tokens match if both end a sequence, or have
    the same text. If several tokens of one tokenizer have the same bytes, ordinary tokens come
    before byte tokens, then the lowest id counts.
    """

    def __init__(self, tokenizer: Any, draft_tokenizer: Any) -> None:
        ours, theirs = TokenForms(tokenizer), TokenForms(draft_tokenizer)
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
    too few, or one has no fast backend."""
    check_tokenizer(tokenizer)
    check_tokenizer(draft_tokenizer, "draft_tokenizer")
    # Tokenizers are compared, since vocabulary sizes differ by padding within one family.
    if tokenizer.get_vocab() == draft_tokenizer.get_vocab():
        return None
    translation = Translation(tokenizer, draft_tokenizer)
    _log.info(
        "the draft has another tokenizer and shares %(shared)d of the target's %(target)d tokens",
        translation.counts,
    )
    return translation


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
    for part in flat_parts([state["normalizer"], state["pre_tokenizer"]]):
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
