"""What happened in a step, in numbers: outcomes, log-probabilities, and how many drafts other
strategies would accept.

Everything is derived on the device first and then fetched at once. A step waits for its device
only here, unless the lengths of its windows or its sampling parameters depend on the draft
tokens.
"""

from collections.abc import Sequence
from typing import Any

import torch

from naive_speculate.events.event import Logprob, TopTokens
from naive_speculate.events.record import Outcome
from naive_speculate.infer.device import to_lists
from naive_speculate.speculate.draft.proposal import Proposal
from naive_speculate.speculate.rules import entropy, overlap, pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.step import Step, by_verifier
from naive_speculate.speculate.tree_step import tree_nodes
from naive_speculate.speculate.verify import VERIFIERS, TypicalAcceptanceSampler, VerifyStrategy
from naive_speculate.text import Vocabulary

TOP_TOKENS = 8
DISTANCE_DIGITS = 6


def observe(rows: Sequence[SequenceState], happened: Step, vocabulary: Vocabulary) -> list[Outcome]:
    """The outcomes of a step, with as much as each row's `detail` and parameters ask for. Raises
    `ValueError` if a verifier accepted more drafts than there are."""
    columns = {
        "draft_token_ids": happened.draft.token_ids,
        "num_accepted": happened.verdict.num_accepted,
        "next_token_id": happened.next_token_ids,
        "num_usable": happened.p.num_usable,
    }
    if any(row.pipeline.guided for row in rows):
        columns["only_one"] = (happened.p.scores > -torch.inf).sum(dim=-1) == 1
    if happened.p.probs is not None and any(row.detail != "none" for row in rows):
        columns |= _probabilities(rows, happened, happened.p.probs)
        if any(row.detail == "full" for row in rows):
            columns |= _tops(happened, happened.p.probs)
        if happened.tree is None and any(row.detail == "full" and not row.greedy for row in rows):
            columns |= _counterfactuals(happened, happened.p.probs)
    logprobs = [_row_logprobs(index, row, happened) for index, row in enumerate(rows)]
    fetched = iter(
        to_lists(*columns.values(), *(tensor for tensors in logprobs for tensor in tensors))
    )
    table = dict(zip(columns, fetched, strict=False))
    outcomes = []
    for index, (row, tensors) in enumerate(zip(rows, logprobs, strict=True)):
        seen = {name: column[index] for name, column in table.items()}
        outcome = _outcome(index, row, happened, seen)
        if row.detail != "none" and "accept_prob" in seen:
            _add_probabilities(index, outcome, row, happened, seen)
            if row.detail == "full":
                _add_tops(outcome, seen, vocabulary)
                _add_counterfactuals(outcome, row, seen)
        if happened.tree is not None:
            outcome.tree = tree_nodes(row, happened.tree, vocabulary)
        if tensors:
            entries = logprob_entries([next(fetched) for _ in tensors], vocabulary)
            outcome.logprobs = entries[: len(outcome.token_ids)]
        outcomes.append(outcome)
    return outcomes


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
    found = []
    for token, value, rank, others, values in zip(*fetched, strict=True):
        entry = {token: Logprob(value, rank, vocabulary.text_of(token))}
        for number, (other, its_value) in enumerate(zip(others, values, strict=True), start=1):
            entry.setdefault(other, Logprob(its_value, number, vocabulary.text_of(other)))
        found.append(entry)
    return found


