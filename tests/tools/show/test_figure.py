"""A trace as a notebook shows it, and one step as a drawing: they say what the events do, and
nothing in them acts."""

import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind
from naive_speculate.tools.show.drawing import rounded, step_svg
from naive_speculate.tools.show.notebook import MAX_SPANS
from tests.ui.handmade import run, step_of, token
from ui.run.recorded import SPECULATIVE

EVIL = "</text><script>1</script>\x00\x1b\u202e&\"'"
SVG = "{http://www.w3.org/2000/svg}"


LEGEND = ("▮ u: random, from 0 to 1", "in the green: accepted")


def drawn(svg: str) -> list[str]:
    """The texts of a drawing; it must be well-formed."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_it_states_the_round_as_the_events_do():
    trace = Trace.load(SPECULATIVE)
    for step in range(trace.metrics.num_spec_steps):
        words = drawn(trace.to_svg(step))
        own = [event for event in trace if event.step == step]
        texts = [
            event.text.replace(" ", "␣").replace("\n", "⏎")
            for event in own
            if event.kind == EventKind.PROPOSED
        ]
        assert set(texts) <= set(words)
        for kind in ("accepted", "rejected", "discarded", "resampled", "bonus"):
            said = sum(word.endswith(f" {kind}") for word in words if word not in LEGEND)
            assert said == sum(event.kind == kind for event in own)
        caption = " ".join(words)
        assert f"Step {step + 1} of {trace.metrics.num_spec_steps}" in caption
        assert all(
            part in caption
            for part in (
                "speculative sampling",
                "k = 5",
                "temperature 0.7",
                "seed 1",
                "bundled draft",
            )
        )
    judged = next(event for event in trace if event.kind == EventKind.REJECTED)
    words = drawn(trace.to_svg(judged.step))
    for number in (judged.target_prob, judged.draft_prob):
        assert f"{number:.3f}" in words
    assert f"p/q = {judged.accept_prob:.3f}" in words
    assert f"u = {judged.uniform:.3f}" in words


def test_the_rules_are_reported_in_their_own_terms():
    draft = token(EventKind.PROPOSED, " king", draft_prob=0.4)
    kept = {"draft_prob": 0.4, "target_prob": 0.3, "accept_prob": 1.0}
    said = {
        "p ≥ q": {"target_prob": 0.5, "uniform": 0.2},
        "p ≥ q ": {"target_prob": 0.5, "uniform": 0.2, "accept_prob": 0.99999994},
        "h = 0.200": {"accept_prob": 0.2, "uniform": 0.1},
        "h = 1.000": {"accept_prob": 0.99999994, "target_prob": 0.9, "uniform": 0.1},
        "threshold = 0.090": {"threshold": 0.09},
        "target’s favourite:": {},
        "target drew:": {"accept_prob": 0.3},
    }
    for words, numbers in said.items():
        trace = step_of(
            draft,
            token(EventKind.ACCEPTED, " king", **(kept | numbers)),
            token(EventKind.BONUS, " sat", 1),
        )
        if words.startswith("h"):  # the block decides, whatever p/q is
            trace[0].settings["verify_strategy"] = "block_verification"
        assert words.strip() in drawn(trace.to_svg(0))


def test_every_width_rounds_a_number_the_same_way_and_cuts_none():
    assert [rounded(value, 2) for value in (0.295, 0.00009, 0.0153, 0.996, 0, 1)] == [
        *("0.30", "<0.01", "0.02", "1.00", "0.00", "1.00"),
    ]
    assert [rounded(value, 3) for value in (0.295, 0.00009, 0.0005)] == ["0.295", "<0.001", "0.001"]
    numbers = {"draft_prob": 0.295, "target_prob": 0.0153, "accept_prob": 0.0519, "uniform": 0.555}
    drafts = [token(EventKind.PROPOSED, " a", n, draft_prob=0.295) for n in range(12)]
    refused = token(EventKind.REJECTED, " a", 0, **numbers)
    trace = step_of(*drafts, refused, token(EventKind.RESAMPLED, " b", 0))
    narrow = drawn(step_svg(trace, 0, layout="large"))
    assert {"0.30", "0.02", "p/q 0.05", "u 0.56"} <= set(narrow)
    assert {"0.295", "0.015", "p/q = 0.052", "u = 0.555"} <= set(drawn(trace.to_svg(0)))


def test_the_text_is_drawn_without_and_with_the_step_and_an_answer_is_parted_from_its_question():
    step = list(step_of(token(EventKind.BONUS, "He", 1)))
    for texts, words, said in (
        (["<user>", "Who?", "<model>"], [(1, 2)], "Who? He"),
        (["Who", "?"], None, "Who?He"),
        (None, None, "Who?He"),
    ):
        prompt = {"prompt": "Who?", "prompt_texts": texts, "prompt_words": words}
        started = Event(EventKind.STARTED, **prompt)
        before, after = drawn(Trace([started, *step]).to_svg(0))[:2]
        assert (before, after) == (f"{said.removesuffix('He')}▏", f"{said}▏")


def test_what_a_model_or_a_file_wrote_is_text():
    trace = Trace.load(SPECULATIVE)
    for event in trace:
        event.text = event.token = event.prompt = EVIL
    trace[0].models, trace[0].settings = (
        {"target": EVIL},
        {"verify_strategy": EVIL, "temperature": EVIL},
    )
    root = ElementTree.fromstring(trace.to_svg(0))
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {
        "svg",
        "title",
        "rect",
        "text",
        "tspan",
        "g",
        "path",
    }
    assert not any("\u202e" in text for text in root.itertext())


def test_what_a_round_lacks_is_not_drawn_and_a_round_that_is_not_there_is_named():
    assert "␣once" in "".join(
        drawn(step_of(token(EventKind.BONUS, " once", target_prob=0.5)).to_svg(0))
    )
    assert "✗ rejected" in drawn(run([(3, 1)]).to_svg(0))
    trace = step_of(
        token(EventKind.PROPOSED, " king", draft_prob=0.4), token(EventKind.ACCEPTED, " king")
    )
    strange = [
        Event(kind, step=0, index=0, token_id=3)
        for kind in (EventKind.STEP, EventKind.STARTED, EventKind.FINISHED)
    ]
    assert "✓ accepted" in drawn(Trace([*trace, *strange]).to_svg(0)), "a verdict is of a token"
    for other, asked, refusal in (
        (run([(3, 1)]), (9,), "step must be the number of a step with tokens, got 9"),
        (run([(3, 1)]), (0, 1), "for row 1"),
        (Trace([Event(EventKind.STARTED)]), (0,), "got 0"),
    ):
        with pytest.raises(ValueError, match=refusal):
            other.to_svg(*asked)


EVIL = "<img src=x onerror='alert(1)'>\"&"


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)

    def handle_data(self, data) -> None:
        self.words += data


def test_a_trace_shows_its_prompt_its_text_and_what_was_refused(small_decoder):
    trace = small_decoder.generate("Once upon a time", SamplingParams(max_tokens=40, seed=3)).trace
    shown = trace._repr_html_()
    refused = [html.escape(e.text) for e in trace if e.kind == EventKind.REJECTED]
    assert re.findall(r"<del[^>]*>(.*?)</del>", shown) == refused
    kept = re.sub(r"<del.*?</del>|<span[^>]*title=\"discarded.*?</span>", "", shown)
    assert ("Once upon a time" + trace.text) in Elements(kept).words
    copied = re.sub(r"<(del|span)[^>]*user-select:none.*?</\1>", "", shown)  # if it is selected
    assert ("Once upon a time" + trace.text) in Elements(copied).words
    assert f"{len(trace.token_ids)} tokens in {trace.metrics.num_spec_steps} target passes" in shown


def test_nothing_that_a_model_wrote_becomes_markup():
    events = [Event(EventKind.STARTED, schema_version=1, prompt=EVIL, prompt_texts=[EVIL])]
    events += [
        Event(kind, text=EVIL, target_prob=0.5)
        for kind in ("accepted", "rejected", "bonus", "discarded")
    ]
    found = Elements(Trace(events)._repr_html_())
    assert set(found.tags) <= {"div", "p", "span", "del"}
    assert found.words.count(EVIL) == 5


def test_the_rows_of_a_batch_stand_apart_and_an_empty_trace_and_a_long_one_are_shown_too(
    small_decoder,
):
    rows = small_decoder.generate(["Once upon", "There was"], SamplingParams(max_tokens=6, seed=3))
    both = Trace(
        [event for pair in zip(*(row.trace for row in rows), strict=False) for event in pair]
    )
    assert both._repr_html_().count("target passes") == 2
    assert "0 tokens" in Trace([Event(EventKind.STARTED)])._repr_html_()
    assert "3 more" in Trace([Event(EventKind.BONUS, text="x")] * (MAX_SPANS + 3))._repr_html_()
