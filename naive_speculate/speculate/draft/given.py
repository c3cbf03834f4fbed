"""User-supplied drafts: a word with its probability; otherwise the draft model draws the token."""

from collections.abc import Sequence

from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState

# its name in a run's settings; it is in no menu, since it needs `Request.given_draft`
GIVEN = "given"


class Given(BatchDrafter):
    """Proposes a row's given tokens in its first step, and nothing afterwards.

    The first of them is drafted with the stated probability s, otherwise a token that the draft
    model draws: q = s · δ + (1 − s) · q_draft. Where it is the one that was drawn, either way,
    the others follow as point masses.
    """

    drafts_trees = False

    def max_window(self, row: SequenceState) -> int:
        return super().max_window(row) if row.num_steps == 0 else 0

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        own = super().propose(rows, [1] * len(rows))
        assert own.probs is not None, "rows with given drafts sample"
        drafts = [row.given_draft for row in rows]
        width = max(
            min(limit, len(one.draft))
            for limit, one in zip(limits, drafts, strict=True)
            if one is not None
        )
        token_ids = own.token_ids.new_zeros(len(rows), width)
        probs = own.probs.new_zeros(len(rows), width, own.probs.shape[-1])
        lengths = []
        for number, (row, limit, one) in enumerate(zip(rows, limits, drafts, strict=True)):
            assert one is not None
            assert not isinstance(one.draft, str)
            first, *rest = one.draft
            probs[number, 0] = own.probs[number, 0] * (1 - one.prob)
            probs[number, 0, first] += one.prob
            # Always drawn, so that a seed's next draws do not depend on the draft.
            left_to_it = row.draft_random.categorical(
                own.probs.new_tensor([one.prob, 1 - one.prob])
            )
            token_ids[number, 0] = drawn = int(own.token_ids[number, 0]) if left_to_it else first
            rest = rest[: limit - 1] if drawn == first else []
            for index, token in enumerate(rest, start=1):
                token_ids[number, index] = token
                probs[number, index, token] = 1
            lengths.append(1 + len(rest))
        return Proposal(token_ids, probs, lengths)


class GivenDrafter(Given, ModelDrafter):
    """With a draft model that has the target's tokens."""
