"""Drafts whole windows with a parallel draft head (P-EAGLE)."""

from collections.abc import Sequence

from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.head import HeadDrafter, hidden_states_obstacle
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.sequence import SequenceState


class ParallelHeadDrafter(HeadDrafter):
    """Drafts a window with one forward of the pair's `ParallelHead`: all drafts but the first
    after masks. Each draft token is drawn from a distribution of its own."""

    drafts_trees = False

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return hidden_states_obstacle(pair)

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        window = DrawnWindow(rows, limits, self.vocab_size)
        counts = [len(self.histories[row].states) for row in rows]
        logits, _ = self._read(rows, counts, num_masks=max(limits) - 1)
        for each in logits.split(len(rows)):
            window.add(each)
            if window.full:
                break
        return window.proposal()
