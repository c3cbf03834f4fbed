"""The sweep over k and batch size: real batches, and where drafting stops paying."""

import threading

import pytest

from naive_speculate.events import Event, EventKind
from tests.ui.drawn import drawn
from ui.experiments.batches import BatchSample, batch_speedups, full_speed, sizes_for, sweep_batches, where_it_pays
from ui.experiments.maps import batch_map
from ui.host.catalog import Catalog, ServedPair
from ui.run.settings import Settings


def rounds(*moments: float, seconds: float, kept: int = 0) -> list[tuple[float, Event]]:
    return [(moment, Event(EventKind.STEP, num_draft=4, num_accepted=kept, total_seconds=seconds)) for moment in moments]


def samples(times: dict[tuple[int, int], list[float]]) -> list[BatchSample]:
    """By size and k how many times as fast as plain decoding it was, turn by turn."""
    plain = [BatchSample(size, 0, turn, 100.0) for size in {size for size, _ in times} for turn in range(4)]
    return plain + [BatchSample(size, k, turn, 100 * x) for (size, k), of in times.items() for turn, x in enumerate(of)]


FAST, EVEN, SLOW = [1.5, 1.6, 1.55, 1.52], [1.0, 1.1, 0.9, 1.02], [0.7, 0.72, 0.69, 0.7]


def test_only_rounds_in_which_all_texts_were_decoded_count():
    # The second text joins at 2 and the first ends at 5; alone, each is ten times as quick.
    first = rounds(1, seconds=0.001) + rounds(2, 3, 4, 5, seconds=0.01, kept=1)
    second = rounds(2, 3, 4, 5, seconds=0.01, kept=2) + rounds(6, 7, seconds=0.001)
    assert full_speed([first, second]) == pytest.approx(2 / 0.01 + 3 / 0.01)
    assert full_speed([rounds(1, 2, seconds=0.01), rounds(3, 4, seconds=0.01)]) is None
    assert full_speed([first, []]) is None


def test_batches_are_compared_with_plain_ones_of_the_same_size_and_turn():
    found = [BatchSample(2, 0, 0, 100.0), BatchSample(2, 0, 1, 200.0), BatchSample(2, 4, 0, 200.0), BatchSample(2, 4, 1, 400.0)]
    assert batch_speedups(found)[2, 4].mean == pytest.approx(2.0)


def test_the_sentence_answers_at_which_size_drafting_stops_paying():
    assert where_it_pays(samples({(1, 2): FAST, (1, 4): FAST, (8, 2): EVEN, (8, 4): SLOW})) == (
        "Drafting does not clearly pay off with 8 texts at once or more; "
        "with 1 text, k = 2 and 4 are clearly faster than plain decoding"
    )
    middle = where_it_pays(samples({(1, 2): EVEN, (4, 2): FAST, (8, 2): SLOW}))
    assert middle.startswith("Drafting does not clearly pay off with 8 texts")
    assert where_it_pays(samples({(1, 2): FAST, (8, 2): FAST, (1, 4): SLOW, (8, 4): SLOW})) == (
        "Drafting still pays off with 8 texts at once, the most that were tried: k = 2 is clearly faster than plain decoding"
    )
    assert where_it_pays([BatchSample(1, 0, 0, 100.0)]).startswith("No batch was long enough")
    assert where_it_pays(samples({(1, 2): EVEN})) == "Drafting did not clearly pay off with 1 text at once"
    nowhere = "Drafting did not clearly pay off at any size, from 1 to 4 texts at once"
    assert where_it_pays(samples({(1, 2): EVEN, (4, 2): SLOW})) == nowhere


def test_the_map_has_a_column_for_every_size_and_says_where_it_stops():
    figure = drawn(batch_map(samples({(1, 2): FAST, (8, 2): SLOW}), [2], [1, 8]))
    assert figure.layout.xaxis.ticktext == ("1", "8")
    assert figure.layout.xaxis.title.text == "texts at once"
    assert figure.layout.meta.startswith("Drafting does not clearly pay off with 8 texts at once or more")


def test_real_batches_are_measured_and_impossible_settings_refused(small_engine):
    catalog = Catalog({"bundled": ServedPair(small_engine)})
    assert sizes_for(catalog, "")[:2] == [1, 2]
    settings = Settings(max_tokens=24, temperature=0.0)
    places = list(sweep_batches(catalog, settings, ["Once upon a time", "The fox"], [2], [1, 3], threading.Event(), turns=1))
    assert [place.done for place in places] == list(range(5))
    assert places[1].running == "1 at once, k = 2"
    assert [(s.size, s.k) for s in places[-1].samples] == [(1, 0), (1, 2), (3, 0), (3, 2)]
    assert all(s.tokens_per_second > 0 for s in places[-1].samples)
    with pytest.raises(ValueError, match="temperature"):
        list(sweep_batches(catalog, Settings(temperature=-1.0), ["Once"], [2], [1], threading.Event()))
