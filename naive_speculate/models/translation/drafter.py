"""Drafts with a model of another tokenizer: token-level intersection.

Timor et al. 2025 (arXiv 2502.05202, Algorithm 4). The draft's logits outside the intersection
are -inf before drawing, so that its distribution is one over the target's tokens, and
verification is the usual one. The draft model reads the committed text in its own tokens.
"""

import codecs
from collections.abc import Iterable, Sequence

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.models.translation.tokens import Translation
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.given import Given
from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.text import num_shared

# how many marks back the beginning of a word is searched, to encode it again from there
_CONTEXT = 8


class TranslatedDrafter(ModelDrafter):
    """Drafts token by token with a draft model that has another tokenizer; see `BatchDrafter`
    for the methods. `histories`: each row's text in the draft model's tokens."""

    drafts_trees = False
    translates = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        assert isinstance(pair.translation, Translation)
        self.histories: dict[SequenceState, TranslatedHistory] = {}
        self._translation, model = pair.translation, self.pool.model
        self._num_ids = model.vocab_size
        pairs = self._translation.to_draft.items()
        shared = [
            (ours, theirs) for ours, theirs in pairs if ours < vocab_size and theirs < self._num_ids
        ]
        self._target_ids = on_device([ours for ours, _ in shared], model.device, torch.int64)
        self._draft_ids = on_device([theirs for _, theirs in shared], model.device, torch.int64)
        self._to_draft = torch.full((vocab_size,), self._translation.filler, device=model.device)
        self._to_draft[self._target_ids] = self._draft_ids

    def admit(self, row: SequenceState) -> None:
        super().admit(row)
        self.histories[row] = history = TranslatedHistory(self._translation, self._num_ids)
        history.follow(row.token_ids)
        self.texts[row] = history.token_ids

    def release(self, row: SequenceState) -> None:
        super().release(row)
        self.histories.pop(row, None)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        super().fork(row, source)
        self.slots[row].keep(num_shared(self.history(row), self.history(source)))

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        for row, record in zip(rows, records, strict=True):
            self._follow(row, record.outcome.draft_token_ids)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            self._follow(row, [])

    def _follow(self, row: SequenceState, drafts: Iterable[int]) -> None:
        """Follow the committed tokens, and keep the part of the cache that agrees with them; it
        holds the drafts, too."""
        history, before = self.histories[row], len(self.history(row))
        stands = history.follow(row.token_ids)
        if stands == before:
            read = [self._translation.to_draft.get(token, -1) for token in drafts]
            stands += num_shared(read, history.token_ids[before:])
        self.slots[row].keep(min(stands, len(history.token_ids) - 1))

    def _in_target_tokens(self, logits: torch.Tensor) -> torch.Tensor:
        wide = logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf)
        wide[..., self._target_ids] = logits[..., self._draft_ids]
        return wide

    def _in_draft_tokens(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._to_draft[token_ids]


class TranslatedGivenDrafter(Given, TranslatedDrafter):
    """Drafts that users supply, whose tokens the draft model may not know."""


class TranslatedHistory:
    """A text that grows by tokens of the target, in tokens of the draft.

    A token of the shared vocabulary is appended. At any other token, the text is encoded again
    from the beginning of the word, and the draft's tokens are replaced from where the two
    differ. `translation`: between the two tokenizers. `num_ids`: how many tokens the draft model
    has; its tokenizer may have more. `token_ids`: the draft's tokens; at least one.
    """

    def __init__(self, translation: Translation, num_ids: int) -> None:
        self.token_ids = list(translation.opening)
        self._translation = translation
        self._num_ids = num_ids
        self._num_read = 0  # so many of the target's tokens
        self._begin = 0  # the target's first token that is not special
        # Since the last special token, where tokens of both end together: how many of each there
        # are before.
        self._marks = [(0, len(self.token_ids))]
        self._stands = 0

    def follow(self, token_ids: Sequence[int]) -> int:
        """Follow the text. `token_ids`: all of the target's tokens: the earlier ones and more.
        Returns how many of the draft's earlier tokens are unchanged."""
        self._stands = len(self.token_ids)
        while self._num_read < len(token_ids):
            token = token_ids[self._num_read]
            known = self._translation.to_draft.get(token)
            known = known if known is not None and known < self._num_ids else None
            # Whether both hold the same text, with some since the last special token.
            agrees = self._marks[-1] == (self._num_read, len(self.token_ids)) and self._marks[0][
                1
            ] < len(self.token_ids)
            if token not in self._translation.target_bytes:
                self._append_special(token, known)
            elif known is not None and agrees:
                self.token_ids.append(known)
                self._num_read += 1
                self._marks.append((self._num_read, len(self.token_ids)))
            else:
                self._encode(token_ids)
        if not self.token_ids:
            self.token_ids.append(self._translation.filler)
            self._marks = [(self._num_read, 1)]
        return self._stands

    def _append_special(self, token: int, known: int | None) -> None:
        opening = self._translation.opening
        opens = (
            self._num_read == 0
            and opening
            and (token == self._translation.opens_target or known == opening[0])
        )
        if known is not None and not opens:
            self.token_ids.append(known)
        if self._begin == self._num_read:
            self._begin += 1
        self._num_read += 1
        self._marks = [(self._num_read, len(self.token_ids))]

    def _encode(self, token_ids: Sequence[int]) -> None:
        """Encode from a word's beginning to the next special token."""
        pieces = self._translation.target_bytes
        following = range(self._num_read, len(token_ids))
        end = next(
            (position for position in following if token_ids[position] not in pieces),
            len(token_ids),
        )
        start = self._start(token_ids)
        first, base = self._marks[start]
        begins = first == self._begin
        decoder, text, ends = codecs.getincrementaldecoder("utf-8")("replace"), [], dict[int, int]()
        length, rest = 0, b""
        for position in range(first, end):
            piece = pieces[token_ids[position]]
            if begins and position == first and self._translation.drops_space:
                piece = piece.removeprefix(b" ")
            text.append(decoder.decode(piece))
            length, rest = length + len(text[-1]), decoder.getstate()[0]
            if not rest:
                ends[length] = position + 1
        ids, offsets = self._translation.encode("".join(text), begins)
        new, marks = [], self._marks[: start + 1]
        for position, (token, (_, until)) in enumerate(zip(ids, offsets, strict=True)):
            if token < self._num_ids:
                new.append(token)
            if (
                until in ends
                and until < length
                and offsets[position + 1 : position + 2]
                and offsets[position + 1][0] == until
            ):
                marks.append((ends[until], base + len(new)))
        if rest:  # of a character whose last bytes are missing
            known = [
                token
                for byte in rest
                if (token := self._translation.byte_ids.get(byte, self._num_ids)) < self._num_ids
            ]
            new += known if len(known) == len(rest) else []
        else:
            marks.append((end, base + len(new)))
        self._stands = min(self._stands, base + num_shared(self.token_ids[base:], new))
        self.token_ids[base:] = new
        self._marks, self._num_read = marks, end

    def _start(self, token_ids: Sequence[int]) -> int:
        """The mark to encode from: the last before a space, or else an earlier one that is not
        within a character."""
        pieces, earliest = self._translation.target_bytes, max(0, len(self._marks) - _CONTEXT)
        whole = []
        for number in range(len(self._marks) - 1, earliest - 1, -1):
            position = self._marks[number][0]
            following = next(
                (piece for token in token_ids[position:] if (piece := pieces.get(token, b"x"))),
                b"x",
            )
            if number == 0 or (
                following[:1].isspace()
                and not pieces.get(token_ids[position - 1], b"")[-1:].isspace()
            ):
                return number
            if following[0] & 0xC0 != 0x80:
                whole.append(number)
        return whole[-1] if whole else 0
