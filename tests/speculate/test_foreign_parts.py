"""Models, drafters and verifiers of others: what they may do wrong or differently concerns their
own rows only."""

from typing import Any

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import FinishReason
from naive_speculate.serving import LocalEngine, Request
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter, Proposal
from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.rules import Verdict
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import VERIFIERS, GreedyVerifier, Verifier
from tests.speculate.rows import admitted, finish, same_alone
from tests.speculate.toys import LOSSLESS, ToyModel, check_lossless

LONG = SamplingParams(max_tokens=10, seed=1, ignore_eos=True)


class Watched(ToyModel):
    """Notes whether gradients are on, and fails where a position would be beyond its last."""

    max_positions = 24

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.gradients: set[bool] = set()

    def forward(self, query_token_ids, kv_cache):
        self.gradients.add(torch.is_grad_enabled())
        assert kv_cache.get_num_tokens() + query_token_ids.shape[1] <= self.max_positions
        return super().forward(query_token_ids, kv_cache)


def test_no_forward_keeps_gradients_and_no_plain_model_sees_a_position_that_it_does_not_have():
    target, draft = Watched(9, 1), Watched(9, 2)
    decoder = SpeculativeDecoder(ModelPair(target, draft))
    prompts = [[1] * 21, [2, 3], [4] * 12]
    params = SamplingParams(max_tokens=12, seed=3, ignore_eos=True)
    same_alone(decoder, prompts, params, num_draft_tokens=6)
    assert target.gradients == draft.gradients == {False}


