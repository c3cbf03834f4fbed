"""Drafts with the multi-token prediction layers of the target's own checkpoint."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from naive_speculate.infer.device import on_device
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.model import DrawnWindow
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.sequence import SequenceState


class MtpDrafter(HeadDrafter):
    """Drafts with the MTP layers of the target's own checkpoint: each draft token with the next
    layer, then with the last one again.

    Of n layers, the last one reads n - 1 draft tokens at the end of the text, so the last n - 1
    positions are settled only when the tokens after them are known.
    """

    title = "MTP layer"
    phrase = "the MTP layer"
    role = "mtp"
    about = (
        "The layer for the token after next that the model was trained with. No other drafter is"
        " needed where there is one."
    )
    drafts_trees = False

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self._num_open = self.head.num_mtp_layers

    @staticmethod
    def head_of(pair: ModelPair) -> Any:
        return pair.mtp

    @classmethod
    def obstacle(cls, pair: ModelPair) -> str | None:
        if not pair.has_mtp:
            return "the target's checkpoint has no MTP layer"
        try:
            pair.mtp  # noqa: B018 - it is loaded
        except ValueError as error:
            return str(error)
        return None

    def _propose(self, rows: Sequence[SequenceState], limits: Sequence[int]) -> Proposal:
        window, head = DrawnWindow(rows, limits, self.vocab_size), self.head
        counts = [len(self.histories[row].states) for row in rows]
        token_ids, own = self._read_layers(rows, counts, window)
        view = self.view(rows)
        while not window.full:
            own = head.read(self._num_open - 1, token_ids[:, None], own[:, None], view)[:, 0]
            view.advance(1)
            token_ids = window.add(head.logits(own))
        return window.proposal()

    def _fill(self, rows: Sequence[SequenceState], counts: Sequence[int]) -> None:
        self._read_layers(rows, counts, None)

    def _read_layers(
        self, rows: Sequence[SequenceState], counts: Sequence[int], window: DrawnWindow | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Let the layers in turn read the first `counts` unsettled positions of each row, each
        one token further on, and draw the window's draft tokens where the text ends; returns
        the last ones and the outputs that they were drawn from. All layers read, also after a full
        window."""
        histories, head = [self.histories[row] for row in rows], self.head
        width, token_ids = max(counts), list[list[int]]()
        for row, history, count in zip(rows, histories, counts, strict=True):
            history.settle(0)
            known = row.token_ids[history.start + 1 : history.start + count + self._num_open]
            token_ids.append(known + [0] * (width + self._num_open - 1 - len(known)))
        query, last = on_device(token_ids, head.device), on_device(counts, head.device) - 1
        each, view = torch.arange(len(rows), device=head.device), self.view(rows)
        drawn = query[:, 0]
        hidden = own = pad_sequence(
            [history.states[:count] for history, count in zip(histories, counts, strict=True)],
            batch_first=True,
        )
        for layer in range(self._num_open):
            part = query[:, layer : layer + width]
            hidden = head.read(layer, part, hidden, view, of_target=layer == 0)
            if window is not None and not window.full:
                own = hidden[each, last]
                drawn = window.add(head.logits(own))
                if layer + 1 < self._num_open:
                    query[each, last + 1 + layer] = drawn
        view.advance(width)
        for history, count in zip(histories, counts, strict=True):
            history.slot.keep(history.start + count)  # without the padding
        return drawn, own
