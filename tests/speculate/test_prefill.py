"""Long prompts go in chunk by chunk, beside sequences that decode."""

import threading

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.events import FinishReason


def test_a_long_prompt_is_taken_in_beside_others_and_can_be_stopped(tiny_pair, monkeypatch):
    """Chunk by chunk: those who decode meanwhile wait for one chunk a step."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt = [3 + number % 20 for number in range(100)]
    decoder = SpeculativeDecoder(tiny_pair)
    workspace = decoder.new_workspace()
    short, _ = decoder.new_sequence([1, 2], SamplingParams(max_tokens=400, seed=1, ignore_eos=True), workspace=workspace)
    decoder.step([short])
    cancel = threading.Event()
    long, _ = decoder.new_sequence(prompt, SamplingParams(max_tokens=9, seed=2), workspace=workspace)
    given_up, _ = decoder.new_sequence(prompt, SamplingParams(max_tokens=9, seed=2), workspace=workspace, cancel=cancel)
    for number in range(60):
        decoder.step([short, long, given_up])
        if number == 5:
            assert len(short.token_ids) > 7
            assert len(long.token_ids) == len(given_up.token_ids) == 100
            cancel.set()
        if number == 6:
            assert given_up.finish_reason == FinishReason.CANCELLED
    assert long.token_ids[100:] == SpeculativeDecoder(tiny_pair).generate(prompt, long.params).token_ids


def test_who_stops_while_another_s_prompt_is_taken_in_changes_nothing_for_it(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt, params = [3 + number % 20 for number in range(60)], SamplingParams(max_tokens=9, temperature=0)
    decoder, cancel = SpeculativeDecoder(tiny_pair), threading.Event()
    alone = decoder.generate(prompt, params).token_ids
    workspace = decoder.new_workspace()
    first, _ = decoder.new_sequence([1, 2], SamplingParams(max_tokens=150, seed=3), workspace=workspace, cancel=cancel)
    decoder.step([first])
    second, _ = decoder.new_sequence(prompt, params, workspace=workspace)
    feed = workspace.scorer.prefill
    monkeypatch.setattr(workspace.scorer, "prefill", lambda sequences: (feed(sequences), cancel.set()))
    while second.finish_reason is None:
        decoder.step([one for one in (first, second) if one.finish_reason is None])
    assert first.finish_reason == FinishReason.CANCELLED
    assert second.output_token_ids == alone
