"""The decoder on the bundled pair: real text, real acceptance, against transformers and the target's own probabilities."""

import collections
import math
from dataclasses import replace
from itertools import groupby

import pytest
import torch
from transformers import AutoModelForCausalLM

from naive_speculate import EventKind, SamplingParams, Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.models import BUNDLED_PAIR

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
NEW_TOKENS = 12  # a window of the largest size that is kept whole is followed by another
TEXT = "The children went into the garden, where"


@pytest.fixture(scope="module")
def reference():
    """The target in transformers, float32."""
    return AutoModelForCausalLM.from_pretrained(BUNDLED_PAIR / "target", dtype=torch.float32).eval()


@pytest.fixture
def short_caches(monkeypatch, bundled_pair):
    """Room for 32 tokens per row at first: batches of many short rows need no more, and a masked forward reads it all."""
    monkeypatch.setattr(RaggedKVCache.__init__, "__defaults__", (32,))
    for model in (bundled_pair.target, bundled_pair.draft):
        monkeypatch.setattr(model, "_spare", [])


def same_or_near_tie(reference, prompt, expected, found):
    """Whether two greedy outputs are equal up to a place where the two best logits lie within 1e-4."""
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=False)):
        if ours != theirs:
            with torch.no_grad():
                best = reference(torch.tensor([prompt + expected[:place]])).logits[0, -1].topk(2).values
            return (best[0] - best[1]).item() < 1e-4
    return len(found) == len(expected)


def test_greedy_equals_transformers_for_50_prompts_and_every_window(bundled_decoder, reference, short_caches):
    prompts = sorted((bundled_decoder.admission.encode(text) for text in PROMPTS), key=len)
    assert len(prompts) == 50
    expected = []
    for length, same in groupby(prompts, key=len):  # together without padding, which would change them
        query = torch.tensor(list(same))
        output = reference.generate(query, attention_mask=torch.ones_like(query), do_sample=False, max_new_tokens=NEW_TOKENS)
        eos = reference.generation_config.eos_token_id
        expected += [row[: row.index(eos) + 1] if eos in row else row for row in output[:, length:].tolist()]
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS)
    for k in range(1, 9):  # each prompt under one window, short and long prompts under each window
        some = slice(k % 8, None, 8)
        results = bundled_decoder.generate(prompts[some], params, num_draft_tokens=k, detail="none")
        wrong = [
            prompt
            for prompt, theirs, ours in zip(prompts[some], expected[some], results, strict=True)
            if not same_or_near_tie(reference, prompt, theirs, ours.token_ids)
        ]
        assert wrong == [], f"k = {k}"


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_sampled_two_token_continuations_pass_a_chi_square_test(small_decoder, small_pair, strategy):
    reference = AutoModelForCausalLM.from_pretrained(small_pair[0], dtype=torch.float32).eval()
    prompt, count, batch = small_decoder.admission.encode("In the"), 1500, 125  # more rows at once take gigabytes of cache
    seen: collections.Counter[tuple[int, ...]] = collections.Counter()
    for seed in range(count // batch):
        params = SamplingParams(n=batch, max_tokens=2, top_k=8, seed=seed, ignore_eos=True)
        result = small_decoder.generate(prompt, params, num_draft_tokens=2, verify_strategy=strategy, detail="none")
        seen.update(tuple(output.token_ids) for output in result.outputs)

    def top_eight(tokens):
        with torch.no_grad():
            logits = reference(torch.tensor([prompt + tokens])).logits[0, -1]
        best = logits.topk(8)
        return dict(zip(best.indices.tolist(), torch.softmax(best.values, -1).tolist(), strict=True))

    expected = {(a, b): p * q for a, p in top_eight([]).items() for b, q in top_eight([a]).items()}
    assert seen.keys() <= expected.keys()
    rare = sum(p for p in expected.values() if p * count < 5)
    cells = [(seen[pair], p * count) for pair, p in expected.items() if p * count >= 5]
    cells.append((sum(seen[pair] for pair, p in expected.items() if p * count < 5), rare * count))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in cells if wanted > 0)
    freedom = len(cells) - 1
    # Wilson and Hilferty's normal approximation; 3.5 standard deviations, and the seed is fixed.
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    assert abs(deviation) < 3.5


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification", "typical_acceptance", "greedy_match"])
def test_events_carry_the_numbers_that_decided(bundled_decoder, strategy):
    params = SamplingParams(max_tokens=60, seed=4, temperature=0.8)
    result = bundled_decoder.generate(TEXT, params, num_draft_tokens=4, verify_strategy=strategy)
    events = result.trace.events
    assert [events[0].kind, events[-1].kind] == [EventKind.STARTED, EventKind.FINISHED]
    assert [e.time for e in events] == sorted(e.time for e in events)
    proposed = {(e.step, e.index): e for e in events if e.kind == EventKind.PROPOSED}
    for event in events:
        if event.kind in (EventKind.ACCEPTED, EventKind.REJECTED):
            draft = proposed[event.step, event.index]
            assert (event.token_id, event.draft_prob) == (draft.token_id, draft.draft_prob)
            if strategy == "speculative_sampling":
                assert event.accept_prob == pytest.approx(min(1.0, event.target_prob / event.draft_prob), rel=1e-5)
                assert (event.uniform < event.accept_prob) == (event.kind == EventKind.ACCEPTED)
            elif strategy == "block_verification":
                assert 0 <= event.accept_prob <= 1
                assert event.uniform is not None
            else:
                assert event.accept_prob == (1.0 if event.kind == EventKind.ACCEPTED else 0.0)
                assert event.uniform is None
            if strategy == "typical_acceptance":
                assert (event.target_prob > event.threshold) == (event.kind == EventKind.ACCEPTED)
                assert event.threshold == pytest.approx(min(0.09, 0.3 * math.exp(-event.target_entropy)), rel=1e-4)
            tops = {top.token_id: top.prob for top in event.target_top}
            assert tops.get(event.token_id, event.target_prob) == pytest.approx(event.target_prob)
        if event.kind == EventKind.RESAMPLED and strategy == "speculative_sampling":
            assert event.token_id in {top.token_id for top in event.residual_top} or len(event.residual_top) == 8
        if event.kind == EventKind.DISCARDED and strategy != "block_verification":
            assert event.accept_prob is None
    assert events[0].settings["lossy"] == (strategy in ("typical_acceptance", "greedy_match"))


