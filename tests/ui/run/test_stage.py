"""What the browser gets of a run: the stage, messages, answers to its questions, other
strategies' verdicts, and files."""

import json
import re
from base64 import b64decode
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import TOKEN_KINDS, Event, EventKind, TokenProb
from naive_speculate.speculate.theory import expected_accepted
from naive_speculate.tools.show.drawing import LAYOUTS, step_svg
from naive_speculate.tools.show.palette import STYLES
from tests.ui.handmade import run
from ui.assets import styles, variables
from ui.run.recorded import MAX_LINE_CHARACTERS, SPECULATIVE, opened, recorded_run
from ui.run.runs import Runs, ShownRun
from ui.run.stage import TILES, _server_functions, batch, offline_page, template
from ui.run.strategies import GREEDY, NO_DRAFTS, NOT_RECORDED, compared_steps, markup


def test_the_markup_has_an_element_for_every_number_and_a_key_and_colours_for_every_kind():
    shown, (light, dark) = template(), variables().split(".dark")
    assert all(f">{name}</a></dt>" in shown for name in TILES)
    assert not any(sign in shown for sign in ("`", "${", "{{")), "it is no template of Gradio's"
    for kind in TOKEN_KINDS:
        assert (
            f'class="ns-key" data-kind="{kind.value}"><i aria-hidden="true">{STYLES[kind].mark}</i>'
            in shown
        )
        assert escape(STYLES[kind].meaning) in shown
    for kind, style in STYLES.items():
        assert (f"--ns-{kind}:{style.light};" in light, f"--ns-{kind}:{style.dark};" in dark) == (
            True,
            True,
        )
    assert "</style" not in styles()


def kept(trace: Trace, **fields: str) -> tuple[Runs, ShownRun]:
    """A visitor's run, among the runs."""
    runs, mine = Runs(), ShownRun(trace.events, **fields)
    runs.add("visitor", mine)
    return runs, mine


def test_the_browser_gets_what_it_missed_and_odd_questions_get_an_empty_answer():
    every = _server_functions(Runs())
    for odd in (
        None,
        [],
        ["x"],
        ["no run", 0],
        ["no run", 1, 2],
        [None, None],
        [None, None, None],
        {"run": 1},
        "text",
    ):
        assert [function(odd) for function in (*every[:4], *every[6:])] == [""] * 8
    runs, mine = kept(run([(3, 1), (3, 3)]))
    resync, _, trace, explain, *_, drawing = _server_functions(runs)
    answer = json.loads(resync([mine.id, 4]))
    assert (answer["first"], len(answer["events"]), answer["done"]) == (
        4,
        len(mine.events) - 4,
        True,
    )
    assert trace(mine.id) == mine.trace.to_jsonl()
    for odd in ([0, 3], [2, 2], [-1, 3], [1, 10**9], ["1", 3], [1.0, 3]):
        assert explain([mine.id, *odd]) == ""
    for odd in ([9, "large"], [10**30, "large"], [0, "huge"], [None, "large"], [0, 3], [0]):
        assert drawing([mine.id, *odd]) == ""
    assert resync([mine.id, -5]) == resync([mine.id, "3"]) == ""
    assert json.loads(resync([mine.id, 10**9]))["events"] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_page_gets_a_step_in_its_own_colours_and_in_the_layout_that_it_asks_for(layout):
    runs, mine = kept(run([(3, 1), (16, 16)]))
    *_, drawing = _server_functions(runs)
    for step in (0, 1):
        svg = drawing([mine.id, step, layout])
        assert "var(--ns-accepted)" in svg
        assert "#" not in svg.replace("#39;", "")
        _, _, width, _ = ElementTree.fromstring(svg).get("viewBox").split()
        assert (float(width) > LAYOUTS[layout].width) == (step == 1), "more columns than fit"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_drawing_says_what_the_mark_on_the_bars_is_where_verdicts_are_drawn(layout):
    trace = Trace.load(SPECULATIVE)
    assert trace[1].step == 0
    assert "u: random, from 0 to 1" in step_svg(trace, 0, layout=layout)
    for event in trace:
        event.uniform = None
    assert "random" not in step_svg(trace, 0, layout=layout)


def test_a_step_is_found_by_its_place_whatever_its_number_and_is_never_wider_than_a_window_can_be():
    trace = run([(3, 1), (200, 200)])
    for event in trace:
        event.step = None if event.step is None else event.step + 7
    runs, mine = kept(trace)
    *_, drawing = _server_functions(runs)
    assert "<title>Step 8</title>" in drawing([mine.id, 0, "large"])
    assert drawing([mine.id, 1, "large"]).count('data-part="draft"') == 64


