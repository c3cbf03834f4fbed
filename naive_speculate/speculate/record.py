"""What one step did to one sequence, brought from the device to Python once, for the whole batch."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from naive_speculate.events import TopTokens
from naive_speculate.speculate.proposal import Proposal
from naive_speculate.speculate.rules import Verdict, pick
from naive_speculate.speculate.sequence import Sequence
from naive_speculate.text import Vocabulary

TOP_TOKENS = 8


@dataclass(slots=True)
class StepRecord:
    """One sequence's step.

    Attributes:
        drafts: The drafted tokens.
        num_accepted: How many the verifier kept.
        extra: The token behind them.
        accept_probs, uniforms, thresholds, draft_probs: One number a draft, where they apply.
        target_probs: One number a draft, and the extra token's.
        draft_entropies, target_entropies: In nats; one a draft, for the target one more.
        draft_tops, target_tops: The most probable tokens; one list a draft, for the target one more.
        residual_top: The most probable tokens of what the extra token was drawn from after a rejection.
        draft_seconds, verify_seconds, total_seconds: The step's times, which a batch shares.
        time: Seconds since the sequence's run began.
        judges_all: Whether drafts behind a refused one were judged too.
        stuck: Whether nothing can be drawn behind the kept drafts, since that place has no distribution; then there is no
            extra token.
    """

    drafts: list[int]
    num_accepted: int
    extra: int
    accept_probs: list[float] | None = None
    uniforms: list[float] | None = None
    thresholds: list[float] | None = None
    draft_probs: list[float] | None = None
    target_probs: list[float] | None = None
    draft_entropies: list[float] | None = None
    target_entropies: list[float] | None = None
    draft_tops: list[TopTokens] | None = None
    target_tops: list[TopTokens] | None = None
    residual_top: TopTokens | None = None
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    total_seconds: float = 0.0
    time: float = 0.0
    judges_all: bool = False
    stuck: bool = False

    @property
    def tokens(self) -> list[int]:
        """What the step adds to the sequence, before any cut by a stop or the length limit."""
        kept = self.drafts[: self.num_accepted]
        return kept if self.stuck else [*kept, self.extra]


def make_records(
    sequences: Seq[Sequence],
    proposal: Proposal,
    verdict: Verdict,
    next_token_ids: torch.Tensor,
    uniforms: list[list[float]] | None,
    target_probs: torch.Tensor | None,
    num_usable: torch.Tensor,
    vocabulary: Vocabulary,
) -> list[StepRecord]:
    """Records of a batch, with as much as each sequence's detail asks for; times are filled in by the caller.

    Args:
        sequences: The batch.
        proposal: Its draft windows.
        verdict: What the verifier decided.
        next_token_ids: int64, shape `[batch_size]`: the tokens behind the kept drafts.
        uniforms: The draws that the verdict compared, by row; None where there were none.
        target_probs: Shape `[batch_size, k + 1, vocab_size]`; may be None where no sequence wants details.
        num_usable: int64, shape `[batch_size]`: up to where windows were judged; what was drafted behind is left out.
        vocabulary: Texts for the lists of most probable tokens.
    """
    columns = torch.stack([num_usable, verdict.num_accepted, next_token_ids], dim=1)
    packed = torch.cat([proposal.token_ids, columns], dim=1).tolist()
    records = []
    for row, length in zip(packed, proposal.lengths, strict=True):
        *drafts, places, accepted, extra = row
        records.append(StepRecord(drafts[: min(length, places)], accepted, extra, stuck=accepted == places))
    if target_probs is None or all(sequence.detail == "none" for sequence in sequences):
        return records
    _add_probs(records, sequences, proposal, verdict, next_token_ids, uniforms, target_probs)
    if any(sequence.detail == "full" for sequence in sequences):
        _add_tops(records, sequences, proposal, verdict, target_probs, vocabulary)
    return records


def _add_probs(
    records: list[StepRecord],
    sequences: Seq[Sequence],
    proposal: Proposal,
    verdict: Verdict,
    next_token_ids: torch.Tensor,
    uniforms: list[list[float]] | None,
    target_probs: torch.Tensor,
) -> None:
    rows = torch.arange(len(records), device=target_probs.device)
    k = proposal.token_ids.shape[1]
    extra = target_probs[rows, verdict.num_accepted].gather(1, next_token_ids[:, None])
    columns = [verdict.accept_probs.to(target_probs.dtype), pick(target_probs[:, :k], proposal.token_ids), extra]
    if proposal.probs is not None:
        columns.append(pick(proposal.probs, proposal.token_ids).to(target_probs.dtype))
    if verdict.thresholds is not None:
        columns.append(verdict.thresholds)
    table = torch.cat(columns, dim=1).tolist()
    for row, (record, sequence) in enumerate(zip(records, sequences, strict=True)):
        if sequence.detail == "none":
            continue
        line, length = table[row], len(record.drafts)
        record.accept_probs = line[:length]
        record.target_probs = [*line[k : k + length], line[2 * k]]
        if proposal.probs is not None:
            record.draft_probs = line[2 * k + 1 : 2 * k + 1 + length]
        if verdict.thresholds is not None:
            record.thresholds = line[len(line) - k :][:length]
        if uniforms is not None:
            record.uniforms = uniforms[row][:length]


def _add_tops(
    records: list[StepRecord],
    sequences: Seq[Sequence],
    proposal: Proposal,
    verdict: Verdict,
    target_probs: torch.Tensor,
    vocabulary: Vocabulary,
) -> None:
    parts = [target_probs]
    k = proposal.token_ids.shape[1]
    if proposal.probs is not None and k:
        parts.append(proposal.probs.to(target_probs.dtype))
    if verdict.next_probs is not None:
        parts.append(verdict.next_probs[:, None].to(target_probs.dtype))
    together = torch.cat(parts, dim=1)
    top = together.topk(min(TOP_TOKENS, together.shape[-1]), dim=-1)
    ids, probs = top.indices.tolist(), top.values.tolist()
    entropies = _entropy(together[:, : 2 * k + 1]).tolist()

    def entry(row: int, place: int) -> TopTokens:
        tokens, values = ids[row][place], probs[row][place]
        while values and values[-1] <= 0:
            values.pop()
        return TopTokens(tokens[: len(values)], values, vocabulary.text_of)

    for row, (record, sequence) in enumerate(zip(records, sequences, strict=True)):
        if sequence.detail != "full":
            continue
        length = len(record.drafts)
        record.target_tops = [entry(row, place) for place in range(length)] + [entry(row, record.num_accepted)]
        record.target_entropies = [*entropies[row][:length], entropies[row][record.num_accepted]]
        if proposal.probs is not None and k:
            record.draft_tops = [entry(row, k + 1 + place) for place in range(length)]
            record.draft_entropies = entropies[row][k + 1 : k + 1 + length]
        if verdict.next_probs is not None and record.num_accepted < length:
            record.residual_top = entry(row, together.shape[1] - 1) or None


def _entropy(probs: torch.Tensor) -> torch.Tensor:
    """Entropies in nats over the last dimension; in half the time of `torch.special.entr`."""
    return torch.linalg.vecdot(probs, probs.clamp_min(torch.finfo(probs.dtype).tiny).log().neg_())
