"""Verifiers and drafters with one thing wrong each, or nothing."""

import torch

from naive_speculate.speculate.draft import BatchDrafter, ModelDrafter, Proposal
from naive_speculate.speculate.rules import Verdict, count_leading, inside, pick
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import BlockVerifier, Verifier

# Verifiers


class OwnRejection(Verifier):
    """Speculative sampling, written independently."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        k = draft_token_ids.shape[1]
        p, q = pick(target_probs[:, :k], draft_token_ids), pick(draft_probs, draft_token_ids)
        accept_probs = self.accept(p, q)
        num_accepted = count_leading((uniforms < accept_probs) & inside(lengths, k))
        rows = torch.arange(len(lengths))
        at = target_probs[rows, num_accepted]
        refused = num_accepted < lengths
        if k == 0 or not refused.any():
            return Verdict(num_accepted, at, None, accept_probs)
        left = self.left(at, draft_probs[rows, num_accepted.clamp_max(k - 1)])
        return Verdict(num_accepted, torch.where(refused[:, None], left, at), None, accept_probs)

    def accept(self, p, q):
        return (p / q).clamp_max(1)

    def left(self, p, q):
        rest = (p - q).clamp_min(0)
        return torch.where(rest.sum(-1, keepdim=True) > 0, rest / rest.sum(-1, keepdim=True).clamp_min(1e-300), p)


class UnclampedRejection(OwnRejection):
    """States p / q even where that is more than 1, which decides nothing."""

    def accept(self, p, q):
        return p / q


class WrongSide(OwnRejection):
    """The residual of the draft over the target."""

    def left(self, p, q):
        return super().left(q, p)


class NoResidual(OwnRejection):
    """Draws from the target after a rejection."""

    def left(self, p, q):
        return p


class Lenient(OwnRejection):
    """Keeps a tenth more, and says so."""

    def accept(self, p, q):
        return (1.1 * p / q).clamp_max(1)


class Nan(OwnRejection):
    """0 / 0 where the residual is empty."""

    def left(self, p, q):
        return (p - q).clamp_min(0) * torch.nan


class NanAccept(OwnRejection):
    """States no number."""

    def accept(self, p, q):
        return p * torch.nan


class Unnormalised(OwnRejection):
    """The residual as it is left."""

    def left(self, p, q):
        return (p - q).clamp_min(0)


class OtherNumber(RejectionSampler):
    """States the right acceptance probability and compares with a smaller one."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        return super().judge(target_probs, draft_probs, draft_token_ids, uniforms + 1e-9, lengths)


class Backwards(RejectionSampler):
    """Keeps a draft where the draw is large."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        return super().judge(target_probs, draft_probs, draft_token_ids, 1 - uniforms, lengths)


class PeeksAhead(RejectionSampler):
    """After a rejection, the next token depends on the draw of the next index."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        if uniforms.shape[1] < 2 or verdict.num_accepted[0] > 0 or uniforms[0, 1] < 0.5:
            return verdict
        return verdict._replace(next_probs=target_probs[:, 0])


