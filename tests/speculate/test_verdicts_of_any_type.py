"""Verdicts may be of other types than those of the engine's own steps on the CPU."""

from typing import Any

import pytest
import torch

from naive_speculate import EventKind, SamplingParams, SpeculativeDecoder
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.rules import Verdict
from naive_speculate.speculate.verify import VERIFIERS, GreedyVerifier
from naive_speculate.testing import ToyModel


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_greedy_matching_takes_scores_of_every_type(dtype: torch.dtype) -> None:
    scores = torch.tensor([[[0.0, 1.0, 0.5], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]], dtype=dtype)
    verdict = GreedyVerifier().judge(scores, None, torch.tensor([[1, 1]]), None, torch.tensor([2]))
    assert (verdict.num_accepted.tolist(), verdict.next_token_ids.tolist()) == ([1], [0])
    assert verdict.accept_probs.tolist() == [[1.0, 0.0]]
    assert verdict.accept_probs.dtype == dtype


class InBools(GreedyVerifier):
    """Says of each draft whether it is kept, in bools."""

    def judge(self, *given: Any) -> Verdict:
        verdict = super().judge(*given)
        return verdict._replace(accept_probs=verdict.accept_probs > 0)


def test_what_a_verifier_says_in_bools_is_described_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERIFIERS, "greedy_match", InBools())
    pair = ModelPair(ToyModel(5, 1), ToyModel(5, 2))
    params = SamplingParams(temperature=0.0, max_tokens=12)
    result = SpeculativeDecoder(pair).generate([1, 2], params, num_draft_tokens=3, detail="probs")
    told = [event.accept_prob for event in result.trace if event.kind in (EventKind.ACCEPTED, EventKind.REJECTED)]
    assert told
    assert {type(value) for value in told} == {float}
