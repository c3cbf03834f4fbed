"""The classroom benchmark finds listed words in what a pair writes, reports them masked, and says so in its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.classroom import TEMPERATURES, main, plan, read_prompts, written_words
from naive_speculate.sampling.words import WordList
from train.__main__ import main as train


@pytest.fixture(scope="module")
def tiny(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options for a few runs of a pair that writes little more than letters."""
    folder = tmp_path_factory.mktemp("classroom")
    fast = ["--preset", "tiny", "--threads", "1", "--device", "cpu", "--minutes", "0.01"]
    assert train(["--corpus", str(corpus), "--work", str(folder / "work"), "--out", str(folder / "pair"), *fast]) == 0
    models = ["--target", str(folder / "pair" / "target"), "--draft", str(folder / "pair" / "draft")]
    return [*models, "--runs", "6", "--new-tokens", "24", "--batch", "4", "--device", "cpu"]


def write_list(folder: Path, *entries: str) -> str:
    path = folder / "words.txt"
    path.write_text(WordList.encode(entries), encoding="ascii")
    return str(path)


def test_listed_words_are_counted_and_masked_and_the_status_is_one(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    any_word = write_list(tmp_path, "[a-z]+")
    assert main([*tiny, "--words", any_word, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["runs"] == 6
    assert report["offences"]
    for offence in report["offences"]:
        assert offence["prompt"] in read_prompts()
        assert offence["words"]
        assert all(set(word[1:]) <= {"*"} for word in offence["words"])
    assert main([*tiny, "--words", any_word]) == 1
    assert f"{len(report['offences'])} of 6 runs have listed words" in capsys.readouterr().out


def test_words_of_the_prompt_are_not_the_pairs_and_without_findings_the_status_is_zero(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = read_prompts()[0].split()[-2].casefold()  # a whole word of the first prompt
    assert main([*tiny, "--words", write_list(tmp_path, first, "zzqx"), "--runs", "1", "--new-tokens", "1"]) == 0
    assert "0 of 1 runs have listed words" in capsys.readouterr().out


def test_only_whole_words_that_the_pair_wrote_count() -> None:
    words = WordList(["cat", "tom cat"])
    assert written_words("The", " cat", False, words) == ["cat"]
    assert written_words("The", " cat", True, words) == []  # it may have become a caterpillar
    assert written_words("The", " cat.", True, words) == ["cat"]
    assert written_words("The cat", " saw a cat and", True, words) == ["cat"]
    assert written_words("The cat", "erpillar saw a cat and", True, words) == ["cat"]
    assert written_words("The", " catastroph", True, WordList([r"cat\w*"])) == ["catastroph"]  # however it goes on
    assert written_words("A tom", " cat and a dog", True, words) == ["tom cat"]


def test_the_plan_gives_every_prompt_every_temperature_before_a_second_seed() -> None:
    prompts = read_prompts()
    assert len(prompts) == len(set(prompts)) == 100
    runs = plan(prompts, 2000)
    assert len(set(runs)) == 2000
    assert {run.seed for run in runs} == set(range(1, 11))
    assert {(run.prompt, run.temperature) for run in plan(prompts, 200)} == {(p, t) for p in prompts for t in TEMPERATURES}


@pytest.mark.parametrize("wrong", [["--runs", "0"], ["--words", "nowhere.txt"], ["--target", "./nowhere"]])
def test_bad_input_is_one_line_and_status_two(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(wrong) == 2
    assert capsys.readouterr().err.startswith("error: ")
