""" "auto" relative to fixed windows, in the costs that it decides by; and windows that end after
an unsure draft."""

import random
from dataclasses import dataclass
from itertools import accumulate

import pytest

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.costs import CostTable
from naive_speculate.speculate.costs import LearnedCosts, StepCosts, learned_costs
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.window import (
    MAX_AUTO_WINDOW,
    AutoWindow,
    CopyOrAskWindow,
    FixedWindow,
    Window,
)
from tests.speculate.rows import admitted
from tests.speculate.toys import ToyModel, check_lossless
from tests.tiny import noisy_pair

TABLES = {
    "a CPU": CostTable(0.24, (1.0, 1.26, 1.31, 1.38, 1.48, 1.55, 1.72, 1.79, 1.88)),
    "a cheap draft": CostTable(0.11, (1.0, 1.39, 1.47, 1.55, 1.64, 1.72, 1.80, 1.88, 1.96)),
    "a GPU": CostTable(0.05, tuple(1 + 0.02 * k for k in range(9))),
    "a costly draft": CostTable(0.5, tuple(1 + 0.05 * k for k in range(9))),
    "lookup": CostTable(0.0, (1.0, 1.39, 1.47, 1.55, 1.64, 1.72, 1.80, 1.88, 1.96)),
}


@dataclass(frozen=True)
class Text:
    """A kind of text: how often the draft gives its token each probability, and how many of
    these are kept."""

    confidences: tuple[float, ...]
    shares: tuple[float, ...]
    kept: tuple[float, ...]
    greedy: bool = False


CONFIDENCES = (0.05, 0.15, 0.3, 0.4, 0.6, 0.8, 0.9, 0.98)
TEXTS = {  # as measured with an earlier bundled pair
    "greedy": Text(
        CONFIDENCES,
        (3, 9, 16, 7, 8, 6, 5, 46),
        (0.3, 0.35, 0.6, 0.85, 0.63, 0.95, 0.95, 0.94),
        True,
    ),
    "T = 0.8": Text(
        CONFIDENCES, (12, 3, 3, 3, 3, 3, 4, 69), (0.65, 0.8, 0.78, 0.7, 0.66, 0.73, 0.81, 0.97)
    ),
    "T = 1.3": Text(
        CONFIDENCES, (75, 7, 6, 4, 3, 2, 1, 3), (0.66, 0.79, 0.73, 0.64, 0.6, 0.65, 0.8, 0.91)
    ),
    "a list": Text(
        CONFIDENCES,
        (15, 23, 12, 20, 10, 5, 0, 15),
        (0.34, 0.7, 0.83, 0.49, 0.27, 0.93, 0.9, 0.99),
        True,
    ),
    "an odd prompt": Text(
        CONFIDENCES, (48, 8, 10, 8, 7, 6, 4, 9), (0.62, 0.69, 0.75, 0.63, 0.64, 0.75, 0.82, 0.96)
    ),
}
COPIES = {  # after two, four, and ten matching tokens or more
    "copied text": Text((0.5, 0.75, 0.9), (1, 1, 3), (0.8, 0.9, 0.98), True),
    "text that resembles": Text((0.5, 0.75, 0.9), (3, 1, 1), (0.5, 0.7, 0.9), True),
    "other text": Text((0.5,), (1,), (0.3,), True),
}


def tokens_per_cost(
    window: Window,
    text: Text,
    costs: CostTable,
    dice: random.Random,
    tokens: int = 96,
    learned: LearnedCosts | None = None,
) -> float:
    """One run's. Costs are learned in other units, as seconds are, and one step in ten is
    disturbed."""
    made, spent = 0, 0.0
    kinds, shares = range(len(text.kept)), list(accumulate(text.shares))
    while made < tokens:
        limit, fates = min(window.max_drafts(), tokens - made - 1), []
        while len(fates) < limit:
            kind = dice.choices(kinds, cum_weights=shares)[0]
            fates.append(dice.random() < text.kept[kind])
            if not window.should_continue(text.confidences[kind]):
                break
        kept = [*fates, False].index(False)
        window.learn(kept, min(kept + 1, len(fates)))
        drafting, verifying = len(fates) * costs.draft, costs.verify_cost(len(fates))
        spent += drafting + verifying
        if learned is not None:
            noise = 0.02 * dice.choice((0.95, 1.0, 1.05)) * (5 if dice.random() < 0.1 else 1)
            learned.learn(1, StepCosts(len(fates), drafting * noise, verifying * noise))
        made += kept + 1
    return made / spent


