"""A trace as a notebook shows it."""

import html
import re
from html.parser import HTMLParser

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind
from naive_speculate.events.notebook import MAX_TOKENS

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
    assert f"{len(trace.token_ids)} tokens in {trace.metrics.num_spec_steps} target passes" in shown


def test_nothing_that_a_model_wrote_becomes_markup():
    events = [Event(EventKind.STARTED, schema_version=1, prompt=EVIL, prompt_texts=[EVIL])]
    events += [Event(kind, text=EVIL, target_prob=0.5) for kind in ("accepted", "rejected", "bonus", "discarded")]
    found = Elements(Trace(events)._repr_html_())
    assert set(found.tags) <= {"div", "p", "span", "del"}
    assert found.words.count(EVIL) == 5


def test_the_rows_of_a_batch_stand_apart_and_an_empty_trace_and_a_long_one_without_end_are_shown_too(small_decoder):
    rows = small_decoder.generate(["Once upon", "There was"], SamplingParams(max_tokens=6, seed=3))
    both = Trace([event for pair in zip(*(row.trace for row in rows), strict=False) for event in pair])
    assert both._repr_html_().count("target passes") == 2
    assert "0 tokens" in Trace([Event(EventKind.STARTED)])._repr_html_()
    assert "3 more" in Trace([Event(EventKind.BONUS, text="x")] * (MAX_TOKENS + 3))._repr_html_()
