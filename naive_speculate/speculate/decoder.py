"""The speculative decoder.

`step` is Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192) for a batch: draft, score, verify, roll back, emit. Everything
else calls it: `stream` steps one sequence, `generate` one or many, a server adds and drops sequences between steps. Plain
autoregressive decoding is the same step without drafts.
"""

import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from threading import Event as CancelEvent
from typing import Any, overload

import torch

from naive_speculate.events import Event, FinishReason
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.models import ModelPair
from naive_speculate.sampling.guided import GrammarCompiler, GuidedDecodingParams
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.emitter import Emitter
from naive_speculate.speculate.proposal import DRAFTERS, Proposal, batch_probabilities, batch_scores, merge
from naive_speculate.speculate.record import StepRecord, make_records
from naive_speculate.speculate.result import GenerationResult, collect
from naive_speculate.speculate.scorer import raw_logprobs
from naive_speculate.speculate.sequence import Detail, Sequence
from naive_speculate.speculate.stopwatch import Stopwatch
from naive_speculate.speculate.rules import Verdict
from naive_speculate.speculate.verifiers import VERIFIERS, VerifyStrategy
from naive_speculate.speculate.window import AutoWindow, FixedWindow
from naive_speculate.speculate.workspace import Workspace
from naive_speculate.text import Vocabulary

MAX_DRAFT_TOKENS = 64
Prompt = str | Seq[int]


