"""Long prompts are prefilled chunk by chunk, while other sequences decode."""

import threading

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.events import FinishReason
from tests.speculate.rows import admitted


def test_a_long_prompt_is_taken_in_with_others_and_can_be_stopped(tiny_pair, monkeypatch):
    """Chunk by chunk: those who decode meanwhile wait for one chunk a step."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt = [3 + number % 20 for number in range(60)]
    decoder = SpeculativeDecoder(tiny_pair)
    batch, cancel = decoder.new_batch(), threading.Event()
    short = admitted(decoder, batch, [1, 2], SamplingParams(max_tokens=400, seed=1, ignore_eos=True))
    batch.step([short])
    long = admitted(decoder, batch, prompt, SamplingParams(max_tokens=9, seed=2))
    given_up = admitted(decoder, batch, prompt, SamplingParams(max_tokens=9, seed=2), cancel)
    for number in range(30):
        batch.step([short, long, given_up])
        if number == 5:
            assert len(short.token_ids) > 7
            assert len(long.token_ids) == len(given_up.token_ids) == 60
            cancel.set()
        if number == 6:
            assert given_up.finish_reason == FinishReason.CANCELLED
    assert long.token_ids[60:] == SpeculativeDecoder(tiny_pair).generate(prompt, long.params).token_ids


def test_a_row_that_stops_while_another_s_prompt_is_taken_in_changes_nothing_for_it(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt, params = [3 + number % 20 for number in range(60)], SamplingParams(max_tokens=9, temperature=0)
    decoder, cancel = SpeculativeDecoder(tiny_pair), threading.Event()
    alone = decoder.generate(prompt, params).token_ids
    batch = decoder.new_batch()
    first = admitted(decoder, batch, [1, 2], SamplingParams(max_tokens=150, seed=3), cancel)
    batch.step([first])
    second = admitted(decoder, batch, prompt, params)
    prefill = batch._prefill
    monkeypatch.setattr(batch, "_prefill", lambda rows: (prefill(rows), cancel.set()))
    while not second.ended:
        batch.step([first, second])
    assert first.finish_reason == FinishReason.CANCELLED
    assert second.output_token_ids == alone
