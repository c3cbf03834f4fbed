"""Drafts with an assistant, which attends to the target's own keys and values (Gemma 4)."""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.models.foreign.assistant import AssistantHead, embedded_and_norm
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal
from naive_speculate.speculate.sequence import SequenceState


class AssistantDrafter(BatchDrafter):
    """Drafts token by token with the pair's assistant; see `BatchDrafter` for the methods.

    It has no cache: a window begins with the target's last state and attends to the target's
    cache, which holds all tokens but the last. `states`: of each row the position and the target's
    state of the last token there.
    """

    title = "Assistant"
    phrase = "the assistant"
    role = "assistant"
    about = "A small model that attends to the target's own keys and values, made for Gemma 4."

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.head = self.head_of(pair)
        self.layers = self.head.layers
        self.states: dict[SequenceState, tuple[int, torch.Tensor]] = {}
        self._sources = self.head.sources(pair.target)
        self._embed, self._norm = embedded_and_norm(pair.target)

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        return pair.head

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        return None if isinstance(pair.head, AssistantHead) else "this pair has no assistant"

    def release(self, row: SequenceState) -> None:
        self.states.pop(row, None)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        if source in self.states:  # of another position where the source is further
            self.states[row] = self.states[source]

    def max_window(self, row: SequenceState) -> int:
        """See `BatchDrafter.max_window`; nothing can be drafted without the target's state of the
        last token but one."""
        state = self.states.get(row)
        return row.num_remaining - 1 if state and state[0] == len(row.token_ids) - 2 else 0

    def observe(
        self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[torch.Tensor]
    ) -> None:
        for row, start, states in zip(rows, starts, features, strict=True):
            self.states[row] = (start + len(states) - 1, states[-1])

    def propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        window, attended = (
            DrawnWindow(rows, limits, self.vocab_size),
            self.head.see(self.target_rows(rows), self._sources),
        )
        states = self._norm(torch.stack([self.states[row][1] for row in rows]))
        token_ids = on_device([row.token_ids[-1] for row in rows], states.device)
        while not window.full:
            logits, states = self.head.draft(self._embed(token_ids), states, attended)
            token_ids = window.add(logits)
        return window.proposal()

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        assert features is not None
        for row, record, states in zip(rows, records, features, strict=True):
            if not row.ended:  # it may have kept less than was accepted
                self.states[row] = (len(row.token_ids) - 2, states[record.outcome.num_accepted])
