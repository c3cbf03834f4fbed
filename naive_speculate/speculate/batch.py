"""The one life cycle of rows: admitted, prefilled in chunks, stepped, released. All who decode drive it."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

import torch

from naive_speculate.events.event import FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.infer.threads import computes_beside_torch, one_torch_thread
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import step
from naive_speculate.speculate.workspace import Workspace
from naive_speculate.text import Vocabulary


class Batch:
    """Rows that are decoded together and come and go between steps.

    Not for several threads at once; the models may be shared.
    """

    def __init__(self, pair: ModelPair, vocabulary: Vocabulary, earlier: EarlierOutputs | None = None) -> None:
        self.workspace = Workspace(pair, vocabulary, earlier)
        self._source_of: dict[SequenceState, SequenceState] = {}  # who takes a prompt in for whom
        self._beside_torch = computes_beside_torch(pair.target)

    @torch.no_grad()  # models of others may have parameters that want gradients
    def admit(self, rows: Sequence[SequenceState]) -> None:
        """Give rows of one prompt their places: all or, if that fails, none. The first takes the prompt in for all."""
        self.workspace.allocate(rows)
        if len(rows) > 1 and len(rows[0].token_ids) > 1 and rows[0].room > 0:
            self._source_of |= dict.fromkeys(rows[1:], rows[0])

    def release(self, rows: Iterable[SequenceState]) -> None:
        """Free rows' places; rows without one are left alone."""
        rows = list(rows)
        self.workspace.free(rows)
        for row in rows:
            self._source_of.pop(row, None)

    def step(
        self, rows: Iterable[SequenceState], records: dict[SequenceState, StepRecord] | None = None
    ) -> dict[SequenceState, StepRecord]:
        """Make one speculative step for every row that goes on.

        Rows that were cancelled or have no room left end without a step. A long prompt is first taken in, a chunk a call, so
        that it does not hold up the rows beside it.

        Args:
            rows: Any rows of this batch.
            records: Filled row by row, which tells how far a step came that failed; by default a new dict.

        Returns:
            dict: What happened to each row that was stepped.

        Raises:
            ValueError: If a row is not of this batch.
        """
        records = {} if records is None else records
        self.workspace.watch.begin()
        grads = torch.no_grad() if torch.is_grad_enabled() else nullcontext()
        threads = one_torch_thread() if self._beside_torch and torch.get_num_threads() > 1 else nullcontext()
        with grads, threads:
            ready = going_on = self._going_on(rows)
            if not all(map(self.workspace.is_ready, going_on)):
                ready = self._prefill(going_on)
                ready = self._going_on(ready)  # while a long prompt was taken in, somebody may have cancelled
            if ready:
                step(self.workspace, self.workspace.in_order(ready), records)
        return records

    @torch.no_grad()
    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """After a step that failed: roll the caches back to what is committed."""
        self.workspace.rewind(rows)

    def _going_on(self, rows: Iterable[SequenceState]) -> list[SequenceState]:
        """End rows that were cancelled or have no room; returns those that go on."""
        going_on = []
        for row in rows:
            if row not in self.workspace:
                raise ValueError("rows must have been admitted to this batch to be stepped in it")
            if row.ended:
                continue
            if row.cancelled:
                row.end(FinishReason.CANCELLED)
            elif row.room <= 0:
                row.end(FinishReason.LENGTH)
            else:
                going_on.append(row)
        return going_on

    def _prefill(self, rows: list[SequenceState]) -> list[SequenceState]:
        """Take in a chunk of each prompt that is not in the caches yet; returns the rows that can be stepped.

        A long prompt thus keeps the rows beside it waiting for one chunk a step.
        """
        is_ready = self.workspace.is_ready
        waiting = [row for row in rows if not is_ready(row)]
        sources = {row: source for row in waiting if (source := self._source_of.get(row)) and source in rows}
        alone = [row for row in waiting if row not in sources]
        self.workspace.prefill(alone)
        forked = [row for row, source in sources.items() if is_ready(source)]
        for row in forked:
            self.workspace.fork(row, sources[row])
        for row in (*alone, *forked):
            self._source_of.pop(row, None)
        return [row for row in rows if is_ready(row)]
