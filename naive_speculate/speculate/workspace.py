"""Where sequences that are decoded together live: the slots of target and draft, and what works on them."""

import torch

from naive_speculate.infer.slots import SlotPool
from naive_speculate.models import ModelPair
from naive_speculate.speculate.proposal import DRAFTERS, Proposer
from naive_speculate.speculate.scorer import Scorer
from naive_speculate.speculate.sequence import Sequence
from naive_speculate.text import Vocabulary


class Workspace:
    """Caches of a pair for sequences that come and go. Not for several threads at once; models may be shared.

    Attributes:
        target, draft: Slots of the two models; `draft` is None where the pair has no draft model.
        scorer: The target's side of a step.
    """

    def __init__(self, pair: ModelPair, vocab_size: int, vocabulary: Vocabulary, device: torch.device) -> None:
        self.target = SlotPool(pair.target)
        self.draft = None if pair.drafting is None else SlotPool(pair.drafting)
        self.scorer = Scorer(self.target, vocab_size, vocabulary)
        made = {name: make(self.draft, vocab_size, device) for name, make in DRAFTERS.items()}
        self.proposers: dict[str, Proposer] = {name: one for name, one in made.items() if one is not None}

    def take_in(self, sequence: Sequence) -> None:
        """Give a sequence its slots."""
        sequence.workspace = self
        sequence.target_slot = self.target.take()
        try:
            sequence.draft_slot = None if self.draft is None else self.draft.take()
        except Exception:
            self.target.give_back(sequence.target_slot)
            raise

    def in_order(self, sequences: list[Sequence]) -> list[Sequence]:
        """The sequences in the order of their rows, which are moved together first: so a forward is one run."""
        if len(sequences) > 1 and self.target.batched:
            self.target.pack([sequence.target_slot for sequence in sequences])
            sequences = sorted(sequences, key=lambda sequence: sequence.target_slot.row or 0)
        if len(sequences) > 1 and self.draft is not None:
            self.draft.pack([sequence.draft_slot for sequence in sequences if sequence.draft_slot is not None])
        return sequences

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slots."""
        self.target.give_back(sequence.target_slot)
        if self.draft is not None and sequence.draft_slot is not None:
            self.draft.give_back(sequence.draft_slot)
