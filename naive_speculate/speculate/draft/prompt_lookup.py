"""Prompt lookup: drafts what followed the last tokens where they occurred before.

Saxena 2023 (https://github.com/apoorvumang/prompt-lookup-decoding); in transformers as
`prompt_lookup_num_tokens`.
"""

from naive_speculate.speculate.draft.copying import NOTHING, CopyingDrafter
from naive_speculate.speculate.draft.suffix_trie import Copy, chance

MAX_NGRAM = 3


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
        """The tokens after the last earlier occurrence of the longest n-gram that ends the text;
        at most `limit`."""
        for size in range(min(MAX_NGRAM, self.num_tokens - 1), 0, -1):
            position = self._followed.get(
                tuple(self.token_ids[self.num_tokens - size : self.num_tokens])
            )
            if position is not None:
                copied = self.token_ids[position : min(position + limit, self.num_tokens)]
                return Copy(
                    copied, [chance(size + index) for index in range(len(copied))], position
                )
        return NOTHING


class PromptLookupDrafter(CopyingDrafter):
    """Drafts what followed the last earlier occurrence of the last three tokens, or two or one;
    see `BatchDrafter`."""

    title = "Prompt lookup"
    phrase = "prompt lookup"
    about = (
        "No model: copies what followed the last few words where they last appeared. For texts that"
        " repeat the prompt."
    )
    new_index = NgramIndex

    def copy(self, index: NgramIndex, limit: int) -> Copy:
        return index.look_up(limit)
