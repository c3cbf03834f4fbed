"""Engines on trial: a planted fault is found, and what cannot be tried ends in one line."""

import json
import stat
import sys
from pathlib import Path

import pytest

from benchmarks.engines import models
from benchmarks.engines.report import PAGE, report
from benchmarks.engines.trial import (
    HERE,
    SETTINGS,
    EngineError,
    environment,
    requirements,
    running,
    sampled,
)

ADAPTER = HERE / "transformers_.py"
SAID = '"temperature": ask.temperature,'
COLDER = '"temperature": ask.temperature * (1.0 if ask.way == "plain" else 0.4),'


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
    (tmp_path / "serve.py").write_bytes((HERE / "serve.py").read_bytes())
    in_this_environment(copy, tmp_path)
    with running(copy, folder, tmp_path) as engine:
        verdict = sampled(engine, "prompt lookup", SETTINGS["T = 1"], folder, 0.4, seed=0)
    assert verdict["biased"] == planted


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ('# requires-python = ">=9.7"\n# dependencies = []', "needs Python 9.7"),
        ('# dependencies = ["./no-such-package"]', "cannot be installed"),
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
