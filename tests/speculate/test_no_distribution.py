"""Where no token can be chosen: the run ends with an error that says why, as plain decoding's
would, and no other run ends."""

from itertools import cycle, product

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from tests.speculate.toys import EOS, ToyModel, check_lossless

PROMPT = [1, 2]
TEXT = "The children went into the garden, where"
DETAILS = ["full", "probs", "none"]


class Faulty(ToyModel):
    """Emits a value instead of a logit once the history holds a token twice."""

    def __init__(self, *args, value=torch.nan, **options):
        super().__init__(*args, **options)
        self.value = value

    def logits(self, history):
        logits = super().logits(history)
        if len(set(history)) < len(history):
            logits[-1] = self.value
        return logits


def nothing_but_nan(history: list[int], logits: torch.Tensor) -> torch.Tensor:
    return logits * torch.nan


def nothing_from_the_third(history: list[int], logits: torch.Tensor) -> torch.Tensor:
    return logits - torch.inf if len(history) >= 2 else logits


CAUSES = {
    "grammar": (
        {"guided_decoding": {"regex": "[a-z]+"}, "allowed_token_ids": [11]},
        0,
        "guided_decoding and allowed_token_ids have no token in common",
    ),
    "grammar and bad words": (
        {"guided_decoding": {"choice": ["A"]}, "bad_words": ["A"]},
        0,
        "guided_decoding and bad_words have no token in common",
    ),
    "processor": (
        {"logits_processors": [nothing_from_the_third]},
        2,
        "nothing_from_the_third .* banned every token",
    ),
    "NaN": (
        {"logits_processors": [nothing_but_nan]},
        0,
        "logits_processors: .*nothing_but_nan .* returned NaN",
    ),
    "infinity": (
        {"logits_processors": [lambda past, x: x + torch.inf]},
        0,
        "logits_processors: .* returned infinity",
    ),
}


@pytest.mark.parametrize(
    ("name", "temperature", "detail"),  # every two of them together, but for name and detail
    [
        (name, t, detail)
        for t in (0, 1)
        for name, detail in zip(CAUSES, cycle(DETAILS[:: 1 - 2 * t]), strict=False)
    ],
)
def test_a_run_without_a_token_to_choose_ends_with_an_error_that_says_why(
    small_decoder, name, temperature, detail
):
    values, count, message = CAUSES[name]
    params = SamplingParams(temperature=temperature, seed=1, **values)
    for k in (0, 4):
        result = small_decoder.generate(TEXT, params, num_draft_tokens=k, detail=detail)
        assert result.finish_reason == "error"
        assert len(result.token_ids) == count
        with pytest.raises(
            AssertionError, match=f"no token can be chosen at position {count}: .*{message}"
        ):
            raise AssertionError(result.trace.finished.message)
        loaded = Trace.from_jsonl(result.trace.to_jsonl())
        assert (loaded.token_ids, loaded.finished.message) == (
            result.token_ids,
            result.trace.finished.message,
        )


def test_bad_words_may_leave_nothing(small_decoder):
    tokenizer = small_decoder.pair.tokenizer
    token = tokenizer(" the", add_special_tokens=False).input_ids
    pair = tokenizer(" the the", add_special_tokens=False).input_ids
    assert pair == token * 2
    params = SamplingParams(allowed_token_ids=token, bad_words=["the the"], seed=1)
    result = small_decoder.generate(TEXT, params)
    assert (result.token_ids, result.finish_reason) == (token, "error")
    assert "allowed_token_ids and bad_words ban every token" in result.trace.finished.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.nan, "emitted NaN"),
        (torch.inf, "emitted infinity"),
        (-torch.inf, "emitted -infinity for every"),
    ],
)
def test_a_model_that_emits_no_numbers_is_named(value, message):
    class Broken(ToyModel):
        def logits(self, history):
            return torch.full((self.vocab_size,), value, dtype=torch.float64)

    pair = ModelPair(Broken(5, 1), ToyModel(5, 2))
    for detail, temperature in product(DETAILS, (0, 1)):
        result = SpeculativeDecoder(pair).generate(
            PROMPT, SamplingParams(temperature=temperature, seed=1), detail=detail
        )
        assert (result.token_ids, result.finish_reason) == ([], "error")
        assert (
            f"no token can be chosen at position 0: the target model {message}"
            in result.trace.finished.message
        )
        result.trace.to_jsonl()


