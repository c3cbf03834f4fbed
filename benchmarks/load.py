"""Load on the hosted page: many clients at once over HTTP, then many runs one after another.

    python -m benchmarks.load [--target smollm2] [--clients 50] [--tokens 96] [--runs 500]
        [--temperature 0.7] [--num-draft-tokens 5]

Starts `app.py` on a free port, with the bundled pair or a target. All clients send their own
prompt and seed to `/generate` at the same moment; each text must equal that of a single run.
Prints tokens per second of all together and of one client alone, the time to the first token
(median and 95th percentile), and the number of lost or wrong answers; then the server's memory
over the runs, and its shutdown time.
"""

import argparse
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.server import Server
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.arguments import print_for_people

BEGINNINGS = (
    "Once upon a time there was a {} who",
    "The {} looked out of the window and",
    "In the middle of the forest a {}",
    "Early in the morning the {}",
    "There was nobody who knew the {}",
)
HEROES = ("king", "fox", "sailor", "widow", "miller", "giant", "child", "wolf", "queen", "tailor")
WARM_RUNS = 50


@dataclass(frozen=True)
class Answer:
    """One client's run."""

    text: str
    tokens: int
    first_token: float | None
    seconds: float
    finished: bool


def prompt_of(client: int) -> str:
    """A different prompt for each of up to fifty clients."""
    return BEGINNINGS[client % len(BEGINNINGS)].format(
        HEROES[client // len(BEGINNINGS) % len(HEROES)]
    )


@dataclass(frozen=True)
class Asked:
    """What every client asks for."""

    tokens: int
    temperature: float
    num_draft_tokens: int


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The server's answer to a call."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def begin(url: str, prompt: str, seed: int, asked: Asked) -> str:
    """Start a run as a program would; returns the address of its events."""
    call = f"{url}gradio_api/call/generate"
    answer = post(
        call, {"data": [prompt, asked.tokens, asked.temperature, 1.0, seed, asked.num_draft_tokens]}
    )
    return f"{call}/{answer['event_id']}"


def ask(url: str, prompt: str, seed: int, asked: Asked) -> Answer:
    """One run over HTTP, as a program would make it."""
    began = time.perf_counter()
    first, text, count, finished = None, "", 0, False
    with urllib.request.urlopen(begin(url, prompt, seed, asked), timeout=300) as answer:
        for events in lists(answer):
            for event in events:
                if event["kind"] in ("accepted", "resampled", "bonus"):
                    first = first or time.perf_counter() - began
                    text += event["text"]
                    count += 1
                finished = finished or event["kind"] == "finished"
    return Answer(text, count, first, time.perf_counter() - began, finished)


def lists(answer: Iterator[bytes]) -> Iterator[list[dict[str, Any]]]:
    """The lists of events in a stream of server-sent events."""
    generating = False
    for line in answer:
        if line.startswith(b"event:"):
            generating = line.split(b":", 1)[1].strip() == b"generating"
        elif line.startswith(b"data:") and generating:
            yield json.loads(line[5:])[0]


def crowd(url: str, clients: int, asked: Asked) -> tuple[list[Answer | None], float]:
    """All clients at the same moment; returns their answers, None for lost ones, and the seconds
    until the last."""
    gate = threading.Barrier(clients)

    def one(client: int) -> Answer | None:
        gate.wait()
        try:
            answer = ask(url, prompt_of(client), client, asked)
        except OSError:
            return None
        return answer if answer.finished else None

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(one, range(clients)))
    return answers, time.perf_counter() - began


def late(ordered: Sequence[float]) -> float:
    """The 95th percentile of figures in order."""
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def memory(process: int) -> float:
    """Resident memory of the server, in MiB."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the server has ended")


def end_with_a_run(server: Server, asked: Asked) -> float:
    """Seconds from SIGTERM until the server ends, during a run."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, server.url, prompt_of(0), 0, replace(asked, tokens=900))  # it is cut off
        while True:
            with urllib.request.urlopen(server.url + "health") as answer:
                if json.load(answer)["running"]:
                    return server.end()


def solo_texts(target: str | None, clients: int, asked: Asked) -> list[str]:
    """The expected text of each client."""
    decoder = SpeculativeDecoder(load_pair(target))
    return [
        decoder.generate(
            prompt_of(client),
            SamplingParams(temperature=asked.temperature, seed=client, max_tokens=asked.tokens),
            num_draft_tokens=asked.num_draft_tokens,
            chat=decoder.admission.has_chat_template,
        ).text
        for client in range(clients)
    ]


def main() -> None:
    """Measure and print."""
    print_for_people()
    parser = argparse.ArgumentParser(description="Load on the hosted page.")
    parser.add_argument("--target", help="the target (default: the bundled pair)")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument(
        "--runs", type=int, default=500, help="runs one after another, for the memory"
    )
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--num-draft-tokens", type=int, default=5)
    options = parser.parse_args()
    asked = Asked(options.tokens, options.temperature, options.num_draft_tokens)
    console = Console()
    expected = solo_texts(options.target, options.clients, asked)
    with Server(*([] if options.target is None else ["--target", options.target])) as server:
        url = server.url
        ask(url, prompt_of(0), 0, replace(asked, tokens=8))
        alone = [ask(url, prompt_of(client), client, asked) for client in range(5)]
        few, few_seconds = crowd(url, 8, asked)
        answers, seconds = crowd(url, options.clients, asked)
        sizes = []
        for run in track(range(options.runs), "runs one after another", console=console):
            ask(url, prompt_of(run), run, replace(asked, tokens=32))
            sizes.append(memory(server.process.pid))
        end_seconds = end_with_a_run(server, asked)
    one = statistics.median(answer.tokens / answer.seconds for answer in alone)
    firsts = sorted(
        answer.first_token for answer in answers if answer and answer.first_token is not None
    )
    rate = sum(answer.tokens for answer in answers if answer) / seconds
    few_rate = sum(answer.tokens for answer in few if answer) / few_seconds
    wrong = sum(
        answer is not None and answer.text != text
        for answer, text in zip(answers, expected, strict=True)
    )
    title = (
        f"{options.clients} clients, {asked.tokens} tokens each, T = {asked.temperature}, k ="
        f" {asked.num_draft_tokens}"
    )
    table = Table("measured", "value", title=title)
    table.add_row("one client alone", f"{one:.0f} tokens/s")
    table.add_row("8 clients together", f"{few_rate:.0f} tokens/s, {few_rate / one:.1f}× one")
    table.add_row(
        f"{options.clients} clients together", f"{rate:.0f} tokens/s, {rate / one:.1f}× one"
    )
    if firsts:
        table.add_row(
            "time to first token",
            f"p50 {statistics.median(firsts):.2f} s, p95 {late(firsts):.2f} s",
        )
    table.add_row("answers lost", str(sum(answer is None for answer in answers)))
    table.add_row("texts that differ from a single run's", str(wrong))
    if len(sizes) > WARM_RUNS:
        # Medians, since freed memory returns to the system only every ten seconds.
        before, after = statistics.median(sizes[:WARM_RUNS][-25:]), statistics.median(sizes[-50:])
        table.add_row(
            f"memory after {WARM_RUNS} and {len(sizes)} runs",
            f"{before:.0f}, {after:.0f} MiB ({after / before - 1:+.1%})",
        )
    table.add_row("from SIGTERM to the end, during a run", f"{end_seconds:.1f} s")
    console.print(table)


if __name__ == "__main__":
    main()
