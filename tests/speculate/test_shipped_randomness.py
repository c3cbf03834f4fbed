"""The random source that ships, end to end: over thousands of seeds, every kind of run follows the
target's exact distribution, which a plain forward gives."""

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.sampling import SeededRandom
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.tools.goodness import g_test, holm
from naive_speculate.tools.proofs.toys import pair_with_head

PROMPT, LENGTH, SEEDS = 1, 3, 200
LOSSLESS = ("speculative_sampling", "block_verification", "sample_match")
TYPICAL = "typical_acceptance"
KINDS = {  # options of a request
    "plain": {"num_draft_tokens": 0},
    **{
        f"{strategy}, k = {k}": {"verify_strategy": strategy, "num_draft_tokens": k}
        for strategy, k in product(LOSSLESS, (1, 2, 4))
    },
    TYPICAL: {"verify_strategy": TYPICAL, "num_draft_tokens": 2},
    "the most probable drafts": {"draft_sampling": "argmax", "num_draft_tokens": 2},
    "head": {"drafter": "head", "num_draft_tokens": 2},
    "block": {"drafter": "block", "num_draft_tokens": 2},
    "tree": {"tree": "4x1"},
}
# vocabulary, the seeds of two models that rarely agree, and the head that drafts, too
PAIRS = [(4, (29, 30), "head"), (11, (12, 15), "block")]
FALSE_ALARMS = 1e-3  # with other seeds, a test fails with this probability


def joint(model, size: int) -> torch.Tensor:
    """The probabilities of the first three tokens, by a plain forward."""
    texts = torch.tensor([(PROMPT, *two) for two in product(range(size), repeat=2)])
    probs = model.forward(texts, model.new_cache(len(texts))).softmax(dim=-1)
    first, second, third = probs.view(size, size, LENGTH, size).unbind(dim=2)
    return first[0, 0, :, None, None] * second[:, 0, :, None] * third


def table(shape: tuple[int, ...], outcomes: Iterable) -> np.ndarray:
    """How often each outcome came."""
    counts = np.zeros(shape)
    np.add.at(counts, tuple(np.array(list(outcomes), int).T), 1)
    return counts


def check(*pairs: tuple[np.ndarray, torch.Tensor]) -> None:
    """Counts follow probabilities."""
    fits = [g_test(counts.ravel(), probs.flatten()) for counts, probs in pairs]
    assert min(holm([fit.p_value for fit in fits])) > FALSE_ALARMS, list(map(str, fits))


class Decoded:
    """One batch of rows of every kind, each row with its own seed."""

    def __init__(self, size: int, models: tuple[int, int], drafter: str) -> None:
        chain = "dspark" if drafter == "block" else ""
        first, second = (pair_with_head(size, n, block=bool(chain), chain=chain) for n in models)
        pair = ModelPair(first.target, second.target, head=first.head)
        self.decoder = SpeculativeDecoder(pair)
        self.p, self.q = joint(pair.target, size), joint(pair.draft, size)
        self.kinds = [name for name in KINDS if name not in {"head", "block"} - {drafter}]
        seeds = range(SEEDS * len(self.kinds))
        self.rows = [
            self.prepare(self.kinds[seed % len(self.kinds)], seed).rows[0] for seed in seeds
        ]
        self.first = [steps[0] for steps in self.decode(self.rows)]

    def prepare(self, name: str, seed: int, n: int = 1, **more):
        params = SamplingParams(seed=seed, n=n, max_tokens=LENGTH, ignore_eos=True)
        request = Request([PROMPT], params, detail="none", **KINDS[name])
        return self.decoder.prepare(request, **more)

    def decode(self, rows):
        """Decode rows as one batch; returns what the steps did to each."""
        batch, outcomes = self.decoder.new_batch(), {row: [] for row in rows}
        for row in rows:
            batch.admit([row])
        while going_on := [row for row in rows if not row.ended]:
            for row, record in batch.step(going_on).items():
                outcomes[row].append(record.outcome)
        return list(outcomes.values())

    def tokens(self, name: str) -> list[list[int]]:
        return [
            row.output_token_ids for row in self.rows[self.kinds.index(name) :: len(self.kinds)]
        ]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[0]} tokens")
def decoded(request) -> Decoded:
    return Decoded(*request.param)


def test_each_kind_of_run_follows_the_target_s_distribution(decoded):
    p = decoded.p
    counts = {
        name: table(p.shape, decoded.tokens(name)) for name in decoded.kinds if name != TYPICAL
    }
    for some in (counts.values(), [sum(counts.values())]):
        check(*((each.sum(axis=(1, 2)), p.sum(dim=(1, 2))) for each in some))
        check(*((each.sum(axis=2), p.sum(dim=2)) for each in some))
        check(*((each, p) for each in some))


