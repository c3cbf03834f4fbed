"""Suffix decoding: drafts what most often followed the end of the text, wherever that occurred before.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3; the authors' code is in snowflakedb/ArcticInference, and
vLLM has it as its method "suffix". Every length of match is tried. The heaviest path after it is followed, further for a longer
match. The path with the best score wins: its expected number of accepted tokens.
"""

from naive_speculate.speculate.draft.copying import CopyingDrafter
from naive_speculate.speculate.draft.occurrences import NOTHING, Copy, copies
from naive_speculate.speculate.sequence import SequenceState

MIN_PROB = 0.1
MAX_MATCH = 24  # the longest match that is counted by itself, in tokens; vLLM's default


class SuffixDrafter(CopyingDrafter):
    """Drafts what most often followed; see `BatchDrafter`. `max_spec_factor`: the most tokens to draft per matched token. The
    authors' code begins with 1; on repeating text (`benchmarks/drafters.py`) 8 gives more tokens per step. `min_match`: the
    fewest tokens that must match."""

    title = "Suffix decoding"
    about = "No model: copies what most often followed similar text. For lists, code, quotations."

    max_spec_factor = 8.0
    min_match = 1

    def copy(self, row: SequenceState, limit: int) -> Copy:
        def most(length: int) -> int:
            return min(limit, int(length * self.max_spec_factor + 1e-6)) if length >= self.min_match else 0

        found = copies(self.indexes[row].matches(row.token_ids, MAX_MATCH), most, MIN_PROB)
        if self.earlier is not None:
            earlier = copies(self.earlier.matches(row.token_ids, MAX_MATCH), most, MIN_PROB)
            found += [copy._replace(source=None) for copy in earlier]
        return max(found, key=lambda copy: copy.score, default=NOTHING)  # of equals the longest match in the row's own text

    def release(self, row: SequenceState) -> None:
        super().release(row)
        if self.earlier is not None:
            self.earlier.add(row.output_token_ids)
