"""Engines on trial: a planted fault is found, and what cannot be tried ends in one line."""

import argparse
import json
import stat
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from benchmarks.engines import models
from benchmarks.engines.__main__ import ADAPTERS, RESULTS, tried
from benchmarks.engines.compare import compared, whole
from benchmarks.engines.environments import (
    SHARED,
    EngineError,
    environment,
    holders,
    requirements,
    still_shared,
)
from benchmarks.engines.full import by_position, full_steps
from benchmarks.engines.report import PAGE, report
from benchmarks.engines.running import running
from benchmarks.engines.speed import measured
from benchmarks.engines.trial import HERE, SETTINGS, greedy, sampled

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


FAULTY = """
import transformers.generation.utils as rules


def judged(token_ids, q, k, p, *_, **__):
    ids, (q, p) = token_ids[0, -k:], (logits.softmax(-1)[0] for logits in (q, p))
    ratio = (p[:k] / q)[torch.arange(k), JUDGED]
    n = int((torch.rand(k) <= ratio).long().cumprod(0).sum())
    own = RESIDUAL if n < k else p[k]
    emitted = [*ids[:n], torch.multinomial(own, 1)[0]]EMITTED
    return torch.stack(emitted)[None], len(emitted) - 1


rules._speculative_sampling = judged
"""
RIGHT = {"JUDGED": "ids", "RESIDUAL": "(p[n] - q[n]).clamp_min(0)", "EMITTED": ""}


def with_rule(folder: Path, **fault: str) -> Path:
    """A copy of the adapter with a rule of its own, and a fault in it."""
    rule = FAULTY
    for name, text in (RIGHT | fault).items():
        rule = rule.replace(name, text)
    copy = folder / "rule_.py"
    start = "serve(ENGINE, load)"
    text = ADAPTER.read_text(encoding="utf-8")
    copy.write_text(text.replace(f"\n{start}", f"\n{rule}\n{start}"), encoding="utf-8")
    for shared in ("serve.py", "hugging_face.py"):
        (folder / shared).write_bytes((HERE / shared).read_bytes())
    in_this_environment(copy, folder)
    return copy


@pytest.mark.parametrize("fault", [{}, {"EMITTED": "[:k]"}])
def test_a_step_that_emits_no_token_after_a_whole_window_is_found(fault, folder, tmp_path):
    script = with_rule(tmp_path, **fault)
    with running(script, folder / models.PERFECT, tmp_path) as engine:
        full = full_steps(engine)["draft model"]
    assert (full["tokens"], whole(full)) == (24, not fault)


def test_a_token_of_the_wrong_position_after_a_whole_window_is_found(folder, tmp_path):
    target = AutoModelForCausalLM.from_pretrained(folder / "target").eval()
    script = with_rule(tmp_path, **{"p[k]": "p[k - 1]"})
    with running(script, folder / models.PERFECT, tmp_path) as engine:
        assert by_position(engine, "draft model", target, seed=0)["biased"]


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
    script.write_text("# /// script\n# dependencies = []\n# ///\nopen('no such file')\n")
    said = r"^ends_ ended with status 1: FileNotFoundError: .*'no such file'$"
    with pytest.raises(EngineError, match=said):
        running(script, folder, tmp_path).__enter__()


def test_an_environment_shares_the_packages_of_one_that_has_them_itself(tmp_path):
    def made(name: str, pins: list[str]) -> Path:
        packages = tmp_path / name / "lib" / "python3.11" / "site-packages"
        packages.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "made.json").write_text(json.dumps({"dependencies": pins}))
        return packages.resolve()

    pins = ["torch==2", "numpy"]
    owner = made("b_", pins)
    (made("a_", pins) / SHARED).write_text(f"{owner}\n")
    assert list(holders(tmp_path / "c_", pins)) == []  # it is not made yet
    (made("c_", pins) / SHARED).write_text(f"{owner}\n")
    assert list(holders(tmp_path / "c_", pins)) == [owner]
    assert still_shared(tmp_path / "c_", pins)
    made("b_", ["torch==3"])  # it was made again
    assert not still_shared(tmp_path / "c_", pins)


def write_adapter(path, folder, line):
    """An adapter of one line that runs in this environment, with the trial's models in `folder`."""
    head = "# /// script\n# dependencies = []\n# ///\nfrom serve import Answer, Engine, serve\n"
    path.write_text(f"{head}{line}\n", encoding="utf-8")
    (path.parent / "serve.py").write_bytes((HERE / "serve.py").read_bytes())
    in_this_environment(path, path.parent)
    (path.parent / "models").symlink_to(folder)


def test_an_engine_that_is_missing_is_one_line_and_the_next_one_is_tried(folder, tmp_path):
    absent, there = tmp_path / "absent_.py", tmp_path / "there_.py"
    absent.write_text('# /// script\n# requires-python = ">=9.7"\n# ///\n', encoding="utf-8")
    engine = 'Engine(packages=["torch"], ways=[], rule="None.", source="none.py")'
    write_adapter(there, folder, f"serve({engine})")
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


def test_verdicts_of_two_versions_are_not_mixed_and_a_speed_has_its_own(folder, tmp_path):
    script, path = tmp_path / "one_.py", tmp_path / "one.json"
    engine = 'Engine(packages=["torch"], ways=["none"], rule="None.", source="none.py")'
    answering = "lambda _: lambda ask: Answer([7] * ask.max_tokens)"
    write_adapter(script, folder, f"serve({engine}, {answering})")
    speed = {"versions": {"torch": "1"}, "date": "2026-01-01"}
    before = {"versions": {"torch": "1"}, "greedy": {"none": {"equal": 5, "texts": 5}}}
    path.write_text(json.dumps(before | {"speed": speed, "sampled": {}}), encoding="utf-8")
    options = argparse.Namespace(work=tmp_path, smallest=0.4, only=["figures"])
    tried({"one": script}, tmp_path, options)
    now = json.loads(path.read_text(encoding="utf-8"))
    assert now["versions"]["torch"] != "1"
    assert now["greedy"]["none"]["texts"] > 5  # though only figures are named
    assert now["speed"] == speed


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
