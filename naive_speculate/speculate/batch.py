"""Where rows live, and their one life cycle: admitted, prefilled in chunks, stepped, released."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from naive_speculate.events.event import FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.infer import slots
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.infer.ragged_cache import TreeRows
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.infer.threads import computes_beside_torch, one_torch_thread
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft import (
    OWN_DRAFTERS,
    BatchDrafter,
    Proposal,
    check_proposal,
    drafter_for,
    merge,
)
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.observe import logprob_entries, observe, raw_logprobs
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import Step, step
from naive_speculate.speculate.stopwatch import Stopwatch
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
    `drafter_of`: each row's drafter; rows that are decoded plainly have none.
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
        self._source_of: dict[
            SequenceState, SequenceState
        ] = {}  # row → row whose prefill it copies
        self._watch = Stopwatch(self.device)
        self._portions = 0  # of prompts that were prefilled
        self._beside_torch = computes_beside_torch(pair.target)

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
        if len(rows) > 1 and len(rows[0].token_ids) > 1 and rows[0].room > 0:
            self._source_of |= dict.fromkeys(rows[1:], rows[0])

    def release(self, rows: Iterable[SequenceState]) -> None:
        """Remove rows; those that are not of this batch are left alone."""
        for row in rows:
            self._source_of.pop(row, None)
            if row in self.slots:
                self.target.free(self.slots.pop(row))
            if row in self.drafter_of:
                self._call_drafter([row], partial(self.drafter_of.pop(row).release, row))

    def step(self, rows: Iterable[SequenceState]) -> dict[SequenceState, StepRecord]:
        """Make one speculative step for every row that goes on.

        Rows that were cancelled or have no room left end without a step. A long prompt is
        prefilled first, one chunk per call: it delays other rows by one chunk per step. `rows`:
        any rows of this batch. Returns what happened to each row that was stepped. Raises
        `ValueError` if a row is not of this batch; `PartialStepError` if the step failed after
        it was committed for some rows. Any other failure is raised as it is, and no row was
        committed. After both, `rewind` rolls back.
        """
        self._watch.begin()
        grads = torch.no_grad() if torch.is_grad_enabled() else nullcontext()
        threads = (
            one_torch_thread()
            if self._beside_torch and torch.get_num_threads() > 1
            else nullcontext()
        )
        with grads, threads:
            ready = going_on = self._going_on(rows)
            if not all(map(self._is_ready, going_on)):
                ready = self._going_on(
                    self._prefilled(going_on)
                )  # a row may have been cancelled meanwhile
            return self._steps(ready)

    @torch.no_grad()
    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """After a failed step: roll caches and drafters back to what is committed."""
        for row in rows:
            self.slots[row].keep(len(row.token_ids) - 1)
        for row in rows:
            if row in self.drafter_of:
                self._call_drafter([row], partial(self.drafter_of[row].rewind, [row]))

    def propose(self, rows: Sequence[SequenceState]) -> Proposal:
        """Let each row's drafter propose, unless its grammar forces what follows; rows with
        nothing to draft get an empty window."""
        self._watch.draft()
        groups: dict[BatchDrafter | None, list[int]] = {}
        limits, forced = [], [self._forced(row) for row in rows]
        for index, row in enumerate(rows):
            drafter = self.drafter_of.get(row)
            limits.append(
                0 if drafter is None else min(row.window.max_drafts(len(rows)), drafter.room(row))
            )
            groups.setdefault(
                drafter if limits[index] > 0 and not forced[index] else None, []
            ).append(index)
        parts = []
        for drafter, members in groups.items():
            own, most = [rows[index] for index in members], [limits[index] for index in members]
            if drafter is None:
                windows = [forced[index] for index in members]
                certain = Proposal.certain(own, windows, self.vocab_size, self.device)
                parts.append(
                    certain._replace(
                        forced=[index for index, window in enumerate(windows) if window]
                    )
                )
                continue
            parts.append(drafter.propose(own, most))
            if type(drafter) not in OWN_DRAFTERS:
                check_proposal(parts[-1], own, most, self.vocab_size)
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
        self._watch.verify()
        view = self.target.view([self.slots[row] for row in rows])
        query = torch.cat(
            [on_device([[row.token_ids[-1]] for row in rows], self.device), draft.token_ids], dim=1
        )
        logits, features = self.target.compute(
            view, query, self._layers, [1 + length for length in draft.lengths]
        )
        return logits[..., : self.vocab_size], features

    def propose_tree(self, row: SequenceState) -> Tree | None:
        """Let a row's drafter propose a tree. None for a window: where a guide forces text,
        nothing can be drafted, or the nodes exceed a model's positions."""
        self._watch.draft()
        drafter: Any = self.drafter_of[row]
        depth = min(len(row.tree or ()), drafter.room(row))
        limits = [
            getattr(pool.model, "max_positions", None) for pool in (self.target, drafter.pool)
        ]
        fits = all(limit is None or len(row.token_ids) + MAX_NODES <= limit for limit in limits)
        if depth < 1 or not fits or self._forced(row):
            return None
        tree: Tree = drafter.propose_tree(row, (row.tree or ())[:depth])
        return tree if tree.token_ids else None  # it may lack every allowed token

    def score_tree(
        self, row: SequenceState, tree: Tree
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One forward of the target over a row's last token and the nodes of a tree; returns as
        `score`, with an index for each node after that of the text."""
        self._watch.verify()
        slot: Any = self.slots[row]
        view = TreeRows(
            slot.cache, slot.row, slot.num_tokens, [-1, *(parent + 1 for parent in tree.parents)]
        )
        logits, features = self.target.compute(
            view, [[row.token_ids[-1], *tree.token_ids]], self._layers
        )
        return logits[..., : self.vocab_size], features

    def _steps(self, rows: Sequence[SequenceState]) -> dict[SequenceState, StepRecord]:
        """A step for all rows that draft windows, and one for each that drafts trees."""
        records: dict[SequenceState, StepRecord] = {}
        groups = [
            [row for row in rows if row.tree is None],
            *([row] for row in rows if row.tree is not None),
        ]
        try:
            for group in filter(None, groups):
                self._watch.begin()
                self._step(self._in_order(group), records)
        except Exception as error:
            if records:
                raise PartialStepError(records, error) from error
            raise
        return records

    def _step(self, rows: list[SequenceState], records: dict[SequenceState, StepRecord]) -> None:
        """Make a step, and add what it did to each row that committed it."""
        happened = self._happened(rows)
        outcomes = observe(rows, happened, self.vocabulary)
        seconds = self._watch.stop()
        names = {row.drafter for row in rows if row in self.drafter_of}
        for name in names:
            learned = self.pair.learned_costs(name)
            learned.count(len(rows))
        if len(names) == 1 and not happened.draft.forced and happened.tree is None:
            drafting = (
                seconds.draft if happened.draft.copied_from is None else 0.0
            )  # what a model's drafts cost
            lengths = happened.draft.lengths
            accepted = [outcome.num_accepted for outcome in outcomes]
            judged = sum(
                min(count + 1, length) for count, length in zip(accepted, lengths, strict=True)
            )
            learned.learn(len(rows), max(lengths), drafting, seconds.verify, sum(accepted), judged)
        try:
            for row, outcome in zip(rows, outcomes, strict=True):
                outcome.draft_seconds, outcome.verify_seconds, outcome.total_seconds = seconds
                records[row] = row.commit(
                    outcome
                )  # prefix + x₁ … x_n + t, up to where the sequence ends
        finally:
            self._commit(rows, records, happened.features)

    def _happened(self, rows: Sequence[SequenceState]) -> Step:
        """Make a step: with a tree for a row that drafts trees, where one can be drafted."""
        tree = None if rows[0].tree is None else self.propose_tree(rows[0])
        if tree is None:
            return step(rows, self.propose, self.score)
        found, slot = tree_step(rows[0], tree, *self.score_tree(rows[0], tree)), self.slots[rows[0]]
        start, path = len(rows[0].token_ids), [] if found.tree is None else found.tree.path
        slot.cache.keep_path(slot.row, start, [start + node for node in path])  # type: ignore[attr-defined]
        return found

    def _commit(
        self, rows: Sequence[SequenceState], records: Records, features: torch.Tensor | None
    ) -> None:
        """Roll the target's cache back to what is committed, and let the drafters follow."""
        for row in rows:
            self.slots[row].keep(len(row.token_ids) - 1)
        for drafter in self.drafters.values():
            members = [
                index
                for index, row in enumerate(rows)
                if row in records and self.drafter_of.get(row) is drafter
            ]
            if members:
                own, seen = [rows[index] for index in members], None
                if features is not None and drafter.layers:
                    seen = (
                        features
                        if len(members) == len(rows)
                        else features[on_device(members, features.device)]
                    )
                    seen = self._own_layers(drafter, seen)
                self._call_drafter(
                    own, partial(drafter.commit, own, [records[row] for row in own], seen)
                )

    def _going_on(self, rows: Iterable[SequenceState]) -> list[SequenceState]:
        """End rows that were cancelled or have no room; returns those that go on."""
        going_on = []
        for row in rows:
            if row not in self.slots:
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

    def _in_order(self, rows: Sequence[SequenceState]) -> list[SequenceState]:
        """The rows in the order of their slots, which are first moved together, so that a
        forward covers one slice."""
        if len(rows) < 2:
            return list(rows)
        self.target.pack([self.slots[row] for row in rows])
        return sorted(rows, key=lambda row: self.slots[row].row)

    def _is_ready(self, row: SequenceState) -> bool:
        """Whether the caches hold everything that a step of this row needs."""
        if row.wants_prompt_logprobs or self.slots[row].num_tokens < len(row.token_ids) - 1:
            return False
        drafter = self.drafter_of.get(row)
        return drafter is None or drafter.room(row) <= 0 or drafter.ready(row)

    def _prefilled(self, rows: list[SequenceState]) -> list[SequenceState]:
        """Prefill a chunk of each prompt that is not in the caches yet; returns the rows that
        can be stepped."""
        waiting = [row for row in rows if not self._is_ready(row)]
        sources = {
            row: source
            for row in waiting
            if (source := self._source_of.get(row)) and source in rows
        }
        alone = self._portion([row for row in waiting if row not in sources])
        self._prefill(alone)
        forked = [row for row, source in sources.items() if self._is_ready(source)]
        for row in forked:
            self._fork(row, sources[row])
        for row in (*alone, *forked):
            self._source_of.pop(row, None)
        return [row for row in rows if self._is_ready(row)]

    def _portion(self, rows: list[SequenceState]) -> list[SequenceState]:
        """As many rows as one step prefills, so that many prompts at once do not make all wait
        for the last. Long prompts come last, except for every fourth portion, which begins with
        the row that waits longest. `rows`: any that are not ready, in the order of their
        arrival. In one forward all are padded to the longest."""
        most = slots.PREFILL_CHUNK * (1 if self.device.type == "cpu" else slots.CHUNKS_AT_ONCE)
        left = {
            row: min(len(row.token_ids) - self.slots[row].num_tokens, slots.PREFILL_CHUNK)
            for row in rows
        }
        portion: list[SequenceState] = []
        width = 0
        self._portions += 1
        if self._portions % 4:
            rows = sorted(rows, key=lambda row: left[row] == slots.PREFILL_CHUNK)
        for row in rows:
            width = max(width, left[row])
            if portion and width * (len(portion) + 1) > most:
                break
            portion.append(row)
        return portion

    def _prefill(self, rows: Sequence[SequenceState]) -> None:
        """Prefill the next chunk of each row, with the log-probabilities of its prompt if it
        wants them."""
        rows = self._in_order(rows)
        rest = []
        for row in rows:
            if row.wants_prompt_logprobs:
                self._prefill_with_logprobs(row)
            else:
                rest.append(row)
        chunk = self.target.feed(
            [self.slots[row] for row in rest], [row.token_ids for row in rest], self._layers
        )
        if chunk is not None and chunk.features:
            self._send_features(
                [rest[index] for index in chunk.places], chunk.starts, chunk.features
            )
        for drafter in self.drafters.values():
            if drafting := [
                row for row in rows if self.drafter_of.get(row) is drafter and drafter.room(row) > 0
            ]:
                drafter.prefill(drafting)

    def _prefill_with_logprobs(self, row: SequenceState) -> None:
        """Prefill the prompt's next chunk and collect the log-probabilities of the tokens that
        follow its positions."""
        prompt, slot = row.prompt_token_ids, self.slots[row]
        found = row.prompt_logprobs or [None]  # nothing predicts the first token
        known = len(found) - 1
        slot.keep(known)
        if chunk := prompt[known:-1][: slots.PREFILL_CHUNK]:
            logits, features = self.target.compute(self.target.view([slot]), [chunk], self._layers)
            following = on_device(prompt[known + 1 : known + 1 + len(chunk)], logits.device)
            scores = raw_logprobs(
                logits[0, :, : self.vocab_size], following, row.params.prompt_logprobs or 0
            )
            found += logprob_entries(to_lists(*scores), self.vocabulary)
            if features is not None:
                self._send_features([row], [known], [features[0]])
        row.prompt_logprobs = found

    def _fork(self, row: SequenceState, source: SequenceState) -> None:
        """Copy the prefill of another row with the same prompt."""
        row.prompt_logprobs = source.prompt_logprobs
        self.slots[row].copy_from(self.slots[source])
        self.slots[row].keep(len(row.token_ids) - 1)
        drafter = self.drafter_of.get(row)
        if drafter is not None and drafter is self.drafter_of.get(source):
            drafter.fork(row, source)

    def _drafter(self, name: str) -> BatchDrafter:
        if name not in self.drafters:
            self.drafters[name] = drafter_for(name, self.pair)(
                self.pair, self.vocab_size, self.device
            )
            self.drafters[name].earlier = self.earlier
        return self.drafters[name]

    def _forced(self, row: SequenceState) -> list[int]:
        """The tokens of the text that a row's grammar forces next, as far as its window reaches."""
        if row not in self.drafter_of or row.given_draft is not None:
            return []
        text = row.pipeline.forced_text(row.output_token_ids)
        found = self.vocabulary.continuing(text, row.token_ids) if text else []
        if max(found, default=0) >= self.vocab_size:  # a token that the target has no logit for
            return []
        return found[: max(0, min(row.window.limit, row.room - 1))]

    @staticmethod
    def _call_drafter(rows: Sequence[SequenceState], call: Callable[[], None]) -> None:
        """Call a drafter, which may be other people's code; where that fails, the rows that it
        no longer follows end."""
        try:
            call()
        except Exception as error:
            for row in rows:
                if not row.ended:
                    row.end(
                        FinishReason.ERROR,
                        f"drafter {row.drafter!r} failed: {type(error).__name__}: {error}",
                    )

    def _send_features(
        self, rows: Sequence[SequenceState], starts: list[int], features: Sequence[torch.Tensor]
    ) -> None:
        """Send the hidden states of prefilled chunks to the drafters that need them."""
        for drafter in self.drafters.values():
            members = [
                index for index, row in enumerate(rows) if self.drafter_of.get(row) is drafter
            ]
            if members and drafter.layers:
                own = [rows[index] for index in members]
                seen = [self._own_layers(drafter, features[index]) for index in members]
                self._call_drafter(
                    own, partial(drafter.observe, own, [starts[index] for index in members], seen)
                )

    def _own_layers(self, drafter: BatchDrafter, features: torch.Tensor) -> torch.Tensor:
        """A drafter's own layers of those that were computed."""
        layers = self._layers
        if list(drafter.layers) == layers:
            return features
        by_layer = features.chunk(len(layers), dim=-1)
        return torch.cat([by_layer[layers.index(layer)] for layer in drafter.layers], dim=-1)

    @property
    def _layers(self) -> list[int]:
        """The target's layers that drafters of its rows need."""
        return sorted(
            {layer for drafter in set(self.drafter_of.values()) for layer in drafter.layers}
        )
