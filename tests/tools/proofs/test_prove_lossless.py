"""`prove_lossless` says of what is lossless that it is, and of verifiers and drafters with one
thing wrong, what."""

import math
from itertools import takewhile
from typing import Any

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams
from naive_speculate.speculate.draft import (
    DRAFTERS,
    BatchDrafter,
    HeadDrafter,
    ModelDrafter,
    Proposal,
)
from naive_speculate.speculate.rules import Verdict, count_leading, inside, pick
from naive_speculate.speculate.samplers import RejectionSampler, TypicalAcceptanceSampler
from naive_speculate.speculate.verify import VERIFIERS, BlockVerifier, Verifier
from naive_speculate.testing import ToyModel, prove_lossless


def variant(name: str, base: type, **rules: Any) -> dict[str, Any]:
    """What to prove: a class with another rule."""
    return {"drafter" if issubclass(base, BatchDrafter) else "verifier": type(name, (base,), rules)}


def residual(p, q):
    rest = (p - q).clamp_min(0)
    return torch.where(
        rest.sum(-1, keepdim=True) > 0, rest / rest.sum(-1, keepdim=True).clamp_min(1e-300), p
    )


class OwnRejection(Verifier):
    """Speculative sampling, written independently."""

    def accept(self, p, q):
        return (p / q).clamp_max(1)

    def left(self, p, q):
        return residual(p, q)

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


class PeeksAhead(RejectionSampler):
    """After a rejection, the next token depends on the draw of the next index."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        if uniforms.shape[1] < 2 or verdict.num_accepted[0] > 0 or uniforms[0, 1] < 0.5:
            return verdict
        return verdict._replace(next_probs=target_probs[:, 0])


class OwnBlock(Verifier):
    """Block verification of one row, index by index, written independently."""

    judges_all = True

    def scale(self, p):
        """What multiplies the target in the residual: the running product."""
        return p

    def excess(self, p, target, draft):
        return (p * target - draft).clamp_min(0).sum()

    def below(self, p, excess):
        """The denominator of h."""
        return excess + 1 - p

    def h(self, p, target, draft):
        excess = self.excess(p, target, draft)
        below = self.below(p, excess)
        return excess / below if below > 0 else torch.ones_like(excess)

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        k = draft_token_ids.shape[1]
        p = [torch.ones((), dtype=target_probs.dtype)]
        for index, token in enumerate(draft_token_ids[0].tolist()):
            p.append(
                (p[-1] * target_probs[0, index, token] / draft_probs[0, index, token]).clamp_max(1)
            )
        h = [self.h(p[n], target_probs[0, n], draft_probs[0, n]) for n in range(1, k)] + p[k:] * (
            k > 0
        )
        accepted = max((n for n in range(1, k + 1) if uniforms[0, n - 1] < h[n - 1]), default=0)
        next_probs = target_probs[0, accepted]
        if accepted < k:
            rest = (self.scale(p[accepted]) * next_probs - draft_probs[0, accepted]).clamp_min(0)
            next_probs = rest / rest.sum() if rest.sum() > 0 else next_probs
        accept_probs = torch.stack(h)[None] if h else target_probs.new_zeros(1, 0)
        return Verdict(torch.tensor([accepted]), next_probs[None], None, accept_probs)


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

    def drawn(self, row, q):
        return int(row.random.categorical(q))

    def stated(self, q):
        return q

    def draft(self, row, limit, q):
        return [self.drawn(row, q) for _ in range(limit)]

    def propose(self, rows, limits):
        weights = torch.tensor(
            [self.weights[token % 3] for token in range(self.vocab_size)], dtype=self.dtype
        )
        q = weights / weights.sum()
        drafts = [self.draft(row, limit, q) for row, limit in zip(rows, limits, strict=True)]
        width = max(map(len, drafts))
        token_ids = torch.tensor(
            [draft + [0] * (width - len(draft)) for draft in drafts], dtype=torch.int64
        )
        return Proposal(
            token_ids, self.stated(q).expand(len(rows), width, -1), [len(draft) for draft in drafts]
        )


class EndsAfterDoubtful(Constant):
    """Ends the window after a token of low confidence."""

    def draft(self, row, limit, q):
        tokens = [self.drawn(row, q)]
        while len(tokens) < limit and q[tokens[-1]] > 0.25:
            tokens.append(self.drawn(row, q))
        return tokens


class StatesCertainty(ModelDrafter):
    """Draws with a model, and states that it was certain: fewer are accepted, but the output is
    the target's all the same."""

    def propose(self, rows, limits):
        proposal = super().propose(rows, limits)
        return proposal._replace(
            probs=torch.nn.functional.one_hot(proposal.token_ids, self.vocab_size).double()
        )


