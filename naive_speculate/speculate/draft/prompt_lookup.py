"""Prompt lookup: drafts what followed the last tokens where they occurred before.

Saxena 2023 (https://github.com/apoorvumang/prompt-lookup-decoding); in transformers as `prompt_lookup_num_tokens`.
"""

from naive_speculate.speculate.draft.copying import NOTHING, Copy, CopyingDrafter

MAX_NGRAM = 3


class NgramIndex:
    """The last position after each n-gram of a text; `num_tokens` of the text are in the index."""

    def __init__(self, token_ids: list[int]) -> None:
        self.num_tokens = 0
        self._token_ids = token_ids
        self._followed: dict[tuple[int, ...], int] = {}

    def extend(self, end: int) -> None:
        """Add the text's next tokens, up to position `end`."""
        for position in range(max(1, self.num_tokens), end):  # the n-grams before that token
            for size in range(1, min(MAX_NGRAM, position) + 1):
                self._followed[tuple(self._token_ids[position - size : position])] = position
        self.num_tokens = max(end, self.num_tokens)

    def look_up(self, limit: int) -> Copy:
        """The tokens after the last earlier occurrence of the longest n-gram that ends the text; at most `limit`."""
        for size in range(min(MAX_NGRAM, self.num_tokens - 1), 0, -1):
            position = self._followed.get(tuple(self._token_ids[self.num_tokens - size : self.num_tokens]))
            if position is not None:
                found = self._token_ids[position : min(position + limit, self.num_tokens)]
                return Copy(found, [1.0] * len(found), position)
        return NOTHING


class PromptLookupDrafter(CopyingDrafter[NgramIndex]):
    """Drafts what followed the last earlier occurrence of the last three tokens, or two or one; see `BatchDrafter`."""

    title = "Prompt lookup"
    about = "No model: copies what followed the last few words where they last stood. For texts that repeat the prompt."

    def new_index(self, token_ids: list[int]) -> NgramIndex:
        return NgramIndex(token_ids)

    def copy(self, index: NgramIndex, limit: int) -> Copy:
        return index.look_up(limit)
