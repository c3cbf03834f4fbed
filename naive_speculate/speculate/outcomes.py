"""What happened in a step, in numbers: outcomes, log-probabilities, and how many drafts other
strategies would accept.

Everything is derived on the device first and then fetched at once. This is the only place that
waits for the device, except if window lengths or penalties depend on the draft tokens. Each level
of detail is a class: `columns` derives its numbers for all rows as tensors, `of` picks a row's of
those that were fetched, as lists.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import torch

from naive_speculate.events.event import Logprob, TokenProb, TopTokens
from naive_speculate.events.record import Outcome
from naive_speculate.infer.device import to_lists
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.rules import entropy, overlap, pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import Step, by_verifier
from naive_speculate.speculate.tree_step import tree_nodes
from naive_speculate.speculate.verify import VERIFIERS, TypicalAcceptanceSampler, VerifyStrategy
from naive_speculate.text import Vocabulary

T = TypeVar("T")  # tensors, or once they are fetched nested lists
Lists = list[Any]
TOP_TOKENS = 8
DISTANCE_DIGITS = 6
COMPARED = tuple(name for name in VerifyStrategy if not VERIFIERS[name].matches_draws)
"""Strategies that judge the drafts of another one's step: they need no draws of their own."""


def outcomes_of(rows: Sequence[SequenceState], step: Step, vocabulary: Vocabulary) -> list[Outcome]:
    """The outcomes of a step, with as much as each row's `detail` and parameters ask for. Raises
    `ValueError` if a verifier accepted more drafts than there are."""
    columns: list[Any] = [Tokens.columns(rows, step), None, None, None]
    details, draws, wants_logprobs = set[str](), False, False
    for row in rows:
        details.add(row.detail)
        draws |= row.detail == "full" and not row.greedy
        wants_logprobs |= row.wants_logprobs
    if step.p.probs is not None and details != {"none"}:
        columns[1] = Probabilities.columns(rows, step, step.p.probs)
        if "full" in details:
            columns[2] = Tops.columns(step, step.p.probs)
        if draws and step.tree is None:
            columns[3] = Others.columns(step, step.p.probs)
    logprobs: list[Any] = (
        [_row_logprobs(i, row, step) for i, row in enumerate(rows)] if wants_logprobs else []
    )
    tokens, probabilities, tops, others = _fetch(columns, logprobs)
    outcomes = []
    for index, row in enumerate(rows):
        outcome = tokens.of(index, row, step)
        if probabilities is not None and row.detail != "none":
            outcome.values |= probabilities.of(index, row, step, outcome)
        if tops is not None and row.detail == "full":
            usable = tokens.num_usable[index]
            outcome.values |= tops.of(index, outcome, vocabulary, usable)
        if others is not None and row.detail == "full":
            others.of(index, row, outcome)
        if step.tree is not None:
            outcome.tree = tree_nodes(row, step.tree, vocabulary)
        if row.wants_logprobs:
            entries = logprob_entries(logprobs[index], vocabulary)
            outcome.logprobs = entries[: len(outcome.token_ids)]
        outcomes.append(outcome)
    return outcomes


@dataclass
class Tokens(Generic[T]):
    """What every outcome has."""

    draft_token_ids: T  # `[batch_size, k]`
    num_accepted: T  # `[batch_size]`, like the two after it
    next_token_id: T
    num_usable: T
    only_one: (
        T | None
    )  # whether a single token has a probability, `[batch_size, k + 1]`; under a guide

    @classmethod
    def columns(cls, rows: Sequence[SequenceState], step: Step) -> "Tokens[torch.Tensor]":
        """The tokens of a step, on the device."""
        accepted, only_one = step.verdict.num_accepted, None
        for row in rows:
            if row.pipeline.guided and only_one is None:
                only_one = (step.p.scores > -torch.inf).sum(dim=-1) == 1
        draft = step.draft.token_ids
        return Tokens(draft, accepted, step.next_token_ids, step.p.num_usable, only_one)

    def of(self: "Tokens[Lists]", index: int, row: SequenceState, step: Step) -> Outcome:
        """A row's outcome, so far."""
        accepted, usable = self.num_accepted[index], self.num_usable[index]
        length = min(step.draft.lengths[index], usable)
        if not 0 <= accepted <= length:
            raise ValueError(
                f"verifier {type(row.verifier).__name__} accepted {accepted} draft tokens in a"
                f" window of {length}"
            )
        obstacle, drafts = None, self.draft_token_ids[index][:length]
        if accepted == usable:  # the next token has no distribution, so it means nothing
            history = row.output_token_ids + drafts
            why = row.pipeline.why_none(step.logits[index, accepted], history)
            obstacle = f"no token can be chosen at position {len(history)}: {why}"
        next_token = self.next_token_id[index]
        outcome = Outcome(drafts, accepted, next_token, obstacle, row.verifier.judges_all)
        if step.draft.copied_from is not None:
            outcome.copied_from = step.draft.copied_from[index]
        if self.only_one is not None and row.pipeline.guided:
            by_text = "text" if index in step.draft.forced else None
            alone = self.only_one[index]
            kinds = [
                "token" if one and at < accepted else by_text
                for at, one in enumerate(alone[:length])
            ]  # others are not allowed
            outcome.values["forced"] = [*kinds, "token" if alone[accepted] else None]
        return outcome


