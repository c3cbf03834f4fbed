"""Brings what a step did from the device to Python, once for the whole batch."""

import math
from collections.abc import Sequence

import torch

from naive_speculate.events.event import TopTokens
from naive_speculate.events.record import Outcome
from naive_speculate.infer.device import to_lists
from naive_speculate.sampling.arrays import Numbers, as_numpy, as_tensor
from naive_speculate.speculate.draft.proposal import Draft
from naive_speculate.speculate.judge import Best, Decided, Distributions
from naive_speculate.speculate.logprobs import raw_logprobs
from naive_speculate.speculate.others import add_others
from naive_speculate.speculate.rules import Verdict, entropy, pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.verify import Verifier
from naive_speculate.speculate.workspace import Workspace
from naive_speculate.text import Vocabulary

TOP_TOKENS = 8


def to_host(
    workspace: Workspace,
    rows: Sequence[SequenceState],
    draft: Draft,
    logits: Numbers,
    p: Distributions | Best,
    r: list[list[float]],
    verdict: Verdict | Decided,
    next_token_ids: torch.Tensor | list[int],
) -> list[Outcome]:
    """Outcomes of a batch's step, with as much as each row's `detail` asks for.

    Args:
        workspace: Whose clock runs, and whose vocabulary names tokens.
        rows: Its rows.
        draft: Their windows.
        logits: The target's, shape `[batch_size, k + 1, vocab_size]`.
        p: The target's distributions.
        r: The draws that the verdict compared, by row.
        verdict: What the verifiers decided.
        next_token_ids: What `draw` gave.
    """
    if isinstance(verdict, Decided):
        outcomes = _outcomes(rows, draft, logits, draft.as_lists(), verdict.num_accepted, verdict.next_token_ids)
    else:
        assert isinstance(p, Distributions)
        assert isinstance(next_token_ids, torch.Tensor)
        more = [] if p.num_places is None else [p.num_places]
        known = to_lists(draft.token_ids, verdict.num_accepted, next_token_ids, *more)
        outcomes = _outcomes(rows, draft, logits, *known)
        if p.probs is not None and any(row.detail != "none" for row in rows):
            _add_probs(outcomes, rows, draft, verdict, next_token_ids, r, p.probs)
            if any(row.detail == "full" for row in rows):
                _add_tops(outcomes, rows, draft, verdict, p.probs, workspace.vocabulary)
                add_others(outcomes, rows, draft, p, r)
    for place, (row, outcome) in enumerate(zip(rows, outcomes, strict=True)):
        if row.wants_logprobs:
            tokens = outcome.token_ids
            scores = as_tensor(logits[place, : len(tokens)])
            outcome.logprobs = raw_logprobs(scores, tokens, row.params.logprobs or 0, workspace.vocabulary)
    seconds = workspace.watch.stop()
    for outcome in outcomes:
        outcome.draft_seconds, outcome.verify_seconds, outcome.total_seconds = seconds
    return outcomes


def _outcomes(
    rows: Sequence[SequenceState],
    draft: Draft,
    logits: Numbers,
    windows: list[list[int]],
    num_accepted: list[int],
    next_token_ids: list[int],
    num_places: list[int] | None = None,
) -> list[Outcome]:
    """What every step tells; `num_places` as in `Distributions`."""
    outcomes = []
    for place, (row, drafts, length) in enumerate(zip(rows, windows, draft.lengths, strict=True)):
        kept, usable = num_accepted[place], len(drafts) + 1 if num_places is None else num_places[place]
        if not 0 <= kept <= min(length, usable):
            name = type(row.verifier).__name__
            raise ValueError(f"verifier {name} kept {kept} drafts of a window of {min(length, usable)}")
        obstacle = None
        if kept == usable:  # what comes next has no distribution, so nothing was drawn from it
            history = row.output_token_ids + drafts[:kept]
            why = row.pipeline.why_none(as_tensor(logits[place, kept]), history)
            obstacle = f"no token can be chosen at position {len(history)}: {why}"
        drafts = drafts[: min(length, usable)]
        outcomes.append(Outcome(drafts, kept, next_token_ids[place], obstacle, row.verifier.judges_all))
        outcomes[-1].copied_from = None if draft.copied_from is None else draft.copied_from[place]
    return outcomes


def _add_probs(
    outcomes: list[Outcome],
    rows: Sequence[SequenceState],
    draft: Draft,
    verdict: Verdict,
    next_token_ids: torch.Tensor,
    r: list[list[float]],
    probs: torch.Tensor,
) -> None:
    table = zip(*_columns(outcomes, rows, draft, verdict, next_token_ids, probs), strict=True)
    for line, outcome, row, uniforms in zip(table, outcomes, rows, r, strict=True):
        if row.detail == "none":
            continue
        length = len(outcome.draft_token_ids)
        accept_probs, target_probs, following, draft_probs, thresholds, told = line
        outcome.accept_probs, outcome.target_probs = accept_probs[:length], target_probs[:length] + following
        outcome.expected_accepts = told[:length] if length and told[0] == told[0] else None  # NaN where the rule does not tell
        if draft.probs is not None:
            outcome.draft_probs = draft_probs[:length]
        if row.verifier.has_thresholds:
            outcome.thresholds = thresholds[:length]
        if row.verifier.needs_uniforms:
            outcome.uniforms = uniforms[:length]


