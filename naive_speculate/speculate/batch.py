"""Rows that are decoded together: where they live, and their life cycle.

`Batch` keeps the rows' slots and drafters, and each of its steps is: prefill what is missing
(`Prefill`), run the step (`Runner`), commit it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from naive_speculate.events.event import FinishReason
from naive_speculate.events.record import Outcome, StepRecord
from naive_speculate.infer.device import Seconds, Stopwatch, on_device, one_torch_thread
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.costs import LearnedCosts, StepCosts, learned_costs
from naive_speculate.speculate.draft import (
    BatchDrafter,
    Proposal,
    check_proposal,
    drafter_for,
    merge,
)
from naive_speculate.speculate.draft.failures import end_rows, own_layers
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.outcomes import outcomes_of
from naive_speculate.speculate.prefill import Prefill, in_order
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import Step, step
from naive_speculate.speculate.tree import MAX_NODES, Tree
from naive_speculate.speculate.tree_step import tree_step
from naive_speculate.text import Vocabulary

Records = Mapping[SequenceState, StepRecord]


class PartialStepError(Exception):
    """A step failed, for a cause, after it was committed for the rows that have records."""

    def __init__(self, records: Records, cause: Exception) -> None:
        super().__init__(f"the step was committed for {len(records)} rows only: {cause}")
        self.records, self.cause = records, cause


class Batch:
    """Rows that are decoded together and come and go between steps: their slots in the target's
    cache, and their drafters.

    Not for several threads at once; the models may be shared. `target`: the target and its
    cache. `slots`: each row's slot in it. `drafters`: by name, those of the rows so far.
    `drafter_of`: each row's drafter; rows that are decoded plainly have none. `layers`: the
    target's layers that these drafters read, in ascending order.
    """

    def __init__(
        self, pair: ModelPair, vocabulary: Vocabulary, earlier: EarlierOutputs | None = None
    ) -> None:
        self.pair = pair
        self.vocabulary = vocabulary
        self.vocab_size = pair.vocab_size
        self.earlier = earlier
        self.target = SlotPool(pair.target)
        self.device = self.target.model.device
        self.slots: dict[SequenceState, Slot] = {}
        self.drafters: dict[str, BatchDrafter] = {}
        self.drafter_of: dict[SequenceState, BatchDrafter] = {}
        self.layers: list[int] = []
        self._learned: dict[str, LearnedCosts] = {}
        own = (self.target, self.slots, self.drafter_of, vocabulary, self.vocab_size)
        self.prefill, self.runner = Prefill(*own), Runner(*own)
        self._beside_torch = getattr(pair.target, "computes_beside_torch", False)

    @torch.no_grad()  # parameters of other people's models may require gradients
    def admit(self, rows: Sequence[SequenceState]) -> None:
        """Add rows of one prompt: all or, if that fails, none. The first row's prefill serves
        all."""
        try:
            for row in rows:
                self.slots[row] = self.target.allocate()
                if row.window.limit > 0:
                    drafter = self._drafter(row.drafter)
                    drafter.admit(row)
                    self.drafter_of[row] = drafter
        except Exception:
            self.release(rows)
            raise
        self._set_layers()
        self.prefill.admit(rows)

    def release(self, rows: Iterable[SequenceState]) -> None:
        """Remove rows; those that are not of this batch are left alone."""
        for row in rows:
            self.prefill.release(row)
            if row in self.slots:
                self.target.free(self.slots.pop(row))
            if drafter := self.drafter_of.pop(row, None):
                try:
                    drafter.release(row)
                except Exception as error:
                    end_rows([row], error)
        self._set_layers()

    def step(self, rows: Iterable[SequenceState]) -> dict[SequenceState, StepRecord]:
        """Make one speculative step for every row that goes on.

        Rows that were cancelled or have no room left end without a step. A long prompt is
        prefilled first, one chunk per call: it delays other rows by one chunk per step. `rows`:
        any rows of this batch. Returns what happened to each row that was stepped. Raises
        `ValueError` if a row is not of this batch; `PartialStepError` if the step failed after
        it was committed for some rows. Any other failure is raised as it is, and no row was
        committed. After both, `rewind` rolls back.
        """
        rows = list(rows)
        grads = torch.no_grad() if torch.is_grad_enabled() else nullcontext()
        beside = self._beside_torch and torch.get_num_threads() > 1
        with grads, one_torch_thread() if beside else nullcontext():
            ready, waiting = self._going_on(rows)
            if waiting:
                self.prefill.run([*ready, *waiting], self._is_ready)
                ready, _ = self._going_on(rows)  # a row may have been cancelled meanwhile
            return self._steps(ready)

    @torch.no_grad()
    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """After a failed step: roll caches and drafters back to what is committed."""
        for row in rows:
            self.slots[row].keep(len(row.token_ids) - 1)
        for row in rows:
            if drafter := self.drafter_of.get(row):
                try:
                    drafter.rewind([row])
                except Exception as error:
                    end_rows([row], error)

    def _going_on(
        self, rows: Sequence[SequenceState]
    ) -> tuple[list[SequenceState], list[SequenceState]]:
        """End rows that were cancelled or have no room; returns those that go on: rows that can
        be stepped, and rows that must be prefilled."""
        ready, waiting = list[SequenceState](), list[SequenceState]()
        for row in rows:
            if row not in self.slots:
                raise ValueError("rows must have been admitted to this batch to be stepped in it")
            if row.finish_reason is not None:
                continue
            if row.cancel is not None and row.cancel.is_set():
                row.end(FinishReason.CANCELLED)
            elif len(row.token_ids) >= row.max_length:
                row.end(FinishReason.LENGTH)
            else:
                (ready if self._is_ready(row) else waiting).append(row)
        return ready, waiting

    def _is_ready(self, row: SequenceState) -> bool:
        """Whether the caches hold everything that a step of this row needs."""
        slot, drafter = self.slots[row], self.drafter_of.get(row)
        if slot.cache.lengths[slot.row] < len(row.token_ids) - 1:
            return False
        if row.params.prompt_logprobs is not None and row.wants_prompt_logprobs:
            return False
        return drafter is None or drafter.ready(row) or drafter.max_window(row) <= 0

    def _steps(self, rows: list[SequenceState]) -> dict[SequenceState, StepRecord]:
        """A step for all rows that draft windows, and one for each that drafts trees."""
        records: dict[SequenceState, StepRecord] = {}
        windows, trees = list[SequenceState](), list[SequenceState]()
        for row in rows:
            (windows if row.tree is None else trees).append(row)
        try:
            if windows:
                members = windows
                if len(windows) > 1:
                    members = in_order(windows, self.target, self.slots)
                self._step(members, self.runner.run_windows, records)
            for row in trees:
                self._step([row], self.runner.run_tree, records)
        except Exception as error:
            if records:
                raise PartialStepError(records, error) from error
            raise
        return records

    def _step(
        self,
        rows: list[SequenceState],
        run: Callable[[Sequence[SequenceState]], Step],
        records: dict[SequenceState, StepRecord],
    ) -> None:
        """Make a step, and add what it did to each row that committed it."""
        result = run(rows)
        outcomes = outcomes_of(rows, result, self.vocabulary)
        seconds = self.runner.watch.stop()
        if self.drafter_of:
            self._note_costs(rows, result, outcomes, seconds)
        try:
            for row, outcome in zip(rows, outcomes, strict=True):
                outcome.draft_seconds, outcome.verify_seconds, outcome.total_seconds = seconds
                # prefix + x₁ … x_n + t, up to where the sequence ends
                records[row] = row.commit(outcome)
        finally:
            self._commit(rows, records, result.features)

    def _note_costs(
        self,
        rows: Sequence[SequenceState],
        result: Step,
        outcomes: Sequence[Outcome],
        seconds: Seconds,
    ) -> None:
        """Note what the step cost, for windows that learn from it; only the number of rows, where
        drafters are mixed, a guide forced text, or a tree was drafted."""
        names, lengths, accepted, judged = set[str](), result.draft.lengths, 0, 0
        for row, outcome, length in zip(rows, outcomes, lengths, strict=True):
            if row in self.drafter_of:
                names.add(row.drafter)
            accepted += outcome.num_accepted
            judged += min(outcome.num_accepted + 1, length)
        costs = None
        if len(names) == 1 and not result.draft.forced and result.tree is None:
            drafting = 0.0 if result.draft.copied_from is not None else seconds.draft
            costs = StepCosts(max(lengths), drafting, seconds.verify, accepted, judged)
        for name in names:
            self._learned[name].notes.append((len(rows), costs))

    def _commit(
        self, rows: Sequence[SequenceState], records: Records, features: torch.Tensor | None
    ) -> None:
        """Roll the target's cache back to what is committed, and let the drafters follow."""
        members: dict[BatchDrafter, list[int]] = {}
        for index, row in enumerate(rows):
            slot = self.slots[row]
            slot.cache.keep(slot.row, len(row.token_ids) - 1)
            if row in records and row in self.drafter_of:
                members.setdefault(self.drafter_of[row], []).append(index)
        for drafter, indices in members.items():
            own, states = [rows[index] for index in indices], None
            if features is not None and drafter.layers:
                states = (
                    features
                    if len(indices) == len(rows)
                    else features[on_device(indices, features.device)]
                )
                states = own_layers(drafter, states, self.layers)
            try:
                drafter.commit(own, [records[row] for row in own], states)
            except Exception as error:
                end_rows(own, error)

    def _drafter(self, name: str) -> BatchDrafter:
        if name not in self.drafters:
            self.drafters[name] = drafter_for(name, self.pair)(
                self.pair, self.vocab_size, self.device
            )
            self.drafters[name].earlier = self.earlier
            self.drafters[name].target_rows = self._target_rows
            self._learned[name] = learned_costs(self.pair, name)
        return self.drafters[name]

    def _target_rows(self, rows: Sequence[SequenceState]) -> Any:
        return self.target.view([self.slots[row] for row in rows])

    def _set_layers(self) -> None:
        drafters = set(self.drafter_of.values())
        self.layers = sorted({layer for drafter in drafters for layer in drafter.layers})
        self.prefill.layers = self.runner.layers = self.layers