class TooMany(RejectionSampler):
    """Keeps one draft more than there are in the window."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        return verdict._replace(num_accepted=lengths + 1)


class Failing(BatchDrafter):
    """Drafts the last token again, and fails in one of the other methods."""

    at = ""

    def propose(self, rows, limits):
        return Proposal.certain(
            rows, [[row.token_ids[-1]] for row in rows], self.vocab_size, self.device
        )

    def commit(self, rows, records, features):
        if self.at == "commit" and rows[0].num_steps == 3:
            raise RuntimeError("lost my place")

    def rewind(self, rows):
        if self.at == "rewind":
            raise RuntimeError("lost my place")

    def release(self, row):
        if self.at == "release":
            raise RuntimeError("lost my place")


def read(engine, *requests):
    streams = [engine.submit(request) for request in requests]
    return [Trace(event for events in stream for event in events) for stream in streams]


def test_a_verifier_that_keeps_more_than_there_is_ends_its_own_run_and_no_other(
    tiny_pair, monkeypatch
):
    monkeypatch.setitem(VERIFIERS, "too many", TooMany())
    engine = LocalEngine(SpeculativeDecoder(tiny_pair), max_rows=4)
    bad, good = read(
        engine, Request([3, 2], LONG, verify_strategy="too many"), Request([5, 2], LONG)
    )
    assert bad.finished.finish_reason == FinishReason.ERROR
    assert "verifier TooMany accepted" in bad.finished.message
    assert good.token_ids == SpeculativeDecoder(tiny_pair).generate([5, 2], LONG).token_ids
    assert engine.load().ready
    engine.close()


@pytest.mark.parametrize("at", ["commit", "rewind", "release"])
def test_a_drafter_that_fails_ends_its_own_run_and_no_other(tiny_pair, monkeypatch, at):
    monkeypatch.setitem(DRAFTERS, "failing", type("Failing", (Failing,), {"at": at}))
    engine = LocalEngine(SpeculativeDecoder(tiny_pair), max_rows=4)
    fails_too = SamplingParams(
        max_tokens=18, seed=2, logits_processors=[lambda past, x: x[:-1] if len(past) == 9 else x]
    )
    bad, good, other = read(
        engine,
        Request([3, 2], LONG, drafter="failing"),
        Request([5, 2], LONG),
        Request([7, 2], fails_too),
    )
    assert other.finished.finish_reason == FinishReason.ERROR
    if at == "release":
        assert bad.finished.finish_reason == FinishReason.LENGTH
    else:
        assert bad.finished.finish_reason == FinishReason.ERROR
        assert "drafter 'failing' failed: RuntimeError: lost my place" in bad.finished.message
    assert good.token_ids == SpeculativeDecoder(tiny_pair).generate([5, 2], LONG).token_ids
    assert engine.load().ready
    assert engine.load().running == 0
    engine.close()


class Decided(Verifier):
    """Keeps nothing and says the next token itself, without drawing it."""

    needs_uniforms = False

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        best = target_probs[:, 0].argmax(dim=-1)
        return Verdict(
            torch.zeros_like(lengths), None, best, target_probs.new_zeros(draft_token_ids.shape)
        )


def test_a_verifier_that_draws_nothing_says_the_same_with_one_that_does(tiny_pair, monkeypatch):
    monkeypatch.setitem(VERIFIERS, "decided", Decided())
    decoder = SpeculativeDecoder(tiny_pair)
    alone = decoder.generate([3, 2], LONG, verify_strategy="decided").token_ids
    batch = decoder.new_batch()
    row = admitted(decoder, batch, [3, 2], LONG, verify_strategy="decided")
    other = admitted(decoder, batch, [5, 2], LONG)
    finish(batch, [row, other])
    assert row.output_token_ids == alone


def test_the_draft_model_s_rows_stay_side_by_side_when_others_leave(tiny_pair):
    decoder, runs = SpeculativeDecoder(tiny_pair), []
    batch = decoder.new_batch()
    rows = [
        admitted(
            decoder,
            batch,
            [number + 1, 2],
            LONG,
            drafter="prompt_lookup" if number == 1 else "model",
        )
        for number in range(6)
    ]
    alone = [decoder.generate([number + 1, 2], LONG).token_ids for number in (0, 2, 3, 4, 5)]
    batch.step(rows)
    batch.release([rows.pop(1)])
    pool = batch.drafters["model"].pool
    forward = pool.forward
    pool.forward = lambda query, view, **options: (
        runs.append(view),
        forward(query, view, **options),
    )[1]
    while not all(row.ended for row in rows):
        batch.step(row for row in rows if not row.ended)
        batch.release(row for row in rows if row.ended)
    # at its end a row has nothing to draft
    together = [view.contiguous for view in runs if len(view.indices) == len(rows)]
    assert len(together) > 2
    assert all(together)
    assert [row.output_token_ids for row in rows] == alone


class InBools(GreedyVerifier):
    """Says of each draft whether it is kept, in bools."""

    def judge(self, *given: Any) -> Verdict:
        verdict = super().judge(*given)
        return verdict._replace(accept_probs=verdict.accept_probs > 0)


def test_what_a_verifier_says_in_bools_is_described_as_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERIFIERS, "greedy_match", InBools())
    pair = ModelPair(ToyModel(5, 1), ToyModel(5, 2))
    params = SamplingParams(temperature=0.0, max_tokens=12)
    result = SpeculativeDecoder(pair).generate([1, 2], params, num_draft_tokens=3, detail="probs")
    told = [
        event.accept_prob
        for event in result.trace
        if event.kind in (EventKind.ACCEPTED, EventKind.REJECTED)
    ]
    assert told
    assert {type(value) for value in told} == {float}


# Proposals are checked before they are believed.

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
        monkeypatch.setitem(
            DRAFTERS, "mine", type("Mine", (Foreign,), {"spoil": staticmethod(spoil)})
        )
        return SpeculativeDecoder(ModelPair(ToyModel(VOCAB, 1)))

    return register


def scaled(proposal, factor):
    return proposal._replace(probs=proposal.probs * factor)


SPOILED = {
    "missing probs": (lambda p: p._replace(probs=None), "probs=None"),
    "narrow probs": (
        lambda p: p._replace(probs=p.probs[..., :-1]),
        r"probs of shape \[1, 3, 5\], .* got \[1, 3, 4\]",
    ),
    "whole numbers": (lambda p: p._replace(probs=p.probs.long()), "probs .* got .* torch.int64"),
    "too large a sum": (lambda p: scaled(p, 1.2), r"sum to \[1.2"),
    "logits": (lambda p: scaled(p, -1.0), "not probabilities"),
    "NaN": (lambda p: scaled(p, torch.nan), "not probabilities"),
    "another width": (
        lambda p: p._replace(token_ids=p.token_ids.repeat(2, 1)),
        r"token_ids of shape \[1, 3\], int64",
    ),
    "tokens of another dtype": (
        lambda p: p._replace(token_ids=p.token_ids.int()),
        "int64, got .* torch.int32",
    ),
    "tokens outside": (
        lambda p: p._replace(token_ids=p.token_ids + 4),
        "token 7, outside the vocabulary of 5",
    ),
    "negative tokens": (
        lambda p: p._replace(token_ids=p.token_ids - 2),
        "token -1, outside the vocabulary of 5",
    ),
    "impossible tokens": (
        lambda p: p._replace(token_ids=p.token_ids.flip(1)),
        "a token to which its own probs give 0",
    ),
    "too long": (lambda p: p._replace(lengths=[4]), r"lengths \[4\]"),
    "too many rows": (lambda p: p._replace(lengths=[1, 1]), r"lengths \[1, 1\]"),
    "a source before the text": (lambda p: p._replace(copied_from=[-1]), r"copied_from \[-1\]"),
    "a source after the text": (lambda p: p._replace(copied_from=[2]), r"copied_from \[2\]"),
    "a source that is no number": (lambda p: p._replace(copied_from=["x"]), r"copied_from \['x'\]"),
    "too many sources": (lambda p: p._replace(copied_from=[0, 0]), r"copied_from \[0, 0\]"),
}


def test_every_proposal_that_cannot_be_is_refused_and_its_drafter_named(foreign):
    first = iter([True] + [False] * 99)
    later = {"not the first": (lambda p: p if next(first) else scaled(p, 0.7), "not probabilities")}
    for spoil, message in (SPOILED | later).values():
        with pytest.raises(ValueError, match=f"drafter 'mine' .*{message}"):
            foreign(spoil).generate(
                PROMPT, SamplingParams(seed=1, ignore_eos=True), drafter="mine", num_draft_tokens=3
            )


def test_greedy_decoding_needs_no_probs(foreign):
    decoder = foreign(lambda proposal: proposal._replace(probs=None))
    for detail, options in (
        ("full", {"params": SamplingParams(temperature=0)}),
        ("none", {"verify_strategy": "greedy_match"}),
    ):
        found = decoder.generate(PROMPT, drafter="mine", detail=detail, **options)
        assert found.metrics.num_draft_tokens > 0
        assert found.token_ids == decoder.generate(PROMPT, num_draft_tokens=0, **options).token_ids


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_a_foreign_drafter_is_lossless(foreign, strategy):
    pair = foreign(lambda proposal: proposal).pair
    check_lossless(
        pair,
        SamplingParams(max_tokens=3, top_k=2),
        drafter="mine",
        verify_strategy=strategy,
        within=1e-6,
    )


def test_a_failed_admit_leaves_as_many_slots_as_before(tiny_pair, monkeypatch):
    class Full(ModelDrafter):
        def admit(self, row):
            if len(self.slots) == 3:
                raise MemoryError
            super().admit(row)

    monkeypatch.setitem(DRAFTERS, "full", Full)
    decoder = SpeculativeDecoder(tiny_pair)
    batch, several = decoder.new_batch(), SamplingParams(n=4, max_tokens=4)
    first = admitted(decoder, batch, [5, 2], LONG, drafter="full")
    slots = [batch.slots[first], batch.drafters["full"].slots[first]]
    for _ in range(9):
        with pytest.raises(MemoryError):
            admitted(decoder, batch, [7, 2], several, drafter="full")
        assert set(batch.slots) == set(batch.drafter_of) == {first}
        assert set(batch.drafters["full"].slots) == {first}
    second = admitted(decoder, batch, [8, 2], LONG, drafter="full")
    assert [batch.slots[second].row, batch.drafters["full"].slots[second].row] == [1, 1]
    assert all(len(slot.cache.lengths) <= 4 for slot in slots)
    finish(batch, [first, second])
    for row, prompt in ((first, [5, 2]), (second, [8, 2])):
        assert row.output_token_ids == decoder.generate(prompt, LONG).token_ids