def mean_rate(make, text: Text, costs: CostTable) -> float:
    return 12 / sum(
        1 / tokens_per_cost(make(), text, costs, random.Random(seed)) for seed in range(12)
    )


@pytest.mark.parametrize("table", TABLES)
def test_auto_comes_near_the_best_fixed_window_or_passes_it(table):
    costs = TABLES[table]
    for name, text in (COPIES if table == "lookup" else TEXTS).items():
        best = max(
            mean_rate(lambda k=k, text=text: FixedWindow(k), text, costs)
            for k in (1, 2, 3, 4, 6, 8)
        )
        found = mean_rate(lambda text=text: AutoWindow(costs, greedy=text.greedy), text, costs)
        assert found > 0.97 * best, name


@pytest.mark.parametrize(
    ("machine", "table"),
    [("a CPU", "a GPU"), ("a GPU", "a CPU"), ("a costly draft", "a cheap draft")],
)
def test_auto_learns_the_costs_of_a_machine_that_the_table_was_not_measured_on(machine, table):
    costs, text, learned = TABLES[machine], TEXTS["a list"], LearnedCosts(TABLES[table])
    best = max(mean_rate(lambda k=k: FixedWindow(k), text, costs) for k in range(1, 9))
    rates = []
    for seed in range(60):
        window = AutoWindow(TABLES[table], greedy=text.greedy, learned=learned)
        rates.append(tokens_per_cost(window, text, costs, random.Random(seed), learned=learned))
    found = 60 / sum(1 / rate for rate in rates)
    assert found > 0.96 * best
    assert found > mean_rate(lambda: AutoWindow(TABLES[table], greedy=True), text, costs)
    assert LearnedCosts(costs).table() == costs


@pytest.mark.parametrize(
    ("window", "strategy"), [(3, "speculative_sampling"), ("auto", "block_verification")]
)
def test_a_window_that_ends_after_a_doubtful_draft_is_lossless(strategy, window):
    pair = ModelPair(ToyModel(3, 1), ToyModel(3, 2), measured_costs=CostTable(0.01, (1.0, 1.01)))
    check_lossless(
        pair, SamplingParams(max_tokens=3), window, draft_confidence=0.6, verify_strategy=strategy
    )


