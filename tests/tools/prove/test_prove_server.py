"""`prove --endpoint` finds a biased server and passes a correct one, over real HTTP."""

import json
import threading
import time
from contextlib import ExitStack, suppress
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.text import Text

from naive_speculate import load_pair
from naive_speculate.__main__ import main
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.text import Vocabulary
from naive_speculate.tools.differ import Scores
from naive_speculate.tools.prove.plan import Record, Settings, requests
from naive_speculate.tools.prove.server import Answer
from tests.programs import refusal

DRAFT = BUNDLED_PAIR / "draft"
QUICK = [
    "--samples",
    "100",
    "--greedy-tokens",
    "4",
    "--concurrency",
    "2",
    "--temperatures",
    "1,0.6",
]


class Tales:
    """A real tiny model, whose distributions every server here uses again."""

    def __init__(self) -> None:
        pair = load_pair(DRAFT, device="cpu", dtype="float32")
        self.scores, self.vocabulary = Scores(pair), Vocabulary(pair.tokenizer)
        self.log_probs = cache(self._log_probs)

    def _log_probs(self, ids: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Of all tokens, the tokens from the most probable one, and the texts of the first ten."""
        log_probs = torch.log_softmax(self.scores.whole(ids)[-1].double(), -1).numpy()
        order = np.argsort(-log_probs)
        return (
            log_probs,
            order,
            {self.vocabulary.text_of(int(i)): float(round(log_probs[i], 4)) for i in order[:10]},
        )


@pytest.fixture(scope="module")
def tales():
    return Tales()


class CompletionsServer(ThreadingHTTPServer):
    """Serves a model.

    `fault`: "" for none, "biased" for a sampler that prefers the second token, "greedy" for a
    wrong greedy token, "silent" for no logprobs, "seldom" for some without, "one" if it refuses
    several completions per request, "none" if it answers that with none, "slow" if it never ends
    its answers after the first few, "hides" if it states no logprobs after the first token (as
    llama.cpp's server in steps with drafts), "hides, biased" if its sampler prefers the second
    token there, "merges" if tokens that differ by a leading space are one entry, "caps" if it
    lists five at most, "busy" if it takes nothing for a second or two now and then, "away" if
    not for a day.
    """

    def __init__(self, model: Tales, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model, self.fault = model, fault
        self.random, self.lock, self.num_requests = np.random.default_rng(3), threading.Lock(), 0
        self.slow, self.ending = threading.Event(), threading.Event()
        self.num_posts, self.free_at, self.num_early = 0, 0.0, 0

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.num_requests += 1
            number = 0 if self.fault == "none" and "n" in body else body.get("n", 1)
            return {"choices": [self.choice(body) for _ in range(number)]}

    def refusal(self) -> tuple[int, str] | None:
        """The status and the `Retry-After` of a busy server's answer. It counts the requests that
        come before the time that it named."""
        with self.lock:
            self.num_posts, now = self.num_posts + 1, time.time()
            self.num_early += now < self.free_at
            if self.fault == "away":
                return 503, "86400"
            if self.fault != "busy" or self.num_posts not in (2, 6, 10):
                return None
            self.free_at = [int(now) + 2, now + 1, now][self.num_posts // 4]
            named = [formatdate(self.free_at, usegmt=True), "1", "soon"][self.num_posts // 4]
            return 429 if self.num_posts == 2 else 503, named

    def choice(self, body: dict[str, Any]) -> dict[str, Any]:
        ids, tokens, top, drawn = self.prompt_ids(body["prompt"]), [], [], []
        for _ in range(body["max_tokens"]):
            if len(drawn) > 4:  # no test looks at these
                ids = ids[: -len(drawn) + 4]
            log_probs, order, likeliest = self.model.log_probs(ids)
            token = int(order[3 if self.fault == "greedy" else 0])
            if body["temperature"]:
                noisy = log_probs / body["temperature"] + self.random.gumbel(size=len(log_probs))
                biased = self.fault.endswith("biased") and tokens  # the first token has no drafts
                noisy[order[1]] += np.log(5) if biased else 0
                token = int(noisy.argmax())
            tokens.append(self.model.vocabulary.text_of(token))
            top.append(likeliest)
            ids = (*ids, token)
            drawn.append(token)
        if self.fault.startswith("hides"):
            return self.hidden(tokens, top, drawn)
        top = [self.listed(entries) for entries in top]
        seldom = self.fault == "seldom" and self.num_requests % 3 == 0
        logprobs = (
            None if seldom or self.fault == "silent" else {"tokens": tokens, "top_logprobs": top}
        )
        return {
            "text": "".join(tokens),
            "logprobs": logprobs,
            "finish_reason": "stop" if seldom else "length",
        }

    def prompt_ids(self, prompt: str | list[Any]) -> tuple[int, ...]:
        """A text, or a text and ids."""
        text, *ids = [prompt] if isinstance(prompt, str) else prompt
        return (*self.model.vocabulary.encode(text), *ids)

    def listed(self, entries: dict[str, float]) -> dict[str, float]:
        """The most probable tokens as the server lists them."""
        if self.fault == "caps":
            return dict(list(entries.items())[:5])
        if self.fault == "merges":  # the first two are one, with the second's logprob
            first, second, *others = entries.items()
            return {first[0]: second[1], **dict(others)}
        return entries

    def hidden(
        self, tokens: list[str], top: list[dict[str, float]], drawn: list[int]
    ) -> dict[str, Any]:
        """An answer whose tokens after the first have no logprobs."""
        content = []
        for index, (token, entries, number) in enumerate(zip(tokens, top, drawn, strict=True)):
            listed = [{"token": text, "logprob": value} for text, value in entries.items()]
            content.append(
                {"token": token, "id": number, "logprob": 0.0, "top_logprobs": listed}
                if not index
                else {"token": token, "id": number, "logprob": 0.0, "top_logprobs": []}
            )
        return {
            "text": "".join(tokens),
            "logprobs": {"content": content},
            "finish_reason": "length",
        }


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if (refusal := self.server.refusal()) is not None:
            self.send_response(refusal[0])
            self.send_header("retry-after", refusal[1])
            self.send_header("content-length", "0")
            self.end_headers()
            return
        one = self.server.fault == "one" and body.get("n", 1) > 1
        refused = one or "repetition_penalty" in body  # as strict servers refuse fields
        said = json.dumps(
            {"error": "unexpected field"} if refused else self.server.answer(body)
        ).encode()
        if self.server.fault == "slow" and self.server.num_requests > 20:
            self.server.slow.set()
            self.send_response(200)
            self.send_header("content-length", "100000")
            self.end_headers()
            with suppress(OSError):
                while not self.server.ending.wait(0.01):
                    self.wfile.write(b" ")
            return
        self.send_response(400 if refused else 200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def serving(tales):
    """Starts servers; they end with the test."""
    with ExitStack() as ends:

        def start(fault: str = "") -> CompletionsServer:
            server = ends.enter_context(CompletionsServer(tales, fault))
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            ends.callback(server.shutdown)
            ends.callback(server.ending.set)
            return server

        yield start


@pytest.fixture
def prompts(tmp_path):
    (tmp_path / "prompts.txt").write_text("Once upon a time\n", encoding="utf-8")
    return ["--prompts", str(tmp_path / "prompts.txt")]


@pytest.fixture
def prove(prompts, capsys):
    """Proves a server: the exit status, and the result if it is printed as JSON, else what is
    printed."""

    def run(server, *arguments):
        url = f"http://127.0.0.1:{server.server_port}/v1"
        status = main(
            ["prove", "--endpoint", url, "--model", "tales", *QUICK, *prompts, *arguments]
        )
        said = capsys.readouterr()
        return status, (
            json.loads(said.out) if "--json" in arguments and said.out else said.out + said.err
        )

    return run


def test_a_correct_server_passes_with_the_bias_that_would_have_been_found(serving, prove):
    status, found = prove(serving(), "--json")
    assert status == 0
    assert found["against"] == "its own logprobs (stated before temperature)"
    assert len(found["tests"]) == 1 * 2 * 3 + 3
    assert all(test["p_value"] > 0.001 for test in found["tests"])
    assert 0 < min(test["smallest_bias"] for test in found["tests"]) < 0.25
    assert (found["greedy"]["num_differing"], found["greedy"]["num_parted"]) == (0, 0)


@pytest.mark.parametrize("reference", [[], ["--reference", str(DRAFT)]])
def test_a_biased_server_is_found_at_the_tokens_after_the_first(serving, prove, reference):
    status, found = prove(
        serving("biased"), *reference, "--samples", "150", "--temperatures", "1", "--json"
    )
    assert status == 1
    differing = {test["name"] for test in found["tests"] if test["differs"]}
    assert differing & {
        "prompt 1, temperature 1, position 2",
        "prompt 1, temperature 1, position 3",
    }
    assert not [name for name in differing if name.endswith("position 1")]


def test_a_wrong_greedy_token_is_found_and_a_server_with_single_completions_is_tested_too(
    serving, prove
):
    status, found = prove(serving("greedy"), "--samples", "12", "--json")
    assert status == 1
    assert 0 < found["greedy"]["num_differing"] <= found["greedy"]["num_tokens"]
    assert prove(serving("one"), "--samples", "12", "--json")[1]["settings"]["n"] == 1


def test_answers_without_logprobs_change_no_verdict(serving, prove):
    status, found = prove(serving("seldom"), "--json")
    assert (status, found["against"]) == (0, "its own logprobs (stated before temperature)")


def test_a_server_without_completions_is_refused_and_one_that_never_ends_leaves_it_undecided(
    serving, prove, monkeypatch
):
    status, said = prove(serving("none"), "--samples", "12")
    assert (status, "does not answer as a completions server" in said) == (2, True)
    server = serving("slow")
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + 60 * server.slow.is_set()
    )  # the minute is over at once
    for module in ("plan", "server"):
        monkeypatch.setattr(f"naive_speculate.tools.prove.{module}.time", clock)
    status, said = prove(server, "--max-seconds", "60")
    assert (status, "it stopped after 60 s" in said) == (3, True)


def test_a_busy_server_is_waited_for_as_it_says_and_a_long_wait_names_the_file_to_go_on_from(
    serving, prove
):
    server, quick = serving("busy"), ("--samples", "12", "--temperatures", "1")
    status, found = prove(server, *quick, "--json")
    assert (status, server.num_early) == (0, 0)
    fields = found["settings"]["body"]
    assert fields == {"top_k": -1, "min_p": 0}, "no refusal was taken for that of a field"
    server = serving("away")
    status, said = prove(server, *quick)
    assert (status, server.num_posts, said.count("\n")) == (2, 1, 1)
    assert "is busy (status 503)" in said
    assert "86400 s: run the same command later; with --work FILE" in said


def test_a_stopped_run_is_undecided_and_continues_from_its_file(serving, prove, tmp_path):
    work, server = ["--work", str(tmp_path / "work.jsonl"), "--samples", "30"], serving()
    status, said = prove(server, "--max-requests", "1")  # before anything was sampled
    assert (status, "0 of 0 tests of token frequencies differ.\n" in said) == (3, True)
    status, said = prove(server, *work, "--max-requests", "10")
    assert status == 3
    assert "Undecided: no difference found so far, but it stopped after 10 requests" in said
    assert "more tests have too few samples" in said
    assert " 0.000 to 1.000 " not in said  # the interval of a test without samples
    before = server.num_requests
    status, found = prove(server, *work, "--json")
    assert status == 0
    lines = (tmp_path / "work.jsonl").read_text().splitlines()
    assert len(lines) - 1 == 10 + found["cost"]["num_requests"] < before + server.num_requests
    status, said = prove(server, *work, "--seed", "2")
    assert (status, "holds answers to other settings" in said) == (2, True)


def test_a_server_without_logprobs_needs_a_reference(serving, prove):
    server = serving("silent")
    status, said = prove(server)
    assert (
        status,
        "reports no logprobs: give a local copy of the model with --reference" in said,
    ) == (2, True)
    assert prove(server, "--samples", "30", "--reference", str(DRAFT))[0] == 0


def test_logprobs_that_are_left_out_in_steps_with_drafts_are_asked_for_by_prefix(serving, prove):
    quick = ("--samples", "150", "--temperatures", "1", "--json")
    status, found = prove(serving("hides"), *quick)
    assert (status, found["greedy"]["num_differing"], found["greedy"]["num_left_out"]) == (0, 0, 0)
    assert found["drafted"]["known"]
    assert found["drafted"]["num_tokens"] > 200
    assert 0 < found["drafted"]["smallest_bias"] < 0.4
    status, found = prove(serving("hides, biased"), *quick)
    assert status == 1
    differing = {test["name"] for test in found["tests"] if test["differs"]}
    assert any(name.endswith(("position 2", "position 3")) for name in differing)


def test_tokens_of_one_text_that_are_merged_are_refused_and_a_shorter_list_is_not(serving, prove):
    quick = ("--samples", "30", "--temperatures", "1")
    status, said = prove(serving("merges"), *quick)
    assert (status, said.count("\n"), "merges tokens of one text" in said) == (2, 1, True)
    status, found = prove(serving("caps"), *quick, "--json")
    assert (status, found["greedy"]["num_left_out"]) == (0, 0)
    assert found["greedy"]["num_tokens"] > 0


def test_the_page_fits_80_columns(serving, prove, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, said = prove(serving(), "--samples", "30", "--concurrency", "16")
    begin = said.index("test ")
    rows = said[begin : said.index("  T: temperature")].splitlines()
    assert rows[0].split()[-1] == "finds"
    assert all(len(row) <= 80 and "…" not in row for row in rows)
    assert all(row.split()[-1].startswith(("0.", "1.")) for row in rows[1:])
    assert "a bias in them from" in said


def test_in_a_terminal_a_line_breaks_between_words(serving, prove, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, said = prove(serving(), "--samples", "12", "--concurrency", "16")
    lines = [line.rstrip() for line in Text.from_ansi(said).plain.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  A correct server raises any alarm") for line in lines)
    assert any(line.endswith("(Holm, 9") and len(line) < 80 for line in lines)


def test_a_recorded_answer_may_have_any_line_separator(tmp_path):
    settings = Settings("u", "m", {}, ("p",), (1.0,), 1, 1, 1, 3, 1)
    answer = Answer("a\u2028b\u2029c\x85d", ("a\u2028b",), ((("a\u2028b", -0.5),),), False)
    record = Record(tmp_path / "work.jsonl", settings)
    record.add(next(requests(settings)), [answer])
    record.add_stated((0, 1.0, ("a\u2028",)), (("b\x85", -0.5),))
    again = Record(tmp_path / "work.jsonl", settings)
    assert again.answers == {0: [answer]}
    assert again.stated == {(0, 1.0, ("a\u2028",)): (("b\x85", -0.5),)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--endpoint", "http://127.0.0.1:9/v1", "--model", "m"],
            "http://127.0.0.1:9/v1/completions cannot be reached",
        ),
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