@dataclass
class Probabilities(Generic[T]):
    """The numbers of each draft, `[batch_size, k]`, and of the next token, `[batch_size]`; the
    events' fields of these names. None where a step has none."""

    accept_prob: T
    uniform: T | None
    expected_accept: T  # NaN where a rule has none
    target_prob: T
    next_prob: T
    draft_prob: T
    sampled_accept: T | None
    matched_accept: T | None
    argmax_accept: T | None
    threshold: T | None

    @classmethod
    def columns(
        cls, rows: Sequence[SequenceState], step: Step, probs: torch.Tensor
    ) -> "Probabilities[torch.Tensor]":
        """The numbers of a step, on the device."""
        draft, verdict, k = step.draft, step.verdict, step.draft.token_ids.shape[1]
        q = probs[:, :k] if draft.probs is None else draft.probs.to(probs.dtype)
        expected = probs.new_full((len(rows), k), torch.nan)
        for verifier, members in by_verifier(rows, probs.device):
            limits = None if verdict.thresholds is None else verdict.thresholds[members]
            own = verdict._replace(accept_probs=verdict.accept_probs[members], thresholds=limits)
            rates = verifier.expected_accept(probs[members, :k], q[members], own) if k else None
            if rates is not None:
                expected[members] = rates.to(probs.dtype)
        at = torch.arange(len(rows), device=probs.device)
        next_probs = probs[at, verdict.num_accepted.clamp_max(k)]
        sampled = matched = argmax = None
        if k and draft.probs is not None:
            model_probs = _model_probs(draft, probs)
            sampled = overlap(probs[:, :k], model_probs)
            matched = torch.linalg.vecdot(probs[:, :k], model_probs).clamp_max(1.0)
            argmax = pick(probs[:, :k], model_probs.argmax(dim=-1))
        return Probabilities(
            accept_prob=verdict.accept_probs.to(probs.dtype),
            uniform=step.r,
            expected_accept=expected,
            target_prob=pick(probs[:, :k], draft.token_ids),
            next_prob=pick(next_probs, step.next_token_ids),
            draft_prob=pick(q, draft.token_ids),
            sampled_accept=sampled,
            matched_accept=matched,
            argmax_accept=argmax,
            threshold=verdict.thresholds,
        )

    def of(
        self: "Probabilities[Lists]", index: int, row: SequenceState, step: Step, outcome: Outcome
    ) -> dict[str, list[Any]]:
        """A row's values, by the name of the events' field: those that mean something."""
        length, verifier, known = len(outcome.draft_token_ids), row.verifier, step.draft.probs
        from_model = outcome.copied_from is None and index not in step.draft.forced
        alone = step.tree is None  # else one may be accepted after another was rejected
        values = {"accept_prob": self.accept_prob[index][:length]}
        expected = self.expected_accept[index][:length]
        if (alone or verifier.greedy) and length > 0 and expected[0] == expected[0]:
            values["expected_accept"] = expected
        if known is not None:
            values["draft_prob"] = self.draft_prob[index][:length]
            exact = not verifier.greedy and not verifier.lossy
            if exact and from_model and alone and self.sampled_accept is not None:
                assert self.matched_accept is not None
                assert self.argmax_accept is not None
                values["sampled_accept"] = self.sampled_accept[index][:length]
                values["matched_accept"] = self.matched_accept[index][:length]
                values["argmax_accept"] = self.argmax_accept[index][:length]
        if verifier.has_thresholds and self.threshold is not None:
            values["threshold"] = self.threshold[index][:length]
        if verifier.needs_uniforms and self.uniform is not None:
            values["uniform"] = self.uniform[index][:length]
        values["target_prob"] = [*self.target_prob[index][:length], self.next_prob[index]]
        return values