def test_a_loaded_trace_gives_the_live_text_and_metrics(bundled_decoder, tmp_path):
    result = bundled_decoder.generate(TEXT, SamplingParams(max_tokens=50, seed=9))
    result.trace.save(tmp_path / "run.jsonl")
    loaded = Trace.load(tmp_path / "run.jsonl")
    assert loaded.text == result.text == result.trace.text
    assert loaded.metrics == result.metrics
    assert loaded.finished.metrics == result.metrics.to_dict()


@pytest.mark.parametrize("token_set", ["bytes", "words"])
def test_joined_texts_are_the_text_even_inside_characters(bundled_decoder, bundled_pair, token_set):
    """Forced through tokens that split emoji: allowed are only the pieces of a text full of them."""
    tokenizer = bundled_pair.tokenizer
    pieces = tokenizer("👩‍🚀 naïve 日本語 🎉" if token_set == "bytes" else "The cat sat.").input_ids
    params = SamplingParams(max_tokens=40, seed=1, temperature=2.0, allowed_token_ids=sorted(set(pieces)), ignore_eos=True)
    result = bundled_decoder.generate(TEXT, params)
    assert "".join(e.text for e in result.trace if e.kind in OUTPUT_KINDS) == tokenizer.decode(result.token_ids)


def test_a_stop_string_cuts_the_text_exactly_and_nothing_behind_it_appears(small_decoder):
    free = small_decoder.generate(TEXT, SamplingParams(max_tokens=40, temperature=0, ignore_eos=True), num_draft_tokens=0)
    for begin in (9, 23, 41, 60):
        stop = free.text[begin : begin + 7]
        at = free.text.find(stop)
        for k in (0, 1, 4, 8):
            for include in (False, True):
                params = SamplingParams(
                    max_tokens=40, temperature=0, stop=[stop], include_stop_str_in_output=include, ignore_eos=True
                )
                result = small_decoder.generate(TEXT, params, num_draft_tokens=k)
                assert result.text == free.text[: at + (len(stop) if include else 0)]
                assert result.finish_reason == "stop"
                assert result.token_ids == free.token_ids[: len(result.token_ids)]


def test_events_are_held_back_while_a_stop_string_may_be_forming(bundled_decoder):
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    free = bundled_decoder.generate(TEXT, params, num_draft_tokens=0)
    stop = free.text[20:40]
    shown = ""
    for event in bundled_decoder.stream(TEXT, replace(params, stop=stop), num_draft_tokens=3):
        if event.kind in OUTPUT_KINDS:
            shown += event.text
            assert stop[:4] not in shown[free.text.find(stop) :]
    assert shown == free.text[: free.text.find(stop)]


def test_a_grammar_holds_under_speculation_and_equals_plain_decoding(bundled_decoder):
    params = SamplingParams(max_tokens=60, temperature=0, guided_decoding={"regex": r"[A-Z][a-z]{3,8}( [a-z]{2,7}){2,5}\."})
    plain = bundled_decoder.generate(TEXT, params, num_draft_tokens=0)
    for k in (2, 5):
        assert bundled_decoder.generate(TEXT, params, num_draft_tokens=k).token_ids == plain.token_ids
    chosen = SamplingParams(max_tokens=20, seed=3, guided_decoding={"choice": ["north", "south", "east"]})
    assert bundled_decoder.generate(TEXT, chosen).text in {"north", "south", "east"}


def test_without_detokenization_there_are_tokens_and_no_text(bundled_decoder):
    params = SamplingParams(max_tokens=10, seed=1)
    silent = bundled_decoder.generate(TEXT, SamplingParams(max_tokens=10, seed=1, detokenize=False))
    assert silent.text == ""
    assert silent.token_ids == bundled_decoder.generate(TEXT, params).token_ids


def test_bad_words_never_appear(bundled_decoder):
    free = bundled_decoder.generate(TEXT, SamplingParams(max_tokens=60, temperature=0)).text
    words = sorted({word.strip('.,"') for word in free.split() if len(word) > 3})[:5]
    params = SamplingParams(max_tokens=60, temperature=0, bad_words=words)
    plain, fast = (bundled_decoder.generate(TEXT, params, num_draft_tokens=k) for k in (0, 5))
    assert fast.token_ids == plain.token_ids
    assert not any(f" {word} " in fast.text for word in words)


def test_the_cached_logits_equal_an_uncached_forwards(bundled_pair, reference):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, bundled_pair.vocab_size, (1, 60), generator=generator)
    with torch.no_grad():
        expected = reference(tokens).logits
    cache = bundled_pair.target.new_cache(1)
    place, rows = 0, []
    while place < 60:
        size = int(torch.randint(1, 9, (1,), generator=generator))
        chunk = tokens[:, place : place + size]
        bundled_pair.target.forward(torch.flip(chunk, [1]), cache)  # a rejected window
        cache.crop(chunk.shape[1])
        rows.append(bundled_pair.target.forward(chunk, cache))
        place += size
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, atol=1e-4, rtol=1e-4)
