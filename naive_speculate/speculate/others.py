"""What the other strategies would have made of the same drafts and draws: computed by the verifiers themselves, in the step."""

from collections.abc import Sequence

import torch

from naive_speculate.events.record import Outcome
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.speculate.draft.proposal import Draft
from naive_speculate.speculate.judge import Distributions
from naive_speculate.speculate.samplers import TypicalAcceptanceSampler
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.verify import VERIFIERS, VerifyStrategy

DIGITS = 6


def add_others(
    outcomes: Sequence[Outcome], rows: Sequence[SequenceState], draft: Draft, p: Distributions, r: list[list[float]]
) -> None:
    """Let every strategy judge the windows of rows that sample and tell everything, with the draws of the step; their outcomes
    gain `others` and `typical_distances`.

    Where a row's own strategy draws nothing there is nothing for those that need draws; a greedy row has neither draws nor
    distributions of its temperature, and is left out.
    """
    members = [place for place, row in enumerate(rows) if row.detail == "full" and not row.greedy and draft.lengths[place]]
    if not members or p.probs is None or draft.probs is None:
        return
    drawn = [place for place in members if rows[place].verifier.needs_uniforms]
    lengths = on_device(draft.lengths, p.probs.device)
    if p.num_places is not None:
        lengths = torch.minimum(lengths, p.num_places)
    table = on_device(r, p.probs.device, p.probs.dtype)
    q = draft.probs.to(p.probs.dtype)
    kept: dict[str, torch.Tensor] = {}
    distances: list[list[float]] | None = None
    for strategy in VerifyStrategy:
        verifier = VERIFIERS[strategy]
        judged = drawn if verifier.needs_uniforms else members
        own = all(rows[place].verifier is verifier for place in judged)
        if own and not isinstance(verifier, TypicalAcceptanceSampler):
            continue
        given = (p.scores if verifier.greedy else p.probs, q, draft.token_ids, table, lengths)
        if not isinstance(verifier, TypicalAcceptanceSampler):
            kept[strategy] = verifier.count(*given)
            continue
        target = p.probs[:, :-1]
        known = [(outcome.target_entropies or [])[: len(outcome.draft_token_ids)] for outcome in outcomes]
        entropies = [row + [0.0] * (target.shape[1] - len(row)) for row in known]  # behind a window nothing is told
        thresholds = verifier.thresholds(target, on_device(entropies, p.probs.device, p.probs.dtype))
        kept[strategy] = verifier.keep(target, draft.token_ids, thresholds, lengths)[0]
        distances = verifier.distance(target, q, thresholds).tolist()
    counts = dict(zip(kept, to_lists(*kept.values()), strict=True))
    for place in members:
        row, length = rows[place], len(outcomes[place].draft_token_ids)
        outcomes[place].others = {
            str(strategy): count[place]
            for strategy, count in counts.items()
            if row.verifier is not VERIFIERS[strategy] and (place in drawn or not VERIFIERS[strategy].needs_uniforms)
        }
        if distances is not None:
            outcomes[place].typical_distances = [round(distance, DIGITS) for distance in distances[place][:length]]
