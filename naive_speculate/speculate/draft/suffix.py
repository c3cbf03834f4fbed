"""Suffix decoding: drafts what most often followed the end of the text, wherever that occurred before.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3; the authors' code is in snowflakedb/ArcticInference, and
vLLM has it as its method "suffix". Every length of match is tried. The heaviest path after it is followed, further for a longer
match. The path with the best score wins: its expected number of accepted tokens.
"""

from collections.abc import Iterator
from itertools import pairwise

from naive_speculate.speculate.draft.copying import NOTHING, Copy, CopyingDrafter
from naive_speculate.speculate.draft.suffix_trie import Node, Path, SuffixTrie
from naive_speculate.speculate.sequence import SequenceState

MIN_PROB = 0.1


class SuffixIndex:
    """The trie of a text and the nodes that match its end; `num_tokens` of the text are in the trie."""

    def __init__(self, token_ids: list[int]) -> None:
        self.num_tokens = 0
        self.token_ids = token_ids
        self.trie = SuffixTrie(token_ids)
        self.matches: list[Node] = []

    def extend(self, end: int) -> None:
        """Add the text's next tokens, up to position `end`; one step per matched token each."""
        for position in range(self.num_tokens, end):
            self.matches = self.trie.append(self.token_ids, position, self.matches)
        self.num_tokens = max(end, self.num_tokens)


class SuffixDrafter(CopyingDrafter[SuffixIndex]):
    """Drafts what most often followed; see `BatchDrafter`. `max_spec_factor`: the most tokens to draft per matched token. The
    authors' code begins with 1; on repeating text (`benchmarks/drafters.py`) 8 gives more tokens per step. `min_match`: the
    fewest tokens that must match."""

    title = "Suffix decoding"
    about = "No model: copies what most often followed similar text. For lists, code, quotations."

    max_spec_factor = 8.0
    min_match = 1

    def new_index(self, token_ids: list[int]) -> SuffixIndex:
        return SuffixIndex(token_ids)

    def copy(self, index: SuffixIndex, limit: int) -> Copy:
        best, best_score = NOTHING, 0.0
        for path in self._own(index, limit):
            if path.token_ids and (score := sum(path.probs)) >= best_score:  # of equals the longest match
                best, best_score = _as_copy(path, path.end + 1 - len(path.token_ids)), score
        if self.earlier is not None:
            for path in self.earlier.paths(index.token_ids, lambda length: self._most(length, limit), MIN_PROB):
                if (score := sum(path.probs)) > best_score:
                    best, best_score = _as_copy(path, None), score
        return best

    def release(self, row: SequenceState) -> None:
        super().release(row)
        if self.earlier is not None:
            self.earlier.add(row.output_token_ids)

    def _own(self, index: SuffixIndex, limit: int) -> Iterator[Path]:
        """A path for each length of match with the row's own text."""
        for length, node in enumerate(index.matches, start=1):
            yield index.trie.follow(node, self._most(length, limit), MIN_PROB)

    def _most(self, length: int, limit: int) -> int:
        return min(limit, int(length * self.max_spec_factor + 1e-6)) if length >= self.min_match else 0


def _as_copy(path: Path, source: int | None) -> Copy:
    return Copy(path.token_ids, [prob / before for before, prob in pairwise((1.0, *path.probs))], source)