class SpeculativeDecoder:
    """Decodes with a pair of models.

    Several threads may call `stream` and `generate` at once; they share the models and nothing else.

    Args:
        pair: Target and draft; see `load_pair`.
    """

    def __init__(self, pair: ModelPair) -> None:
        self.pair = pair
        self.vocabulary = Vocabulary(pair.tokenizer)
        self.vocab_size = pair.vocab_size
        self.device: torch.device = getattr(pair.target, "device", torch.device("cpu"))
        self.eos_token_ids = eos_token_ids(pair.target)
        self.max_positions: int | None = getattr(pair.target, "max_positions", None)
        self._draft_positions: int | None = getattr(pair.draft, "max_positions", None)
        self._grammars: GrammarCompiler | None = None

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        num_draft_tokens: int | str = 5,
        verify_strategy: VerifyStrategy | str = VerifyStrategy.SPECULATIVE_SAMPLING,
        drafter: str = "model",
        detail: Detail = "full",
        cancel: CancelEvent | None = None,
    ) -> Iterator[Event]:
        """Decode one prompt and yield its events as they happen.

        Args:
            prompt: Text, or token ids.
            params: How tokens are chosen and when generation ends.
            num_draft_tokens: Tokens to draft a step, 0 for plain decoding, or "auto".
            verify_strategy: How drafts are judged.
            drafter: "model" or "prompt_lookup".
            detail: "full" events carry probabilities and the most probable tokens, "probs" only probabilities, "none" neither.
            cancel: Set it to end the run; the last event is then `finished` with `cancelled`.

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
        prompts, single = _as_prompts(prompt)
        every = _as_params(params, len(prompts))
        workspace = self.new_workspace()
        groups: list[list[Sequence]] = []
        events: list[Event] = []
        try:
            for text, one in zip(prompts, every, strict=True):
                group: list[Sequence] = []
                groups.append(group)
                seed = one.seed if one.seed is not None else fresh_seed()
                for index in range(one.num_sequences):
                    sequence, started = self.new_sequence(
                        text,
                        one,
                        **options,
                        workspace=workspace,
                        row=sum(map(len, groups)),
                        random_source=SeededRandom(seed, index, self.device),
                        seed=seed,
                    )
                    group.append(sequence)
                    events += started
            for group in groups:
                self._share_prefill(group)
            running = [sequence for group in groups for sequence in group]
            while running:
                events += self.step(running)
                running = [sequence for sequence in running if sequence.finish_reason is None]
        finally:
            for group in groups:
                for sequence in group:
                    workspace.release(sequence)
        results = collect(groups, events)
        return results[0] if single else results

    def new_workspace(self) -> Workspace:
        """Caches for sequences that are to be stepped together."""
        return Workspace(self.pair, self.vocab_size, self.vocabulary, self.device)

    def new_sequence(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        num_draft_tokens: int | str = 5,
        verify_strategy: VerifyStrategy | str = VerifyStrategy.SPECULATIVE_SAMPLING,
        drafter: str = "model",
        detail: Detail = "full",
        cancel: CancelEvent | None = None,
        workspace: Workspace | None = None,
        row: int = 0,
        random_source: RandomSource | None = None,
        seed: int | None = None,
    ) -> tuple[Sequence, list[Event]]:
        """Make a sequence that `step` can take; `Workspace.release` frees its place.

        Args:
            prompt, params, num_draft_tokens, verify_strategy, drafter, detail, cancel: As for `stream`.
            workspace: Whose caches to use; by default one of its own.
            row: The number that its events carry.
            random_source: Where its draws come from; by default a source seeded by the parameters.
            seed: The seed to report, where `random_source` was made from it.

        Returns:
            tuple: The sequence and its first events.

        Raises:
            ValueError: Naming the argument and what was given.
        """
        params = params or SamplingParams()
        strategy = _choice("verify_strategy", verify_strategy, VerifyStrategy)
        window_size = _check_window(num_draft_tokens)
        if detail not in ("full", "probs", "none"):
            raise ValueError(f"detail must be 'full', 'probs' or 'none', got {detail!r}")
        if drafter not in DRAFTERS:
            raise ValueError(f"drafter must be one of {', '.join(DRAFTERS)}, got {drafter!r}")
        if drafter == "model" and self.pair.draft is None and window_size != 0:
            raise ValueError("drafter is 'model', but this pair has no draft model; use 'prompt_lookup'")
        token_ids = self.encode(prompt, params)
        seed = seed if seed is not None else params.seed if params.seed is not None else fresh_seed()
        stops = frozenset(params.stop_token_ids) | frozenset(() if params.ignore_eos else self.eos_token_ids)
        pipeline = LogitsPipeline(
            params,
            token_ids,
            self.vocab_size,
            sorted(stops | frozenset(self.eos_token_ids)),
            self.vocabulary.bad_word_sequences(params.bad_words) if params.bad_words else (),
            self._grammar(params).compile(params.guided_decoding)
            if isinstance(params.guided_decoding, GuidedDecodingParams)
            else None,
        )
        costs = self.pair.costs(drafter)
        limit = len(token_ids) + params.max_tokens
        workspace = workspace or self.new_workspace()
        began = time.perf_counter()
        emitter = Emitter(row, self.vocabulary, params, token_ids, stops, lambda: time.perf_counter() - began)
        sequence = Sequence(
            row=row,
            prompt_token_ids=token_ids,
            token_ids=list(token_ids),
            params=params,
            strategy=strategy,
            drafter=drafter,
            window=AutoWindow(costs) if window_size is None else FixedWindow(window_size),
            detail=detail,
            random=random_source or SeededRandom(seed, 0, self.device),
            pipeline=pipeline,
            stop_token_ids=stops,
            max_length=limit if self.max_positions is None else min(limit, self.max_positions),
            target_slot=workspace.target.take(),
            draft_slot=None if workspace.draft is None else workspace.draft.take(),
            emitter=emitter,
            workspace=workspace,
            cancel=cancel,
        )
        settings = params.to_dict() | {
            "num_draft_tokens": num_draft_tokens,
            "verify_strategy": strategy.value,
            "drafter": drafter,
            "detail": detail,
            "lossy": VERIFIERS[strategy].lossy and not params.greedy,
        }
        started = emitter.started(
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=token_ids,
            prompt_texts=self.vocabulary.texts(token_ids),
            settings=settings,
            seed=seed,
            models=self.pair.names,
            device=str(self.device),
            cost_table=costs.to_dict() if window_size is None else None,
        )
        return sequence, started

    def encode(self, prompt: Prompt, params: SamplingParams | None = None) -> list[int]:
        """Token ids of a prompt, checked.

        Raises:
            ValueError: If it is empty, not in the vocabulary, or longer than the model's positions.
        """
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError("prompt is empty")
            token_ids = self.vocabulary.encode(prompt)
        else:
            token_ids = list(prompt)
            for token in token_ids:
                if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.vocab_size:
                    raise ValueError(f"prompt holds {token!r}, expected token ids from 0 to {self.vocab_size - 1}")
        if params is not None and params.truncate_prompt_tokens is not None:
            token_ids = token_ids[-params.truncate_prompt_tokens :]
        if not token_ids:
            raise ValueError("prompt is empty: it has no tokens")
        if self.max_positions is not None and len(token_ids) > self.max_positions:
            surplus = len(token_ids) - self.max_positions
            raise ValueError(
                f"prompt has {len(token_ids)} tokens, {surplus} more than the {self.max_positions} that the model can take"
            )
        return token_ids

    def step(self, sequences: Seq[Sequence]) -> list[Event]:
        """Make one speculative step for every sequence that has not finished.

        Args:
            sequences: Sequences of one workspace, at any point of their decoding.

        Returns:
            list[Event]: What happened, sequence by sequence.

        Raises:
            ValueError: If the sequences live in different workspaces.
        """
        if len({id(sequence.workspace) for sequence in sequences}) > 1:
            raise ValueError("sequences must be of one workspace to be stepped together")
        events, active = self._without_ended([s for s in sequences if s.finish_reason is None])
        if not active:
            return events
        workspace = active[0].workspace
        watch = Stopwatch(self.device)
        self._prefill(workspace, active)
        ended, active = self._without_ended(active)  # a long prompt may have been cancelled
        events += ended
        if not active:
            return events

        watch.start("draft")
        proposal = self._draft(workspace, active)
        watch.start("verify")
        logits = workspace.scorer.score(active, proposal.token_ids)
        verdict, next_token_ids, uniforms, target_probs = self._verify(active, proposal, logits)
        records = make_records(
            active, proposal, verdict, next_token_ids, uniforms, target_probs, self.vocabulary
        )  # the one place that waits for the device
        watch.stop()
        for row, (sequence, record) in enumerate(zip(active, records, strict=True)):
            record.draft_seconds, record.verify_seconds = watch.seconds("draft"), watch.seconds("verify")
            record.total_seconds = watch.total_seconds()
            events += self._commit(sequence, record, logits[row])
        return events

    def _prefill(self, workspace: Workspace, sequences: list[Sequence]) -> None:
        def all_cancelled() -> bool:
            return all(sequence.cancelled for sequence in sequences)

        workspace.scorer.prefill(sequences, all_cancelled)
        for name, proposer in workspace.proposers.items():
            drafting = [s for s in sequences if s.drafter == name and self._can_draft(s)]
            if drafting:
                proposer.prefill(drafting, all_cancelled)

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
                parts.append(proposer.propose([sequences[row] for row in members], [limits[row] for row in members]))
                rows.append(members)
        return parts[0] if len(parts) == 1 else merge(parts, rows, self.vocab_size)

    def _verify(
        self, sequences: list[Sequence], proposal: Proposal, logits: torch.Tensor
    ) -> tuple[Verdict, torch.Tensor, list[list[float]], torch.Tensor | None]:
        """Judge the windows; returns the verdict, the next tokens, the draws and the target's probabilities."""
        pipelines = [sequence.pipeline for sequence in sequences]
        if all(pipeline.plain for pipeline in pipelines):
            scores = batch_scores(pipelines, logits, [])
        else:
            windows = [row[:n] for row, n in zip(proposal.token_ids.tolist(), proposal.lengths, strict=True)]
            scores = batch_scores(pipelines, logits, [s.output_token_ids for s in sequences], windows)
        target_probs = None
        if any(sequence.needs_probs for sequence in sequences):
            target_probs = batch_probabilities(pipelines, scores)
        k = proposal.token_ids.shape[1]
        lengths = torch.tensor(proposal.lengths, device=self.device)
        uniforms = [
            [s.random.uniform() for _ in range(n)] + [0.0] * (k - n) if _draws(s) else [0.0] * k
            for s, n in zip(sequences, proposal.lengths, strict=True)
        ]
        judged = scores if target_probs is None else target_probs
        draft_probs = judged[:, :k] if proposal.probs is None else proposal.probs
        table = torch.tensor(uniforms, dtype=judged.dtype, device=self.device)
        by_strategy: dict[VerifyStrategy, list[int]] = {}
        for row, sequence in enumerate(sequences):
            by_strategy.setdefault(_rule(sequence), []).append(row)
        verdicts = []
        for strategy, rows in by_strategy.items():
            verifier = VERIFIERS[strategy]
            source = scores if strategy == VerifyStrategy.GREEDY_MATCH else judged
            if len(by_strategy) == 1:
                arguments = (source, draft_probs, proposal.token_ids, table, lengths)
            else:
                arguments = (source[rows], draft_probs[rows], proposal.token_ids[rows], table[rows], lengths[rows])
            verdicts.append(verifier.judge(*arguments))
        verdict = (
            verdicts[0] if len(verdicts) == 1 else _merge_verdicts(verdicts, list(by_strategy.values()), self.vocab_size)
        )
        return verdict, _next_tokens(sequences, verdict), uniforms, target_probs

    def _commit(self, sequence: Sequence, record: StepRecord, logits: torch.Tensor) -> list[Event]:
        """Take the step's tokens into the sequence, roll the caches back to them, and tell what happened."""
        record.time = sequence.emitter.clock()
        rule = _rule(sequence)
        record.judges_all = VERIFIERS[rule].judges_all
        if not VERIFIERS[rule].needs_uniforms:
            record.uniforms = None
        if rule != VerifyStrategy.TYPICAL_ACCEPTANCE:
            record.thresholds = None
        events, kept, finish = sequence.emitter.step(sequence.step, record, sequence.room)
        sequence.step += 1
        tokens = [*record.drafts[: record.num_accepted], record.extra][:kept]
        if sequence.wants_logprobs:
            count = sequence.params.logprobs or 0
            found = raw_logprobs(logits[:kept], tokens, count, self.vocabulary)
            sequence.logprobs += found
            sequence.cumulative_logprob += sum(entry[token].logprob for entry, token in zip(found, tokens, strict=True))
        committed = min(len(sequence.token_ids) + record.num_accepted, len(sequence.token_ids) + kept)
        sequence.token_ids += tokens
        sequence.target_slot.keep(committed)
        if sequence.draft_slot is not None:
            sequence.draft_slot.keep(committed)
        sequence.window.learn(record.num_accepted, min(record.num_accepted + 1, len(record.drafts)))
        return events if finish is None else events + self.finish(sequence, finish)

    def finish(self, sequence: Sequence, reason: FinishReason, message: str | None = None) -> list[Event]:
        """End a sequence; returns its last events."""
        sequence.finish_reason = reason
        return sequence.emitter.finished(reason, message)

    def _without_ended(self, sequences: list[Sequence]) -> tuple[list[Event], list[Sequence]]:
        """End the sequences that were cancelled or have no room; returns their last events and the rest."""
        events: list[Event] = []
        rest = []
        for sequence in sequences:
            if sequence.cancelled:
                events += self.finish(sequence, FinishReason.CANCELLED)
            elif sequence.room <= 0:
                events += self.finish(sequence, FinishReason.LENGTH)
            else:
                rest.append(sequence)
        return events, rest

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

    def _share_prefill(self, group: list[Sequence]) -> None:
        """Prefill the first of the sequences that share a prompt, and copy its caches to the others."""
        first, rest = group[0], group[1:]
        if not rest or len(first.prompt_token_ids) < 2 or first.room <= 0:
            return
        self._prefill(first.workspace, [first])
        for sequence in rest:
            sequence.prompt_logprobs = first.prompt_logprobs
            sequence.target_slot.copy_from(first.target_slot)
            if sequence.draft_slot is not None and first.draft_slot is not None and first.draft_slot.num_tokens:
                sequence.draft_slot.copy_from(first.draft_slot)

    def _draft_room(self, sequence: Sequence) -> int:
        room = sequence.room - 1
        if sequence.drafter == "model" and self._draft_positions is not None:
            room = min(room, self._draft_positions - len(sequence.token_ids))
        return room

    def _can_draft(self, sequence: Sequence) -> bool:
        plain = isinstance(sequence.window, FixedWindow) and sequence.window.limit == 0
        return not plain and self._draft_room(sequence) > 0

    def _grammar(self, params: SamplingParams) -> GrammarCompiler:
        if self.pair.tokenizer is None:
            raise ValueError(f"guided_decoding={params.guided_decoding!r} needs a tokenizer, and this pair has none")
        if self._grammars is None:
            self._grammars = GrammarCompiler(self.pair.tokenizer, self.vocab_size, self.eos_token_ids)
        return self._grammars


