"""The sweep over k and temperature: real runs, their table and their maps."""

import csv
import io
import threading

import pytest

from tests.ui.drawn import drawn
from tests.ui.handmade import run
from ui.experiments import explore
from ui.experiments.heatmaps import NOTHING_YET, acceptance_map, speedup_map
from ui.experiments.sweep import COLUMNS, Cell, Measured, Progress, best_cells, step_times, sweep, to_csv
from ui.host.catalog import Catalog, ServedPair
from ui.run.settings import Settings

KS, TEMPERATURES = [1, 4], [0.0, 1.0]


def cell(temperature: float, k: int, speed: float, rate: float = 0.5) -> Cell:
    return Cell(temperature, k, rate, rate, 1 + k * rate, speed, 100.0, 64, 7)


CELLS = [cell(0.0, 1, 130.0), cell(0.0, 4, 180.0), cell(1.0, 1, 90.0), cell(1.0, 4, 60.0, rate=0.1)]


@pytest.fixture(scope="module")
def catalog(bundled_engine) -> Catalog:
    return Catalog({"bundled": ServedPair(bundled_engine)})


def test_a_sweep_runs_every_cell_and_tells_how_far_it_is(catalog):
    settings = Settings(prompt="Once upon a time", max_tokens=12, seed=1)
    places = list(sweep(catalog, settings, KS, TEMPERATURES, threading.Event()))
    assert [place.done for place in places] == list(range(13))
    assert places[0].running == "temperature 0, plain"
    assert places[-1].running == ""
    cells = places[-1].cells
    assert [(c.temperature, c.k) for c in cells] == [(t, k) for t in TEMPERATURES for k in KS]
    assert all(0 <= c.acceptance_rate <= c.alpha <= 1 and c.tokens == 12 and c.speedup > 0 for c in cells)


def test_a_cancelled_sweep_ends_with_what_it_has(catalog):
    cancel = threading.Event()
    places = []
    for place in sweep(catalog, Settings(prompt="Once", max_tokens=8), KS, TEMPERATURES, cancel):
        places.append(place)
        if place.done == 2:
            cancel.set()
    assert places[-1].done == 2
    assert len(places[-1].cells) == 1


def test_a_hiccup_of_the_machine_does_not_count():
    trace = run([(4, 2)] * 20)
    times = step_times(trace)
    quiet = Measured(trace.metrics, times).speed
    assert quiet == pytest.approx(3 / 0.015)
    assert Measured(trace.metrics, [time * 50 for time in times[:10]] + times[10:]).speed == quiet
    assert Measured(run([]).metrics, []).speed is None


def test_the_best_k_is_found_for_every_temperature():
    assert {t: c.k for t, c in best_cells(CELLS).items()} == {0.0: 4, 1.0: 1}


def test_the_speedup_map_marks_the_best_k_of_each_temperature():
    figure = drawn(speedup_map(CELLS, KS, TEMPERATURES))
    assert [list(row) for row in figure.data[0].z] == [[1.3, 1.8], [0.9, 0.6]]
    assert [list(row) for row in figure.data[0].text] == [["1.30", "<b>★ 1.80</b>"], ["<b>★ 0.90</b>", "0.60"]]
    assert figure.layout.meta == "Best: k = 4 at temperature 0, 1.80 × plain"


def test_a_map_keeps_its_axes_while_it_fills():
    few, all_ = (drawn(acceptance_map(cells, KS, TEMPERATURES)) for cells in (CELLS[:1], CELLS))
    assert few.layout.xaxis.range == all_.layout.xaxis.range == (-0.5, 1.5)
    assert few.layout.yaxis.ticktext == all_.layout.yaxis.ticktext == ("0", "1")
    assert [list(row) for row in few.data[0].z] == [[0.5, None], [None, None]]
    assert all_.layout.meta == "Between 10% and 50% of the drafts were kept"


@pytest.mark.parametrize("make", [acceptance_map, speedup_map])
def test_before_the_first_run_a_map_says_so(make):
    assert drawn(make([], KS, TEMPERATURES)).layout.meta == NOTHING_YET


def test_the_csv_has_a_line_for_every_cell():
    rows = list(csv.DictReader(io.StringIO(to_csv(CELLS))))
    assert tuple(rows[0]) == COLUMNS
    assert [(float(r["temperature"]), int(r["k"]), float(r["speedup"])) for r in rows] == [
        (0.0, 1, 1.3),
        (0.0, 4, 1.8),
        (1.0, 1, 0.9),
        (1.0, 4, 0.6),
    ]


def test_the_last_word_is_said_even_when_the_last_run_changed_no_figure(catalog, monkeypatch):
    places = [Progress(CELLS, 3, 4, "temperature 1, k = 4"), Progress(CELLS, 4, 4, "")]
    monkeypatch.setattr(explore, "sweep", lambda *_: iter(places))
    *_, last = explore._explore(catalog, Settings(), [1, 4], [0.0, 1.0], lambda *_, **__: None)
    assert last[0].startswith("Best k: 4 at temperature 0")
    assert last[-1].visible


def test_the_table_holds_numbers_to_sort_by_and_shows_them_written_with_the_best_k_starred():
    shown = explore._table(CELLS).value
    assert shown["headers"][-1] == "speedup"
    assert [row[-1] for row in shown["data"]] == [1.3, 1.8, 0.9, 0.6]
    assert [row[-1] for row in shown["metadata"]["display_value"]] == ["1.30×", "★ 1.80×", "★ 0.90×", "0.60×"]
    assert shown["metadata"]["display_value"][0][2] == "50.0%"
    assert not explore._table([]).visible
