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
        self.draft = None if pair.draft is None else SlotPool(pair.draft)
        self.scorer = Scorer(self.target, vocab_size, vocabulary)
        made = {name: make(self.draft, vocab_size, device) for name, make in DRAFTERS.items()}
        self.proposers: dict[str, Proposer] = {name: one for name, one in made.items() if one is not None}

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slots."""
        self.target.give_back(sequence.target_slot)
        if self.draft is not None and sequence.draft_slot is not None:
            self.draft.give_back(sequence.draft_slot)
