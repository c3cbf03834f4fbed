"""The distillation losses and the measured acceptance agree with their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from train.acceptance import keep_probabilities, play_rounds
from train.distil import distance, log_with_rest, with_rest
from train.optim import Muon, rate_factor

P = torch.tensor([0.5, 0.3, 0.2])
Q = torch.tensor([0.2, 0.3, 0.5])


def test_total_variation_and_forward_kl_by_hand() -> None:
    assert distance(P[None], Q.log()[None], tv_weight=1.0).item() == pytest.approx(0.3)
    expected = 0.5 * math.log(0.5 / 0.2) + 0.2 * math.log(0.2 / 0.5)
    assert distance(P[None], Q.log()[None], tv_weight=0.0).item() == pytest.approx(expected, rel=1e-5)
    assert distance(P[None], Q.log()[None], tv_weight=0.75).item() == pytest.approx(0.75 * 0.3 + 0.25 * expected, rel=1e-5)
    assert distance(P[None], P.log()[None], tv_weight=0.0).item() == pytest.approx(0, abs=1e-6)


def test_what_is_not_kept_is_one_bin() -> None:
    assert torch.allclose(with_rest(P[None, :2]), P[None])
    assert torch.allclose(log_with_rest(Q[None, :2].log()), Q.log()[None])
    assert with_rest(torch.tensor([[0.5, 0.5001]])).min() == 0  # half precision may sum to a little more than one
    sure = with_rest(torch.tensor([[1.0]]))
    quarter = torch.tensor([[0.25]]).log()
    assert distance(sure, log_with_rest(quarter), tv_weight=0.0).item() == pytest.approx(math.log(4), rel=1e-5)


def test_what_the_draft_holds_for_all_but_impossible_still_teaches_it() -> None:
    logits = torch.tensor([[-60.0, 0.0]], requires_grad=True)
    distance(torch.tensor([[1.0, 0.0]]), log_with_rest(torch.log_softmax(logits, -1)[:, :1]), tv_weight=0.0).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].item() == pytest.approx(-1)


def test_kept_on_average_is_one_minus_total_variation() -> None:
    """Σ p(y) · min(1, q(y) / p(y)) = Σ min(p, q)."""
    kept = keep_probabilities(P.log().expand(3, 3), Q.log().expand(3, 3), torch.arange(3), temperature=1.0)
    assert (P * kept).sum().item() == pytest.approx(0.7)


def test_greedy_keeps_where_the_draft_agrees() -> None:
    kept = keep_probabilities(P.log().expand(3, 3), Q.log().expand(3, 3), torch.arange(3), temperature=0.0)
    assert kept.tolist() == [0, 0, 1]


def test_rounds_played_by_hand() -> None:
    row = [True, False, True, True, True, False, True, True, True, True]
    found = play_rounds([row], num_draft_tokens=2)  # [T F] [T T T] [F] [T T T]: 1 + 2 + 0 + 2 accepted
    assert found.mean_length == pytest.approx(1 + 5 / 4)
    assert found.rate == pytest.approx(5 / 8)


def test_the_rate_warms_up_stays_and_falls_to_zero() -> None:
    rates = [rate_factor(step, step / 100, warmup_steps=10, decay_share=0.2) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9:81] == pytest.approx([1.0] * 72)
    assert rates[90] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.0)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (16, 16)])
def test_muon_steps_as_the_library_s_does(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    ours, theirs = torch.nn.Parameter(torch.randn(shape)), torch.nn.Parameter(torch.zeros(shape))
    theirs.data.copy_(ours.data)
    optimizers = (
        Muon([ours], lr=0.02, momentum=0.95, weight_decay=0.01, dtype=torch.float32),
        torch.optim.Muon([theirs], lr=0.02, momentum=0.95, weight_decay=0.01),
    )
    before = ours.detach().clone()
    for _ in range(3):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert (ours - theirs).norm() < 0.02 * (ours - before).norm()  # theirs iterates in bfloat16
