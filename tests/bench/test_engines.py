"""Engines on trial: a planted fault is found, and what cannot be tried ends in one line."""

import argparse
import json
import stat
import sys
from pathlib import Path

import pytest

from benchmarks.engines import models
from benchmarks.engines.__main__ import ADAPTERS, RESULTS, tried
from benchmarks.engines.compare import compared
from benchmarks.engines.report import PAGE, report
from benchmarks.engines.speed import measured
from benchmarks.engines.trial import (
    HERE,
    SETTINGS,
    EngineError,
    environment,
    greedy,
    requirements,
    running,
    sampled,
)

ADAPTER = HERE / "transformers_.py"
SAID = "generation_config=settings(ask)"
COLDER = (
    'generation_config=settings(ask if ask.way == "plain" else '
    "Ask(ask.prompt, temperature=0.4 * ask.temperature, max_tokens=ask.max_tokens))"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    models.write(made)
    return made


def in_this_environment(script: Path, work: Path) -> None:
    """Let the adapter run with the packages of the tests."""
    own = work / "environments" / script.stem
    python = own / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (own / "made.json").write_text(json.dumps(requirements(script)), encoding="utf-8")


@pytest.mark.parametrize("planted", [False, True])
def test_a_planted_fault_in_a_copy_of_a_correct_adapter_is_found(planted, folder, tmp_path):
    text = ADAPTER.read_text(encoding="utf-8")
    assert SAID in text
    copy = tmp_path / "copy_.py"
    copy.write_text(text.replace(SAID, COLDER) if planted else text, encoding="utf-8")
    for shared in ("serve.py", "hugging_face.py"):
        (tmp_path / shared).write_bytes((HERE / shared).read_bytes())
    in_this_environment(copy, tmp_path)
    with running(copy, folder, tmp_path) as engine:
        verdict = sampled(engine, "prompt lookup", SETTINGS["T = 1"], folder, 0.4, seed=0)
        same = greedy(engine, "prompt lookup", penalty=1.3, texts=5)  # the fault drops the penalty
    assert verdict["biased"] == planted
    assert (same["equal"] < same["texts"]) == planted


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('# requires-python = ">=9.7"\n# dependencies = []', "needs Python 9.7"),
        (
            '# [tool.engines]\n# without-dependencies = ["./no-such-package"]',
            "no-such-package cannot be installed",
        ),
    ],
)
def test_an_engine_that_cannot_be_installed_ends_in_one_line(header, said, tmp_path):
    script = tmp_path / "absent_.py"
    script.write_text(f"# /// script\n{header}\n# ///\n", encoding="utf-8")
    with pytest.raises(EngineError, match=said) as raised:
        environment(script, tmp_path)
    assert "\n" not in str(raised.value)


def test_an_adapter_that_ends_is_one_line(folder, tmp_path):
    script = tmp_path / "ends_.py"
    script.write_text("# /// script\n# dependencies = []\n# ///\nraise SystemExit(3)\n")
    in_this_environment(script, tmp_path)
    with pytest.raises(EngineError, match=r"^ends_ ended with status 3$"):
        running(script, folder, tmp_path).__enter__()


def test_an_engine_that_is_missing_is_one_line_and_the_next_one_is_tried(folder, tmp_path):
    absent, there = tmp_path / "absent_.py", tmp_path / "there_.py"
    absent.write_text('# /// script\n# requires-python = ">=9.7"\n# ///\n', encoding="utf-8")
    engine = 'Engine(packages=["torch"], ways=[], rule="None.", source="none.py")'
    there.write_text(
        "# /// script\n# dependencies = []\n# ///\nfrom serve import Engine, serve\n"
        f"serve({engine})\n",
        encoding="utf-8",
    )
    (tmp_path / "serve.py").write_bytes((HERE / "serve.py").read_bytes())
    in_this_environment(there, tmp_path)
    (tmp_path / "models").symlink_to(folder)
    options = argparse.Namespace(work=tmp_path, smallest=None, only=["greedy", "sampled"])
    before = json.dumps({"sampled": {"T = 1": {"plain": {"biased": False}}}})
    (tmp_path / "absent.json").write_text(before, encoding="utf-8")
    lines, status = tried({"absent": absent, "there": there}, tmp_path, options)
    assert lines == [
        "absent: could not be tried: it needs Python 9.7, and there is no python9.7 here",
        "there: 0 verdicts as before",
    ]
    assert status == 1
    assert (tmp_path / "absent.json").read_text(encoding="utf-8") == before
    assert json.loads((tmp_path / "there.json").read_text(encoding="utf-8"))["rule"] == "None."


def test_a_verdict_that_changed_is_named_and_one_that_stays_is_not():
    said = {"biased": True, "again": {"biased": True}}
    right, once = {"biased": False}, {"biased": True, "again": {"biased": False}}
    before = {
        "greedy": {"draft": {"equal": 5, "texts": 5}},
        "sampled": {"T = 1": {"plain": right, "draft": said}},
    }
    again = {
        "greedy": {"draft": {"equal": 9, "texts": 9}},
        "sampled": {"T = 1": {"plain": once, "draft": said}},
    }
    assert compared("one", before, again) == ("one: 3 verdicts as before", False)
    other = {
        "greedy": {"draft": {"equal": 4, "texts": 5}},
        "sampled": {"T = 1": {"plain": right}, "T = 2": {"plain": right}},
    }
    line, changed = compared("one", before, other)
    assert changed
    assert line == (
        "one: 1 verdicts as before; draft, greedy: equal before, changed now; "
        "draft, T = 1: biased before, not tried now; plain, T = 2: right (new)"
    )


def test_a_gain_is_the_ratio_of_paired_times_without_the_warm_up():
    calls = []

    def way(name, seconds, per_pass, ids):
        def decode(prompt):
            calls.append(name)
            warm_up = calls.count(name) == 1
            return (100.0 if warm_up else seconds * prompt[0]), per_pass, ids

        return decode

    ways = {
        "plain": way("plain", 2.0, None, [1, 2]),
        "drafts": way("drafts", 0.5, 3.0, [1, 2]),
        "our plain": way("our plain", 1.0, 1.0, [1, 3]),
        "our drafts": way("our drafts", 2.0, 2.5, [1, 3]),
    }
    found = measured(ways, [[1], [3]])
    assert found["ratio"] == [4.0, None, None]
    assert found["our_ratio"] == [0.5, None, None]
    assert found["plain_to_ours"] == [0.5, None, None]
    assert (found["per_pass"], found["our_per_pass"]) == (3.0, 2.5)
    assert (found["equal"], found["texts"]) == (2, 2)
    assert calls[:8] == [*reversed(ways), *ways]


def test_the_page_is_what_the_results_say():
    assert PAGE.read_text(encoding="utf-8") == report(HERE / "results")
    verdicts = [
        verdict
        for path in (HERE / "results").glob("*.json")
        for setting in json.loads(path.read_text(encoding="utf-8"))["sampled"].values()
        for verdict in setting.values()
    ]
    assert len(verdicts) > 20
    assert all("again" in verdict for verdict in verdicts if verdict["biased"])


def test_every_adapter_has_a_result_and_nothing_else_is_tried():
    assert set(ADAPTERS) == {path.stem for path in RESULTS.glob("*.json")}
