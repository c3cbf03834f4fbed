"""Verifiers and drafters with one thing wrong each, or nothing."""

from typing import Any

import torch

from naive_speculate.speculate.draft import BatchDrafter, ModelDrafter, Proposal
from naive_speculate.speculate.rules import Verdict, count_leading, inside, pick
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import BlockVerifier, Verifier


def variant(name: str, base: type, **members: Any) -> Any:
    """A class with other members."""
    return type(name, (base,), members)


def residual(p, q):
    rest = (p - q).clamp_min(0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest / rest.sum(-1, keepdim=True).clamp_min(1e-300), p)


class OwnRejection(Verifier):
    """Speculative sampling, written independently."""

    accept = staticmethod(lambda p, q: (p / q).clamp_max(1))
    left = staticmethod(residual)

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


def rejection(name: str, **rules: Any) -> Any:
    """`OwnRejection` with another rule for acceptance or for what is left after a rejection."""
    return variant(name, OwnRejection, **{rule: staticmethod(function) for rule, function in rules.items()})


UnclampedRejection = rejection("UnclampedRejection", accept=lambda p, q: p / q)  # correct: more than 1 decides nothing
WrongSide = rejection("WrongSide", left=lambda p, q: residual(q, p))  # the residual of the draft over the target
NoResidual = rejection("NoResidual", left=lambda p, q: p)  # draws from the target after a rejection
Lenient = rejection("Lenient", accept=lambda p, q: (1.1 * p / q).clamp_max(1))  # accepts a tenth more, and states so
Nan = rejection("Nan", left=lambda p, q: (p - q).clamp_min(0) * torch.nan)  # 0 / 0 where the residual is empty
NanAccept = rejection("NanAccept", accept=lambda p, q: p * torch.nan)  # states no number
Unnormalised = rejection("Unnormalised", left=lambda p, q: (p - q).clamp_min(0))  # the residual as it is left


def judged_with(change: Any) -> Any:
    """A `judge` that passes other draws to the class above."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        return RejectionSampler.judge(self, target_probs, draft_probs, draft_token_ids, change(uniforms), lengths)

    return judge


# States the right acceptance probability and compares with a smaller one; accepts a draft token if the draw is large.
OtherNumber = variant("OtherNumber", RejectionSampler, judge=judged_with(lambda uniforms: uniforms + 1e-9))
Backwards = variant("Backwards", RejectionSampler, judge=judged_with(lambda uniforms: 1 - uniforms))


class PeeksAhead(RejectionSampler):
    """After a rejection, the next token depends on the draw of the next index."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        if uniforms.shape[1] < 2 or verdict.num_accepted[0] > 0 or uniforms[0, 1] < 0.5:
            return verdict
        return verdict._replace(next_probs=target_probs[:, 0])


class KeepsTooMany(RejectionSampler):
    """Accepts one draft token more than there are."""

    def judge(self, *given):
        return super().judge(*given)._replace(num_accepted=given[-1] + 1)


class OwnBlock(Verifier):
    """Block verification of one row, index by index, with what `h` and `scale` make of it; as it stands it is correct."""

    judges_all = True
    scale = staticmethod(lambda p: p)  # of the target in the residual, by the running product
    excess = staticmethod(lambda p, target, draft: (p * target - draft).clamp_min(0).sum())
    below = staticmethod(lambda p, excess: excess + 1 - p)  # the denominator of h

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        k = draft_token_ids.shape[1]
        p = [torch.ones((), dtype=target_probs.dtype)]
        for index, token in enumerate(draft_token_ids[0].tolist()):
            p.append((p[-1] * target_probs[0, index, token] / draft_probs[0, index, token]).clamp_max(1))
        h = [self.h(p[n], target_probs[0, n], draft_probs[0, n]) for n in range(1, k)] + p[k:] * (k > 0)
        accepted = max((n for n in range(1, k + 1) if uniforms[0, n - 1] < h[n - 1]), default=0)
        next_probs = target_probs[0, accepted]
        if accepted < k:
            rest = (self.scale(p[accepted]) * next_probs - draft_probs[0, accepted]).clamp_min(0)
            next_probs = rest / rest.sum() if rest.sum() > 0 else next_probs
        accept_probs = torch.stack(h)[None] if h else target_probs.new_zeros(1, 0)
        return Verdict(torch.tensor([accepted]), next_probs[None], None, accept_probs)

    def h(self, p, target, draft):
        excess = self.excess(p, target, draft)
        below = self.below(p, excess)
        return excess / below if below > 0 else torch.ones_like(excess)


