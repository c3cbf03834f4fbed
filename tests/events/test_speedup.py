"""The measured speedup: plain seconds a token ÷ seconds a token with drafts, the prompts apart."""

import random

import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.events.speedup import compare
from naive_speculate.events.trace import Trace
from tests.ui.handmade import run


def decoded(
    windows: list[tuple[int, int]], *, draft: float = 0.001, verify: float = 0.01, prompt: float = 0.0, noise: float = 0.0
):
    """A run whose rounds take so long, each up to `noise` longer, after a prompt that takes `prompt` seconds."""
    dice, clock, events = random.Random(len(windows)), prompt, []
    for number, (drafted, accepted) in enumerate(windows):
        seconds = {"draft_seconds": drafted * draft, "verify_seconds": verify * (1 + noise * dice.random())}
        clock += sum(seconds.values())
        events.append(Event(EventKind.STEP, step=number, time=clock, num_draft=drafted, num_accepted=accepted, **seconds))
    return events


PLAIN = decoded([(0, 0)] * 20)
DRAFTED = decoded([(4, 3)] * 9)
QUIET = compare([PLAIN, PLAIN], [DRAFTED], "a machine")


def test_it_is_the_time_of_a_token_over_that_of_one_with_drafts():
    found = compare([PLAIN] * 2, [decoded([(4, 3)] * 9, verify=0.016)], "here")
    assert found.value == pytest.approx(4 * 0.01 / 0.02)
    assert (found.plain_rate, found.rate) == pytest.approx((100, 200))
    assert (found.tokens_per_round, found.num_draft_tokens) == (4, 4)
    assert (found.verify_cost, found.draft_cost) == pytest.approx((1.6, 0.1))
    assert (found.tokens, found.machine) == (32, "here")


@pytest.mark.parametrize("noise", [0.0, 0.3, 2.0])
def test_plain_decoding_against_itself_is_one_within_its_range(noise):
    runs = [decoded([(0, 0)] * (60 + n), noise=noise) for n in range(3)]
    found = compare([runs[0], runs[2]], [runs[1]], "")
    assert found.low <= 1 <= found.high
    assert found.draft_cost is None


def test_neither_the_prompt_nor_one_long_pause_counts():
    with_prompt = [decoded(windows, prompt=3.0) for windows in ([(0, 0)] * 20, [(4, 3)] * 9)]
    paused = decoded([(0, 0)] * 20)
    for event in paused[10:]:
        event.time += 5.0
    for plain, drafted in (([with_prompt[0]] * 2, with_prompt[1]), ([PLAIN, paused], DRAFTED)):
        assert compare(plain, [drafted], "").value == pytest.approx(QUIET.value)


def test_a_machine_that_grew_slower_and_rounds_that_kept_more_or_less_widen_the_range():
    drifted = compare([PLAIN, decoded([(0, 0)] * 20, verify=0.02)], [DRAFTED], "")
    assert (drifted.low, drifted.high) == pytest.approx((QUIET.value, 2 * QUIET.value))
    assert drifted.low < drifted.value < drifted.high
    uneven = compare([PLAIN] * 2, [decoded([(4, kept) for kept in (4, 0, 3, 1, 4, 4, 0, 2, 4)])], "")
    assert uneven.low < 0.9 * uneven.value < 1.1 * uneven.value < uneven.high


def test_a_text_of_a_few_rounds_is_not_timed_and_every_drafted_run_stands_between_plain_ones():
    assert compare([PLAIN] * 2, [DRAFTED[:3]], "") is None
    assert compare([[], PLAIN], [DRAFTED], "") is None
    with pytest.raises(ValueError, match="plain must have one trace more than drafted, got 1 and 1"):
        compare([PLAIN], [DRAFTED], "")


def test_a_trace_keeps_its_speedup_and_refuses_one_that_cannot_be():
    trace = run([(3, 2)] * 9)
    trace[-1].speedup = QUIET
    text = trace.to_jsonl()
    assert Trace.from_jsonl(text)[-1] == trace[-1]
    for wrong, field in (('"value":1e300,"was":', "value"), ('"machine":"' + "a" * 1000 + '","was":', "machine")):
        with pytest.raises(ValueError, match=rf"speedup\.{field}"):
            Trace.from_jsonl(text.replace(f'"{field}":', wrong))
