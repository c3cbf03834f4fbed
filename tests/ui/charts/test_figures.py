"""What figures drawn on the server have in common."""

import json

from tests.ui.drawn import drawn
from ui.charts.figures import ACCEPTED, BOARD, build_board, empty, figure, nice_ceiling
from ui.labels import to_json


def test_ceilings_are_round_and_never_below():
    assert [nice_ceiling(v) for v in (0.3, 1, 1.1, 12, 49, 51, 0, float("nan"))] == [0.5, 1, 2, 20, 50, 100, 1, 1]


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


def test_every_chart_of_a_run_has_a_place_and_a_title():
    template = build_board().html_template
    for name, (title, _, _) in BOARD.items():
        assert f'id="{name}"' in template
        assert f'aria-label="{title}"' in template
