"""Prompt lookup: drafts what followed the last tokens where they occurred before.

Saxena 2023 (https://github.com/apoorvumang/prompt-lookup-decoding); in transformers as `prompt_lookup_num_tokens`.
"""

from naive_speculate.speculate.draft.copying import CopyingDrafter
from naive_speculate.speculate.draft.occurrences import NOTHING, Copy
from naive_speculate.speculate.sequence import SequenceState

MAX_NGRAM = 3


class PromptLookupDrafter(CopyingDrafter):
    """Drafts what followed the last earlier occurrence of the last three tokens, or two or one; see `BatchDrafter`."""

    title = "Prompt lookup"
    about = "No model: copies what followed the last few words where they last appeared. For texts that repeat the prompt."

    def copy(self, row: SequenceState, limit: int) -> Copy:
        matches = self.indexes[row].matches(row.token_ids, MAX_NGRAM, enough=1)
        if not matches:
            return NOTHING
        _, (text, start) = max(matches, key=lambda match: match[0])  # of equals the latest
        found = text[start : start + limit]
        return Copy(found, [1.0] * len(found), start)
