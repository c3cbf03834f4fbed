"""A run's title, and its tiles in the stage's markup; tests/browser/test_charts.py checks what is written there."""

from tests.ui.handmade import run
from ui.run.stage import template
from ui.run.stats import TILES, title


def test_every_number_has_its_place():
    assert all(f">{name}</a></dt>" in template() for name in TILES)


def test_the_title_names_the_settings():
    assert title(run([(2, 1)], temperature=0.7)) == "speculative sampling · k = 5 · temperature 0.7 · seed 7"
    assert title(run([(2, 1)], temperature=0.7, drafter="head")).startswith("draft head · speculative sampling · k = 5")
