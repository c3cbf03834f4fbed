"""The command that records every example again: from any pair, into files that the page opens
with."""

import json
from dataclasses import replace

import pytest

from naive_speculate.events.trace import Trace
from ui import record_examples as record
from ui.experiments.explore import recorded_exploration
from ui.experiments.learn import content
from ui.experiments.lessons import verify
from ui.experiments.lessons.lesson import Progress
from ui.experiments.sweep import cells
from ui.run.recorded import PLAIN, SPECULATIVE
from ui.run.settings import Settings


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Recordings of a few tokens."""
    # enough steps to be timed
    settings = Settings(prompt="Once upon a time", max_tokens=24, num_draft_tokens=3, seed=2)
    monkeypatch.setattr(record, "recording_of", lambda _: (None, settings))
    monkeypatch.setattr(record, "prompts_for", lambda _: ["Once upon a time", "The fox"])


def test_the_first_run_is_recorded_with_what_drafting_gained(catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "HEATS", 2)
    monkeypatch.setattr("ui.host.measuring.MOST_REPEATS", 1)
    assert list(record.record_run(catalog, tmp_path)) == [(1, 2), (2, 2)]
    found = Trace.load(tmp_path / SPECULATIVE.name)
    assert any(event.target_top for event in found)
    plain = Trace.load(tmp_path / PLAIN.name)
    assert len(plain.token_ids) == 24
    assert not any(event.kind == "step" for event in plain)  # the page does not need them
    assert found[-1].speedup.low <= found[-1].speedup.value <= found[-1].speedup.high


def test_recording_a_lesson_keeps_the_others_and_an_experiment_without_result_is_refused(
    catalog, tmp_path, monkeypatch
):
    monkeypatch.setattr(record, "LESSONS", [verify.LESSON])  # a short one
    (tmp_path / "lessons.json").write_text('{"9": {}}')
    assert list(record.record_learn(catalog, tmp_path)) == [(0, 1), (1, 1)]
    found = json.loads((tmp_path / "lessons.json").read_text())
    assert set(found) == {"2", "9"}
    assert content(verify.LESSON, found["2"], "")["lesson"] == 2
    monkeypatch.setattr(
        record, "LESSONS", [replace(verify.LESSON, measure=lambda _: iter([Progress("Nothing.")]))]
    )
    with pytest.raises(ValueError, match="lesson 2 found nothing to show: Nothing"):
        list(record.record_learn(catalog, tmp_path))


def test_one_lesson_is_recorded_by_its_name_and_the_others_stay(catalog, tmp_path):
    (tmp_path / "lessons.json").write_text('{"9": {}}')
    assert list(record.OF_LESSONS["lesson-2"](catalog, tmp_path)) == [(0, 1), (1, 1)]
    assert set(json.loads((tmp_path / "lessons.json").read_text())) == {"2", "9"}
    assert len(record.OF_LESSONS) == len(record.LESSONS)


def test_the_maps_are_recorded_and_read_back(catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "sizes_for", lambda *_: [1, 2])
    small = {
        "EXPLORE_TOKENS": 8,
        "KS": [2],
        "BATCH_KS": [2],
        "TEMPERATURES": [0.0, 1.0],
        "BATCH_TURNS": 1,
    }
    for name, value in small.items():
        monkeypatch.setattr(record, name, value)
    *_, (done, total) = record.record_exploration(catalog, tmp_path)
    assert done == total
    found = recorded_exploration(tmp_path)
    assert [(c.temperature, c.k, c.prompts) for c in cells(found.samples)] == [
        (0.0, 2, 2),
        (1.0, 2, 2),
    ]
    assert {s.k for s in found.batches} == {0, 2}
    assert found.tokens == 8
    assert found.about("So.").startswith("Recorded with the bundled models, 2 prompts of 8 tokens.")


def test_every_recording_can_be_named_and_what_it_writes_is_listed(
    catalog, tmp_path, monkeypatch, capsys
):
    def note(_catalog, folder):
        yield 0, 2
        (folder / "note.txt").write_text("x" * 2000)
        yield 2, 2

    monkeypatch.setitem(record.RECORDINGS, "note", note)
    record.record(catalog, tmp_path / "new", ["note"])
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'new' / 'note.txt'}: 2 kB\n"
    assert "note: 100%" in err


@pytest.mark.parametrize(
    ("words", "said"), [(["nonsense"], "got 'nonsense'"), (["--draft", "x"], "needs a --target")]
)
def test_what_cannot_be_recorded_is_refused_in_a_line(monkeypatch, capsys, words, said):
    monkeypatch.setattr("sys.argv", ["record", *words])
    with pytest.raises(SystemExit):
        record.main()
    assert said in capsys.readouterr().err.splitlines()[-1]
