"""`prove --endpoint` finds a biased server and passes a correct one, over real HTTP."""

import json

import pytest

from naive_speculate import load_pair
from naive_speculate.__main__ import main
from naive_speculate.pair import BUNDLED_PAIR
from tests.programs import refusal
from tests.proving_server import serving

DRAFT = BUNDLED_PAIR / "draft"
QUICK = ["--samples", "240", "--greedy-tokens", "4", "--concurrency", "2", "--temperatures", "1,0.6"]


@pytest.fixture(scope="module")
def tales():
    return load_pair(DRAFT, device="cpu", dtype="float32")


@pytest.fixture
def prompts(tmp_path):
    (tmp_path / "prompts.txt").write_text("Once upon a time\n", encoding="utf-8")
    return ["--prompts", str(tmp_path / "prompts.txt")]


def prove(server, *arguments):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    return main(["prove", "--endpoint", url, "--model", "tales", *QUICK, *arguments])


def test_a_correct_server_passes_with_the_bias_that_would_have_been_found(tales, prompts, capsys):
    with serving(tales) as server:
        assert prove(server, *prompts, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["against"] == "its own logprobs (stated before temperature)"
        assert len(found["tests"]) == 1 * 2 * 3 + 3
        assert all(test["p_value"] > 0.001 for test in found["tests"])
        assert 0 < min(test["smallest_bias"] for test in found["tests"]) < 0.25
        assert (found["greedy"]["num_differing"], found["greedy"]["num_parted"]) == (0, 0)


@pytest.mark.parametrize("reference", [[], ["--reference", str(DRAFT)]])
def test_a_biased_server_is_found_at_the_tokens_after_the_first(tales, prompts, reference, capsys):
    with serving(tales, "biased") as server:
        assert prove(server, *prompts, *reference, "--samples", "180", "--temperatures", "1", "--json") == 1
        tests = {test["name"]: test for test in json.loads(capsys.readouterr().out)["tests"]}
        differing = {name for name, test in tests.items() if test["differs"]}
        assert differing & {"prompt 1, temperature 1, position 2", "prompt 1, temperature 1, position 3"}
        assert not [name for name in differing if name.endswith("position 1")]


def test_a_wrong_greedy_token_is_found(tales, prompts, capsys):
    with serving(tales, "greedy") as server:
        assert prove(server, *prompts, "--samples", "12", "--json") == 1
        greedy = json.loads(capsys.readouterr().out)["greedy"]
        assert 0 < greedy["num_differing"] <= greedy["num_tokens"]


def test_a_server_that_refuses_several_completions_is_tested_with_one_per_request(tales, prompts, capsys):
    with serving(tales, "one") as server:
        prove(server, *prompts, "--samples", "12", "--json")
        assert json.loads(capsys.readouterr().out)["settings"]["n"] == 1


def test_a_stopped_run_is_undecided_and_continues_from_its_file(tales, prompts, tmp_path, capsys):
    work = ["--work", str(tmp_path / "work.jsonl"), "--samples", "30", *prompts]
    with serving(tales) as server:
        assert prove(server, *work, "--max-requests", "10") == 3
        assert "Undecided: no difference found so far, but it stopped after 10 requests" in capsys.readouterr().out
        before = server.num_requests
        assert prove(server, *work, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        lines = (tmp_path / "work.jsonl").read_text().splitlines()
        assert len(lines) - 1 == 10 + found["cost"]["num_requests"] < before + server.num_requests
        assert prove(server, *work, "--seed", "2") == 2
        assert "holds answers to other settings" in capsys.readouterr().err


def test_a_server_without_logprobs_needs_a_reference(tales, prompts, capsys):
    with serving(tales, "silent") as server:
        assert prove(server, *prompts) == 2
        assert "reports no logprobs: give a local copy of the model with --reference" in capsys.readouterr().err
        assert prove(server, *prompts, "--samples", "30", "--reference", str(DRAFT)) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"], "http://127.0.0.1:9/v1/completions cannot be reached"),
        (["--endpoint", "nowhere", "--model", "m"], "endpoint must begin with http"),
        (["--endpoint", "http://127.0.0.1:9/v1"], "--endpoint needs --model"),
        (["mine:X", "--endpoint", "http://127.0.0.1:9/v1"], "give MODULE:NAME, or --endpoint"),
        (["--temperatures", "0,1"], "must be numbers above 0"),
        (["--body", "7"], "must be a JSON object"),
        (["--bias", "2"], "must be a number from 0.01 and below 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, said):
    assert said in refusal("naive_speculate.__main__", ["prove", *arguments])
