"""The charts' component: every chart of a run in one message."""

import json

import pytest

from naive_speculate.events import Event, EventKind
from naive_speculate.trace import Trace
from tests.ui.handmade import run
from ui.charts.board import TITLES, board, template
from ui.charts.rounds import CHARTS


def test_every_chart_has_a_place_and_a_title():
    assert set(TITLES) == set(CHARTS)
    for name in CHARTS:
        assert f'id="{name}"' in template()


@pytest.mark.parametrize(
    "trace", [Trace(), run([]), run([(0, 0)]), run([(4, 2), (4, 4)])], ids=["nothing", "begun", "plain", "drafted"]
)
def test_the_board_is_json_with_a_figure_a_chart(trace):
    for dark in (False, True):
        figures = json.loads(board(trace, 50.0, dark))
        assert set(figures) == set(CHARTS)
        assert all({"data", "layout"} <= set(figure) for figure in figures.values())


def test_no_markup_of_a_trace_reaches_the_message_as_such():
    trace = run([(2, 1)])
    trace.append(Event(EventKind.FINISHED, message="<img src=x onerror=alert(1)>"))
    assert "<" not in board(trace)
