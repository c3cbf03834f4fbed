"""Forwards are timed in every executor, and printed as JSON or a table."""

import json

import pytest

from benchmarks import forward
from naive_speculate.bench import measure


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(forward, "CONTEXTS", (8,))
    monkeypatch.setattr(forward, "BATCHES", (1, 2))
    return ["--shapes", "1x192", "--rounds", "1"]


def test_every_way_batch_and_number_of_tokens_is_timed(small, capsys):
    assert forward.main([*small, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["way"], row["batch"], row["tokens"]) for row in rows} == {
        (way, batch, count) for way in forward.WAYS for batch in (1, 2) for count in forward.COUNTS
    }
    assert all(row["ms"] > 0 for row in rows)


def test_the_table_has_a_row_a_batch_and_a_bad_number_of_rounds_is_one_line(small, capsys):
    assert forward.main(small) == 0
    assert capsys.readouterr().out.count("1x192") == 2
    with pytest.raises(SystemExit, match="2"):
        forward.main([*small, "--rounds", "0"])
    assert "--rounds: must be a positive whole number, got '0'" in capsys.readouterr().err


def test_a_timed_forward_leaves_the_cache_as_it_was(tiny_pair):
    caches = []

    class Watched:
        device, vocab_size = tiny_pair.target.device, tiny_pair.target.vocab_size

        def new_cache(self, batch_size):
            caches.append(tiny_pair.target.new_cache(batch_size))
            return caches[-1]

        def forward(self, *args, **options):
            return tiny_pair.target.forward(*args, **options)

    run = measure.forward_timer(Watched(), 6, 2, batch=3)
    assert run() > 0
    assert caches[0].lengths == [6, 6, 6]