def block(name: str, **rules: Any) -> Any:
    """`OwnBlock` with another rule."""
    return variant(name, OwnBlock, **{rule: staticmethod(function) for rule, function in rules.items()})


BlockResidualUnscaled = block("BlockResidualUnscaled", scale=torch.ones_like)  # max(0, target − draft), as token by token
BlockRunningProduct = block("BlockRunningProduct", h=lambda p, target, draft: p)  # as if each index were the last
BlockExcessUnscaled = block("BlockExcessUnscaled", excess=lambda p, target, draft: (target - draft).clamp_min(0).sum())
BlockDenominator = block("BlockDenominator", below=lambda p, excess: excess + 1)  # 1 for 1 − p, which accepts less


class BlockUpToFirst(BlockVerifier):
    """Stops at the first index that fails, as token-level verification does."""

    judges_all = False

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        return verdict._replace(num_accepted=count_leading(uniforms < verdict.accept_probs))


class Constant(BatchDrafter):
    """Draws every token from the same distribution."""

    weights = (0.2, 0.3, 0.5)
    dtype = torch.float64

    def q(self):
        weights = torch.tensor([self.weights[token % 3] for token in range(self.vocab_size)], dtype=self.dtype)
        return weights / weights.sum()

    def drawn(self, row, q):
        return int(row.random.categorical(q))

    def stated(self, q):
        return q

    def draft(self, row, limit, q):
        return [self.drawn(row, q) for _ in range(limit)]

    def propose(self, rows, limits):
        q = self.q()
        drafts = [self.draft(row, limit, q) for row, limit in zip(rows, limits, strict=True)]
        width = max(map(len, drafts))
        token_ids = torch.tensor([draft + [0] * (width - len(draft)) for draft in drafts], dtype=torch.int64)
        return Proposal(token_ids, self.stated(q).expand(len(rows), width, -1), [len(draft) for draft in drafts])


class EndsAfterDoubtful(Constant):
    """Ends the window after a token of low confidence."""

    def draft(self, row, limit, q):
        tokens = [self.drawn(row, q)]
        while len(tokens) < limit and q[tokens[-1]] > 0.25:
            tokens.append(self.drawn(row, q))
        return tokens


class DropsDoubtful(Constant):
    """Drops a drawn token of which it is not sure, with all that follows."""

    def draft(self, row, limit, q):
        tokens = super().draft(row, limit, q)
        return tokens[: next((index for index, token in enumerate(tokens) if q[token] < 0.25), limit)]


class OwnSeed(Constant):
    """Draws from a generator of its own, which restarts with every run."""

    def __init__(self, pair, vocab_size, device):
        super().__init__(pair, vocab_size, device)
        self.generator = torch.Generator().manual_seed(1)

    def drawn(self, row, q):
        return int(torch.multinomial(q, 1, generator=self.generator))


Coarse = variant("Coarse", Constant, dtype=torch.float32)  # as models draw
StatesAnother = variant("StatesAnother", Constant, stated=lambda self, q: torch.full_like(q, 1 / len(q)))  # the uniform one
NanProbs = variant("NanProbs", Constant, stated=lambda self, q: q * torch.nan)  # states no numbers
Elsewhere = variant("Elsewhere", Constant, drawn=lambda self, row, q: int(torch.multinomial(q, 1)))  # torch's global generator
# Draws with uniform(), by the inverse of the cumulative distribution.
UniformDraws = variant("UniformDraws", Constant, drawn=lambda self, row, q: int((q.cumsum(0) < row.random.uniform()).sum()))


class StatesCertainty(ModelDrafter):
    """Draws with a model, and states that it was certain: fewer are accepted, but the output is the target's all the same."""

    def propose(self, rows, limits):
        proposal = super().propose(rows, limits)
        return proposal._replace(probs=torch.nn.functional.one_hot(proposal.token_ids, self.vocab_size).double())


class Broken(BatchDrafter):
    """Fails."""

    def propose(self, rows, limits):
        raise RuntimeError("no draft today")


class Silent(BatchDrafter):
    """Drafts nothing."""

    def propose(self, rows, limits):
        empty = torch.zeros(len(rows), 0, dtype=torch.int64)
        return Proposal(empty, torch.zeros(len(rows), 0, self.vocab_size), [0] * len(rows))