@pytest.mark.parametrize("temperature", [0, 1])
def test_draft_confidence_ends_a_window_after_the_first_token_below_it(tiny_decoder, temperature):
    params = SamplingParams(max_tokens=40, seed=1, temperature=temperature, ignore_eos=True)
    wide = tiny_decoder.generate([1, 2], params, num_draft_tokens=4, detail="probs")
    drawn = sorted(e.draft_prob for e in wide.trace if e.kind == EventKind.PROPOSED)
    least = drawn[len(drawn) // 2]
    found = tiny_decoder.generate(
        [1, 2], params, num_draft_tokens=4, draft_confidence=least, detail="probs"
    )
    windows: dict[int, list[float]] = {}
    for event in found.trace:
        if event.kind == EventKind.PROPOSED:
            windows.setdefault(event.step, []).append(event.draft_prob)
    assert {len(window) for window in windows.values()} > {1}
    for window in windows.values():
        assert all(q >= least for q in window[:-1])
    assert found.trace.events[0].settings["draft_confidence"] == least


def test_greedy_auto_gives_the_same_with_and_without_probabilities_in_its_events(
    tiny_decoder, monkeypatch
):
    monkeypatch.setattr(LearnedCosts, "learn", lambda *_: None)  # seconds differ from run to run
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    some, none = (
        tiny_decoder.generate([1, 2], params, num_draft_tokens="auto", detail=detail)
        for detail in ("probs", "none")
    )
    assert some.token_ids == none.token_ids
    sizes = [
        [e.num_draft for e in result.trace if e.kind == EventKind.STEP] for result in (some, none)
    ]
    assert sizes[0] == sizes[1]


def test_verification_costs_go_on_as_they_grew_after_the_first_draft():
    costs = CostTable(0.1, (1.0, 1.1, 1.3))
    assert [costs.verify_cost(k) for k in (0, 2, 4)] == pytest.approx([1.0, 1.3, 1.7])
    assert CostTable(0.1, (1.0, 1.2, 1.3, 1.3)).verify_cost(5) == pytest.approx(
        1.4
    )  # no cost is flat but by chance
    assert CostTable(0.1, (1.0, 1.1)).verify_cost(3) == pytest.approx(1.3)
    assert (
        CostTable(0.1, (1.0, 2.0, 1.1, 1.2)).verify_cost(16) == 1.2
    )  # a longer one never costs less
    assert CostTable(0.1).verify_cost(5) == 1.0
    assert costs.to_dict() == {"draft": 0.1, "verify": [1.0, 1.1, 1.3]}


def test_copies_and_a_head_s_drafts_have_windows_that_learn_apart():
    """Drafts of a head that are always rejected stop the head, and not the copies, which cost no
    draft forward."""
    costs = CostTable(0.1, (1.0, 1.1, 1.2, 1.3))
    window = CopyOrAskWindow(AutoWindow(costs, copies=True), AutoWindow(costs))
    for _ in range(30):
        if window.max_drafts() and window.ask_limit:
            window.use(copies=False)
            window.should_continue(0.9)
            window.learn(0, 1)
    limits = [(window.max_drafts(), window.copy_limit, window.ask_limit)[1:] for _ in range(12)]
    assert {copies for copies, _ in limits} == {MAX_AUTO_WINDOW}
    assert 0 < sum(asked > 0 for _, asked in limits) <= 2  # but for probes
    window.use(copies=True)
    assert window.should_continue(1.0)


# Many rows at once: windows shrink to what pays, texts stay the same, and prompts are read in
# portions


TABLE = CostTable(0.05, (1.0, 1.07, 1.14, 1.24, 1.3, 1.36))
ROWS = 8


def test_before_anything_is_learned_more_rows_draft_less():
    sizes = [LearnedCosts(TABLE).window(rows, 5) for rows in (2, 16, 256)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0 == sizes[-1]


@pytest.mark.parametrize(
    ("share", "growth", "expected"), [(0.9, 0.01, 5), (0.9, 1.0, 0), (0.05, 0.3, 0)]
)
def test_a_batch_drafts_what_its_own_steps_show_to_pay(share, growth, expected):
    """Accepted drafts and flat costs make the window long; costs that grow with it, or refused
    drafts, make it empty."""
    learned = LearnedCosts(CostTable(0.01, TABLE.verify))
    sizes = []
    for _ in range(200):
        count = learned.window(ROWS, 5)
        sizes.append(count)
        learned.count(ROWS)
        judged = count * 100
        accepted = round(share * judged)
        costs = StepCosts(count, 0.01 * count, 1 + growth * count, accepted, judged)
        learned.learn(ROWS, costs)
    assert sizes[-20:].count(expected) >= 18
    probes = {size for size in sizes[-64:] if size != expected}
    assert probes == {0, 2} - {expected}  # both costs stay known


def decoded(
    decoder: SpeculativeDecoder, requests: list[Request]
) -> list[tuple[list[int], list[int]]]:
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


def test_in_a_crowd_greedy_windows_shrink_and_texts_stay(tiny_pair, monkeypatch):
    monkeypatch.setattr(
        LearnedCosts, "window", lambda self, rows, most: 0 if rows > 4 else min(most, 1)
    )
    decoder = SpeculativeDecoder(tiny_pair)
    params = SamplingParams(temperature=0, seed=1, max_tokens=8, ignore_eos=True)
    windows = [4, 4, 4, "auto", "auto", "auto"]
    requests = [
        Request([3 + n, 5], params, num_draft_tokens=k, shrink_in_batch=True)
        for n, k in enumerate(windows)
    ]
    alone = [decoded(decoder, [request])[0] for request in requests]
    together = decoded(decoder, requests)
    assert [tokens for tokens, _ in together] == [tokens for tokens, _ in alone]
    assert all(not any(drafts) for _, drafts in together)
    assert alone == [
        decoded(decoder, [request])[0] for request in requests
    ]  # alone, a seed repeats the windows too
    assert all(max(drafts) == 4 for _, drafts in alone[:3])


def test_windows_on_which_a_text_depends_stay(tiny_pair, monkeypatch):
    monkeypatch.setattr(LearnedCosts, "window", lambda *_: 0)
    decoder = SpeculativeDecoder(tiny_pair)

    def request(number: int, seed: int | None, shrinks: bool) -> Request:
        params = SamplingParams(
            seed=seed, max_tokens=8 if seed or not shrinks else 2, ignore_eos=True
        )
        return Request([3 + number, 5], params, num_draft_tokens=3, shrink_in_batch=shrinks)

    seeded, unseeded, fixed = decoded(
        decoder, [request(0, 1, True), request(1, None, True), request(2, None, False)]
    )
    assert max(seeded[1]) == max(fixed[1]) == 3
    assert max(unseeded[1]) == 0
    assert seeded == decoded(decoder, [request(0, 1, True)])[0]


def test_many_prompts_are_read_in_portions_and_long_ones_last(tiny_pair, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 12)
    decoder = SpeculativeDecoder(tiny_pair)
    prompts = [[3] * 30, *([4 + n] * 6 for n in range(4))]
    batch, first = decoder.new_batch(), {}
    rows = [
        admitted(decoder, batch, prompt, SamplingParams(max_tokens=20, seed=1))
        for prompt in prompts
    ]
    for number in range(6):
        for row in batch.step(rows):
            first.setdefault(rows.index(row), number)
    assert first[1] == first[2] == 0 < first[3] == first[4] < first[0]
    alone = SpeculativeDecoder(tiny_pair).generate(
        prompts[3], SamplingParams(max_tokens=20, seed=1)
    )
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


class Noting(FixedWindow):
    """Notes what it is to learn."""

    def __init__(self) -> None:
        super().__init__(4, 0.1)
        self.noted: list[tuple[int, int]] = []

    def learn(self, num_accepted: int, num_judged: int) -> None:
        self.noted.append((num_accepted, num_judged))


def test_windows_and_costs_learn_of_judged_drafts_only():
    """A draft after a rejected one is not judged; a tree's, and those of two drafters in one
    step, say nothing about the costs of windows."""
    pair = noisy_pair()
    decoder, learned = SpeculativeDecoder(pair), learned_costs(pair, "model").notes
    params = SamplingParams(max_tokens=24, temperature=1.5, seed=1, ignore_eos=True)
    batch, kinds = decoder.new_batch(), set()
    runs = [decoder.prepare(Request([n, 5], params), first_row=n) for n in range(3)]
    other = decoder.prepare(Request([1, 5, 1, 5], params, drafter="suffix"), first_row=3)
    plain = decoder.prepare(Request([8, 5], params, num_draft_tokens=0), first_row=4)
    for run in (*runs, other, plain):
        batch.admit(run.rows)
        run.rows[0].window = Noting() if run is not plain else run.rows[0].window
    for number in range(6):
        step = [*runs, other] if number == 5 else runs[: 1 + number % 3]
        records = batch.step([run.rows[0] for run in (*step, plain)])
        sums, widest = [0, 0], 0
        for run in step:
            events = run.events(records)
            accepted = sum(event.kind == EventKind.ACCEPTED for event in events)
            judged = accepted + sum(event.kind == EventKind.REJECTED for event in events)
            kinds.add((judged - accepted, events[-1].num_draft - judged > 0))
            assert run.rows[0].window.noted[-1] == (accepted, judged)
            sums = [sums[0] + accepted, sums[1] + judged]
            widest = max(widest, events[-1].num_draft)
        count, costs = learned[-1]
        assert count == len(step) + 1
        found = costs and (costs.num_drafts, costs.accepted, costs.judged)
        assert found == ((widest, *sums) if other not in step else None)
        assert costs is None or min(costs.draft_seconds, costs.verify_seconds) > 0
    assert kinds >= {(0, False), (1, True)}
    batch.step(other.rows)
    assert learned_costs(pair, "suffix").notes[-1][1].draft_seconds == 0
    row = admitted(decoder, batch, [5, 9], params, tree="2x1")
    batch.step([row])
    assert learned[-1] == (1, None)
