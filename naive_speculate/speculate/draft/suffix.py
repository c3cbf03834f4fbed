"""Suffix decoding: drafts what most often followed the end of the text, wherever that occurred
before.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3; the authors' code is in
snowflakedb/ArcticInference, and vLLM has it as its method "suffix". Every length of match is
tried. The heaviest path after it is followed, further for a longer match. The path with the best
score wins: its expected number of accepted tokens.
"""

from naive_speculate.speculate.draft.copying import NOTHING, CopyingDrafter
from naive_speculate.speculate.draft.suffix_trie import Copy, Node, SuffixTrie
from naive_speculate.speculate.sequence import SequenceState

MIN_PROB = 0.1  # a path ends where its share falls below


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
    """Drafts what most often followed; see `BatchDrafter`. `max_spec_factor`: the most tokens to
    draft per matched token. The authors' code begins with 1; on repeating text
    (`benchmarks/drafters.py`) 8 gives more tokens per step. `min_match`: the fewest tokens that
    must match."""

    title = "Suffix decoding"
    phrase = "suffix decoding"
    about = "No model: copies what most often followed similar text. For lists, code, quotations."
    new_index = SuffixIndex

    max_spec_factor = 8.0
    min_match = 1

    def copy(self, index: SuffixIndex, limit: int) -> Copy:
        def most(length: int) -> int:
            return (
                min(limit, int(length * self.max_spec_factor + 1e-6))
                if length >= self.min_match
                else 0
            )

        own = [
            index.trie.follow(node, most(length), MIN_PROB, length)
            for length, node in enumerate(index.matches, start=1)
        ]
        # of equals the longest match
        best = max(reversed(own), key=lambda copy: copy.score, default=NOTHING)
        if self.earlier is None:
            return best
        return max(
            (best, *self.earlier.copies(index.token_ids, most, MIN_PROB)),
            key=lambda copy: copy.score,
        )

    def release(self, row: SequenceState) -> None:
        super().release(row)
        if self.earlier is not None:
            self.earlier.add(row.output_token_ids)