def test_a_batch_holds_the_events_where_they_begin_and_whether_they_are_the_last():
    mine = ShownRun(run([(3, 1)]), title="a title")
    message = json.loads(batch(mine, 2, 3))
    assert (message["run"], message["serial"], message["first"]) == (mine.id, mine.serial, 2)
    assert [event["kind"] for event in message["events"]] == [
        event.kind for event in mine.events[2:5]
    ]
    assert (message["done"], message["live"], message["title"]) == (False, False, "a title")
    assert json.loads(batch(mine, len(mine.events) - 1))["done"]
    mine.done.clear()
    assert not json.loads(batch(mine))["done"]


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
LISTS = {"draft_top": [TokenProb(1, "b", 0.5)], "target_top": [], "residual_top": []}


def test_lists_of_tokens_stay_on_the_server_no_angle_bracket_is_sent_and_any_value_can_be():
    events = [Event(EventKind.REJECTED, text=SCRIPT, target_prob=1 / 3, **LISTS)]
    events.append(Event(EventKind.STARTED, prompt="\ud800 \u202e \u0000", seed=2**70))
    sent = batch(ShownRun(events, title=SCRIPT))
    assert "<" not in sent
    sent.encode("utf-8")
    first, second = json.loads(sent)["events"]
    assert first == {
        "kind": "rejected",
        "row": 0,
        "time": 0.0,
        "text": SCRIPT,
        "target_prob": 1 / 3,
    }
    assert (second["prompt"], second["seed"]) == ("\ud800 \u202e \u0000", 2**70)


STARTED = '{"kind":"started","schema_version":1}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "larger than"),
        ("not json", "line 1"),
        (
            STARTED + "\n" + " " * MAX_LINE_CHARACTERS + "{}",
            "line 2: 4194306 characters, at most 4194304",
        ),
        ("\n".join([STARTED] * 1001), "at most 1,000"),
        (
            "no JSON\n" * 1001,
            "1,001 events; this page replays at most 1,000",
        ),  # nothing is split or read
        (12, "larger than"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_a_reason(text, reason, monkeypatch):
    monkeypatch.setattr("ui.run.recorded.MAX_TRACE_EVENTS", 1000)
    with pytest.raises(ValueError, match=reason):
        opened("file.jsonl", text)


def test_a_trace_file_s_first_sequence_is_shown_under_its_name_only_as_the_run_itself_is():
    trace = run([(2, 1)])
    events = [event.to_dict() for event in trace] + [
        event.to_dict() | {"row": 1} for event in trace
    ]
    shown = opened("/etc/../secret/trace.jsonl", "\n".join(map(json.dumps, events)))
    assert json.loads(batch(shown))["events"] == json.loads(batch(ShownRun(trace.events)))["events"]
    assert shown.title == "from trace.jsonl"


@pytest.fixture(scope="module")
def recorded() -> ShownRun:
    return recorded_run()


@pytest.fixture(scope="module")
def page(recorded) -> str:
    return offline_page(recorded, template())


def data_of(page: str) -> dict:
    return json.loads(
        re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1]
    )


