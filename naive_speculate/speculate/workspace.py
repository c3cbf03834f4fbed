"""Where rows that are decoded together live: the target's cache, the drafters, and a forward over both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from naive_speculate.events.event import FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.infer import slots
from naive_speculate.infer.device import Tokens, on_device
from naive_speculate.infer.slots import Slot, SlotPool
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.arrays import Numbers, as_tensor
from naive_speculate.speculate.draft import OWN_DRAFTERS, BatchDrafter, Draft, Proposal, check_proposal, drafter_for, merge
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.logprobs import raw_logprobs
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.stopwatch import Stopwatch
from naive_speculate.text import Vocabulary


class Workspace:
    """Rows' places in the target's cache, and their drafters, some of which draft from outputs of earlier runs.

    Attributes:
        slots: Each row's place in the target's cache.
        drafters: By name, those that any row has asked for.
        drafter_of: What drafts for a row; rows that are decoded plainly are not in it.
        watch: Times the step that is being made.
    """

    def __init__(self, pair: ModelPair, vocabulary: Vocabulary, earlier: EarlierOutputs | None = None) -> None:
        self.pair = pair
        self.vocabulary = vocabulary
        self.vocab_size = pair.vocab_size
        self.earlier = earlier
        self.target = SlotPool(pair.target)
        self.device = self.target.model.device
        self._on_cpu = self.device.type == "cpu"
        self.watch = Stopwatch(self.device)
        self._no_drafts: dict[int, torch.Tensor] = {}
        self.drafters: dict[str, BatchDrafter] = {}
        self.slots: dict[SequenceState, Slot] = {}
        self.drafter_of: dict[SequenceState, BatchDrafter] = {}
        self._checked: set[SequenceState] = set()  # rows of registered drafters, once a whole proposal was checked

    def __contains__(self, row: SequenceState) -> bool:
        return row in self.slots

    def allocate(self, rows: Sequence[SequenceState]) -> None:
        """Give rows their places: all or, if that fails, none."""
        try:
            for row in rows:
                self.slots[row] = self.target.allocate()
                if row.window.drafts:
                    drafter = self._drafter(row.drafter)
                    drafter.admit(row)
                    self.drafter_of[row] = drafter
        except Exception:
            self.free(rows)
            raise

    def free(self, rows: Iterable[SequenceState]) -> None:
        """Free rows' places; rows without one are left alone."""
        for row in rows:
            self._checked.discard(row)
            if row in self.slots:
                self.target.free(self.slots.pop(row))
            if row in self.drafter_of:
                self._tell([row], partial(self.drafter_of.pop(row).release, row))

    def is_ready(self, row: SequenceState) -> bool:
        """Whether all of it is in the caches that a step needs there."""
        if row.wants_prompt_logprobs:
            return False
        if self.slots[row].num_tokens < len(row.token_ids) - 1:
            return False
        drafter = self.drafter_of.get(row)
        return drafter is None or drafter.room(row) <= 0 or drafter.ready(row)

    def prefill(self, rows: Sequence[SequenceState]) -> None:
        """Take in the next chunk of each row, and the log-probabilities of its prompt where they are asked for."""
        rows = self.in_order(rows)
        scored = [row for row in rows if row.wants_prompt_logprobs]
        for row in scored:
            self._read_prompt(row)
        rest = [row for row in rows if row not in scored]
        chunk = self.target.feed([self.slots[row] for row in rest], [row.token_ids for row in rest], self._layers(rest))
        if chunk is not None and chunk.features:
            self._show([rest[place] for place in chunk.places], rest, chunk.starts, chunk.features)
        for drafter in self.drafters.values():
            if drafting := [row for row in rows if self.drafter_of.get(row) is drafter and drafter.room(row) > 0]:
                drafter.prefill(drafting)

    def fork(self, row: SequenceState, source: SequenceState) -> None:
        """Copy a prompt that another row has taken in."""
        row.prompt_logprobs = source.prompt_logprobs
        self.slots[row].copy_from(self.slots[source])
        self.slots[row].keep(len(row.token_ids) - 1)
        drafter = self.drafter_of.get(row)
        if drafter is not None and drafter is self.drafter_of.get(source):
            drafter.fork(row, source)

    def in_order(self, rows: Sequence[SequenceState]) -> list[SequenceState]:
        """The rows in the order of their places, which are moved together first: so a forward is over one slice."""
        if len(rows) < 2:
            return list(rows)
        self.target.pack([self.slots[row] for row in rows])
        return sorted(rows, key=lambda row: self.slots[row].row)

    def propose(self, rows: Sequence[SequenceState]) -> Draft:
        """Let each row's drafter propose; rows with nothing to draft get an empty window."""
        self.watch.draft()
        if not self.drafter_of:
            return Draft(*self._nothing(len(rows)), [[] for _ in rows])
        found = self._proposed(rows)
        return Draft(*found, found.token_ids.tolist() if self._on_cpu else None)

    def _proposed(self, rows: Sequence[SequenceState]) -> Proposal:
        groups: dict[BatchDrafter | None, list[int]] = {}
        limits = [0] * len(rows)
        for place, row in enumerate(rows):
            drafter = self.drafter_of.get(row)
            if drafter is not None:
                limits[place] = min(row.window.max_drafts(), drafter.room(row))
            groups.setdefault(drafter if limits[place] > 0 else None, []).append(place)
        parts = []
        for drafter, places in groups.items():
            if drafter is None:
                parts.append(self._nothing(len(places)))
            else:
                parts.append(self._proposal(drafter, [rows[place] for place in places], [limits[place] for place in places]))
        return parts[0] if len(parts) == 1 else merge(parts, list(groups.values()), self.vocab_size)

    def score(self, rows: Sequence[SequenceState], draft: Draft) -> tuple[Numbers, Numbers | None]:
        """One forward of the target over each row's last token and its drafts.

        Args:
            rows: Prefilled rows, in the order of their places.
            draft: Their windows.

        Returns:
            tuple: Logits, shape `[batch_size, k + 1, vocab_size]`; place i judges draft i, the last gives the bonus token. And
                features: the hidden states at these places of all layers that the rows' drafters want to see, side by side,
                shape `[batch_size, k + 1, number of layers * hidden_size]`; None where none wants any.
        """
        self.watch.verify()
        places = self.target.view([self.slots[row] for row in rows])
        lengths = [1 + length for length in draft.lengths]
        logits, features = self.target.compute(places, self._query(rows, draft), self._layers(rows), lengths)
        return logits if logits.shape[-1] == self.vocab_size else logits[..., : self.vocab_size], features

    def commit(
        self, rows: Sequence[SequenceState], records: Mapping[SequenceState, StepRecord], features: Numbers | None
    ) -> None:
        """Roll the caches back to what is committed, and tell the drafters what that is.

        Args:
            rows: As for `score`.
            records: What the step did to each that was committed.
            features: What `score` returned; each drafter is given its own rows and layers of them.
        """
        for row in rows:
            self.slots[row].keep(len(row.token_ids) - 1)
        for drafter in self.drafters.values():
            places = [place for place, row in enumerate(rows) if row in records and self.drafter_of.get(row) is drafter]
            if places:
                members, seen = [rows[place] for place in places], None
                if features is not None:
                    own = features if len(places) == len(rows) else _of_rows(features, places)
                    seen = self._seen(drafter, rows, own)
                self._tell(members, partial(drafter.commit, members, [records[row] for row in members], seen))

    def rewind(self, rows: Sequence[SequenceState]) -> None:
        """A step failed: roll everything back to what was committed before or by it."""
        for row in rows:
            self.slots[row].keep(len(row.token_ids) - 1)
        for row in rows:
            if row in self.drafter_of:
                self._tell([row], partial(self.drafter_of[row].rewind, [row]))

    @staticmethod
    def _tell(rows: Sequence[SequenceState], call: Callable[[], None]) -> None:
        """Call a drafter, which may be somebody else's; where that fails, the rows that it no longer follows end."""
        try:
            call()
        except Exception as error:
            for row in rows:
                if not row.ended:
                    row.end(FinishReason.ERROR, f"drafter {row.drafter!r} failed: {type(error).__name__}: {error}")

    def _show(
        self, fed: Sequence[SequenceState], rows: Sequence[SequenceState], starts: list[int], features: Sequence[Numbers]
    ) -> None:
        """Hand hidden states of the rows that the target was fed a chunk of to the drafters that want to see them (`Chunk`);
        `rows` are those whose drafters' layers were asked for."""
        for drafter in self.drafters.values():
            places = [place for place, row in enumerate(fed) if self.drafter_of.get(row) is drafter]
            if places and drafter.layers:
                members = [fed[place] for place in places]
                seen = [self._seen(drafter, rows, features[place]) for place in places]
                self._tell(members, partial(drafter.observe, members, [starts[place] for place in places], seen))

    def _seen(self, drafter: BatchDrafter, rows: Sequence[SequenceState], features: Numbers) -> Any:
        """A drafter's own layers of those that the rows' drafters want to see; None where it wants none. Drafters of others get
        tensors."""
        if not drafter.layers:
            return None
        wanted = self._layers(rows)
        if list(drafter.layers) == wanted:
            return features if type(drafter) in OWN_DRAFTERS else as_tensor(features)
        by_layer = as_tensor(features).chunk(len(wanted), dim=-1)
        return torch.cat([by_layer[wanted.index(layer)] for layer in drafter.layers], dim=-1)

    def _layers(self, rows: Sequence[SequenceState]) -> list[int]:
        """The target's layers that the rows' drafters want to see."""
        if not any(drafter.layers for drafter in self.drafters.values()):
            return []
        drafters = {drafter for row in rows if (drafter := self.drafter_of.get(row)) is not None}
        return sorted({layer for drafter in drafters for layer in drafter.layers})

    def _query(self, rows: Sequence[SequenceState], draft: Draft) -> Tokens:
        """Each row's last token and its drafts."""
        if draft.windows is not None:
            return [[row.token_ids[-1], *window] for row, window in zip(rows, draft.windows, strict=True)]
        last = on_device([[row.token_ids[-1]] for row in rows], self.device)
        return torch.cat([last, draft.token_ids], dim=1) if draft.token_ids.shape[1] else last

    def _nothing(self, count: int) -> Proposal:
        """Empty windows of so many rows."""
        if count not in self._no_drafts:
            self._no_drafts[count] = torch.zeros(count, 0, dtype=torch.int64, device=self.device)
        return Proposal(self._no_drafts[count], None, [0] * count)

    def _proposal(self, drafter: BatchDrafter, rows: list[SequenceState], limits: list[int]) -> Proposal:
        proposal = drafter.propose(rows, limits)
        if type(drafter) not in OWN_DRAFTERS:
            proposing = {row for row, length in zip(rows, proposal.lengths, strict=False) if length > 0}
            whole = len(proposal.lengths) != len(rows) or not proposing <= self._checked
            check_proposal(rows[0].drafter, proposal, rows, limits, self.vocab_size, whole)
            self._checked |= proposing
        return proposal

    def _drafter(self, name: str) -> BatchDrafter:
        if name not in self.drafters:
            self.drafters[name] = drafter_for(name, self.pair)(self.pair, self.vocab_size, self.device)
            self.drafters[name].earlier = self.earlier
        return self.drafters[name]

    def _read_prompt(self, row: SequenceState) -> None:
        """Take in the prompt's next chunk and collect the log-probabilities of the tokens after its places."""
        prompt, slot = row.prompt_token_ids, self.slots[row]
        found = row.prompt_logprobs or [None]  # nothing predicts the first token
        known = len(found) - 1
        slot.keep(known)
        if chunk := prompt[known:-1][: slots.PREFILL_CHUNK]:
            logits, features = self.target.compute(self.target.view([slot]), [chunk], self._layers([row]))
            following = prompt[known + 1 : known + 1 + len(chunk)]
            scores = as_tensor(logits)[0, :, : self.vocab_size]
            found += raw_logprobs(scores, following, row.params.prompt_logprobs or 0, self.vocabulary)
            if features is not None:
                self._show([row], [row], [known], [features[0]])
        row.prompt_logprobs = found


def _of_rows(features: Numbers, places: list[int]) -> Numbers:
    return features[on_device(places, features.device)] if isinstance(features, torch.Tensor) else features[places]
