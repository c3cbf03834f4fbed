"""The verify part of a step: target scores to probabilities, draws, and each strategy's verdict on its rows."""

import numpy as np
import torch

from naive_speculate.infer.transfer import on_device
from naive_speculate.speculate.proposal import Proposal, batch_scores, usable_probabilities
from naive_speculate.speculate.rules import Verdict, count_leading
from naive_speculate.speculate.sequence import Sequence
from naive_speculate.speculate.verifiers import VERIFIERS, VerifyStrategy


def verify(
    sequences: list[Sequence], proposal: Proposal, logits: torch.Tensor
) -> tuple[Verdict, torch.Tensor, list[list[float]], torch.Tensor | None, torch.Tensor]:
    """Judge the windows of a batch.

    Args:
        sequences: The batch.
        proposal: Its draft windows.
        logits: The target's, shape `[batch_size, k + 1, vocab_size]`.

    Returns:
        tuple: The verdict; the tokens behind the kept drafts, int64 of shape `[batch_size]`; the uniform draws by row; the
        target's probabilities, in the shape of `logits`, or None where no sequence needs them; and at how many places from the
        first on each row has a distribution at all, int64 of shape `[batch_size]`. Windows are judged up to there. Where a row
        keeps as many drafts, there is nothing to draw its next token from.
    """
    pipelines = [sequence.pipeline for sequence in sequences]
    if all(pipeline.plain for pipeline in pipelines):
        scores = batch_scores(pipelines, logits, [])
    else:
        windows = [row[:n] for row, n in zip(proposal.token_ids.tolist(), proposal.lengths, strict=True)]
        scores = batch_scores(pipelines, logits, [s.output_token_ids for s in sequences], windows)
    target_probs = None
    if any(sequence.needs_probs for sequence in sequences):
        target_probs, usable = usable_probabilities(pipelines, scores)
    else:
        usable = scores.amax(dim=-1).isfinite()
    num_usable = count_leading(usable)
    k = proposal.token_ids.shape[1]
    lengths = torch.minimum(on_device(proposal.lengths, logits.device), num_usable)
    judged = scores if target_probs is None else target_probs
    uniforms = _rounded_down(
        [
            [s.random.uniform() for _ in range(n)] + [0.0] * (k - n) if _draws(s) else [0.0] * k
            for s, n in zip(sequences, proposal.lengths, strict=True)
        ],
        judged.dtype,
    )
    draft_probs = judged[:, :k] if proposal.probs is None else proposal.probs
    table = on_device(uniforms, logits.device, judged.dtype)
    by_strategy: dict[VerifyStrategy, list[int]] = {}
    for row, sequence in enumerate(sequences):
        by_strategy.setdefault(rule_of(sequence), []).append(row)
    verdicts = []
    for strategy, rows in by_strategy.items():
        verifier = VERIFIERS[strategy]
        source = scores if strategy == VerifyStrategy.GREEDY_MATCH else judged
        if len(by_strategy) == 1:
            arguments = (source, draft_probs, proposal.token_ids, table, lengths)
        else:
            arguments = (source[rows], draft_probs[rows], proposal.token_ids[rows], table[rows], lengths[rows])
        verdicts.append(verifier.judge(*arguments))
    verdict = verdicts[0] if len(verdicts) == 1 else _merge_verdicts(verdicts, list(by_strategy.values()), logits.shape[-1])
    return verdict, _next_tokens(sequences, verdict), uniforms, target_probs, num_usable


def rule_of(sequence: Sequence) -> VerifyStrategy:
    """How a sequence's drafts are judged: at temperature 0, by greedy matching under every strategy."""
    return VerifyStrategy.GREEDY_MATCH if sequence.greedy else sequence.strategy


def _rounded_down(uniforms: list[list[float]], dtype: torch.dtype) -> list[list[float]]:
    """The draws in the dtype that they are compared in. The nearest number to one just below 1 would be 1, which refuses even a
    draft that is certain; rounded down, every comparison comes out as it would in float64."""
    if dtype == torch.float64:
        return uniforms
    exact = np.asarray(uniforms)
    nearest = exact.astype(np.float32)
    rounded: list[list[float]] = np.where(nearest > exact, np.nextafter(nearest, np.float32(0)), nearest).tolist()
    return rounded


def _draws(sequence: Sequence) -> bool:
    return VERIFIERS[rule_of(sequence)].needs_uniforms


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