def _rule(sequence: Sequence) -> VerifyStrategy:
    return VerifyStrategy.GREEDY_MATCH if sequence.greedy else sequence.strategy


def _draws(sequence: Sequence) -> bool:
    return VERIFIERS[_rule(sequence)].needs_uniforms


def _next_tokens(sequences: list[Sequence], verdict: Verdict) -> torch.Tensor:
    """The token behind each row's kept drafts, int64, shape `[batch_size]`."""
    if verdict.next_probs is None:
        assert verdict.next_token_ids is not None
        return verdict.next_token_ids
    known = verdict.next_token_ids
    return torch.stack(
        [
            known[row] if sequence.greedy and known is not None else sequence.random.categorical(verdict.next_probs[row])
            for row, sequence in enumerate(sequences)
        ]
    )


def _merge_verdicts(verdicts: list[Verdict], rows: list[list[int]], vocab_size: int) -> Verdict:
    """Verdicts of groups of a batch as one."""
    some = verdicts[0]
    total, k = sum(map(len, rows)), some.accept_probs.shape[1]
    num_accepted, next_token_ids = some.num_accepted.new_zeros(total), some.num_accepted.new_zeros(total)
    accept_probs, thresholds = some.accept_probs.new_zeros(total, k), some.accept_probs.new_zeros(total, k)
    next_probs = some.accept_probs.new_zeros(total, vocab_size)
    for verdict, members in zip(verdicts, rows, strict=True):
        num_accepted[members] = verdict.num_accepted
        accept_probs[members] = verdict.accept_probs
        if verdict.next_probs is not None:
            next_probs[members] = verdict.next_probs
        if verdict.next_token_ids is not None:
            next_token_ids[members] = verdict.next_token_ids
        if verdict.thresholds is not None:
            thresholds[members] = verdict.thresholds
    return Verdict(num_accepted, next_probs, next_token_ids, accept_probs, thresholds)