@dataclass
class Tops(Generic[T]):
    """The most probable tokens of every distribution, `[batch_size, k or k + 1, TOP_TOKENS]`,
    what the other model gives them, and entropies. None where a step has none."""

    target_ids: T
    target_probs: T
    target_entropy: T
    draft_ids: T | None = None
    draft_probs: T | None = None
    draft_entropy: T | None = None
    target_top_draft: T | None = None
    draft_top_target: T | None = None
    residual_ids: T | None = None
    residual_probs: T | None = None

    @classmethod
    def columns(cls, step: Step, probs: torch.Tensor) -> "Tops[torch.Tensor]":
        """The tops of a step, on the device."""
        draft, k, count = (
            step.draft,
            step.draft.token_ids.shape[1],
            min(TOP_TOKENS, probs.shape[-1]),
        )
        top = probs.topk(count, dim=-1)
        tops: Tops[torch.Tensor] = Tops(top.indices, top.values, entropy(probs))
        if draft.probs is not None and k:
            q = draft.probs.to(probs.dtype)
            draft_top = q.topk(count, dim=-1)
            tops = replace(
                tops,
                draft_ids=draft_top.indices,
                draft_probs=draft_top.values,
                draft_entropy=entropy(_model_probs(draft, q)),
                target_top_draft=q.gather(-1, top.indices[:, :k]),
                draft_top_target=probs[:, :k].gather(-1, draft_top.indices),
            )
        if step.verdict.next_probs is not None:
            left = step.verdict.next_probs.topk(count, dim=-1)
            tops = replace(tops, residual_ids=left.indices, residual_probs=left.values)
        return tops

    def of(
        self: "Tops[Lists]", index: int, outcome: Outcome, vocabulary: Vocabulary, num_usable: int
    ) -> dict[str, list[Any]]:
        """A row's values, by the name of the events' field."""
        length, accepted = len(outcome.draft_token_ids), outcome.num_accepted

        top = partial(top_tokens, vocabulary.text_of)
        tops = list(map(top, self.target_ids[index], self.target_probs[index]))
        entropies = self.target_entropy[index]
        values: dict[str, list[Any]] = {
            "target_top": [*tops[:length], tops[accepted]],
            "target_entropy": [*entropies[:length], entropies[accepted]],
        }
        if self.draft_entropy is not None:
            assert self.draft_ids is not None
            assert self.draft_probs is not None
            assert self.target_top_draft is not None
            assert self.draft_top_target is not None
            drafts = list(map(top, self.draft_ids[index], self.draft_probs[index]))[:length]
            values |= {"draft_top": drafts, "draft_entropy": self.draft_entropy[index][:length]}
            for name, probs, lists in (
                ("target_top_draft", self.target_top_draft[index], tops[:length]),
                ("draft_top_target", self.draft_top_target[index], drafts),
            ):
                values[name] = [own[: len(of)] for own, of in zip(probs, lists, strict=False)]
        if accepted < length:
            outcome.unused_top = tops[length] if length < num_usable else None
            if self.residual_ids is not None and self.residual_probs is not None:
                residual = top(self.residual_ids[index], self.residual_probs[index])
                outcome.residual_top = residual or None
        return values


@dataclass
class Others(Generic[T]):
    """How many of the same drafts every strategy accepts, given the same draws; computed by the
    verifiers themselves."""

    accepted: T  # in the order of `COMPARED`, `[number of strategies, batch_size]`
    typical_distances: T | None  # `[batch_size, k]`; None where they are unknown

    @classmethod
    def columns(cls, step: Step, probs: torch.Tensor) -> "Others[torch.Tensor] | None":
        """The numbers of a step, on the device; None where nothing was drafted."""
        draft, p, k = step.draft, step.p, step.draft.token_ids.shape[1]
        if draft.probs is None or k == 0:
            return None
        q, lengths = draft.probs.to(probs.dtype), p.judged_lengths(draft)
        accepted, distances = list[torch.Tensor](), None
        for strategy in COMPARED:
            verifier = VERIFIERS[strategy]
            target = p.scores if verifier.greedy else probs
            verdict = verifier.judge(target, q, draft.token_ids, step.r, lengths)
            accepted.append(verdict.num_accepted)
            if isinstance(verifier, TypicalAcceptanceSampler) and verdict.thresholds is not None:
                distances = verifier.distance(probs[:, :k], q, verdict.thresholds)
        return Others(torch.stack(accepted), distances)

    def of(self: "Others[Lists]", index: int, row: SequenceState, outcome: Outcome) -> None:
        """Add them to the outcome of a row that samples: a greedy row has neither draws nor
        distributions of its temperature. A row whose own strategy draws nothing has no draws for
        those that need them."""
        if row.greedy or not outcome.draft_token_ids:
            return
        outcome.others = {}
        for strategy, accepted in zip(COMPARED, self.accepted, strict=True):
            verifier = VERIFIERS[strategy]
            has_draws = row.verifier.needs_uniforms or not verifier.needs_uniforms
            if verifier is not row.verifier and has_draws:
                outcome.others[strategy.value] = accepted[index]
        if self.typical_distances is not None:
            distances = self.typical_distances[index][: len(outcome.draft_token_ids)]
            outcome.typical_distances = [round(each, DISTANCE_DIGITS) for each in distances]