@pytest.mark.parametrize(
    ("strategy", "k"), [("speculative_sampling", 3), ("block_verification", 2)]
)
def test_a_target_that_fails_now_and_then_fails_where_plain_decoding_would(strategy, k):
    """Runs that end in an error count as outputs of their own."""
    pair = ModelPair(Faulty(3, k, zeros=False), ToyModel(3, 10))
    found = check_lossless(
        pair, SamplingParams(max_tokens=3), k, verify_strategy=strategy, detail="full"
    )
    assert {tokens[-1] for tokens in found} >= {-1, EOS}


@pytest.mark.parametrize(
    ("strategy", "value", "detail"),
    [("speculative_sampling", torch.nan, "full"), ("block_verification", torch.inf, "probs")],
)
def test_a_draft_model_that_emits_no_numbers_changes_nothing(strategy, value, detail):
    pair = ModelPair(ToyModel(3, 1), Faulty(3, 2, value=value))
    check_lossless(
        pair, SamplingParams(max_tokens=3), verify_strategy=strategy, detail=detail, within=1e-6
    )


def test_what_lies_after_the_last_token_may_be_broken():
    """The target would fail after the end of the sequence, which the draft crosses."""

    class FailsBehindTheEnd(ToyModel):
        def logits(self, history):
            return super().logits(history) * (torch.nan if EOS in history else 1.0)

    params = SamplingParams(max_tokens=6, temperature=0, logit_bias={EOS: 100.0})
    for detail in DETAILS:
        pair = ModelPair(FailsBehindTheEnd(3, 1, zeros=False), ToyModel(3, 2, zeros=False))
        result = SpeculativeDecoder(pair).generate(PROMPT, params, detail=detail)
        assert (result.token_ids, result.finish_reason) == ([EOS], "stop")
        assert result.metrics.num_accepted_draft_tokens == 1


def test_a_sequence_that_ended_in_an_error_is_ranked_last(tiny_decoder):
    failing = iter([True] + [False] * 10**6)

    def fails_once(history, logits):
        return logits * torch.nan if not history and next(failing) else logits

    params = SamplingParams(n=3, max_tokens=5, seed=1, logits_processors=[fails_once])
    result = tiny_decoder.generate([1, 2], params, num_draft_tokens=0)
    assert [output.finish_reason for output in result.outputs] == ["length", "length", "error"]


def test_a_tiny_temperature_is_greedy_and_a_huge_one_uniform_over_what_is_allowed(small_decoder):
    greedy = small_decoder.generate(TEXT, SamplingParams(temperature=0, max_tokens=12)).token_ids
    every = {"top_p": 0.9, "top_k": 7, "min_p": 0.1, "bad_words": ["zebra"]}
    for temperature, warpers in ((1e-3, every), (1e-38, {}), (5e-324, {}), (5e-324, every)):
        params = SamplingParams(temperature=temperature, max_tokens=12, seed=3, **warpers)
        result = small_decoder.generate(
            TEXT,
            params,
            verify_strategy="block_verification" if warpers else "speculative_sampling",
        )
        assert (result.token_ids, result.finish_reason) == (greedy, "length")
        assert Trace.from_jsonl(result.trace.to_jsonl()).token_ids == greedy
    params = SamplingParams(
        temperature=1e300, max_tokens=8, seed=3, allowed_token_ids=[70, 71, 72, 73]
    )
    result = small_decoder.generate(TEXT, params)
    assert result.finish_reason == "length"
    probs = [event.target_prob for event in result.trace if event.target_prob is not None]
    assert probs == [pytest.approx(0.25)] * len(probs)


def test_a_processor_may_force_a_token_with_the_largest_number(small_decoder):
    def force(history, logits):
        return torch.full_like(logits, torch.finfo(logits.dtype).min).index_fill_(
            0, torch.tensor([70]), 3e38
        )

    for temperature in (0, 0.5, 1):
        params = SamplingParams(temperature=temperature, max_tokens=4, logits_processors=[force])
        assert small_decoder.generate(TEXT, params).token_ids == [70] * 4