def _probabilities(
    rows: Sequence[SequenceState], happened: Step, probs: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The numbers of each draft and of the next token, shape `[batch_size, k]` or
    `[batch_size]`."""
    draft, verdict, k = happened.draft, happened.verdict, happened.draft.token_ids.shape[1]
    q = probs[:, :k] if draft.probs is None else draft.probs.to(probs.dtype)
    expected = probs.new_full((len(rows), k), torch.nan)  # NaN where a rule has none
    for verifier, members in by_verifier(rows, probs.device):
        limits = None if verdict.thresholds is None else verdict.thresholds[members]
        own = verdict._replace(accept_probs=verdict.accept_probs[members], thresholds=limits)
        found = verifier.expected_accept(probs[members, :k], q[members], own) if k else None
        if found is not None:
            expected[members] = found.to(probs.dtype)
    next_probs = probs[
        torch.arange(len(rows), device=probs.device), verdict.num_accepted.clamp_max(k)
    ]
    columns = {
        "accept_prob": verdict.accept_probs.to(probs.dtype),
        "uniform": happened.r,
        "expected_accept": expected,
        "target_prob": pick(probs[:, :k], draft.token_ids),
        "next_prob": pick(next_probs, happened.next_token_ids),
        "draft_prob": pick(q, draft.token_ids),
    }
    if k and draft.probs is not None:
        q = _model_probs(draft, probs)
        columns |= {
            "sampled_accept": overlap(probs[:, :k], q),
            "argmax_accept": pick(probs[:, :k], q.argmax(dim=-1)),
        }
    return columns if verdict.thresholds is None else columns | {"threshold": verdict.thresholds}


def _model_probs(draft: Proposal, like: torch.Tensor) -> torch.Tensor:
    """The draft model's distributions, from which tokens were drawn or not."""
    found = draft.probs if draft.model_probs is None else draft.model_probs
    assert found is not None
    return found.to(like.dtype)


def _tops(happened: Step, probs: torch.Tensor) -> dict[str, torch.Tensor]:
    """The most probable tokens of every distribution, what the other model gives them, and
    entropies."""
    draft, k = happened.draft, happened.draft.token_ids.shape[1]
    target_top = _top(probs)
    columns = {
        "target_top_ids": target_top.indices,
        "target_top_probs": target_top.values,
        "target_entropy": entropy(probs),
    }
    if draft.probs is not None and k:
        q = draft.probs.to(probs.dtype)
        draft_top = _top(q)
        columns |= {
            "draft_top_ids": draft_top.indices,
            "draft_top_probs": draft_top.values,
            "draft_entropy": entropy(_model_probs(draft, q)),
        }
        columns["target_top_draft"] = q.gather(-1, target_top.indices[:, :k])
        columns["draft_top_target"] = probs[:, :k].gather(-1, draft_top.indices)
    if happened.verdict.next_probs is not None:
        residual_top = _top(happened.verdict.next_probs)
        columns |= {
            "residual_top_ids": residual_top.indices,
            "residual_top_probs": residual_top.values,
        }
    return columns


def _top(probs: torch.Tensor) -> Any:
    return probs.topk(min(TOP_TOKENS, probs.shape[-1]), dim=-1)


def _counterfactuals(happened: Step, probs: torch.Tensor) -> dict[str, torch.Tensor]:
    """How many of the same drafts every strategy accepts, given the same draws; computed by the
    verifiers themselves."""
    draft, p, k = happened.draft, happened.p, happened.draft.token_ids.shape[1]
    if draft.probs is None or k == 0:
        return {}
    q, lengths = draft.probs.to(probs.dtype), p.judged_lengths(draft)
    columns = {}
    for strategy in VerifyStrategy:
        verifier = VERIFIERS[strategy]
        verdict = verifier.judge(
            p.scores if verifier.greedy else probs, q, draft.token_ids, happened.r, lengths
        )
        columns[strategy.value] = verdict.num_accepted
        if isinstance(verifier, TypicalAcceptanceSampler) and verdict.thresholds is not None:
            columns["typical_distances"] = verifier.distance(probs[:, :k], q, verdict.thresholds)
    return columns


def _row_logprobs(index: int, row: SequenceState, happened: Step) -> tuple[torch.Tensor, ...]:
    """`raw_logprobs` of the row's drafts and next token; those after the next token mean
    nothing."""
    if not row.wants_logprobs:
        return ()
    drafts, number = happened.draft.token_ids[index], happened.verdict.num_accepted[index]
    token_ids = torch.cat([drafts, drafts.new_zeros(1)])
    token_ids = token_ids.scatter(
        0, number.clamp(0, len(drafts))[None], happened.next_token_ids[index][None]
    )
    return raw_logprobs(happened.logits[index], token_ids, row.params.logprobs or 0)


def _outcome(index: int, row: SequenceState, happened: Step, seen: dict[str, Any]) -> Outcome:
    """What every outcome has."""
    accepted, usable = seen["num_accepted"], seen["num_usable"]
    length = min(happened.draft.lengths[index], usable)
    if not 0 <= accepted <= length:
        raise ValueError(
            f"verifier {type(row.verifier).__name__} accepted {accepted} draft tokens in a window"
            f" of {length}"
        )
    obstacle, drafts = None, seen["draft_token_ids"][:length]
    if accepted == usable:  # the next token has no distribution, so it means nothing
        history = row.output_token_ids + drafts
        why = row.pipeline.why_none(happened.logits[index, accepted], history)
        obstacle = f"no token can be chosen at position {len(history)}: {why}"
    outcome = Outcome(drafts, accepted, seen["next_token_id"], obstacle, row.verifier.judges_all)
    outcome.copied_from = (
        None if happened.draft.copied_from is None else happened.draft.copied_from[index]
    )
    if row.pipeline.guided:
        by_text = "text" if index in happened.draft.forced else None
        only = [*seen["only_one"][:length], seen["only_one"][accepted]]
        kinds = [
            "token" if one and at < accepted else by_text for at, one in enumerate(only[:length])
        ]  # others are not allowed
        outcome.values["forced"] = [*kinds, "token" if only[-1] else None]
    return outcome


def _add_probabilities(
    index: int, outcome: Outcome, row: SequenceState, happened: Step, seen: dict[str, Any]
) -> None:
    length, verifier, known = (
        len(outcome.draft_token_ids),
        row.verifier,
        happened.draft.probs is not None,
    )
    from_model = outcome.copied_from is None and index not in happened.draft.forced
    alone = (
        happened.tree is None
    )  # of several candidates, one may be accepted after another was rejected
    by_a_model = known and not verifier.greedy and not verifier.lossy and from_model and alone
    wanted = {
        "accept_prob": True,
        "expected_accept": (
            (alone or verifier.greedy)
            and length > 0
            and seen["expected_accept"][0] == seen["expected_accept"][0]
        ),
        "draft_prob": known,
        "sampled_accept": by_a_model,
        "argmax_accept": by_a_model,
        "threshold": verifier.has_thresholds,
        "uniform": verifier.needs_uniforms,
    }
    outcome.values |= {
        name: seen[name][:length] for name, applies in wanted.items() if applies and name in seen
    }
    outcome.values["target_prob"] = [*seen["target_prob"][:length], seen["next_prob"]]


def _add_tops(outcome: Outcome, seen: dict[str, Any], vocabulary: Vocabulary) -> None:
    length, accepted = len(outcome.draft_token_ids), outcome.num_accepted

    def top(token_ids: list[int], probs: list[float]) -> TopTokens:
        count = sum(prob > 0 for prob in probs)
        return TopTokens(token_ids[:count], probs[:count], vocabulary.text_of)

    tops, entropies = (
        list(map(top, seen["target_top_ids"], seen["target_top_probs"])),
        seen["target_entropy"],
    )
    outcome.values["target_top"] = [*tops[:length], tops[accepted]]
    outcome.values["target_entropy"] = [*entropies[:length], entropies[accepted]]
    if "draft_entropy" in seen:
        drafts = list(map(top, seen["draft_top_ids"], seen["draft_top_probs"]))[:length]
        outcome.values |= {"draft_top": drafts, "draft_entropy": seen["draft_entropy"][:length]}
        for name, lists in (("target_top_draft", tops[:length]), ("draft_top_target", drafts)):
            outcome.values[name] = [
                probs[: len(top)] for probs, top in zip(seen[name], lists, strict=False)
            ]
    if "residual_top_ids" in seen and accepted < length:
        outcome.residual_top = top(seen["residual_top_ids"], seen["residual_top_probs"]) or None


def _add_counterfactuals(outcome: Outcome, row: SequenceState, seen: dict[str, Any]) -> None:
    """For rows that sample: a greedy row has neither draws nor distributions of its temperature.
    A row whose own strategy draws nothing has no draws for those that need them."""
    if row.greedy or not outcome.draft_token_ids or VerifyStrategy.GREEDY_MATCH.value not in seen:
        return
    others = {
        strategy.value: VERIFIERS[strategy]
        for strategy in VerifyStrategy
        if VERIFIERS[strategy] is not row.verifier
    }
    outcome.others = {
        name: seen[name]
        for name, verifier in others.items()
        if row.verifier.needs_uniforms or not verifier.needs_uniforms
    }
    if "typical_distances" in seen:
        distances = seen["typical_distances"][: len(outcome.draft_token_ids)]
        outcome.typical_distances = [round(distance, DISTANCE_DIGITS) for distance in distances]
