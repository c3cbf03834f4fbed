"""The race: what is sent to the browser is what was recorded, and the verdict says what the numbers say."""

import json
from typing import Any

import pytest

from naive_speculate.events import OUTPUT_KINDS, EventKind
from naive_speculate.events.trace import Trace
from naive_speculate.text import num_shared
from tests.ui.handmade import run
from ui.experiments.race import choices, lane, message, race
from ui.experiments.race_verdict import verdict
from ui.host.catalog import Catalog, ServedPair
from ui.run.settings import Settings

PLAIN = run([(0, 0)] * 12, num_draft_tokens=0)
DRAFTED = run([(5, 3)] * 3)
LANES = ("left", "right")


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["kind"] in OUTPUT_KINDS)


def words(plain: Trace = PLAIN, speculative: Trace = DRAFTED, **settings) -> str:
    started = speculative.started
    started.settings = {**started.settings, **settings}
    return " ".join(verdict(plain, speculative))


def test_a_lane_holds_every_token_and_round_at_its_recorded_time():
    sent = lane(DRAFTED)["events"]
    assert text_of(sent) == DRAFTED.text
    assert [event["time"] for event in sent] == sorted(event["time"] for event in sent)
    assert sum(event["kind"] == "step" for event in sent) == 3
    assert sent[-1]["time"] == pytest.approx(DRAFTED[-1].time)


def test_a_lane_is_named_after_what_drafts():
    plain, head = run([(0, 0)], num_draft_tokens=0, drafter="model"), run([(4, 1)], num_draft_tokens=4, drafter="head")
    assert (lane(plain)["title"], lane(plain)["drafts"]) == ("Plain", False)
    assert (lane(head)["title"], lane(head)["note"], lane(head)["drafts"]) == (
        "Draft head",
        "up to 4 draft tokens per step",
        True,
    )
    assert lane(run([(4, 1)], num_draft_tokens="auto"))["title"] == "Speculative"


def test_the_verdict_counts_speed_passes_and_drafts():
    # 12 tokens in 12 × 11 ms against 12 in 3 × 16 ms
    said = words()
    assert said.startswith("2.75 times as fast with drafts: 9 target passes saved.")
    assert "250 tokens per second with drafts, 91 without." in said
    assert "12 target passes for 12 tokens, speculative decoding 3 target passes for 12 tokens" in said
    assert "with 60% of its draft tokens accepted" in said


def test_the_verdict_says_why_fewer_passes_are_not_as_many_times_the_speed():
    assert "A step with drafts gave 4.00 tokens but took 1.45 times as long as a plain step" in words()


def test_a_lost_race_is_called_lost():
    assert "Here drafting did not pay off" in words(PLAIN, run([(9, 0)] * 12))
    assert "A draw" in words(PLAIN, run([(0, 0)] * 12))


def test_either_lane_may_be_the_plain_one():
    assert verdict(DRAFTED, PLAIN)[0] == verdict(PLAIN, DRAFTED)[0]


def test_two_drafters_are_compared_by_name():
    suffix = run([(5, 1)] * 6, drafter="suffix")
    said = verdict(run([(5, 3)] * 3, drafter="model"), suffix)
    assert said[0] == "2.00 times as fast: the draft model beats suffix decoding."
    assert (
        "suffix decoding: 125 tokens per second, 6 target passes for 12 tokens with 20% of its draft tokens accepted" in said[1]
    )


def test_sampled_texts_are_said_to_share_a_distribution_not_a_text():
    assert "a random sample of the same distribution" in words(temperature=0.7)
    assert "not lossless" in words(temperature=0.7, lossy=True)


def test_greedy_texts_are_compared_token_for_token():
    same, twin = (run([(0, 0)] * 4, temperature=0, num_draft_tokens=0) for _ in range(2))
    assert num_shared(same.token_ids, twin.token_ids) == 4
    assert "The texts are the same: all 4 tokens agree." in " ".join(verdict(same, twin))
    outputs = [event for event in twin if event.kind == EventKind.BONUS]
    outputs[2].token_id = 77
    assert num_shared(same.token_ids, twin.token_ids) == 2
    assert "differ from token 3 on" in " ".join(verdict(same, twin))
    assert "agree in the 3 tokens that both have" in " ".join(verdict(same, run([(0, 0)] * 3, temperature=0)))


def test_a_race_without_a_first_token_has_no_verdict():
    assert verdict(PLAIN, run([])) == ["One run ended before its first token, so there is no verdict."]


def test_nothing_in_a_message_can_pass_for_a_tag():
    trace = run([(2, 1)])
    for event in trace:
        if event.text:
            event.text = "</script><img src=x>"
    sent = message(3, PLAIN, trace)
    assert "<" not in sent
    assert next(event for event in json.loads(sent)["right"]["events"] if "text" in event)["text"] == "</script><img src=x>"


@pytest.fixture(scope="module")
def catalog(bundled_engine) -> Catalog:
    return Catalog({"bundled": ServedPair(bundled_engine)})


def test_a_real_race_runs_both_and_greedy_texts_agree(catalog):
    settings = Settings(prompt="Once upon a time there was a fox", temperature=0.0, max_tokens=24, num_draft_tokens=3)
    *_, found = race(catalog, settings)
    data = json.loads(message(1, *found))
    sent = [data[name]["events"] for name in LANES]
    texts, passes = zip(*((text_of(events), sum(e["kind"] == "step" for e in events)) for events in sent), strict=True)
    assert texts[0] == texts[1] != ""
    assert passes[0] == 24 > passes[1]
    assert data["shared"] == 24
    assert "the same: all 24" in " ".join(data["verdict"])


def test_two_drafters_race_and_write_the_same_greedily(catalog):
    settings = Settings(prompt="Ha, ha, ha, ha,", temperature=0.0, max_tokens=16, num_draft_tokens=3)
    *_, found = race(catalog, settings, ("model", "suffix"), heats=1)
    left, right = found
    assert (lane(left)["title"], lane(right)["title"]) == ("Draft model", "Suffix decoding")
    assert left.token_ids == right.token_ids


def test_only_what_a_pair_here_has_can_be_put_into_a_lane(catalog):
    roles = catalog.of("").engine.about.models
    offered = {value for _, value in choices(catalog)}
    assert {"none", "run", "suffix", "prompt_lookup"} <= offered
    assert offered & {"model", "head"} == {name for name, role in (("model", "draft"), ("head", "head")) if role in roles}


def test_a_race_of_plain_against_plain_or_of_twins_is_refused(catalog):
    with pytest.raises(ValueError, match="k is 0"):
        list(race(catalog, Settings(prompt="Once", num_draft_tokens=0)))
    for opponents in (("none", "none"), ("suffix", "suffix")):
        with pytest.raises(ValueError, match="both lanes are the same"):
            list(race(catalog, Settings(prompt="Once"), opponents))