def test_a_draft_comes_from_the_draft_model_and_its_verdict_from_both(decoded):
    """The first of each window: accepted with p·q of it under sample matching, else min(p, q)."""
    p, q = (probs.sum(dim=(1, 2)) for probs in (decoded.p, decoded.q))
    found = []
    for accepts, names in (
        (p * q, [f"sample_match, k = {k}" for k in (1, 2, 4)]),
        (torch.minimum(p, q), [f"speculative_sampling, k = {k}" for k in (1, 2, 4)]),
        (torch.minimum(p, q), ["block_verification, k = 1"]),
    ):
        places = [decoded.kinds.index(name) for name in names]
        own = [one for place in places for one in decoded.first[place :: len(decoded.kinds)]]
        seen = [(one.draft_token_ids[0], one.num_accepted > 0) for one in own]
        found.append((table((len(p), 2), seen), torch.stack([q - accepts, accepts], dim=1)))
    check(*found)


def test_typical_acceptance_follows_the_distribution_that_it_states(decoded):
    p, q = (probs.sum(dim=(1, 2)) for probs in (decoded.p, decoded.q))
    first = table(p.shape, ([tokens[0]] for tokens in decoded.tokens(TYPICAL)))
    stated = VERIFIERS[TYPICAL].output_probs(p, q)
    assert (stated - p).abs().sum() > 0.1
    check((first, stated))


@pytest.mark.parametrize("name", ["speculative_sampling, k = 2", "sample_match, k = 2"])
def test_sequences_of_one_seed_and_of_seeds_far_apart_are_independent(decoded, name):
    """So are the drafts of one and the tokens of another."""
    seeds = [near + far for near in range(120) for far in (0, 2**34, 2**62)]
    runs = [decoded.prepare(name, seed, n=2) for seed in seeds]
    steps = decoded.decode([row for run in runs for row in run.rows])
    tokens = np.array([row.output_token_ids[0] for run in runs for row in run.rows]).reshape(-1, 6)
    drafts = np.array([one[0].draft_token_ids[0] for one in steps]).reshape(-1, 6)
    p, q = (probs.sum(dim=(1, 2)) for probs in (decoded.p, decoded.q))
    of_one_seed = [(0, 1), (2, 3), (4, 5)]
    for pairs in (of_one_seed, [(0, 2), (1, 3)], [(2, 4), (3, 5)]):
        both = np.concatenate([tokens[:, pair] for pair in pairs])
        crossed = np.concatenate([np.stack([drafts[:, a], tokens[:, b]], 1) for a, b in pairs])
        check(
            (table((len(p), len(p)), both), p[:, None] * p),
            (table((len(p), len(p)), crossed), q[:, None] * p),
        )


class Failing(SeededRandom):
    """Memory runs out after a draw."""

    left = 0  # draws until then

    def uniform(self) -> float:
        return self.counted(super().uniform())

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        return self.counted(super().categorical(probs))

    @staticmethod
    def counted(drawn):
        Failing.left -= 1
        if Failing.left == 0:
            raise MemoryError
        return drawn


def test_a_row_draws_what_it_draws_alone_whatever_fails_in_its_batch(decoded):
    each = [(name, seed) for seed in range(4) for name in decoded.kinds]
    rows = [decoded.prepare(*own, random=Failing).rows[0] for own in each]
    batch, failures, found = decoded.decoder.new_batch(), 0, {row: [] for row in rows}
    for row in rows:
        batch.admit([row])
    while going_on := [row for row in rows if not row.ended]:
        for Failing.left in (1, 20, 60, 100, 150, 0):
            saved, records = {row: row.save() for row in going_on}, {}
            try:
                records = batch.step(going_on)
            except (MemoryError, PartialStepError) as failure:
                failures += 1
                records = getattr(failure, "records", {})
                batch.rewind(going_on)
                for row in going_on:
                    row.restore(saved[row])
            for row, record in records.items():
                found[row].append(record.outcome)
            if len(records) == len(going_on):
                break
    assert failures > 5
    for row, own in zip(rows, each, strict=True):
        (alone,) = decoded.prepare(*own).rows
        (steps,) = decoded.decode([alone])
        assert row.output_token_ids == alone.output_token_ids
        assert [step.draft_token_ids for step in found[row]] == [
            step.draft_token_ids for step in steps
        ]
