"""Labels and figures: nothing that a model writes can act, vanish, or be mistaken for something
else."""

import html
import json

from tests.ui.drawn import drawn
from ui.charts.figures import ACCEPTED, empty, figure, nice_ceiling
from ui.labels import apart, count, label, milliseconds, number, percent, to_json, visible
from ui.notify import warn

SIGNS = {
    " king": "␣king",
    "a b": "a b",
    "two  ": "two␣␣",
    "  ": "␣␣",
    "\n": "⏎",
    "\t\r": "⇥␍",
    "\u202eabc": "⟨202E⟩abc",
}
SIGNS |= {"\u200b": "⟨200B⟩", "": "∅", None: "∅", "königin 👑": "königin 👑"}
NUMBERS = {
    0.0: "0",
    1.0: "1",
    0.99999999: "1",
    0.31: "0.31",
    0.21818: "0.218",
    0.9996: "0.9996",
    0.00042: "0.00042",
}
NUMBERS |= {1e-7: "under 0.0001", 2.0: "2.00", 123.4: "123", float("inf"): "inf"}


def test_what_cannot_be_seen_gets_a_sign_and_long_texts_are_cut_and_labels_escaped():
    assert {text: visible(text) for text in SIGNS} == SIGNS
    assert visible("x" * 100) == "x" * 23 + "…"
    assert len(visible("x" * 100, 10)) == 10
    assert label("<b>&'\"") == "&lt;b&gt;&amp;&#x27;&#34;"


def test_numbers_are_short_never_falsely_certain_and_different_where_they_are_compared():
    assert {value: number(value) for value in NUMBERS} == NUMBERS
    assert [percent(v) for v in (0, 0.001, 0.5, 0.999, 1)] == [
        "0%",
        "under 1%",
        "50%",
        "over 99%",
        "100%",
    ]
    assert [milliseconds(s) for s in (0.00042, 0.0123, 0.5, 12)] == [
        "0.42 ms",
        "12.3 ms",
        "500 ms",
        "12.0 s",
    ]
    assert [count(n, "token") for n in (0, 1, 1200)] == ["0 tokens", "1 token", "1,200 tokens"]
    assert apart(0.21834, 0.21836) == ("0.2183", "0.2184")
    assert (apart(0.3, 0.3), apart(0.25, 0.5)) == (("0.3", "0.3"), ("0.25", "0.5"))
    ceilings = {0.3: 0.5, 1: 1, 1.1: 2, 12: 20, 49: 50, 51: 100, 0: 1, float("nan"): 1}
    assert [nice_ceiling(value) for value in ceilings] == [*ceilings.values()]


def test_a_figure_is_the_same_for_both_themes_until_it_is_drawn():
    neutral = figure([{"type": "bar", "marker": {"color": ACCEPTED}}], takeaway="Kept", x={}, y={})
    light, dark = drawn(neutral), drawn(neutral, dark=True)
    assert light.layout.meta == dark.layout.meta == "Kept"
    assert light.data[0].marker.color != dark.data[0].marker.color


def test_a_figure_without_data_says_why_and_no_markup_reaches_the_page_as_such():
    note = "Nothing was drafted in this run, and so there is nothing at all to be seen here."
    shown = drawn(empty(note))
    assert shown.layout.annotations[0].text.replace("<br>", " ") == shown.layout.meta == note
    assert not shown.data
    sent = to_json(empty("<img src=x onerror=alert(1)>"))
    assert "<" not in sent
    assert json.loads(sent)["layout"]["meta"].startswith("<img")


def test_a_long_toast_ends_between_characters_and_says_that_it_was_cut(monkeypatch):
    shown = []
    monkeypatch.setattr("gradio.Warning", lambda text, title: shown.append(html.unescape(text)))
    warn("'" * 700)
    warn("<b>")
    assert shown == [f"{600 * chr(39)} …", "<b>"]