def top_tokens(
    text_of: Callable[[int], str], token_ids: list[int], probs: list[float]
) -> TopTokens:
    """The tokens of descending probabilities, without those of probability 0."""
    probs = probs[: len(probs) - probs.count(0.0)]
    token_ids = token_ids[: len(probs)]
    return TopTokens(map(TokenProb, token_ids, map(text_of, token_ids), probs))


def _model_probs(draft: Proposal, like: torch.Tensor) -> torch.Tensor:
    """The draft model's distributions, from which tokens were drawn or not."""
    probs = draft.probs if draft.model_probs is None else draft.model_probs
    assert probs is not None
    return probs.to(like.dtype)


def _fetch(columns: Sequence[Any], logprobs: list[Any]) -> list[Any]:
    """The columns as lists, and in place those of `raw_logprobs` for each row: all at once."""
    tensors = list[torch.Tensor]()
    for part in columns:
        for tensor in vars(part).values() if part is not None else ():
            if tensor is not None:
                tensors.append(tensor)
    for of_row in logprobs:
        tensors += of_row
    lists, fetched = iter(to_lists(*tensors)), list[Any]()
    for part in columns:
        if part is None:
            fetched.append(None)
            continue
        fields = list[Any]()
        for tensor in vars(part).values():
            fields.append(None if tensor is None else next(lists))
        fetched.append(type(part)(*fields))
    for index, of_row in enumerate(logprobs):
        logprobs[index] = list(islice(lists, len(of_row)))
    return fetched


def raw_logprobs(
    logits: torch.Tensor, token_ids: torch.Tensor, count: int
) -> tuple[torch.Tensor, ...]:
    """Log-probabilities of the raw distribution, before any sampling parameter, for
    `logprob_entries`: of logits `[width, vocab_size]` the chosen tokens, their log-probabilities
    and ranks, shape `[width]`, and the `count` most probable tokens (-1: all) and their
    log-probabilities, shape `[width, count]`."""
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    chosen = pick(logprobs, token_ids)
    ranks = (logprobs > chosen[:, None]).sum(dim=-1) + 1
    vocab_size = logprobs.shape[-1]
    top = logprobs.topk(vocab_size if count == -1 else min(count, vocab_size), dim=-1)
    return token_ids, chosen, ranks, top.indices, top.values


def logprob_entries(
    fetched: Sequence[list[Any]], vocabulary: Vocabulary
) -> list[dict[int, Logprob]]:
    """The results of `raw_logprobs`, as lists, by token id; the chosen token comes first."""
    entries = []
    for token, value, rank, others, values in zip(*fetched, strict=True):
        entry = {token: Logprob(value, rank, vocabulary.text_of(token))}
        for number, (other, its_value) in enumerate(zip(others, values, strict=True), start=1):
            entry.setdefault(other, Logprob(its_value, number, vocabulary.text_of(other)))
        entries.append(entry)
    return entries


def _row_logprobs(index: int, row: SequenceState, step: Step) -> tuple[torch.Tensor, ...]:
    """`raw_logprobs` of the row's drafts and next token; those after the next token mean
    nothing."""
    if not row.wants_logprobs:
        return ()
    drafts, number = step.draft.token_ids[index], step.verdict.num_accepted[index]
    token_ids = torch.cat([drafts, drafts.new_zeros(1)])
    token_ids = token_ids.scatter(
        0, number.clamp(0, len(drafts))[None], step.next_token_ids[index][None]
    )
    return raw_logprobs(step.logits[index], token_ids, row.params.logprobs or 0)
