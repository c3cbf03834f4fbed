"""The decoder on real text, with real acceptance, against transformers and the target's own
probabilities."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle, groupby

import pytest
import torch
from transformers import AutoModelForCausalLM

from naive_speculate import EventKind, GenerationResult, SamplingParams, Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.infer.ragged_cache import RaggedKVCache
from tests.speculate.rows import same_as_plain

OPENINGS = [
    "Once upon a time",
    "The old king",
    '"Who are you?" said',
    "In the forest",
    "She opened the door and",
    "Far away, by the sea,",
]
ENDINGS = ["", " there was", " a little", " who had", " and", " never", " the", " of", " said"]
PROMPTS = [opening + ending for opening in OPENINGS for ending in ENDINGS][:50]
NEW_TOKENS = 10  # a window of the largest size that is kept whole is followed by another
TEXT = "The children went into the garden, where"


@pytest.fixture(scope="module")
def reference(small_pair):
    """The target in transformers, float32."""
    return AutoModelForCausalLM.from_pretrained(small_pair[0], dtype=torch.float32).eval()


@pytest.fixture
def short_caches(monkeypatch):
    """Room for 32 tokens per row at first: batches of many short rows need no more, and a masked
    forward reads it all."""
    monkeypatch.setattr(RaggedKVCache.__init__, "__defaults__", (32,))


def same_or_near_tie(reference, prompt, expected, found):
    """Whether two greedy outputs are equal up to a position where the two best logits lie within
    1e-4."""
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=False)):
        if ours != theirs:
            with torch.no_grad():
                best = (
                    reference(torch.tensor([prompt + expected[:place]]))
                    .logits[0, -1]
                    .topk(2)
                    .values
                )
            return (best[0] - best[1]).item() < 1e-4
    return len(found) == len(expected)


def test_greedy_equals_transformers_for_50_prompts_under_every_window(
    small_decoder, reference, short_caches
):
    prompts = sorted((small_decoder.admission.encode(text) for text in PROMPTS), key=len)
    assert len(prompts) == 50
    expected = []
    for length, same in groupby(
        prompts, key=len
    ):  # together without padding, which would change them
        query = torch.tensor(list(same))
        output = reference.generate(
            query, attention_mask=torch.ones_like(query), do_sample=False, max_new_tokens=NEW_TOKENS
        )
        eos = reference.generation_config.eos_token_id
        expected += [
            row[: row.index(eos) + 1] if eos in row else row for row in output[:, length:].tolist()
        ]
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
    for k in range(1, 9):  # each prompt under two windows
        results = small_decoder.generate(
            prompts[k % 4 :: 4], params, num_draft_tokens=k, detail="none"
        )
        for prompt, theirs, ours in zip(
            prompts[k % 4 :: 4], expected[k % 4 :: 4], results, strict=True
        ):
            assert same_or_near_tie(reference, prompt, theirs, ours.token_ids), f"k = {k}: {prompt}"


def test_a_loaded_trace_is_the_same_and_times_rise(small_decoder, tmp_path):
    params = SamplingParams(max_tokens=24, seed=4, temperature=0.8)
    result = small_decoder.generate(TEXT, params, num_draft_tokens=4)
    events = result.trace.events
    assert [events[0].kind, events[-1].kind] == [EventKind.STARTED, EventKind.FINISHED]
    assert [e.time for e in events] == sorted(e.time for e in events)
    result.trace.save(tmp_path / "run.jsonl")
    loaded = Trace.load(tmp_path / "run.jsonl")
    assert loaded.text == result.text == result.trace.text
    assert loaded.metrics == result.metrics
    assert loaded.finished.metrics == result.metrics.to_dict()
    silent = small_decoder.generate(TEXT, replace(params, detokenize=False), num_draft_tokens=4)
    assert (silent.text, silent.token_ids) == ("", result.token_ids)


def test_joined_texts_are_the_text_even_inside_characters(small_decoder):
    """Forced through tokens that split emoji: allowed are only the pieces of a text full of
    them."""
    tokenizer = small_decoder.pair.tokenizer
    for text in ("👩‍🚀 naïve 日本語 🎉", "The cat sat."):
        pieces = sorted(set(tokenizer(text).input_ids))
        params = SamplingParams(
            max_tokens=40, seed=1, temperature=2.0, allowed_token_ids=pieces, ignore_eos=True
        )
        result = small_decoder.generate(TEXT, params)
        assert "".join(e.text for e in result.trace if e.kind in OUTPUT_KINDS) == tokenizer.decode(
            result.token_ids
        )


def test_events_are_held_back_while_a_stop_string_may_be_forming(small_decoder):
    params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    free = small_decoder.generate(TEXT, params, num_draft_tokens=0)
    stop = free.text[20:40]
    shown = ""
    for event in small_decoder.stream(TEXT, replace(params, stop=stop), num_draft_tokens=3):
        if event.kind in OUTPUT_KINDS:
            shown += event.text
            assert stop[:4] not in shown[free.text.find(stop) :]
    assert shown == free.text[: free.text.find(stop)]


def test_bad_words_never_appear(small_decoder):
    free = small_decoder.generate(TEXT, SamplingParams(max_tokens=24, temperature=0)).text
    words = sorted({word.strip('.,"') for word in free.split() if len(word) > 3})[:5]
    assert len(words) > 2
    fast = same_as_plain(
        small_decoder,
        TEXT,
        SamplingParams(max_tokens=24, temperature=0, bad_words=words),
        num_draft_tokens=5,
    )
    assert not any(f" {word} " in fast.text for word in words)


# Stop strings: what they cut is no part of the output, nor of its log-probabilities, nor does it
# come before min_tokens


OPENING = "Once upon a time there was a s"


@pytest.mark.parametrize(("include", "k"), [(False, 8), (True, 1)])
def test_a_stop_string_cuts_text_tokens_and_log_probabilities(small_decoder, include, k):
    free = small_decoder.generate(
        TEXT,
        SamplingParams(max_tokens=24, temperature=0, logprobs=0, ignore_eos=True),
        num_draft_tokens=0,
    )
    cut_several = 0
    for begin in range(3, 70, 28):
        stop = free.text[begin : begin + 14]
        params = SamplingParams(
            max_tokens=24,
            temperature=0,
            stop=stop,
            logprobs=2,
            include_stop_str_in_output=include,
            ignore_eos=True,
        )
        result = small_decoder.generate(TEXT, params, num_draft_tokens=k)
        kept = len(result.token_ids)
        cut_several += sum(e.kind == "discarded" and e.reason == "stop" for e in result.trace) > 1
        assert result.finish_reason == "stop"
        assert result.text == free.text[: free.text.find(stop) + (len(stop) if include else 0)]
        assert result.token_ids == free.token_ids[:kept]
        assert len(result.logprobs) == kept
        expected = [
            entry[token].logprob
            for entry, token in zip(free.logprobs, free.token_ids[:kept], strict=False)
        ]
        found = [
            entry[token].logprob
            for entry, token in zip(result.logprobs, result.token_ids, strict=True)
        ]
        assert found == pytest.approx(expected, abs=1e-3)
        assert result.cumulative_logprob == pytest.approx(sum(expected), abs=1e-3)
    assert include or cut_several > 1


@pytest.fixture(scope="module")
def unstopped(small_decoder) -> Callable[..., tuple[SamplingParams, GenerationResult]]:
    """Parameters without stop strings and what they give with windows of `k`, decoded once for
    all stop strings."""

    @cache
    def decoded(k: int, **options: float) -> tuple[SamplingParams, GenerationResult]:
        params = SamplingParams(max_tokens=16, ignore_eos=True, **options)
        return params, small_decoder.generate(OPENING, params, num_draft_tokens=k)

    return decoded


def where_it_ends(pieces: list[str], stops: list[str], min_tokens: int) -> int | None:
    """Where the text is cut: at the first stop string that a token after the first `min_tokens`
    completes."""
    text, searched = "".join(pieces), len("".join(pieces[:min_tokens]))
    ends = [
        (end, end - len(stop))
        for end in range(searched + 1, len(text) + 1)
        for stop in stops
        if text[:end].endswith(stop)
    ]
    return min(ends)[1] if ends else None


STOPS = {
    "a space and what begins inside a word": lambda text: [" ", text[1:10]],
    "single letters and what never comes": lambda text: [text[20], text[9], "xyz who had nothing"],
    "a letter and a long one": lambda text: [text[6], text[8:25]],
    "a long one": lambda text: [text[10:26]],
}
"""Stop strings by what is written without any."""


@pytest.mark.parametrize(
    ("stops_of", "k"), zip(STOPS.values(), cycle([4, 0, 4]), strict=False), ids=STOPS
)
def test_with_min_tokens_a_stop_string_ends_the_text_where_a_later_token_completes_it(
    small_decoder, unstopped, stops_of, k
):
    ended = 0
    for min_tokens, options in (
        (0, {"seed": 1}),
        (1, {"temperature": 0}),
        (4, {"seed": 1}),
        (9, {"temperature": 0}),
    ):
        params, free = unstopped(k, min_tokens=min_tokens, **options)
        pieces = [
            event.text for event in free.trace if event.kind in ("accepted", "resampled", "bonus")
        ]
        stops = stops_of(free.text)
        result = small_decoder.generate(
            OPENING, replace(params, stop=stops), num_draft_tokens=k, detail="none"
        )
        at = where_it_ends(pieces, stops, min_tokens)
        assert result.text == (free.text if at is None else free.text[:at])
        assert (result.finish_reason == "stop") == (at is not None)
        ended += at is not None
    assert ended
