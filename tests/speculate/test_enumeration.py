"""The proof itself: enumeration sees a verifier that does not do what it says, and a drafter that drafts nothing."""

import math

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.draft.copying import NOTHING
from naive_speculate.speculate.draft.prompt_lookup import PromptLookupDrafter
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import VERIFIERS, BlockVerifier, VerifyStrategy
from tests.speculate.toys import ToyModel, check_lossless, toys

PROMPT = [1, 2]
LOSSLESS = {VerifyStrategy.SPECULATIVE_SAMPLING: RejectionSampler, VerifyStrategy.BLOCK_VERIFICATION: BlockVerifier}
LIES = {
    "draws made larger": lambda uniforms: uniforms + 1e-9,
    "draws made smaller": lambda uniforms: uniforms - 1e-9,
    "kept where equal": lambda uniforms: torch.nextafter(uniforms, torch.zeros_like(uniforms)),
    "rounded to float32": lambda uniforms: uniforms.float().to(uniforms.dtype),
    "squared": lambda uniforms: uniforms**2,
}


@pytest.mark.parametrize("strategy", LOSSLESS)
@pytest.mark.parametrize("name", LIES)
def test_a_verifier_that_compares_with_another_number_than_it_states_is_found_out(monkeypatch, name, strategy):
    class Liar(LOSSLESS[strategy]):
        def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
            return super().judge(target_probs, draft_probs, draft_token_ids, LIES[name](uniforms), lengths)

    monkeypatch.setitem(VERIFIERS, strategy, Liar())
    with pytest.raises(AssertionError):
        check_lossless(toys(), SamplingParams(max_tokens=3), verify_strategy=strategy)


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_in_float32_draws_are_compared_as_exactly_as_in_float64(strategy):
    """Among the draws that enumeration tries is the largest number below 1, whose nearest float32 is 1."""
    target, draft = (ToyModel(3, seed, dtype=torch.float32) for seed in (5, 6))
    for drafter in (draft, target):
        check_lossless(ModelPair(target, drafter), SamplingParams(max_tokens=3), verify_strategy=strategy, within=1e-6)


class AlmostOne:
    """Draws the largest number below 1 every time."""

    def uniform(self) -> float:
        return math.nextafter(1.0, 0.0)

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        return probs.argmax()


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_a_draft_that_is_certain_is_never_refused(strategy):
    target = ToyModel(7, 3, dtype=torch.float32)
    decoder = SpeculativeDecoder(ModelPair(target, target))
    request = Request(PROMPT, SamplingParams(max_tokens=30, ignore_eos=True), verify_strategy=strategy)
    run, batch, events = decoder.prepare(request, random=lambda seed, index: AlmostOne()), decoder.new_batch(), []
    batch.admit(run.rows)
    while not run.over:
        events += run.events(batch.step(run.rows))
    judged = [e for e in events if e.accept_prob is not None]
    assert len(judged) > 20
    for event in judged:
        assert event.accept_prob == 1
        assert event.uniform == math.nextafter(1.0, 0.0)
        assert event.kind == EventKind.ACCEPTED


def test_a_drafter_that_drafts_nothing_is_found_out(monkeypatch):
    monkeypatch.setattr(PromptLookupDrafter, "copy", lambda self, index, limit: NOTHING)
    with pytest.raises(AssertionError, match="nothing was drafted"):
        check_lossless(ModelPair(ToyModel(3, 6)), SamplingParams(max_tokens=4), drafter="prompt_lookup")