CPU = torch.device("cpu")
TWO = ModelPair(ToyModel(2, 5, zeros=False), ToyModel(2, 6, zeros=False))
"""The fewest paths that have every kind of verdict."""
THREE = ModelPair(ToyModel(3, 3, zeros=False), ToyModel(3, 4, zeros=False))
TOYS = {
    "verifier": "speculative_sampling",
    "pair": None,
    "params": SamplingParams(max_tokens=2),
    "num_draft_tokens": 1,
}
"""Those of the proof itself, where none are given."""
LOSSLESS = {
    "model": {"drafter": "model"},
    "block_verification": {"verifier": "block_verification"},
    "an instance of a verifier of one's own": {"verifier": OwnRejection()},
    "acceptance probabilities above 1": variant(
        "UnclampedRejection", OwnRejection, accept=lambda _, p, q: p / q
    ),
    "block verification of one's own": {"verifier": OwnBlock},
    "a drafter of one's own": {"drafter": Constant},
    "an instance of a drafter": {
        "drafter": Constant(ModelPair(ToyModel(3, 1)), 3, CPU),
        "pair": THREE,
    },
    "a window that ends behind a doubtful token": {"drafter": EndsAfterDoubtful, "pair": THREE},
    "what was drawn, stated as certain": {"drafter": StatesCertainty},
    "both": {"verifier": OwnBlock, "drafter": Constant},
    "draws from float32, compared as closely as they can be": variant(
        "Coarse", Constant, dtype=torch.float32
    ),
    "toys with a head": {"drafter": HeadDrafter} | TOYS,
    "toys with a block drafter": {"drafter": DRAFTERS["block"]} | TOYS,
    "toys of models": TOYS,
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_what_is_lossless_is_found_so(name):
    before = dict(VERIFIERS), dict(DRAFTERS)
    proof = prove_lossless(**{"pair": TWO} | LOSSLESS[name])
    assert proof.lossless, str(proof)
    assert proof.counterexample is None
    assert proof.max_difference <= proof.tolerance == (1e-6 if "float32" in name else 1e-12)
    assert proof.num_paths > 14
    assert str(proof) == f"lossless, to {proof.tolerance:.0e}, over {proof.num_paths} paths"
    assert before == (VERIFIERS, DRAFTERS)


# draws from the target after a rejection
NO_RESIDUAL = variant("NoResidual", OwnRejection, left=lambda _, p, q: p)
DIFFERS = {
    "typical acceptance": {"verifier": "typical_acceptance"},
    "an instance of it": {"verifier": TypicalAcceptanceSampler(0.2, 0.5)},
    "the residual from the wrong side": variant(
        "WrongSide", OwnRejection, left=lambda _, p, q: residual(q, p)
    ),
    "no residual": NO_RESIDUAL,
    "a tenth more accepted, and stated": variant(
        "Lenient", OwnRejection, accept=lambda _, p, q: (1.1 * p / q).clamp_max(1)
    ),
    "block residual without the running product": variant(
        "Unscaled", OwnBlock, scale=lambda _, p: torch.ones_like(p)
    ),
    "block with h the running product": variant(
        "RunningProduct", OwnBlock, h=lambda _, p, target, draft: p
    )
    | {"pair": TWO},
    "block without the running product in h": {"pair": TWO}
    | variant(
        "ExcessUnscaled",
        OwnBlock,
        excess=lambda _, p, target, draft: (target - draft).clamp_min(0).sum(),
    ),
    "block with 1 for 1 − p in the denominator": {"pair": TWO}
    | variant("Denominator", OwnBlock, below=lambda _, p, excess: excess + 1),
    "a doubtful draft that is dropped, with all that follow": variant(
        "DropsDoubtful",
        Constant,
        draft=lambda *of: [*takewhile(lambda token: of[-1][token] >= 0.25, Constant.draft(*of))],
    ),
    "another q than it draws from": variant(
        "StatesAnother", Constant, stated=lambda _, q: torch.full_like(q, 1 / len(q))
    ),
}


@pytest.mark.parametrize("name", DIFFERS)
def test_the_first_distribution_that_differs_is_shown_with_its_path(name):
    proof = prove_lossless(**DIFFERS[name])
    assert not proof.lossless
    assert proof.max_difference > 1e-3
    shown = proof.counterexample
    assert len(shown.expected) == len(shown.found) >= 2
    assert (sum(shown.expected), sum(shown.found)) == pytest.approx((1, 1))
    assert shown.expected != pytest.approx(shown.found, abs=1e-9)
    assert shown.path[0].startswith("step 1: ")
    assert "the target's distribution is" in str(proof)
    assert str(proof).startswith("not lossless: ")
    assert shown.path[-1] in str(proof)


def test_the_distribution_that_differs_is_the_right_one():
    """A residual that is the target itself: at the first token, token x comes with min(p, q) + p
    · Σ max(0, q − p)."""
    target, draft = ToyModel(3, 1, zeros=False), ToyModel(3, 2, zeros=False)
    options = {"params": SamplingParams(max_tokens=2), "num_draft_tokens": 1, "drafter": "model"}
    shown = prove_lossless(**NO_RESIDUAL, pair=ModelPair(target, draft), **options).counterexample
    p, q = (torch.softmax(model.logits((1, 2)), -1) for model in (target, draft))
    assert shown.token_ids == ()
    assert shown.expected == pytest.approx(p.tolist())
    assert shown.found == pytest.approx(
        (torch.minimum(p, q) + p * (q - p).clamp_min(0).sum()).tolist()
    )


REASONS = {
    "greedy matching": ({"verifier": "greedy_match"}, "at temperature 0 only"),
    "a draw that must not count": (
        {"verifier": PeeksAhead},
        "draws on the same side .* decide differently",
    ),
    "block verification up to the first failure": (
        {"verifier": BlockUpToFirst},
        "comes a draw from .* comes a draw",
    ),
    "0 / 0 in the residual": (
        variant("Nan", OwnRejection, left=lambda _, p, q: (p - q).clamp_min(0) * torch.nan),
        r"next_probs are no distribution: \[nan, nan, nan\]",
    ),
    "NaN in accept_probs": (
        variant("NanAccept", OwnRejection, accept=lambda _, p, q: p * torch.nan),
        "accept_probs hold NaN",
    ),
    "a residual that is not normalised": (
        variant("Unnormalised", OwnRejection, left=lambda _, p, q: (p - q).clamp_min(0)),
        "next_probs are no distribution: .* sum to 0",
    ),
    "more drafts than there are": (
        variant(
            "KeepsTooMany",
            OwnRejection,
            judge=lambda _, *of: OwnRejection().judge(*of)._replace(num_accepted=of[-1] + 1),
        ),
        "verifier KeepsTooMany accepted 2 draft tokens in a window of 1",
    ),
    "another source": (
        variant("Elsewhere", Constant, drawn=lambda _, row, q: int(torch.multinomial(q, 1)))
        | {"pair": THREE},
        "do not repeat the run: something draws from another source",
    ),
    "another seed": (
        variant(
            "OwnSeed",
            Constant,
            drawn=lambda _, row, q: int(
                q.multinomial(1, generator=torch.Generator().manual_seed(1))
            ),
        ),
        r"states q = .*, but drew nothing from the row's random source",
    ),
    "uniform draws": (
        variant(
            "UniformDraws",
            Constant,
            drawn=lambda _, row, q: int((q.cumsum(0) < row.random.uniform()).sum()),
        ),
        r"the drafter calls the row's uniform\(\)",
    ),
    "NaN in q": (
        variant("NanProbs", Constant, stated=lambda _, q: q * torch.nan),
        "drafter 'NanProbs' proposed probs that are not probabilities",
    ),
    "an exception": (
        variant("Broken", Constant, draft=lambda *_: 1 / 0),
        "it fails: ZeroDivisionError: division by zero",
    ),
    "no drafts": (
        variant("Silent", Constant, draft=lambda *_: []) | {"pair": TWO},
        "nothing was drafted on any path, which proves nothing",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_cannot_be_lossless_is_reported_in_words(name):
    given, reason = REASONS[name]
    proof = prove_lossless(**given)
    assert not proof.lossless
    with pytest.raises(AssertionError, match=f"not lossless: (?s:.)*{reason}"):
        raise AssertionError(str(proof))
    assert not proof.max_difference <= 1e-12
    assert "prompt [1, " in proof.counterexample.case


LIES = {
    "draws made larger": (
        lambda uniforms: uniforms + 1e-9,
        "states accept_probs .* accepts 1 of 1 draft tokens, but .* is 0",
    ),
    "draws made smaller": (lambda uniforms: uniforms - 1e-9, ""),
    "accepted where equal": (
        lambda uniforms: torch.nextafter(uniforms, torch.zeros_like(uniforms)),
        "",
    ),
    "rounded to float32": (lambda uniforms: uniforms.float().to(uniforms.dtype), ""),
    "squared": (lambda uniforms: uniforms**2, ""),
    "the other side": (lambda uniforms: 1 - uniforms, "states accept_probs .* but num_accepted is"),
}


@pytest.mark.parametrize("base", [RejectionSampler, BlockVerifier])
@pytest.mark.parametrize("name", LIES)
def test_a_verifier_that_compares_with_another_number_than_it_states_is_found_out(name, base):
    change, message = LIES[name]
    proof = prove_lossless(
        **variant(
            "Liar", base, judge=lambda self, *of: base.judge(self, *of[:3], change(of[3]), of[4])
        )
    )
    assert not proof.lossless
    with pytest.raises(AssertionError, match=f"not lossless: (?s:.)*{message}"):
        raise AssertionError(str(proof))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "verifier, drafter and rejection are all None"),
        ({"verifier": "mine"}, "verifier must be one of greedy_match, .* got 'mine'"),
        ({"drafter": "mine"}, "drafter must be one of model, .* got 'mine'"),
        ({"verifier": 3}, "verifier int has no judge"),
        ({"drafter": ToyModel}, "drafter ToyModel is not derived from .*BatchDrafter"),
        (
            {"verifier": type("Bare", (), {"judge": lambda self: None})},
            "verifier Bare has no greedy, .*: derive it from",
        ),
        (
            {"verifier": "speculative_sampling", "params": SamplingParams(temperature=0)},
            "params must sample",
        ),
        ({"drafter": Constant(ModelPair(ToyModel(9, 1)), 9, CPU)}, "an instance for 9 tokens"),
        (
            {"drafter": "model", "pair": ModelPair(ToyModel(3, 1))},
            "drafter is 'model', but this pair has no draft model",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message) as caught:
        prove_lossless(**given)
    assert "\n" not in str(caught.value)


def test_parameters_and_models_may_be_given():
    pair = ModelPair(ToyModel(4, 3, zeros=False), ToyModel(4, 4, zeros=False))
    params = SamplingParams(max_tokens=2, top_p=0.7, frequency_penalty=0.5)
    proof = prove_lossless(
        verifier="block_verification", pair=pair, params=params, num_draft_tokens=1
    )
    assert proof.lossless
    assert not math.isnan(proof.max_difference)
    shown = prove_lossless(
        verifier="typical_acceptance", pair=pair, params=params, prompt=[3]
    ).counterexample
    assert "top_p=0.7" in shown.case
    assert "prompt [3]" in shown.case