def _columns(
    outcomes: Sequence[Outcome],
    rows: Sequence[SequenceState],
    draft: Draft,
    verdict: Verdict,
    next_token_ids: torch.Tensor,
    probs: torch.Tensor,
) -> list[list[list[float]]]:
    """By row: acceptance probabilities, what the target gives each draft and the next token, what the draft model gives each,
    thresholds, and the expected acceptance."""
    k = draft.token_ids.shape[1]
    limits = verdict.accept_probs if verdict.thresholds is None else verdict.thresholds
    expected = _expected(rows, probs[:, :k], draft.probs, verdict) if k else None
    if probs.device.type == "cpu":  # number by number, which calls less of torch than gathering does
        drafted = _at(probs if draft.probs is None else draft.probs, [outcome.draft_token_ids for outcome in outcomes])
        target = _at(probs, [outcome.draft_token_ids for outcome in outcomes])
        table = as_numpy(probs)
        following = [[table.item(place, o.num_accepted, o.next_token_id)] for place, o in enumerate(outcomes)]
        told = [[math.nan]] * len(rows) if expected is None else expected.tolist()
        accepts = verdict.accept_probs.to(probs.dtype)  # a verifier may give bools
        return [accepts.tolist(), target, following, drafted, limits.to(probs.dtype).tolist(), told]
    places = torch.arange(len(rows), device=probs.device)
    next_probs = probs[places, verdict.num_accepted].gather(1, next_token_ids[:, None])
    q = probs[:, :k] if draft.probs is None else draft.probs
    expected = probs.new_full((len(rows), k), torch.nan) if expected is None else expected
    columns = [
        verdict.accept_probs,
        pick(probs[:, :k], draft.token_ids),
        next_probs,
        pick(q, draft.token_ids),
        limits,
        expected,
    ]
    return to_lists(*(column.to(probs.dtype) for column in columns))


def _at(table: torch.Tensor, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
    """What each row's places give these tokens."""
    numbers = as_numpy(table)
    return [[numbers.item(row, place, token) for place, token in enumerate(tokens)] for row, tokens in enumerate(token_ids)]


def _expected(rows: Sequence[SequenceState], p: torch.Tensor, q: torch.Tensor | None, verdict: Verdict) -> torch.Tensor | None:
    """How probable keeping a draft was, shape `[batch_size, k]`, NaN in rows whose rule does not tell; None if none does."""
    places: dict[Verifier, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.verifier, []).append(place)
    q = p if q is None else q.to(p.dtype)
    if len(places) == 1:
        return rows[0].verifier.expected_accept(p, q, verdict)
    expected = p.new_full(p.shape[:2], torch.nan)
    for verifier, members in places.items():
        thresholds = None if verdict.thresholds is None else verdict.thresholds[members]
        own = verdict._replace(accept_probs=verdict.accept_probs[members], thresholds=thresholds)
        told = verifier.expected_accept(p[members], q[members], own)
        if told is not None:
            expected[members] = told.to(p.dtype)
    return expected


def _add_tops(
    outcomes: list[Outcome],
    rows: Sequence[SequenceState],
    draft: Draft,
    verdict: Verdict,
    probs: torch.Tensor,
    vocabulary: Vocabulary,
) -> None:
    parts, k = [probs], draft.token_ids.shape[1]
    if draft.probs is not None and k:
        parts.append(draft.probs.to(probs.dtype))
    if verdict.next_probs is not None:
        parts.append(verdict.next_probs[:, None].to(probs.dtype))
    together = torch.cat(parts, dim=1)
    top = together.topk(min(TOP_TOKENS, together.shape[-1]), dim=-1)
    width, known = together.shape[1], top.values
    if draft.probs is not None and k:  # behind them, what the other model gives the tokens of either's lists
        draft_ids, target_ids = top.indices[:, k + 1 : 2 * k + 1], top.indices[:, :k]
        known = torch.cat([known, parts[1].gather(-1, target_ids), probs[:, :k].gather(-1, draft_ids)], dim=1)
    ids, values = top.indices.tolist(), known.tolist()
    entropies = entropy(together[:, : 2 * k + 1]).tolist()

    def entry(place: int, column: int) -> TopTokens:
        tokens, probable = ids[place][column], values[place][column]
        while probable and probable[-1] <= 0:
            probable.pop()
        return TopTokens(tokens[: len(probable)], probable, vocabulary.text_of)

    for place, (outcome, row) in enumerate(zip(outcomes, rows, strict=True)):
        if row.detail != "full":
            continue
        length, kept = len(outcome.draft_token_ids), outcome.num_accepted
        outcome.target_tops = [entry(place, column) for column in range(length)] + [entry(place, kept)]
        outcome.target_entropies = [*entropies[place][:length], entropies[place][kept]]
        if draft.probs is not None and k:
            outcome.draft_tops = [entry(place, k + 1 + column) for column in range(length)]
            outcome.draft_entropies = entropies[place][k + 1 : k + 1 + length]
            others, lists = values[place][width:], (outcome.target_tops, outcome.draft_tops)
            outcome.target_tops_draft, outcome.draft_tops_target = (
                [other[: len(top)] for other, top in zip(part[:length], tops, strict=False)]
                for part, tops in zip((others[:k], others[k:]), lists, strict=True)
            )
        if verdict.next_probs is not None and kept < length:
            outcome.residual_top = entry(place, width - 1) or None
