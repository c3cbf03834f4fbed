"""Which prompts are prefilled before a step, and how far: one chunk of each per call."""

from collections.abc import Callable, Mapping, Sequence

import torch

from naive_speculate.infer import slots
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.speculate.draft import BatchDrafter
from naive_speculate.speculate.draft.failures import end_rows, own_layers
from naive_speculate.speculate.outcomes import logprob_entries, raw_logprobs
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.text import Vocabulary


class Prefill:
    """Schedules the prompts of a batch's rows and reads them into the caches.

    `target`, `slots`, `drafter_of`, `layers`: see `Runner`. `copies`: a row to the row of the same
    prompt whose prefill it copies.
    """

    def __init__(
        self,
        target: SlotPool,
        slots: Mapping[SequenceState, Slot],
        drafter_of: Mapping[SequenceState, BatchDrafter],
        vocabulary: Vocabulary,
        vocab_size: int,
    ) -> None:
        self.target, self.slots, self.drafter_of = target, slots, drafter_of
        self.vocabulary, self.vocab_size = vocabulary, vocab_size
        self.layers: list[int] = []
        self.copies: dict[SequenceState, SequenceState] = {}
        self._portions = 0  # of prompts that were prefilled

    def admit(self, rows: Sequence[SequenceState]) -> None:
        """Add rows of one prompt; the first row's prefill serves all."""
        if len(rows) > 1 and len(rows[0].token_ids) > 1 and rows[0].num_remaining > 0:
            self.copies |= dict.fromkeys(rows[1:], rows[0])

    def release(self, row: SequenceState) -> None:
        """Remove a row."""
        self.copies.pop(row, None)

    def run(self, rows: Sequence[SequenceState], is_ready: Callable[[SequenceState], bool]) -> None:
        """Prefill a chunk of each prompt of these rows that is not in the caches yet."""
        waiting = [row for row in rows if not is_ready(row)]
        sources = {
            row: source for row in waiting if (source := self.copies.get(row)) and source in rows
        }
        alone = self._portion([row for row in waiting if row not in sources])
        self._read(alone)
        copying = [row for row, source in sources.items() if is_ready(source)]
        for row in copying:
            self._copy(row, sources[row])
        for row in (*alone, *copying):
            self.copies.pop(row, None)

    def _portion(self, rows: list[SequenceState]) -> list[SequenceState]:
        """As many rows as one step prefills, so that many prompts at once do not make all wait
        for the last. Long prompts come last, except for every fourth portion, which begins with
        the row that waits longest. `rows`: any that are not ready, in the order of their
        arrival. All rows of a forward are padded to its longest row."""
        chunk, on_cpu = slots.PREFILL_CHUNK, self.target.model.device.type == "cpu"
        most = chunk * (1 if on_cpu else slots.CHUNKS_AT_ONCE)
        left = {row: min(len(row.token_ids) - self.slots[row].num_tokens, chunk) for row in rows}
        portion: list[SequenceState] = []
        width = 0
        self._portions += 1
        if self._portions % 4:
            rows = sorted(rows, key=lambda row: left[row] == chunk)
        for row in rows:
            width = max(width, left[row])
            if portion and width * (len(portion) + 1) > most:
                break
            portion.append(row)
        return portion

    def _read(self, rows: Sequence[SequenceState]) -> None:
        """Prefill the next chunk of each row, with the log-probabilities of its prompt if it
        wants them."""
        rows = in_order(rows, self.target, self.slots)
        rest = []
        for row in rows:
            if row.wants_prompt_logprobs:
                self._read_with_logprobs(row)
            else:
                rest.append(row)
        chunk = self.target.feed(
            [self.slots[row] for row in rest], [row.token_ids for row in rest], self.layers
        )
        if chunk is not None and chunk.features:
            self._send_features(
                [rest[index] for index in chunk.indices], chunk.starts, chunk.features
            )
        for drafter in dict.fromkeys(self.drafter_of.values()):
            if drafting := [
                row
                for row in rows
                if self.drafter_of.get(row) is drafter and drafter.max_window(row) > 0
            ]:
                drafter.prefill(drafting)

    def _read_with_logprobs(self, row: SequenceState) -> None:
        """Prefill the prompt's next chunk and collect the log-probabilities of the tokens that
        follow its positions."""
        prompt, slot = row.prompt_token_ids, self.slots[row]
        entries = row.prompt_logprobs or [None]  # nothing predicts the first token
        known = len(entries) - 1
        slot.keep(known)
        if chunk := prompt[known:-1][: slots.PREFILL_CHUNK]:
            query = on_device([chunk], self.target.model.device)
            result = self.target.forward(query, self.target.view([slot]), layers=self.layers)
            logits, features = result if self.layers else (result, None)
            following = on_device(prompt[known + 1 : known + 1 + len(chunk)], logits.device)
            scores = raw_logprobs(
                logits[0, :, : self.vocab_size], following, row.params.prompt_logprobs or 0
            )
            entries += logprob_entries(to_lists(*scores), self.vocabulary)
            if features is not None:
                self._send_features([row], [known], [features[0]])
        row.prompt_logprobs = entries

    def _copy(self, row: SequenceState, source: SequenceState) -> None:
        row.prompt_logprobs = source.prompt_logprobs
        self.slots[row].copy_from(self.slots[source])
        self.slots[row].keep(len(row.token_ids) - 1)
        drafter = self.drafter_of.get(row)
        if drafter is not None and drafter is self.drafter_of.get(source):
            drafter.fork(row, source)

    def _send_features(
        self, rows: Sequence[SequenceState], starts: list[int], features: Sequence[torch.Tensor]
    ) -> None:
        """Send the hidden states of prefilled chunks to the drafters that need them."""
        for drafter in dict.fromkeys(self.drafter_of.values()):
            members = [
                index for index, row in enumerate(rows) if self.drafter_of.get(row) is drafter
            ]
            if members and drafter.layers:
                own, firsts = [rows[index] for index in members], [starts[i] for i in members]
                states = [own_layers(drafter, features[i], self.layers) for i in members]
                try:
                    drafter.observe(own, firsts, states)
                except Exception as error:
                    end_rows(own, error)


def in_order(
    rows: Sequence[SequenceState], target: SlotPool, slots_of: Mapping[SequenceState, Slot]
) -> list[SequenceState]:
    """The rows in the order of their slots, which are first moved together, so that a forward
    covers one slice."""
    if len(rows) < 2:
        return list(rows)
    target.pack([slots_of[row] for row in rows])
    return sorted(rows, key=lambda row: slots_of[row].row)