class Runner:
    """Runs one step of some rows: lets their drafters propose, and the target score.

    `target`: the target and its cache. `slots`, `drafter_of`: each row's slot in it and drafter,
    which change while rows come and go. `layers`: the target's layers that drafters read, set by
    the batch. `watch` times the step.
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
        self.device: torch.device = target.model.device
        self.watch = Stopwatch(self.device)

    def run_windows(self, rows: Sequence[SequenceState]) -> Step:
        """A step of rows that draft windows."""
        self.watch.begin()
        return step(rows, self.propose, self.score)

    def run_tree(self, rows: Sequence[SequenceState]) -> Step:
        """A step of one row that drafts trees; with a window, where no tree can be drafted."""
        self.watch.begin()
        (row,) = rows
        tree = self.propose_tree(row)
        if tree is None:
            return step(rows, self.propose, self.score)
        result = tree_step(row, tree, *self.score_tree(row, tree))
        start, path = len(row.token_ids), [] if result.tree is None else result.tree.path
        slot = self.slots[row]
        cache: Any = slot.cache  # of a model that takes trees
        cache.keep_path(slot.row, start, [start + node for node in path])
        return result

    def propose(self, rows: Sequence[SequenceState]) -> Proposal:
        """Let each row's drafter propose, unless its grammar forces what follows; rows with
        nothing to draft get an empty window."""
        self.watch.drafting = self.watch.now()
        groups: dict[BatchDrafter | None, list[int]] = {}
        limits, forced = list[int](), list[list[int]]()
        for index, row in enumerate(rows):
            drafter, window = self.drafter_of.get(row), row.window
            forced.append(self._forced(row) if row.pipeline.guided else [])
            limit = 0
            if drafter is not None:
                most = window.limit if window.fixed else window.max_drafts(len(rows))
                limit = min(most, drafter.max_window(row))
            limits.append(limit)
            group = drafter if limit > 0 and not forced[index] else None
            groups.setdefault(group, []).append(index)
        parts = []
        for drafter, members in groups.items():
            own, most_of = [rows[index] for index in members], [limits[index] for index in members]
            if drafter is None:
                windows = [forced[index] for index in members]
                certain = Proposal.certain(own, windows, self.vocab_size, self.device)
                by_force = [index for index, window in enumerate(windows) if window]
                parts.append(certain._replace(forced=by_force))
                continue
            parts.append(drafter.propose(own, most_of))
            if drafter.needs_check:
                check_proposal(parts[-1], own, most_of, self.vocab_size)
        if len(parts) == 1:
            return parts[0]
        return merge(parts, list(groups.values()), self.vocab_size)

    def score(
        self, rows: Sequence[SequenceState], draft: Proposal
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One forward of the target over each row's last token and its drafts; the rows are
        prefilled, in the order of their slots.

        Returns logits `[batch_size, k + 1, vocab_size]`: index i judges draft i, the last gives
        the bonus token. And the hidden states there of all layers that drafters need,
        concatenated, `[batch_size, k + 1, number of layers * hidden_size]`; None where no
        drafter needs any.
        """
        self.watch.verifying = self.watch.now()
        numbers, last, lengths = list[int](), list[list[int]](), list[int]()
        for row, length in zip(rows, draft.lengths, strict=True):
            numbers.append(self.slots[row].row)
            last.append([row.token_ids[-1]])
            lengths.append(1 + length)
        query = torch.cat([on_device(last, self.device), draft.token_ids], dim=1)
        view = self.slots[rows[0]].cache.rows(numbers)
        result = self.target.forward(query, view, layers=self.layers, lengths=lengths)
        logits, features = result if self.layers else (result, None)
        return logits[..., : self.vocab_size], features

    def propose_tree(self, row: SequenceState) -> Tree | None:
        """Let a row's drafter propose a tree. None for a window: where a guide forces text,
        nothing can be drafted, or the nodes exceed a model's positions."""
        self.watch.drafting = self.watch.now()
        drafter: Any = self.drafter_of[row]
        depth = min(len(row.tree or ()), drafter.max_window(row))
        limit = self.target.model.max_positions
        fits = limit is None or len(row.token_ids) + MAX_NODES <= limit
        if depth < 1 or not fits or self._forced(row):
            return None
        tree: Tree = drafter.propose_tree(row, (row.tree or ())[:depth])
        return tree if tree.token_ids else None  # it may lack positions or every allowed token

    def score_tree(
        self, row: SequenceState, tree: Tree
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One forward of the target over a row's last token and the nodes of a tree; returns as
        `score`, with an index for each node after that of the text."""
        self.watch.verifying = self.watch.now()
        slot: Any = self.slots[row]
        view = TreeRows(
            slot.cache, slot.row, slot.num_tokens, [-1, *(parent + 1 for parent in tree.parents)]
        )
        query = on_device([[row.token_ids[-1], *tree.token_ids]], self.device)
        result = self.target.forward(query, view, layers=self.layers)
        logits, features = result if self.layers else (result, None)
        return logits[..., : self.vocab_size], features

    def _forced(self, row: SequenceState) -> list[int]:
        """The tokens of the text that a row's grammar forces next, as far as its window reaches."""
        if row not in self.drafter_of or row.given_draft is not None:
            return []
        text = row.pipeline.forced_text(row.output_token_ids)
        token_ids = self.vocabulary.continuing(text, row.token_ids) if text else []
        if max(token_ids, default=0) >= self.vocab_size:  # the target has no logit for it
            return []
        return token_ids[: max(0, min(row.window.limit, row.num_remaining - 1))]
