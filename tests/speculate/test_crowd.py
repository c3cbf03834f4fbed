"""Many rows at once: windows shrink to what pays, texts stay the same, and prompts are read in portions."""

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.costs import CostTable, LearnedCosts
from naive_speculate.speculate.request import Request
from tests.speculate.rows import admitted

TABLE = CostTable(0.05, (1.0, 1.07, 1.14, 1.24, 1.3, 1.36))
ROWS = 8


def test_before_anything_is_learned_more_rows_draft_less():
    sizes = [LearnedCosts(TABLE).window(rows, 5) for rows in (2, 16, 256)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0 == sizes[-1]


@pytest.mark.parametrize(("share", "growth", "expected"), [(0.9, 0.01, 5), (0.9, 1.0, 0), (0.05, 0.3, 0)])
def test_a_batch_drafts_what_its_own_steps_show_to_pay(share, growth, expected):
    """Accepted drafts and flat costs make the window long; costs that grow with it, or refused drafts, make it empty."""
    learned = LearnedCosts(CostTable(0.01, TABLE.verify))
    sizes = []
    for _ in range(200):
        count = learned.window(ROWS, 5)
        sizes.append(count)
        learned.count(ROWS)
        learned.learn(ROWS, count, 0.01 * count, 1 + growth * count, round(share * count * 100), count * 100)
    assert sizes[-20:].count(expected) >= 18
    probes = {size for size in sizes[-64:] if size != expected}
    assert probes == {0, 2} - {expected}  # both costs stay known


def decoded(decoder: SpeculativeDecoder, requests: list[Request]) -> list[tuple[list[int], list[int]]]:
    """The tokens of each request, stepped together, and how many drafts its steps had."""
    batch, runs = decoder.new_batch(), [decoder.prepare(request) for request in requests]
    drafts: dict[object, list[int]] = {run.rows[0]: [] for run in runs}
    for run in runs:
        batch.admit(run.rows)
    while rows := [run.rows[0] for run in runs if not run.over]:
        for row, record in batch.step(rows).items():
            drafts[row].append(len(record.outcome.draft_token_ids))
        batch.release([row for row in rows if row.ended])
    return [(run.rows[0].output_token_ids, drafts[run.rows[0]]) for run in runs]


@pytest.mark.parametrize("window", [4, "auto"])
def test_in_a_crowd_greedy_windows_shrink_and_texts_stay(tiny_pair, monkeypatch, window):
    monkeypatch.setattr(LearnedCosts, "window", lambda self, rows, most: 0 if rows > 4 else min(most, 1))
    decoder = SpeculativeDecoder(tiny_pair)
    params = SamplingParams(temperature=0, seed=1, max_tokens=8, ignore_eos=True)
    requests = [Request([3 + n, 5], params, num_draft_tokens=window, shrink_in_batch=True) for n in range(6)]
    alone = [decoded(decoder, [request])[0] for request in requests]
    together = decoded(decoder, requests)
    assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
    assert all(not any(drafts) for _, drafts in together)
    assert alone == [decoded(decoder, [request])[0] for request in requests]  # alone, a seed repeats the windows too
    if window == 4:
        assert all(max(drafts) == 4 for _, drafts in alone)


def test_windows_on_which_a_text_depends_stay(tiny_pair, monkeypatch):
    monkeypatch.setattr(LearnedCosts, "window", lambda *_: 0)
    decoder = SpeculativeDecoder(tiny_pair)

    def request(number: int, seed: int | None, shrinks: bool) -> Request:
        params = SamplingParams(seed=seed, max_tokens=8 if seed or not shrinks else 2, ignore_eos=True)
        return Request([3 + number, 5], params, num_draft_tokens=3, shrink_in_batch=shrinks)

    seeded, unseeded, fixed = decoded(decoder, [request(0, 1, True), request(1, None, True), request(2, None, False)])
    assert max(seeded[1]) == max(fixed[1]) == 3
    assert max(unseeded[1]) == 0
    assert seeded == decoded(decoder, [request(0, 1, True)])[0]


def test_many_prompts_are_read_in_portions_and_long_ones_last(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 12)
    decoder = SpeculativeDecoder(tiny_pair)
    prompts = [[3] * 30, *([4 + n] * 6 for n in range(4))]
    batch, first = decoder.new_batch(), {}
    rows = [admitted(decoder, batch, prompt, SamplingParams(max_tokens=20, seed=1)) for prompt in prompts]
    for number in range(6):
        for row in batch.step(rows):
            first.setdefault(rows.index(row), number)
    assert first[1] == first[2] == 0 < first[3] == first[4] < first[0]
    alone = SpeculativeDecoder(tiny_pair).generate(prompts[3], SamplingParams(max_tokens=20, seed=1))
    assert alone.token_ids[: len(rows[3].output_token_ids)] == rows[3].output_token_ids


def test_a_long_prompt_is_read_although_short_ones_keep_coming(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 12)
    decoder = SpeculativeDecoder(tiny_pair)
    batch, params = decoder.new_batch(), SamplingParams(max_tokens=1, seed=1)
    rows = [long := admitted(decoder, batch, [3] * 30, params)]
    for _ in range(16):
        rows.append(admitted(decoder, batch, [4] * 6, params))
        batch.step(rows)
        batch.release([row for row in rows if row.ended])
        rows = [row for row in rows if not row.ended]
    assert long.ended
