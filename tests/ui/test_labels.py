"""Labels: nothing that a model writes can act, vanish, or be mistaken for something else."""

from ui.labels import apart, count, label, milliseconds, number, percent, visible

SIGNS = {" king": "␣king", "a b": "a b", "two  ": "two␣␣", "  ": "␣␣", "\n": "⏎", "\t\r": "⇥␍", "\u202eabc": "⟨202E⟩abc"}
SIGNS |= {"\u200b": "⟨200B⟩", "": "∅", None: "∅", "königin 👑": "königin 👑"}
NUMBERS = {0.0: "0", 1.0: "1", 0.99999999: "1", 0.31: "0.31", 0.21818: "0.218", 0.9996: "0.9996", 0.00042: "0.00042"}
NUMBERS |= {1e-7: "under 0.0001", 2.0: "2.00", 123.4: "123", float("inf"): "inf"}


def test_what_cannot_be_seen_gets_a_sign_and_long_texts_are_cut_and_labels_escaped():
    assert {text: visible(text) for text in SIGNS} == SIGNS
    assert visible("x" * 100) == "x" * 23 + "…"
    assert len(visible("x" * 100, 10)) == 10
    assert label("<b>&'\"") == "&lt;b&gt;&amp;&#x27;&#34;"


def test_numbers_are_short_and_never_falsely_certain():
    assert {value: number(value) for value in NUMBERS} == NUMBERS


def test_two_numbers_that_are_compared_look_different():
    assert apart(0.21834, 0.21836) == ("0.2183", "0.2184")
    assert apart(0.3, 0.3) == ("0.3", "0.3")
    assert apart(0.25, 0.5) == ("0.25", "0.5")


def test_percents_are_never_falsely_all_or_nothing_and_durations_and_amounts_are_short():
    assert [percent(v) for v in (0, 0.001, 0.5, 0.999, 1)] == ["0%", "under 1%", "50%", "over 99%", "100%"]
    assert [milliseconds(s) for s in (0.00042, 0.0123, 0.5, 12)] == ["0.42 ms", "12.3 ms", "500 ms", "12.0 s"]
    assert [count(n, "token") for n in (0, 1, 1200)] == ["0 tokens", "1 token", "1,200 tokens"]
