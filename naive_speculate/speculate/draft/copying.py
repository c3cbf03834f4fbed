"""Drafts by copying: an index of each row's text, instead of a model, finds what may come next.

Prompt lookup drafts what followed the last tokens where they occurred before: Saxena 2023
(https://github.com/apoorvumang/prompt-lookup-decoding); in transformers as `prompt_lookup_num_tokens`.

Suffix decoding drafts what most often followed the end of the text: Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975),
section 3; the authors' code is in snowflakedb/ArcticInference, and vLLM has it as its method "suffix". Every length of match is
tried. The heaviest path after it is followed, further for a longer match. The path with the best score wins: its expected
number of accepted tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer import slots
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal, merge
from naive_speculate.speculate.draft.suffix_trie import Copy, Node, SuffixTrie, chance
from naive_speculate.speculate.sequence import SequenceState

NOTHING = Copy([], [], None)
MAX_NGRAM = 3  # of prompt lookup
MIN_PROB = 0.1  # of suffix decoding: a path ends where its share falls below
MIN_MATCH = 2
"""Tokens that must match for a copy, where a head drafts otherwise. In 120 answers of SmolLM2-135M-Instruct, 0.4 tokens of a
copy (k = 5) were accepted after a match of one token, 1.1 after two, 1.6 after three and 3.6 after eight or more."""


class CopyingDrafter(BatchDrafter, ABC):
    """Drafts without a model; a subclass has the index of a text (`new_index`) and `copy`.

    A proposal is a point mass, so that verification is lossless whatever is copied. `indexes`: the index of each row's text.
    `num_tokens` of the text's tokens are in it; `extend` adds the next ones, up to a position.
    """

    new_index: type[Any]  # made from the list of a row's tokens, which grows

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.indexes: dict[SequenceState, Any] = {}

    @abstractmethod
    def copy(self, index: Any, limit: int) -> Copy:
        """What may follow an index's text, at most `limit` tokens."""

    def admit(self, row: SequenceState) -> None:
        self.indexes[row] = self.new_index(row.token_ids)

    def release(self, row: SequenceState) -> None:
        self.indexes.pop(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        self.rewind([row])

    def ready(self, row: SequenceState) -> bool:
        return bool(self.indexes[row].num_tokens == len(row.token_ids))

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        for row in rows:
            index = self.indexes[row]
            index.extend(min(len(row.token_ids), index.num_tokens + slots.PREFILL_CHUNK))

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        """See `BatchDrafter.propose`; a row's window is empty where nothing is found."""
        return self.proposal(rows, self.copies(rows, limits))

    def copies(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> list[Copy]:
        """What may follow each row's text, at most `limits[i]` tokens."""
        return [self.copy(self.indexes[row], limit) for row, limit in zip(rows, limits, strict=True)]

    def proposal(self, rows: Sequence[SequenceState], copies: Sequence[Copy]) -> Proposal:
        """Copies as windows: each ends with a stop token, before a filtered word, or where the row's adaptive window ends."""
        windows = [copy.token_ids[: _length(copy, row)] for row, copy in zip(rows, copies, strict=True)]
        sources = [copy.source if window else None for copy, window in zip(copies, windows, strict=True)]
        return Proposal.certain(rows, windows, self.vocab_size, self.device)._replace(copied_from=sources)

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: Any) -> None:
        self.rewind(rows)

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """See `BatchDrafter.rewind`; an index holds committed tokens only, but may lack some."""
        for row in rows:
            self.indexes[row].extend(len(row.token_ids))


def _length(copy: Copy, row: SequenceState) -> int:
    """How many tokens of a copy are in its row's window."""
    word_filter = row.pipeline.word_filter
    texts = (row.output_token_ids + copy.token_ids[:index] for index in range(len(copy.token_ids)))
    banned = [] if word_filter is None else [word_filter.banned(text) for text in texts]
    for index, (token, prob) in enumerate(zip(copy.token_ids, copy.probs, strict=True)):
        if banned and token in banned[index]:
            return index
        if token in row.stop_token_ids or not row.window.should_continue(prob):
            return index + 1
    return len(copy.token_ids)


class NgramIndex:
    """The last position after each n-gram of a text."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids, self.num_tokens = token_ids, 0
        self._followed: dict[tuple[int, ...], int] = {}

    def extend(self, end: int) -> None:
        for position in range(self.num_tokens, end):
            for size in range(1, min(MAX_NGRAM, position) + 1):  # the n-grams before that token
                self._followed[tuple(self.token_ids[position - size : position])] = position
        self.num_tokens = max(end, self.num_tokens)

    def look_up(self, limit: int) -> Copy:
        """The tokens after the last earlier occurrence of the longest n-gram that ends the text; at most `limit`."""
        for size in range(min(MAX_NGRAM, self.num_tokens - 1), 0, -1):
            position = self._followed.get(tuple(self.token_ids[self.num_tokens - size : self.num_tokens]))
            if position is not None:
                found = self.token_ids[position : min(position + limit, self.num_tokens)]
                return Copy(found, [chance(size + index) for index in range(len(found))], position)
        return NOTHING


class PromptLookupDrafter(CopyingDrafter):
    """Drafts what followed the last earlier occurrence of the last three tokens, or two or one; see `BatchDrafter`."""

    title = "Prompt lookup"
    about = "No model: copies what followed the last few words where they last appeared. For texts that repeat the prompt."
    new_index = NgramIndex

    def copy(self, index: NgramIndex, limit: int) -> Copy:
        return index.look_up(limit)


class SuffixIndex:
    """The trie of a text and the nodes that match its end."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids, self.num_tokens = token_ids, 0
        self.trie = SuffixTrie(token_ids)
        self.matches: list[Node] = []

    def extend(self, end: int) -> None:
        for position in range(self.num_tokens, end):
            self.matches = self.trie.append(self.token_ids, position, self.matches)
        self.num_tokens = max(end, self.num_tokens)


class SuffixDrafter(CopyingDrafter):
    """Drafts what most often followed; see `BatchDrafter`. `max_spec_factor`: the most tokens to draft per matched token. The
    authors' code begins with 1; on repeating text (`benchmarks/drafters.py`) 8 gives more tokens per step. `min_match`: the
    fewest tokens that must match."""

    title = "Suffix decoding"
    about = "No model: copies what most often followed similar text. For lists, code, quotations."
    new_index = SuffixIndex

    max_spec_factor = 8.0
    min_match = 1

    def copy(self, index: SuffixIndex, limit: int) -> Copy:
        def most(length: int) -> int:
            return min(limit, int(length * self.max_spec_factor + 1e-6)) if length >= self.min_match else 0

        own = [index.trie.follow(node, most(length), MIN_PROB, length) for length, node in enumerate(index.matches, start=1)]
        best = max(reversed(own), key=lambda copy: copy.score, default=NOTHING)  # of equals the longest match
        if self.earlier is None:
            return best
        return max((best, *self.earlier.copies(index.token_ids, most, MIN_PROB)), key=lambda copy: copy.score)

    def release(self, row: SequenceState) -> None:
        super().release(row)
        if self.earlier is not None:
            self.earlier.add(row.output_token_ids)


class SuffixHeadDrafter(HeadDrafter):
    """Copies as `SuffixDrafter` where at least `MIN_MATCH` tokens match, and drafts as `HeadDrafter` elsewhere, in each row and
    step; see `BatchDrafter` for the methods. Hu et al. 2024, "SAM Decoding" (arXiv 2411.10666), choose by length of match too.

    Both follow every row. The head reads the target's states of copied tokens together, when it is next used.
    """

    title = "Suffix and head"
    about = "Copies where the text repeats itself, and asks the head elsewhere. For any text."
    drafts_trees = False
    copies_or_asks = True

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.suffix = SuffixDrafter(pair, vocab_size, device)
        self.suffix.min_match = MIN_MATCH

    def admit(self, row: SequenceState) -> None:
        super().admit(row)
        self.suffix.earlier = self.earlier
        self.suffix.admit(row)

    def release(self, row: SequenceState) -> None:
        super().release(row)
        self.suffix.release(row)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        super().fork(row, source)
        self.suffix.fork(row, source)

    def room(self, row: SequenceState) -> int:
        return row.room - 1

    def ready(self, row: SequenceState) -> bool:
        return self.suffix.ready(row) and super().ready(row)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        self.suffix.prefill(rows)
        super().prefill(rows)

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        to_copy = [min(limit, row.window.copy_limit) for row, limit in zip(rows, limits, strict=True)]
        to_ask = [min(limit, row.window.ask_limit) for row, limit in zip(rows, limits, strict=True)]
        copies = self.suffix.copies(rows, to_copy)
        asking = [
            index
            for index, row in enumerate(rows)
            if not copies[index].token_ids and to_ask[index] > 0 and super(SuffixHeadDrafter, self).room(row) > 0
        ]
        copying = [index for index in range(len(rows)) if index not in asking]
        for index, row in enumerate(rows):
            row.window.use(index in copying)
        parts, groups = [], [group for group in (asking, copying) if group]
        if asking:
            parts.append(super().propose([rows[index] for index in asking], [to_ask[index] for index in asking]))
        if copying:
            parts.append(self.suffix.proposal([rows[index] for index in copying], [copies[index] for index in copying]))
        return merge(parts, groups, self.vocab_size)

    def commit(self, rows: Sequence[SequenceState], records: Sequence[StepRecord], features: torch.Tensor | None) -> None:
        self.suffix.commit(rows, records, None)
        super().commit(rows, records, features)
