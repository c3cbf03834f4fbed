"""The coloured tokens of a run, and how terminal, notebook and page show them."""

import re
from collections import Counter
from html import unescape

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import OUTPUT_KINDS, Event, EventKind
from naive_speculate.tools.show.notebook import to_html
from naive_speculate.tools.show.spans import Span, spans, to_markup
from naive_speculate.tools.show.terminal import to_rich
from tests.tools.show.test_terminal import shown

OUTSIDE = (EventKind.REJECTED, EventKind.DISCARDED)


def test_a_verdict_takes_the_place_of_its_proposal_and_the_text_is_what_is_not_outside_it(
    small_decoder,
):
    trace = small_decoder.generate("Once upon a time", SamplingParams(max_tokens=40, seed=3)).trace
    prompt, *tokens = spans(trace)
    assert (prompt.kind, prompt.text) == ("prompt", "Once upon a time")
    assert "".join(span.text for span in tokens if not span.outside) == trace.text
    for kind in EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED, EventKind.RESAMPLED:
        same = [event for event in trace if event.kind == kind]
        assert [(s.step, s.index) for s in tokens if s.kind == kind] == [
            (event.step, event.index) for event in same
        ]
    proposed = Event(EventKind.PROPOSED, step=0, index=0, text="\n")
    assert [span.kind for span in spans([proposed])] == ["proposed"]
    assert [span.text for span in spans([proposed])] == ["⏎"]


@pytest.mark.parametrize("strategy", ["speculative_sampling", "typical_acceptance"])
def test_a_token_that_a_stop_string_cuts_replaces_no_rejected_draft_token(small_decoder, strategy):
    cut = 0
    for seed in range(12):
        params = SamplingParams(max_tokens=30, seed=seed, temperature=1.5, stop=["a", "e"])
        trace = small_decoder.generate("Once", params, verify_strategy=strategy).trace
        verdicts = [event for event in trace if event.kind in (*OUTPUT_KINDS, *OUTSIDE)]
        assert Counter(span.kind for span in list(spans(trace))[1:]) == Counter(
            str(event.kind) for event in verdicts
        )
        places = [(event.step, event.index) for event in verdicts if event.kind in OUTSIDE]
        cut += len(places) > len(set(places))
    assert cut


def test_what_a_chat_template_adds_is_no_word_of_the_prompt():
    texts = ["<user>", "H", "i", "</user>"]
    started = Event(EventKind.STARTED, prompt="Hi", prompt_texts=texts, prompt_words=[(1, 3)])
    found = [(span.text, span.template) for span in spans([started])]
    assert found == [("<user>", True), ("Hi", False), ("</user>", True)]
    assert [to_markup(span).count("data-template") for span in spans([started])] == [1, 0, 1]
    for prompt, texts in (("Hi", None), ("Hi", ["H", "i"]), (None, ["H", "i"]), ("Ho", ["Hi"])):
        own = list(spans([Event(EventKind.STARTED, prompt=prompt, prompt_texts=texts)]))
        assert [(span.text, span.template) for span in own] == [("Hi", False)]


def test_terminal_notebook_and_page_show_the_same_pieces(small_decoder):
    trace = small_decoder.generate("Once upon a time", SamplingParams(max_tokens=30, seed=5)).trace
    own = list(spans(trace))
    texts = [span.text for span in own]
    assert [to_rich(span).plain for span in own] == texts
    for looks in {"chip": False}, {"standalone": True}:
        markup = [to_markup(span, **looks) for span in own]
        assert [unescape(re.sub("<[^>]*>", "", piece)) for piece in markup] == texts
        assert "".join(markup) in to_html(trace) or "chip" in looks
    output = "".join(event.text for event in trace if event.kind in OUTPUT_KINDS)
    printed = re.sub(r"\x1b\[[\d;]*m", "", shown(trace))
    assert output.split()[-1] in printed


def test_every_kind_has_its_own_look_in_terminal_and_notebook_and_none_is_markup():
    kinds = ["prompt", "proposed", "accepted", "rejected", "discarded", "resampled", "bonus"]
    own = [Span(kind, "<b>&") for kind in kinds]
    assert len({str(to_rich(span).style) for span in own}) == len(kinds)
    assert len({to_markup(span, standalone=True) for span in own}) == len(kinds)
    assert {("&lt;b&gt;&amp;" in to_markup(span, chip=True)) for span in own} == {True}
    assert to_rich(Span("bonus", "x", unknown=True)).style.reverse
