"""Drafters of others: what they propose is checked before it is believed."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter, Proposal
from tests.speculate.toys import ToyModel, check_lossless

VOCAB = 5
PROMPT = [1, 2]


class Foreign(BatchDrafter):
    """Proposes tokens 1, 2, 3 … of which it is certain, changed by `spoil`."""

    spoil = staticmethod(lambda proposal: proposal)

    def propose(self, rows, limits) -> Proposal:
        token_ids = torch.arange(1, max(limits) + 1).expand(len(rows), -1) % self.vocab_size
        probs = torch.nn.functional.one_hot(token_ids, self.vocab_size).float()
        return self.spoil(Proposal(token_ids, probs, list(limits)))


@pytest.fixture
def foreign(monkeypatch):
    """Registers a drafter "mine" whose proposals a function changes."""

    def register(spoil):
        monkeypatch.setitem(DRAFTERS, "mine", type("Mine", (Foreign,), {"spoil": staticmethod(spoil)}))
        return SpeculativeDecoder(ModelPair(ToyModel(VOCAB, 1)))

    return register


def scaled(proposal, factor):
    return proposal._replace(probs=proposal.probs * factor)


SPOILED = {
    "missing probs": (lambda p: p._replace(probs=None), "probs=None"),
    "narrow probs": (lambda p: p._replace(probs=p.probs[..., :-1]), r"probs of shape \[1, 3, 5\], .* got \[1, 3, 4\]"),
    "whole numbers": (lambda p: p._replace(probs=p.probs.long()), "probs .* got .* torch.int64"),
    "too large a sum": (lambda p: scaled(p, 1.2), r"sum to \[1.2"),
    "logits": (lambda p: scaled(p, -1.0), "not probabilities"),
    "NaN": (lambda p: scaled(p, torch.nan), "not probabilities"),
    "another width": (lambda p: p._replace(token_ids=p.token_ids.repeat(2, 1)), r"token_ids of shape \[1, 3\], int64"),
    "tokens of another dtype": (lambda p: p._replace(token_ids=p.token_ids.int()), "int64, got .* torch.int32"),
    "tokens outside": (lambda p: p._replace(token_ids=p.token_ids + 4), "token 7, outside the vocabulary of 5"),
    "negative tokens": (lambda p: p._replace(token_ids=p.token_ids - 2), "token -1, outside the vocabulary of 5"),
    "impossible tokens": (lambda p: p._replace(token_ids=p.token_ids.flip(1)), "a token to which its own probs give 0"),
    "too long": (lambda p: p._replace(lengths=[4]), r"lengths \[4\]"),
    "too many rows": (lambda p: p._replace(lengths=[1, 1]), r"lengths \[1, 1\]"),
    "a source before the text": (lambda p: p._replace(copied_from=[-1]), r"copied_from \[-1\]"),
    "a source after the text": (lambda p: p._replace(copied_from=[2]), r"copied_from \[2\]"),
    "a source that is no number": (lambda p: p._replace(copied_from=["x"]), r"copied_from \['x'\]"),
    "too many sources": (lambda p: p._replace(copied_from=[0, 0]), r"copied_from \[0, 0\]"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_proposal_that_cannot_be_is_refused_and_its_drafter_named(foreign, name):
    spoil, message = SPOILED[name]
    decoder = foreign(spoil)
    with pytest.raises(ValueError, match=f"drafter 'mine' .*{message}"):
        decoder.generate(PROMPT, SamplingParams(seed=1, ignore_eos=True), drafter="mine", num_draft_tokens=3)


def test_every_proposal_is_checked(foreign):
    first = iter([True] + [False] * 99)
    decoder = foreign(lambda proposal: proposal if next(first) else scaled(proposal, 0.7))
    with pytest.raises(ValueError, match=r"drafter 'mine' .* not probabilities"):
        decoder.generate(PROMPT, SamplingParams(seed=1, ignore_eos=True), drafter="mine", num_draft_tokens=3)


@pytest.mark.parametrize("detail", ["full", "none"])
def test_greedy_decoding_needs_no_probs(foreign, detail):
    decoder = foreign(lambda proposal: proposal._replace(probs=None))
    for options in ({"params": SamplingParams(temperature=0)}, {"verify_strategy": "greedy_match"}):
        found = decoder.generate(PROMPT, drafter="mine", detail=detail, **options)
        assert found.metrics.num_draft_tokens > 0
        assert found.token_ids == decoder.generate(PROMPT, num_draft_tokens=0, **options).token_ids


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_a_foreign_drafter_is_lossless(foreign, strategy):
    pair = foreign(lambda proposal: proposal).pair
    check_lossless(pair, SamplingParams(max_tokens=3), drafter="mine", verify_strategy=strategy, within=1e-6)