class KeepsTooMany(RejectionSampler):
    """Keeps one draft more than there are."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        return verdict._replace(num_accepted=lengths + 1)


class _Block(Verifier):
    """Block verification of one row, place by place, with what `h` and `scale` make of it."""

    judges_all = True

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        k = draft_token_ids.shape[1]
        p = [torch.ones((), dtype=target_probs.dtype)]
        for place, token in enumerate(draft_token_ids[0].tolist()):
            p.append((p[-1] * target_probs[0, place, token] / draft_probs[0, place, token]).clamp_max(1))
        h = [self.h(p, place, k, target_probs[0], draft_probs[0]) for place in range(1, k + 1)]
        kept = max((place for place in range(1, k + 1) if uniforms[0, place - 1] < h[place - 1]), default=0)
        next_probs = target_probs[0, kept]
        if kept < k:
            rest = (self.scale(p, kept) * next_probs - draft_probs[0, kept]).clamp_min(0)
            next_probs = rest / rest.sum() if rest.sum() > 0 else next_probs
        accept_probs = torch.stack(h)[None] if h else target_probs.new_zeros(1, 0)
        return Verdict(torch.tensor([kept]), next_probs[None], None, accept_probs)

    def h(self, p, place, k, target, draft):
        if place == k:
            return p[k]
        excess = (p[place] * target[place] - draft[place]).clamp_min(0).sum()
        below = excess + 1 - p[place]
        return excess / below if below > 0 else torch.ones_like(excess)

    def scale(self, p, kept):
        return p[kept]


class OwnBlock(_Block):
    """Right."""


class BlockResidualUnscaled(_Block):
    """The residual of token-level sampling: max(0, target − draft)."""

    def scale(self, p, kept):
        return torch.ones_like(p[kept])


class BlockRunningProduct(_Block):
    """h is the running product at every place, as if each were the last."""

    def h(self, p, place, k, target, draft):
        return p[place]


class BlockExcessUnscaled(_Block):
    """The excess in h without the running product."""

    def h(self, p, place, k, target, draft):
        if place == k:
            return p[k]
        excess = (target[place] - draft[place]).clamp_min(0).sum()
        return excess / (excess + 1 - p[place]) if excess > 0 else p[place]


class BlockDenominator(_Block):
    """The denominator of h takes 1 for 1 − p, which keeps less."""

    def h(self, p, place, k, target, draft):
        if place == k:
            return p[k]
        excess = (p[place] * target[place] - draft[place]).clamp_min(0).sum()
        return excess / (excess + 1)


class BlockUpToFirst(BlockVerifier):
    """Stops at the first place that fails, as token-level verification does."""

    judges_all = False

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        return verdict._replace(num_accepted=count_leading(uniforms < verdict.accept_probs))


# Drafters


class Constant(BatchDrafter):
    """Draws every token from the same distribution."""

    weights = (0.2, 0.3, 0.5)

    def q(self):
        weights = torch.tensor([self.weights[token % 3] for token in range(self.vocab_size)], dtype=torch.float64)
        return weights / weights.sum()

    def drawn(self, row, q):
        return int(row.random.categorical(q))

    def stated(self, q):
        return q

    def keep(self, tokens, probs):
        return tokens

    def propose(self, rows, limits):
        q = self.q()
        drafts = [self.keep([self.drawn(row, q) for _ in range(limit)], q) for row, limit in zip(rows, limits, strict=True)]
        width = max(map(len, drafts))
        token_ids = torch.tensor([draft + [0] * (width - len(draft)) for draft in drafts], dtype=torch.int64)
        return Proposal(token_ids, self.stated(q).expand(len(rows), width, -1), [len(draft) for draft in drafts])


class Coarse(Constant):
    """In float32, as models draw."""

    def q(self):
        return super().q().float()


class EndsAfterDoubtful(Constant):
    """Ends the window after a token of low confidence."""

    def propose(self, rows, limits):
        q = self.q()
        drafts = []
        for row, limit in zip(rows, limits, strict=True):
            draft = [self.drawn(row, q)]
            while len(draft) < limit and q[draft[-1]] > 0.25:
                draft.append(self.drawn(row, q))
            drafts.append(draft)
        width = max(map(len, drafts))
        token_ids = torch.tensor([draft + [0] * (width - len(draft)) for draft in drafts])
        return Proposal(token_ids, q.expand(len(rows), width, -1), [len(draft) for draft in drafts])


class DropsDoubtful(Constant):
    """Drops a drawn token of which it is not sure, with all that follows."""

    def keep(self, tokens, probs):
        doubtful = [place for place, token in enumerate(tokens) if probs[token] < 0.25]
        return tokens[: doubtful[0]] if doubtful else tokens


class StatesAnother(Constant):
    """Says that it drew from the uniform distribution."""

    def stated(self, q):
        return torch.full_like(q, 1 / len(q))


class StatesCertainty(ModelDrafter):
    """Draws with a model, and says that it was certain: fewer are kept, but what comes out is the target's all the same."""

    def propose(self, rows, limits):
        proposal = super().propose(rows, limits)
        return proposal._replace(probs=torch.nn.functional.one_hot(proposal.token_ids, self.vocab_size).double())


class Elsewhere(Constant):
    """Draws from torch's global generator."""

    def drawn(self, row, q):
        return int(torch.multinomial(q, 1))


class OwnSeed(Constant):
    """Draws from a generator of its own, which restarts with every run."""

    def __init__(self, pair, vocab_size, device):
        super().__init__(pair, vocab_size, device)
        self.generator = torch.Generator().manual_seed(1)

    def drawn(self, row, q):
        return int(torch.multinomial(q, 1, generator=self.generator))


class UniformDraws(Constant):
    """Draws with uniform(), by the inverse of the cumulative distribution."""

    def drawn(self, row, q):
        return int((q.cumsum(0) < row.random.uniform()).sum())


class NanProbs(Constant):
    """States no numbers."""

    def stated(self, q):
        return q * torch.nan


class Broken(BatchDrafter):
    """Fails."""

    def propose(self, rows, limits):
        raise RuntimeError("no draft today")


class Silent(BatchDrafter):
    """Drafts nothing."""

    def propose(self, rows, limits):
        return Proposal(
            torch.zeros(len(rows), 0, dtype=torch.int64), torch.zeros(len(rows), 0, self.vocab_size), [0] * len(rows)
        )
