"""The benchmark of a pair reports acceptance, speed and loss, and refuses what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.pair import main
from train.__main__ import main as train


@pytest.fixture(scope="module")
def tiny_pair(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    tiny = ["--preset", "tiny", "--threads", "1", "--device", "cpu", "--minutes", "0.01", "--head-minutes", "0.01"]
    assert train(["--corpus", str(corpus), "--work", str(folder / "work"), "--out", str(folder / "pair"), *tiny]) == 0
    return folder / "pair"


def test_json_has_the_numbers_of_every_way_and_both_losses(
    tiny_pair: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--pair", str(tiny_pair), "--prompts", "3", "--new-tokens", "12", "--device", "cpu", "--num-draft-tokens", "2", "4"]
    assert main([*few, "--valid", str(corpus / "one.txt"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    ways = [(run["temperature"], run["drafter"], run["num_draft_tokens"]) for run in report["runs"]]
    assert ways == [(t, drafter, k) for t in (0.0, 0.8, 0.8, 1.0, 1.0) for drafter in ("model", "head") for k in (2, 4)]
    for run in report["runs"]:
        assert 1 <= run["mean_acceptance_length"] <= run["num_draft_tokens"] + 1
        assert 0 <= run["draft_acceptance_rate"] <= run["alpha"] <= 1
        assert run["speedup"] == pytest.approx(run["tokens_per_second"] / run["plain_tokens_per_second"])
    assert report["loss"].keys() == {"target", "draft"}
    assert all(loss["nats_per_token"] > loss["bits_per_byte"] / 2 > 0 for loss in report["loss"].values())


def test_without_held_out_text_the_shipped_prompts_are_used(tiny_pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pair", str(tiny_pair), "--prompts", "2", "--new-tokens", "6", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "greedy" in printed
    assert "temperature 1, block verification" in printed


def test_a_drafter_that_the_pair_lacks_is_refused(tiny_pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for role in ("target", "draft"):
        (tmp_path / role).symlink_to(tiny_pair / role)
    assert main(["--pair", str(tmp_path), "--drafters", "model", "head", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "error: --drafters head: this pair has no draft head\n"


@pytest.mark.parametrize("wrong", [["--valid", "nowhere.txt"], ["--prompts", "0"], ["--pair", "./nowhere"]])
def test_bad_input_is_one_line_and_status_two(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(wrong) == 2
    assert capsys.readouterr().err.startswith("error: ")
