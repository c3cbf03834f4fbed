"""Stop strings: what they cut is no part of the output, nor of its log-probabilities, nor does it come before min_tokens."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest

from naive_speculate import GenerationResult, SamplingParams
from naive_speculate.text import StopStrings

TEXT = "The children went into the garden, where"
OPENING = "Once upon a time there was a s"


@pytest.mark.parametrize(("include", "k"), [(False, 8), (True, 1)])
def test_a_stop_string_cuts_text_tokens_and_log_probabilities(small_decoder, include, k):
    free = small_decoder.generate(
        TEXT, SamplingParams(max_tokens=24, temperature=0, logprobs=0, ignore_eos=True), num_draft_tokens=0
    )
    cut_several = 0
    for begin in range(3, 90, 28):
        stop = free.text[begin : begin + 14]
        params = SamplingParams(
            max_tokens=24, temperature=0, stop=stop, logprobs=2, include_stop_str_in_output=include, ignore_eos=True
        )
        result = small_decoder.generate(TEXT, params, num_draft_tokens=k)
        kept = len(result.token_ids)
        cut_several += sum(e.kind == "discarded" and e.reason == "stop" for e in result.trace) > 1
        assert result.finish_reason == "stop"
        assert result.text == free.text[: free.text.find(stop) + (len(stop) if include else 0)]
        assert result.token_ids == free.token_ids[:kept]
        assert len(result.logprobs) == kept
        expected = [entry[token].logprob for entry, token in zip(free.logprobs, free.token_ids[:kept], strict=False)]
        found = [entry[token].logprob for entry, token in zip(result.logprobs, result.token_ids, strict=True)]
        assert found == pytest.approx(expected, abs=1e-3)
        assert result.cumulative_logprob == pytest.approx(sum(expected), abs=1e-3)
    assert include or cut_several > 1


def test_sequences_are_ranked_by_the_tokens_that_they_kept(small_decoder):
    params = SamplingParams(n=6, max_tokens=18, seed=2, stop=["the ", "and a"], logprobs=0)
    result = small_decoder.generate(TEXT, params)
    assert {output.finish_reason for output in result.outputs} >= {"stop"}
    sums = []
    for output in result.outputs:
        sums.append(sum(entry[token].logprob for entry, token in zip(output.logprobs, output.token_ids, strict=True)))
        assert output.cumulative_logprob == pytest.approx(sums[-1], abs=1e-5)
    assert sums == sorted(sums, reverse=True)


@pytest.fixture(scope="module")
def unstopped(small_decoder) -> Callable[..., tuple[SamplingParams, GenerationResult]]:
    """Parameters without stop strings and what they give with windows of `k`, decoded once for all stop strings."""

    @cache
    def decoded(k: int, **options: float) -> tuple[SamplingParams, GenerationResult]:
        params = SamplingParams(max_tokens=16, ignore_eos=True, **options)
        return params, small_decoder.generate(OPENING, params, num_draft_tokens=k)

    return decoded


def where_it_ends(pieces: list[str], stops: list[str], min_tokens: int) -> int | None:
    """Where the text is cut: at the first stop string that a token after the first `min_tokens` completes."""
    text, searched = "".join(pieces), len("".join(pieces[:min_tokens]))
    ends = [(end, end - len(stop)) for end in range(searched + 1, len(text) + 1) for stop in stops if text[:end].endswith(stop)]
    return min(ends)[1] if ends else None


STOPS = {
    "a space and what begins inside a word": lambda text: [" ", text[1:10]],
    "frequent letters and what never comes": lambda text: [" a", "e", "xyz who had nothing"],
    "single letters": lambda text: [text[20], text[9]],
    "a short one": lambda text: [text[12:17]],
    "a letter and a long one": lambda text: [text[6], text[8:25]],
    "a long one": lambda text: [text[10:26]],
}
"""Stop strings by what is written without any."""


@pytest.mark.parametrize(("stops_of", "k"), zip(STOPS.values(), cycle([4, 0, 4]), strict=False), ids=STOPS)
def test_with_min_tokens_a_stop_string_ends_the_text_where_a_later_token_completes_it(small_decoder, unstopped, stops_of, k):
    ended = 0
    for min_tokens, options in ((0, {"seed": 1}), (1, {"temperature": 0}), (4, {"seed": 1}), (9, {"temperature": 0})):
        params, free = unstopped(k, min_tokens=min_tokens, **options)
        pieces = [event.text for event in free.trace if event.kind in ("accepted", "resampled", "bonus")]
        stops = stops_of(free.text)
        result = small_decoder.generate(OPENING, replace(params, stop=stops), num_draft_tokens=k, detail="none")
        at = where_it_ends(pieces, stops, min_tokens)
        assert result.text == (free.text if at is None else free.text[:at])
        assert (result.finish_reason == "stop") == (at is not None)
        ended += at is not None
        if max(map(len, stops)) == 1:
            assert len(result.token_ids) >= min(min_tokens, len(free.token_ids))
    assert ended


def test_a_string_that_was_passed_over_does_not_end_the_text_later():
    stops = StopStrings([" ", "mall hole"], include=False)
    assert stops.append("a s", search=False) is None
    assert stops.append("mall", search=True) is None
    assert stops.append("er", search=True) is None
    assert stops.append(" hole", search=True) == len("a smaller")
