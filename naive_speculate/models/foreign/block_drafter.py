"""Drafts whole windows with a block drafter (DFlash, Chen et al. 2026, arXiv 2602.06036)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from naive_speculate.events.record import StepRecord
from naive_speculate.infer.device import on_device
from naive_speculate.models.foreign.block import BlockHead
from naive_speculate.models.foreign.parallel import ParallelHead
from naive_speculate.models.foreign.parallel_drafter import ParallelHeadDrafter
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.head import hidden_states_obstacle
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal, SlotDrafter
from naive_speculate.speculate.sequence import SequenceState


class BlockDrafter(SlotDrafter):
    """Drafts a window with one forward of the pair's block drafter; see `BatchDrafter` for the
    methods.

    Each draft token is drawn in order, from a distribution that depends on the draft tokens before
    it at most, so that verification is as for any other drafter. The cache holds the target's
    state of every token but the last.
    """

    title = "Block drafter"
    phrase = "the block drafter"
    role = "block"
    about = (
        "Drafts a whole window in one pass from the target's hidden states: DFlash, DFlash 2,"
        " DSpark, P-EAGLE or XPress."
    )

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        return pair.head

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        if not isinstance(pair.head, (BlockHead, ParallelHead)):
            return "this pair has no block drafter"
        return hidden_states_obstacle(pair)

    @classmethod
    def suited_to(cls, pair: ModelPair) -> type[BatchDrafter]:
        return ParallelHeadDrafter if isinstance(pair.head, ParallelHead) else cls

    def max_window(self, row: SequenceState) -> int:
        """See `BatchDrafter.max_window`; a window ends with the block, and nothing can be drafted
        without a state of the target."""
        return (
            min(row.num_remaining - 1, self.head.options.num_drafts)
            if self.slots[row].num_tokens
            else 0
        )

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        window = DrawnWindow(rows, limits, self.vocab_size)
        last = [row.token_ids[-2:] for row in rows]
        block = self.head.compute([tokens[-1] for tokens in last], self.view(rows), max(limits))
        token_ids = on_device(last, self.head.device)
        for index in range(block.logits.shape[1]):
            token_ids = window.add(self.head.logits_after(block, index, token_ids))
            if window.full:
                break
        return window.proposal()

    def commit(
        self,
        rows: Sequence[SequenceState],
        records: Sequence[StepRecord],
        features: torch.Tensor | None,
    ) -> None:
        assert features is not None
        kept = [record.outcome.num_accepted + 1 for record in records]
        # the others may have kept less
        going = [index for index, row in enumerate(rows) if not row.ended]
        starts = [len(rows[index].token_ids) - 1 - kept[index] for index in going]
        self.observe(
            [rows[index] for index in going],
            starts,
            [features[index, : kept[index]] for index in going],
        )

    def observe(
        self, rows: Sequence[SequenceState], starts: Sequence[int], features: Sequence[torch.Tensor]
    ) -> None:
        """Read the target's states from these positions on."""
        slots = [self.slots[row] for row in rows]
        for slot, start in zip(slots, starts, strict=True):
            if slot.num_tokens < start:
                raise ValueError(
                    f"hidden states from position {start} on do not follow the first"
                    f" {slot.num_tokens}"
                )
            slot.keep(start)
        if slots:
            self.head.read(pad_sequence(list(features), batch_first=True), self.view(rows))
        for slot, start, states in zip(slots, starts, features, strict=True):
            slot.keep(start + len(states))  # without the padding
