"""The speculative decoder.

`step` is Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192) for a batch: draft, score, verify, roll back, emit. Everything
else calls it: `stream` steps one sequence, `generate` one or many, a server adds and drops sequences between steps. Plain
autoregressive decoding is the same step without drafts.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Any, overload

import torch

from naive_speculate.events import Event, FinishReason
from naive_speculate.infer.cores import one_torch_thread
from naive_speculate.models import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.admission import Admission
from naive_speculate.speculate.judge import rule_of, verify
from naive_speculate.speculate.proposal import ModelProposer, PromptLookupProposer, Proposal, check_proposal, merge
from naive_speculate.speculate.record import StepRecord, make_records
from naive_speculate.speculate.request import Prompt, as_params, as_prompts
from naive_speculate.speculate.result import GenerationResult, collect
from naive_speculate.speculate.scorer import raw_logprobs
from naive_speculate.speculate.sequence import CancelFlag, Detail, Logprob, Sequence
from naive_speculate.speculate.stopwatch import Stopwatch
from naive_speculate.speculate.verifiers import VERIFIERS, VerifyStrategy
from naive_speculate.speculate.window import FixedWindow
from naive_speculate.speculate.workspace import Workspace


class SpeculativeDecoder(Admission):
    """Decodes with a pair of models.

    Several threads may call `stream` and `generate` at once; they share the models and nothing else.

    Args:
        pair: Target and draft; see `load_pair`.
    """

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        self._by_onnx = getattr(pair.target, "executor", None) == "onnx"
        self._draft_positions: int | None = getattr(pair.draft, "max_positions", None)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        num_draft_tokens: int | str = 5,
        verify_strategy: VerifyStrategy | str = VerifyStrategy.SPECULATIVE_SAMPLING,
        drafter: str = "model",
        detail: Detail = "full",
        cancel: CancelFlag | None = None,
    ) -> Iterator[Event]:
        """Decode one prompt and yield its events as they happen.

        Args:
            prompt: Text, or token ids.
            params: How tokens are chosen and when generation ends.
            num_draft_tokens: Tokens to draft a step, 0 for plain decoding, or "auto".
            verify_strategy: How drafts are judged.
            drafter: "model" or "prompt_lookup".
            detail: "full" events carry probabilities and the most probable tokens, "probs" only probabilities, "none" neither.
            cancel: A `threading.Event`, or the like; set it to end the run; the last event is then `finished` with `cancelled`.

        Yields:
            Event: From `started` to `finished`.

        Raises:
            ValueError: Before anything is yielded, naming the argument and what was given. If a step fails, the run's last
                event says so and the failure is raised after it.
        """
        params = params or SamplingParams()
        if params.num_sequences > 1:
            raise ValueError(f"n must be 1 to stream, got n={params.n} and best_of={params.best_of}; use generate")
        sequence, started = self.new_sequence(
            prompt,
            params,
            num_draft_tokens=num_draft_tokens,
            verify_strategy=verify_strategy,
            drafter=drafter,
            detail=detail,
            cancel=cancel,
        )
        return self._run(sequence, started)

    @overload
    def generate(
        self,
        prompt: str | list[int],
        params: SamplingParams | None = None,
        **options: Any,
    ) -> GenerationResult: ...

    @overload
    def generate(
        self,
        prompt: list[str] | list[list[int]],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        **options: Any,
    ) -> list[GenerationResult]: ...

    def generate(
        self,
        prompt: str | Seq[int] | Seq[str] | Seq[Seq[int]],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        **options: Any,
    ) -> GenerationResult | list[GenerationResult]:
        """Decode one prompt, or a list of prompts as one batch.

        Args:
            prompt: Text or token ids; or a list of either.
            params: One for all, or a list with one a prompt.
            **options: As for `stream`.

        Returns:
            The result, or a list of them. With n > 1 a result is the most probable sequence's, and `outputs` has all n.

        Raises:
            ValueError: Naming the argument and what was given, before any model runs.
        """
        prompts, single = as_prompts(prompt)
        every = as_params(params, len(prompts))
        workspace = self.new_workspace()
        groups: list[list[Sequence]] = []
        for text, one in zip(prompts, every, strict=True):
            groups.append(self.prepare_group(text, one, first_row=sum(map(len, groups)), **options))
        running = [sequence for group in groups for sequence in group]
        events = [event for sequence in running for event in self.place(sequence, workspace)]
        try:
            for group in groups:
                self.share_prefill(group)
            while running:
                events += self.step(running)
                for sequence in [sequence for sequence in running if sequence.finish_reason is not None]:
                    running.remove(sequence)
                    workspace.release(sequence)
        finally:
            for sequence in running:
                workspace.release(sequence)
        results = collect(groups, events)
        return results[0] if single else results

    def step(self, sequences: Seq[Sequence]) -> list[Event]:
        """Make one speculative step for every sequence that has not finished.

        Args:
            sequences: Sequences of one workspace, at any point of their decoding.

        Returns:
            list[Event]: What happened, sequence by sequence. Beside others, a sequence with a long prompt has nothing to tell
                until all of it was taken in, a chunk a step.

        Raises:
            ValueError: If the sequences live in different workspaces.
        """
        told: dict[Sequence, list[Event]] = {sequence: [] for sequence in sequences}
        self.advance(told)
        return [event for events in told.values() for event in events]

    @torch.no_grad()  # models of others may have parameters that want gradients
    def advance(self, told: dict[Sequence, list[Event]]) -> None:
        """The same, for callers that must know whose events are whose, even when something fails half-way.

        Args:
            told: The sequences, each with a list that its events are appended to.

        Raises:
            ValueError: If the sequences live in different workspaces.
        """
        if len({id(sequence.workspace) for sequence in told}) > 1:
            raise ValueError("sequences must be of one workspace to be stepped together")
        if self._by_onnx:
            with one_torch_thread():
                self._advance(told)
        else:
            self._advance(told)

    def _advance(self, told: dict[Sequence, list[Event]]) -> None:
        active = self._without_ended([sequence for sequence in told if sequence.finish_reason is None], told)
        if not active:
            return
        workspace = active[0].workspace
        active = workspace.in_order(active)
        watch = Stopwatch(self.device)
        ready = self._prefill(workspace, active)
        active = self._without_ended(active, told)  # a long prompt may have been cancelled
        if ready is not None:
            active = [sequence for sequence in active if sequence in ready]
        if not active:
            return

        watch.start("draft")
        proposal = self._draft(workspace, active)
        watch.start("verify")
        logits = workspace.scorer.score(active, proposal.token_ids)
        verdict, next_token_ids, uniforms, target_probs, num_usable = verify(active, proposal, logits)
        records = make_records(
            active, proposal, verdict, next_token_ids, uniforms, target_probs, num_usable, self.vocabulary
        )  # the one place that waits for the device
        watch.stop()
        draft_seconds, verify_seconds, total_seconds = watch.seconds("draft"), watch.seconds("verify"), watch.total_seconds()
        for row, (sequence, record) in enumerate(zip(active, records, strict=True)):
            record.draft_seconds, record.verify_seconds, record.total_seconds = draft_seconds, verify_seconds, total_seconds
            told[sequence] += self._commit(sequence, record, logits[row])

    def _prefill(self, workspace: Workspace, sequences: list[Sequence]) -> set[Sequence] | None:
        """Take a chunk of each prompt in that is not in the caches yet; returns who can be stepped, None if all can.

        A long prompt thus keeps the sequences beside it waiting for one chunk a step.
        """
        behind = [s for s in sequences if not (s.cancelled or self._is_ready(workspace, s))]
        if not behind:
            return None
        feeding = [s for s in behind if s.leader not in sequences or s.leader.finish_reason is not None]
        workspace.scorer.prefill(feeding)
        for name, proposer in workspace.proposers.items():
            if drafting := [s for s in feeding if s.drafter == name and self._can_draft(s)]:
                proposer.prefill(drafting)
        for sequence in behind:
            leader = sequence.leader
            if leader is not None and leader.finish_reason is None and self._is_ready(workspace, leader):
                _take_over(sequence, leader)
        return {s for s in sequences if self._is_ready(workspace, s)}

    def _is_ready(self, workspace: Workspace, sequence: Sequence) -> bool:
        if not workspace.scorer.ready(sequence):
            return False
        return not self._can_draft(sequence) or workspace.proposers[sequence.drafter].ready(sequence)

    def _draft(self, workspace: Workspace, sequences: list[Sequence]) -> Proposal:
        """Let each sequence's drafter propose; sequences with nothing to draft get an empty window."""
        limits = [min(s.window.begin(), self._draft_room(s)) for s in sequences]
        nothing = torch.zeros(len(sequences), 0, dtype=torch.int64, device=self.device)
        parts, rows = [], []
        idle = [row for row, limit in enumerate(limits) if limit <= 0]
        if idle:
            parts.append(Proposal(nothing[: len(idle)], None, [0] * len(idle)))
            rows.append(idle)
        for name, proposer in workspace.proposers.items():
            members = [row for row, s in enumerate(sequences) if s.drafter == name and limits[row] > 0]
            if members:
                group, room = [sequences[row] for row in members], [limits[row] for row in members]
                part = proposer.propose(group, room)
                if type(proposer) not in (ModelProposer, PromptLookupProposer):
                    check_proposal(name, part, group, room, self.vocab_size)
                parts.append(part)
                rows.append(members)
        return parts[0] if len(parts) == 1 else merge(parts, rows, self.vocab_size)

    def _commit(self, sequence: Sequence, record: StepRecord, logits: torch.Tensor) -> list[Event]:
        """Take the step's tokens into the sequence, roll the caches back to them, and tell what happened."""
        record.time = sequence.emitter.clock()
        rule = rule_of(sequence)
        record.judges_all = VERIFIERS[rule].judges_all
        if not VERIFIERS[rule].needs_uniforms:
            record.uniforms = None
        if rule != VerifyStrategy.TYPICAL_ACCEPTANCE:
            record.thresholds = None
        tokens = record.tokens
        if not tokens:
            return self._give_up(sequence, logits[0])
        found: list[dict[int, Logprob]] = []
        if sequence.wants_logprobs:  # first, since what fails before anything is told can be tried again
            found = raw_logprobs(logits[: len(tokens)], tokens, sequence.params.logprobs or 0, self.vocabulary)
        events, kept, finish = sequence.emitter.step(sequence.step, record, sequence.room)
        sequence.step += 1
        tokens, found = tokens[:kept], found[:kept]
        if found:
            sequence.logprobs += found
            sequence.cumulative_logprob += sum(entry[token].logprob for entry, token in zip(found, tokens, strict=True))
        committed = min(len(sequence.token_ids) + record.num_accepted, len(sequence.token_ids) + kept)
        sequence.token_ids += tokens
        sequence.target_slot.keep(committed)
        if sequence.draft_slot is not None:
            sequence.draft_slot.keep(committed)
        sequence.window.learn(record.num_accepted, min(record.num_accepted + 1, len(record.drafts)))
        if finish is not None:
            return events + self.finish(sequence, finish)
        return events + self._give_up(sequence, logits[record.num_accepted]) if record.stuck else events

    def _give_up(self, sequence: Sequence, logits: torch.Tensor) -> list[Event]:
        """End a sequence whose next token cannot be drawn from anything, and say why."""
        history = sequence.output_token_ids
        why = sequence.pipeline.why_none(logits, history)
        return self.finish(sequence, FinishReason.ERROR, f"no token can be chosen at position {len(history)}: {why}")

    def finish(self, sequence: Sequence, reason: FinishReason, message: str | None = None) -> list[Event]:
        """End a sequence; returns its last events."""
        sequence.finish_reason = reason
        events = sequence.emitter.finished(reason, message)
        sequence.drop_behind(sequence.emitter.num_kept)
        return events

    def _without_ended(self, sequences: list[Sequence], told: dict[Sequence, list[Event]]) -> list[Sequence]:
        """End the sequences that were cancelled or have no room, and tell so; returns the rest."""
        rest = []
        for sequence in sequences:
            if sequence.cancelled:
                told[sequence] += self.finish(sequence, FinishReason.CANCELLED)
            elif sequence.room <= 0:
                told[sequence] += self.finish(sequence, FinishReason.LENGTH)
            else:
                rest.append(sequence)
        return rest

    def _run(self, sequence: Sequence, started: list[Event]) -> Iterator[Event]:
        try:
            yield from started
            while sequence.finish_reason is None:
                yield from self.step([sequence])
        except Exception as error:
            if sequence.finish_reason is None:
                yield from self.finish(sequence, FinishReason.ERROR, f"{type(error).__name__}: {error}")
            raise
        finally:
            sequence.workspace.release(sequence)

    def share_prefill(self, group: list[Sequence]) -> None:
        """Let the first of the sequences that share a prompt take it in for all: the others copy its caches."""
        first, *rest = group
        if len(first.prompt_token_ids) > 1 and first.room > 0:
            for sequence in rest:
                sequence.leader = first

    def _draft_room(self, sequence: Sequence) -> int:
        room = sequence.room - 1
        if sequence.drafter == "model" and self._draft_positions is not None:
            room = min(room, self._draft_positions - len(sequence.token_ids))
        return room

    def _can_draft(self, sequence: Sequence) -> bool:
        plain = isinstance(sequence.window, FixedWindow) and sequence.window.limit == 0
        return not plain and self._draft_room(sequence) > 0


def _take_over(sequence: Sequence, leader: Sequence) -> None:
    """Copy the caches of a prompt from the sequence that has taken it in."""
    known = len(sequence.prompt_token_ids) - 1
    sequence.leader = None
    sequence.prompt_logprobs = leader.prompt_logprobs
    sequence.target_slot.copy_from(leader.target_slot)
    sequence.target_slot.keep(known)
    if sequence.draft_slot is not None and leader.draft_slot is not None and leader.draft_slot.num_tokens:
        sequence.draft_slot.copy_from(leader.draft_slot)
        sequence.draft_slot.keep(known)
