"""`bench --suite`: its figures follow from its runs, drafted texts are plain decoding's, and bad
input is one line."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from benchmarks.server import ROOT
from naive_speculate.events import Event, EventKind
from naive_speculate.events.metrics import Metrics
from naive_speculate.infer.costs import CostTable
from naive_speculate.models.threads import THREADS_VARIABLE
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.draft import DRAFTERS, Proposal, SuffixDrafter
from naive_speculate.speculate.theory import speedup
from naive_speculate.tools.bench.command import main
from naive_speculate.tools.bench.measure import Decoded, Way, lines_of, prompt_seconds
from naive_speculate.tools.bench.suite import Question, answers_of, figures, read_suite, ways_of
from naive_speculate.tools.ratio import logs_of, ratio_of
from tests.programs import refusal, run_program

QUESTIONS = (
    {
        "question_id": 1,
        "category": "lists",
        "turns": ["apples, pears, plums, apples, pears, plums, apples,", "And now?"],
    },
    {"question_id": 2, "category": "tales & more", "turns": ["Once upon a time"]},
    {"question_id": 3, "category": "lists", "turns": ["one two three, one two three, one two"]},
)


SAMPLED = ("sampled", "argmax")
SMALL = ["--target", str(BUNDLED_PAIR / "draft")]
"""The smaller model alone, for what does not depend on the pair."""


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "suite.jsonl"
    path.write_text(
        "".join(json.dumps(question) + "\n" for question in QUESTIONS) + "\n", encoding="utf-8"
    )
    return path


def step(accepted: int, drafted: int) -> list[Event]:
    rejected = [Event(EventKind.REJECTED)] * (accepted < drafted)
    return [
        *rejected,
        Event(EventKind.STEP, num_draft=drafted, num_accepted=accepted, total_seconds=0.01),
    ]


def made(token_ids: list[int], seconds: float, *steps: list[Event]) -> Decoded:
    return Decoded(token_ids, seconds, len(steps), [event for each in steps for event in each])


def way(name: str, k: int, runs: dict[int, Decoded], calls: list[tuple[str, int]]) -> Way:
    def decode(prompt: list[int], seed: int) -> Decoded:
        calls.append((name, prompt[0]))
        if prompt[0] not in runs:
            raise KeyboardInterrupt
        return runs[prompt[0]]

    return Way(name, k, True, decode)


def asked(prompts: list[list[int]]) -> tuple[Any, list[tuple[str, int]]]:
    """Two ways, three questions, the answers, of which the third is interrupted, and the calls
    after the warm-up."""
    calls: list[tuple[str, int]] = []
    plain = {
        0: made([1, 2, 3, 4], 4.0, *[step(0, 0)] * 4),
        1: made([5, 6, 7, 8], 2.0, *[step(0, 0)] * 4),
    }
    fast = {
        0: made([1, 2, 3, 4], 1.0, step(2, 2), step(0, 2)),
        1: made([5, 6, 7, 9], 1.0, step(1, 2), step(1, 2)),
    }
    ways = [way("none", 0, plain, calls), way("draft", 2, fast, calls)]
    questions = [Question(category, "text", 1) for category in ("a", "b", "a")]
    return (ways, questions, *answers_of(ways, prompts, lambda number: None)), calls[len(ways) :]


def test_figures_follow_from_the_runs_by_category_and_overall():
    (ways, questions, answers, _), calls = asked([[0], [1]])
    assert calls == [("none", 0), ("draft", 0), ("draft", 1), ("none", 1)]  # the order moves on
    found = figures(ways, questions, answers, 0.0)
    first, overall = found["categories"]["a"]["draft"], found["overall"]["draft"]
    expected = {
        "over_plain": 4.0, "decoding_interval": None, "same_as_plain": 1.0, "tokens_per_step": 2.0,
        "marginal_acceptance": [0.5, 0.5], "conditional_acceptance": [0.5, 1.0],
    }  # fmt: skip
    assert expected.items() <= first.items()
    expected = {
        "questions": 2, "over_plain": pytest.approx(8**0.5),
        "decoding_over_plain": pytest.approx(8**0.5), "decoding_interval": None,
        "same_as_plain": 0.5, "marginal_acceptance": [0.75, 0.25],
        "conditional_acceptance": [0.75, pytest.approx(1 / 3)], "tokens_per_second": 4.0,
        "acceptance": 0.5, "alpha": pytest.approx(4 / 7), "step_ms": pytest.approx(10.0),
        "predicted": None,
    }  # fmt: skip
    assert {name: overall[name] for name in expected} == expected
    assert found["overall"]["none"]["over_plain"] == 1.0
    many, _ = asked([[0], [1], [0], [1], [0]])
    _, five = lines_of(many[0], many[2])
    found = ratio_of(logs_of([4, 2, 4, 2, 4], [1] * 5))
    assert (five.decoding_over_plain, *five.decoding_interval) == pytest.approx(found)
    assert figures(ways, questions, answers, 1.0)["overall"]["draft"]["same_as_plain"] is None
    plain, fast = lines_of(ways, answers, CostTable(0.1, (1.0, 1.1, 1.2)))
    assert plain.predicted is None
    assert fast.predicted == pytest.approx(speedup(4 / 7, 2, 0.1, 1.2))
    assert fast.efficiency == pytest.approx(8**0.5 / speedup(4 / 7, 2, 0.1, 1.2))
    metrics = Metrics(
        num_spec_steps=4, time_to_first_token=3.0, draft_seconds=1.0, verify_seconds=3.0
    )
    run = Decoded([1, 2, 3, 4], 6.0, 4, (), prompt_seconds(metrics))
    assert (run.prompt_seconds, run.decoding_speed) == (2.0, 1.0)


def test_ctrl_c_keeps_the_questions_that_are_complete():
    (*_, answers, interrupted), _ = asked([[0], [1], [2]])
    assert (interrupted, len(answers)) == (True, 2)
    with pytest.raises(KeyboardInterrupt):
        asked([[2]])


def test_first_turns_are_read_and_a_category_may_be_limited(suite):
    example = read_suite(ROOT / "benchmarks" / "questions.jsonl", limit=1)
    assert len(example) == len({question.category for question in example}) == 4
    found = read_suite(suite, limit=1)
    assert [(q.category, q.line) for q in found] == [("lists", 1), ("tales & more", 2)]
    assert found[0].text == "apples, pears, plums, apples, pears, plums, apples,"
    assert len(read_suite(suite)) == 3


def test_an_interrupted_run_reports_what_it_has_with_status_130(suite, monkeypatch):
    class Interrupted(SuffixDrafter):
        """Ctrl-C comes while the second question is drafted for."""

        prompts: ClassVar[list[list[int]]] = []

        def propose(self, rows: Any, limits: Any) -> Proposal:
            if rows[0].prompt_token_ids not in self.prompts:
                self.prompts.append(rows[0].prompt_token_ids)
            if len(self.prompts) == 2:
                raise KeyboardInterrupt
            return super().propose(rows, limits)

    monkeypatch.setitem(DRAFTERS, "interrupted", Interrupted)
    options = [
        "--suite",
        str(suite),
        *SMALL,
        "--drafters",
        "interrupted",
        "--max-tokens",
        "4",
        "--json",
    ]
    done = run_program("naive_speculate.__main__", ["bench", *options])
    assert (done.returncode, done.stderr) == (130, "naive_speculate: interrupted\n")
    report = json.loads(done.stdout)
    assert report["interrupted"]
    assert list(report["categories"]) == ["lists"]
    assert report["overall"]["interrupted"]["questions"] == 1


def test_the_bundled_pair_s_texts_are_plain_decoding_s_and_a_picture_is_saved(
    suite, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv(THREADS_VARIABLE, "1")
    picture = tmp_path / "suite.svg"
    options = [
        "--drafters",
        "none,head:3x1,suffix+head",
        "--num-draft-tokens",
        "3",
        "--max-tokens",
        "6",
    ]
    options += ["--threads", "1"]
    assert (
        main(["--suite", str(suite), *options, "--limit", "1", "--json", "--svg", str(picture)])
        == 0
    )
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(report["categories"]) == ["lists", "tales & more"]
    assert report["threads"] == 1
    assert not report["chat"]  # the tales pair has no template
    for category in (*report["categories"].values(), report["overall"]):
        assert list(category) == ["none", "head:3x1", "suffix+head"]
        assert all(one["same_as_plain"] == 1.0 for one in category.values())
        assert all(one["tokens_per_second"] > 0 for one in category.values())
    assert report["categories"]["lists"]["none"]["tokens_per_step"] == 1.0
    assert report["overall"]["suffix+head"]["tokens_per_step"] > 1.0
    assert report["overall"]["head:3x1"]["tokens_per_step"] > 1.0
    drawn = "".join(ElementTree.fromstring(picture.read_text(encoding="utf-8")).itertext())
    for text in (
        "tales & more",
        "suffix+head",
        "overall",
        f"{report['overall']['suffix+head']['decoding_over_plain']:.2f}",
    ):
        assert text in drawn


def test_the_table_has_a_row_for_each_category_drafter_and_window(suite, capsys):
    options = [
        *SMALL,
        "--draft",
        SMALL[1],
        "--drafters",
        "suffix",
        "--num-draft-tokens",
        "2, auto",
        "--transformers",
    ]
    options += ["--max-tokens", "4", "--limit", "1"]
    assert main(["--suite", str(suite), *options]) == 0
    printed = capsys.readouterr().out
    for category in ("lists", "tales & more", "overall"):
        assert re.search(rf"{category} +│ none +│", printed)
    for name in ("suffix, k = 2", "suffix, k = auto", "transformers, plain", "transformers, k = 5"):
        assert len(re.findall(rf"│ {name} +│.* 100% │", printed)) == 3
    assert len(re.findall(r"│ transformers, prompt lookup, k = 10 +│.* 100% │", printed)) == 3
    means = re.findall(
        r"(?m)^(.+), mean of the categories: ([\d.]+) tokens/step, [\d.]+ × plain, [\d.]+ after",
        printed,
    )
    assert len(means) == 5
    # two categories and all questions
    steps = re.findall(r"│ suffix, k = 2 +│ +\d+ │ +([\d.]+) │", printed)
    assert float(dict(means)["suffix, k = 2"]) == pytest.approx(
        (float(steps[0]) + float(steps[1])) / 2, abs=0.011
    )
    assert "k = 2, auto, temperature 0, 4 tokens, no chat template" in printed


def test_a_drafter_with_argmax_drafts_its_most_probable_tokens(small_decoder):
    decoder, params, prompt = (
        small_decoder,
        SamplingParams(max_tokens=12, temperature=1.0),
        [5, 6, 7],
    )
    _, *ways = ways_of(decoder, ["model", "model:argmax"], [3], params, None)
    seeded = replace(params, seed=7)
    texts = [
        decoder.generate(prompt, seeded, num_draft_tokens=3, draft_sampling=how) for how in SAMPLED
    ]
    assert [way.decode(prompt, 7).token_ids for way in ways] == [
        list(text.token_ids) for text in texts
    ]
    assert texts[0].token_ids != texts[1].token_ids


LINES = [
    ("{", "line 2: not JSON"),
    ("[1]", 'line 2: "category" must be a string, got None'),
    ('{"turns": ["a"]}', 'line 2: "category" must be a string, got None'),
    (
        '{"category": "a", "turns": []}',
        'line 2: "turns" must be a list that begins with a string, got []',
    ),
    (
        '{"category": "a", "turns": "a"}',
        "line 2: \"turns\" must be a list that begins with a string, got 'a'",
    ),
    (json.dumps({"category": "a", "turns": ["so " * 5000]}), "line 2: prompt has"),
]


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        *((line, [], message) for line, message in LINES),
        (
            "",
            ["--drafters", "suffix,oracle"],
            f"--drafters must be of {', '.join(DRAFTERS)}, none, got 'oracle'",
        ),
        (
            "",
            ["--drafters", "suffix+head"],
            "drafter is 'suffix+head', but this pair has no draft head",
        ),
        ("", ["--num-draft-tokens", "99"], "--num-draft-tokens must be"),
        ("", ["--temperature", "-1"], "temperature must be"),
        ("", ["--svg", "no/such/x.svg"], "x.svg"),
        ("", ["--suite", "no-such.jsonl"], "no-such.jsonl"),
        ("", ["--suite", "/dev/null"], "--suite /dev/null: the file has no questions"),
    ],
)
def test_a_bad_line_or_option_is_named_in_one_line(suite, line, options, message):
    suite.write_text(json.dumps(QUESTIONS[0]) + "\n" + line + "\n", encoding="utf-8")
    said = refusal("naive_speculate.__main__", ["bench", "--suite", str(suite), *SMALL, *options])
    assert (f"--suite {suite}, " if line else "") + message in said