def test_every_script_that_is_imported_is_in_the_file_and_nothing_is_loaded_from_elsewhere(page):
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', page)[1])["imports"]
    scripts = {name: b64decode(address.split(",")[1]).decode() for name, address in imports.items()}
    assert "ns/stage.js" in scripts
    for name, text in scripts.items():
        assert "./" not in "".join(re.findall(r"^(?:import|export) .*? from .*$", text, re.M)), name
        assert set(re.findall(r'from "(.+?)"', text)) <= scripts.keys(), name
    assert "default-src 'none'" in page
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]*(?:src|href)=|@import|url\(", page)


def test_it_holds_the_run_and_why_each_token_was_kept_or_not(recorded, page):
    data = data_of(page)
    message = json.loads(data["message"])
    assert [event["kind"] for event in message["events"]] == [
        event.kind.value for event in recorded.events
    ]
    assert message["done"]
    tokens = [str(n) for n, event in enumerate(recorded.events) if event.kind in TOKEN_KINDS]
    assert sorted(data["words"], key=int) == tokens
    assert all(words["sentences"] for words in data["words"].values())


MARKUP = st.sampled_from(["</script>", "<script>", "<!--", "-->", "]]>", "</SCRIPT ", "a"])
EVIL = st.lists(MARKUP, max_size=4).map("".join)


@given(prompt=EVIL, text=EVIL, label=EVIL)
def test_whatever_a_run_s_texts_hold_its_file_has_the_same_scripts_and_one_is_the_run(
    page, prompt, text, label
):
    trace = run([(2, 1)], verify_strategy=label, drafter=label)
    for event in trace:
        event.prompt = event.message = prompt
        event.text = event.token = text
    shown = offline_page(ShownRun(trace.events, title=label), template())
    assert [len(re.findall(mark, shown, re.I)) for mark in ("<script", "</script", "<!--")] == [
        len(re.findall(mark, page, re.I)) for mark in ("<script", "</script", "<!--")
    ]
    first, second, *_ = json.loads(data_of(shown)["message"])["events"]
    assert (first["prompt"], second["text"]) == (prompt, text)


@pytest.mark.parametrize(
    "strategy", ["speculative_sampling", "block_verification", "typical_acceptance"]
)
def test_the_view_states_the_rounds_as_the_events_do(small_decoder, strategy):
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=2)
    trace = small_decoder.generate(
        "Once upon a time", params, num_draft_tokens=4, verify_strategy=strategy
    ).trace
    steps = [event for event in trace if event.kind == EventKind.STEP and event.num_draft]
    rounds = compared_steps(trace)
    assert [one.number for one in rounds] == [step.step for step in steps]
    for one, step in zip(rounds, steps, strict=True):
        assert one.accepted == step.others | {strategy: step.num_accepted}
        assert one.distances == step.typical_distances
        assert len(one.drafts) == step.num_draft
    shown = markup(trace)
    for name in rounds[0].accepted:
        told = [
            int(kept) for kept in re.findall(rf'data-strategy="{name}" data-kept="(\d+)"', shown)
        ]
        assert told == [one.accepted[name] for one in rounds]
        assert f"{sum(told)} of {sum(len(one.drafts) for one in rounds)} <" in shown
    drafts = [event for event in trace if event.kind == EventKind.PROPOSED]
    windows = [
        [e.target_prob / e.draft_prob for e in drafts if e.step == one.number] for one in rounds
    ]
    for name, block in (("speculative_sampling", False), ("block_verification", True)):
        expected = sum(expected_accepted(window, block=block) for window in windows)
        assert re.search(rf'data-strategy="{name}"><th.*?>{expected:.1f} of ', shown)
    for one in rounds:
        assert one.expected["block_verification"] >= one.expected["speculative_sampling"] - 1e-12
        assert one.expected["greedy_match"] == one.accepted["greedy_match"]
    own = re.search(rf'data-strategy="{strategy}"><th.*?([\d.]+) tokens per target pass', shown)[1]
    assert own == f"{trace.metrics.mean_acceptance_length:.2f}"  # the figure of the page's tile
    parting = sum(one.differs for one in rounds)
    assert parting
    assert f"differ in {parting} of" in shown
    assert shown.count("data-same") == len(rounds) - parting


def test_kept_is_counted_over_the_rounds_that_state_it_and_what_is_left_out_or_not_recorded_is_said(
    monkeypatch,
):
    nothing = {
        NOT_RECORDED: [run([(3, 1)])],
        NO_DRAFTS: [run([(0, 0), (0, 0)]), Trace()],
        escape(GREEDY): [
            run([(3, 1)], temperature=0),
            run([(3, 1)], verify_strategy="greedy_match"),
        ],
    }
    for why, traces in nothing.items():
        assert all(why in markup(trace) for trace in traces)
    monkeypatch.setattr("ui.run.strategies.MOST_STEPS", 1)
    trace = run([(2, 1), (3, 3)])
    steps = [event for event in trace if event.kind == EventKind.STEP]
    steps[0].others, steps[1].others = {"block_verification": 2}, {}
    shown = markup(trace)
    for said in (">2 of 2 <", ">4 of 5 <", "1 later step is not shown."):
        assert said in shown


def test_what_a_foreign_trace_claims_is_only_text_and_within_its_drafts():
    trace = run([(2, 1)])
    for event in trace:
        if event.kind == EventKind.STEP:
            event.others = {"block_verification": 900, "<b>": 1}
            event.typical_distances = [0.5] * 9
        if event.text:
            event.text = "<img src=x>"
    shown = markup(trace)
    assert "<img" not in shown
    assert "<b>" not in shown
    assert compared_steps(trace)[0].accepted == {"speculative_sampling": 1, "block_verification": 2}
    assert compared_steps(trace)[0].distances == [0.5, 0.5]
    trace.events[0].settings["verify_strategy"] = "<i>"
    assert NOT_RECORDED in markup(trace)
    assert NOT_RECORDED in markup(Trace([Event(EventKind.STARTED, settings={}), *trace.events[1:]]))
