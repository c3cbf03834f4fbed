"""The opening: the words for a recorded round, and a round that fits, searched for in real runs."""

import re
from dataclasses import replace

import pytest

from naive_speculate.events import EventKind
from tests.ui.handmade import step_of, token
from ui import record_examples as record
from ui.experiments.lessons.find_examples import drafted_steps
from ui.experiments.opening_search import DRAFTS, fit, opening_of, search, usable
from ui.host.catalog import Catalog, ServedPair
from ui.run.opening import DraftToken, Opening, described, markup, recorded_opening, scenes
from ui.run.settings import Settings

KEPT = [
    DraftToken(" is", 0.3, 0.1, 0.3, "accepted"),
    DraftToken(" very", 0.4, 0.5, 0.4, "accepted"),
    DraftToken(" good", 0.2, 0.2, 0.3, "accepted"),
]
REFUSED = DraftToken(" me", 0.2, 0.5, 0.7, "rejected")
UNREACHED = DraftToken(" too", 0.0, 0.0, 0.0, "discarded")
OPENING = Opening("He", [*KEPT, REFUSED, UNREACHED], " him")


def text_of(markup_: str) -> str:
    return re.sub(r"<[^>]*>", "", markup_)


def test_the_bundled_round_keeps_three_or_four_and_refuses_one_at_about_four_tenths():
    opening = recorded_opening()
    assert len(opening.drafts) == DRAFTS
    assert opening.num_accepted in (3, 4)
    assert 0.3 <= opening.rejected.accept_prob <= 0.5
    assert opening.rejected.u >= opening.rejected.accept_prob
    assert all(guess.u < guess.accept_prob for guess in opening.drafts[: opening.num_accepted])
    assert opening.all_words
    assert all(fit(opening)[:-1]), "in every way"


def test_what_was_recorded_is_read_back(tmp_path):
    assert recorded_opening(tmp_path) is None
    OPENING.save(tmp_path)
    assert recorded_opening(tmp_path) == OPENING


def test_the_sentences_say_what_happened():
    said = scenes(OPENING)
    assert said[0] == "A small model drafts five words."
    assert "min(1, p/q)" in said[2]
    assert said[3] == "“me”: p/q is 0.4, and the draw fell in the red. Rejected. The rest is discarded."
    assert said[4].startswith("“him” is drawn instead")
    assert text_of(said[5]).startswith("Four words in one pass")
    last = Opening("He", [*KEPT, REFUSED], " him")
    assert scenes(last)[3].endswith("Rejected.")
    for word in (
        "is, very, good, me, too",
        "Accepted: is, very, good.",
        "Rejected: me, with p/q = 0.4 and the draw 0.7",
        "instead: him",
    ):
        assert word in described(OPENING)


def test_pieces_of_words_are_called_tokens():
    assert scenes(Opening("He", [KEPT[0], replace(REFUSED, text="ing")], " him"))[0] == "A small model drafts two tokens."
    assert scenes(Opening("He", [KEPT[0], REFUSED], "."))[5].startswith("<b>Two tokens in one pass</b>")


def test_what_models_write_is_text_and_no_markup():
    evil = "<img src=x onerror=alert(1)><!-- scenes -->"
    shown = markup(Opening(evil, [replace(guess, text=evil) for guess in [*KEPT, REFUSED, UNREACHED]], evil))
    assert "<img" not in shown
    assert "<!--" not in shown
    assert shown.count("data-scene=") == 6


def test_the_bar_is_green_up_to_p_over_q_and_never_beyond():
    assert [guess.accept_prob for guess in OPENING.drafts[:4]] == pytest.approx([1, 0.8, 1, 0.4])
    assert "--keep:0.4000;--die:0.7000" in markup(OPENING)


def judged(kind: EventKind, text: str, index: int, p: float, q: float, u: float):
    return token(kind, text, index, target_prob=p, draft_prob=q, accept_prob=min(1, p / q), uniform=u)


def test_a_round_is_told_with_its_own_numbers():
    drafts = [judged(EventKind.ACCEPTED, guess.text, n, guess.p, guess.q, guess.u) for n, guess in enumerate(KEPT)]
    refused = judged(EventKind.REJECTED, " me", 3, 0.2, 0.5, 0.7)
    trace = step_of(*drafts, refused, token(EventKind.DISCARDED, " too", 4), token(EventKind.RESAMPLED, " him", 3))
    trace[0].prompt = "He"
    (found,) = drafted_steps(trace)
    assert usable(found)
    assert opening_of(trace, found) == OPENING


def test_a_window_that_was_kept_whole_or_cut_tells_nothing():
    whole = [judged(EventKind.ACCEPTED, " a", n, 0.5, 0.5, 0.1) for n in range(DRAFTS)]
    assert not any(map(usable, drafted_steps(step_of(*whole, token(EventKind.BONUS, " b", DRAFTS)))))
    refused = judged(EventKind.REJECTED, " me", 1, 0.2, 0.5, 0.7)
    assert not any(map(usable, drafted_steps(step_of(whole[0], refused, token(EventKind.RESAMPLED, " b", 2)))))


@pytest.mark.parametrize(
    "worse",
    [
        Opening("He", [KEPT[0], REFUSED, UNREACHED, UNREACHED, UNREACHED], " him"),  # too few kept
        Opening("He", [*KEPT, replace(REFUSED, p=0.45), UNREACHED], " him"),  # all but certain
        Opening("He", [*KEPT, replace(REFUSED, text="me"), UNREACHED], " him"),  # no whole word
        Opening("He", [*KEPT, replace(REFUSED, p=0.002, q=0.005), UNREACHED], " him"),  # nothing to see
        Opening("He", [*KEPT, REFUSED, UNREACHED], " extraordinarily"),
    ],
)
def test_rounds_that_serve_less_come_after(worse):
    assert fit(worse) < fit(OPENING)


def test_one_is_recorded_from_any_pair_and_none_found_is_said(bundled_engine, tmp_path):
    catalog = Catalog({"bundled": ServedPair(bundled_engine, bundled_engine)})
    settings = Settings(prompt="unused", seed=1)
    *_, last = record.record_opening(catalog, tmp_path, settings, ["Every evening, when the lamps were lit, the children"], 2)
    assert last == (2, 2)
    found = recorded_opening(tmp_path)
    assert found.rejected.fate == "rejected"
    assert found.before.startswith("Every evening")
    greedy = replace(settings, num_draft_tokens=5, temperature=0.0)  # no die falls
    assert [opening for *_, opening in search(catalog, greedy, ["Once upon a time"], 1)] == [None]
    with pytest.raises(ValueError, match="nothing to open with"):
        list(record.record_opening(catalog, tmp_path, greedy, ["Once upon a time"], 1))