def _choice(name: str, value: Any, kinds: type[VerifyStrategy]) -> VerifyStrategy:
    try:
        return kinds(value)
    except ValueError:
        raise ValueError(f"{name} must be one of {', '.join(kinds)}, got {value!r}") from None


def _check_window(num_draft_tokens: int | str) -> int | None:
    """The window size; None for "auto"."""
    if num_draft_tokens == "auto":
        return None
    whole = isinstance(num_draft_tokens, int) and not isinstance(num_draft_tokens, bool)
    if not whole or not 0 <= int(num_draft_tokens) <= MAX_DRAFT_TOKENS:
        raise ValueError(f"num_draft_tokens must be 'auto' or from 0 to {MAX_DRAFT_TOKENS}, got {num_draft_tokens!r}")
    return int(num_draft_tokens)


def _as_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    """The prompts as a list, and whether it was a single one."""
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, Seq):
        raise ValueError(f"prompt must be text, token ids, or a list of either, got {type(prompt).__name__}")
    if not prompt:
        raise ValueError("prompt is an empty list")
    if all(isinstance(item, int) for item in prompt):
        return [list(prompt)], True
    if not all(isinstance(item, str) or isinstance(item, Seq) for item in prompt):
        raise ValueError("prompt must be text, token ids, or a list of either; this list mixes them")
    return list(prompt), False


def _as_params(params: Any, count: int) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Seq) or not all(isinstance(one, SamplingParams) for one in params):
        raise ValueError(f"params must be SamplingParams or a list of them, got {type(params).__name__}")
    if len(params) != count:
        raise ValueError(f"params has {len(params)} entries for {count} prompts")
    return list(params)
