"""Load on the hosted page: many clients at once over HTTP, then many runs one after another.

    python -m benchmarks.load [--target smollm2] [--clients 50] [--runs 500] [--tokens 96] …

Starts `app.py` with the bundled pair or a target. All clients send their own prompt and seed to
`/generate` at the same moment; each text must equal that of a single run. Prints tokens per second
of all and of one alone, the time to the first token, the number of lost or wrong answers, the
server's memory over the runs, and its shutdown time.
"""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.clients import Asked, ask
from benchmarks.measuring import Answer, first_tokens, options_of, output, together
from benchmarks.prompts import prompt_of
from benchmarks.server import Server
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair

WARM_RUNS = 50


def memory(process: int) -> float:
    """Resident memory of the server, in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def end_with_a_run(server: Server, asked: Asked) -> float:
    """Seconds from SIGTERM until the server ends, during a run."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, server.url, prompt_of(0), 0, replace(asked, tokens=900))  # it is cut off
        while not json.load(urllib.request.urlopen(server.url + "health"))["running"]:
            pass
        return server.end()


def solo_texts(target: str | None, clients: int, asked: Asked) -> list[str]:
    """The expected text of each client."""
    decoder = SpeculativeDecoder(load_pair(target))
    params = SamplingParams(temperature=asked.temperature, max_tokens=asked.tokens)
    chat, k = decoder.admission.has_chat_template, asked.num_draft_tokens
    decode = partial(decoder.generate, num_draft_tokens=k, chat=chat)
    return [decode(prompt_of(n), replace(params, seed=n)).text for n in range(clients)]


def main() -> None:
    """Measure and print."""
    asks: Any = {"tokens": 96, "temperature": 0.7, "num_draft_tokens": 5}
    options = options_of(__doc__, target=None, clients=50, runs=500, **asks)
    clients = options.clients
    asked = Asked(*(getattr(options, name) for name in asks))
    expected, sizes = solo_texts(options.target, clients, asked), []
    target = () if options.target is None else ("--target", options.target)
    with Server(*target) as server:

        def one(client: int, asked: Asked = asked) -> Answer:
            return ask(server.url, prompt_of(client), client, asked)

        one(0, replace(asked, tokens=8))
        alone = median(a.tokens / a.seconds for a in map(one, range(5)))
        crowds = [(number, *together(number, one)) for number in (8, clients)]
        for run in track(range(options.runs), "runs one after another", console=Console()):
            one(run, replace(asked, tokens=32))
            sizes.append(memory(server.process.pid))
        end_seconds = end_with_a_run(server, asked)
    each = f"{asked.tokens} tokens each, T = {asked.temperature}, k = {asked.num_draft_tokens}"
    table = Table("measured", "value", title=f"{clients} clients, {each}")
    table.add_row("one client alone", f"{alone:.0f} tokens/s")
    for number, answers, seconds in crowds:
        rate = sum(answer.tokens for answer in answers if answer.ended) / seconds
        table.add_row(f"{number} clients together", f"{rate:.0f} tokens/s, {rate / alone:.1f}× one")
    if firsts := first_tokens([answer for answer in answers if answer.ended]):
        table.add_row("time to first token", "p50 {:.2f} s, p95 {:.2f} s".format(*firsts))
    table.add_row("answers lost", str(sum(answer.ended is None for answer in answers)))
    texts = zip(answers, expected, strict=True)
    wrong = sum(answer.ended is not None and answer.text != text for answer, text in texts)
    table.add_row("texts that differ from a single run's", str(wrong))
    if len(sizes) > WARM_RUNS:
        # Medians, since freed memory returns to the system only every ten seconds.
        before, after = median(sizes[:WARM_RUNS][-25:]), median(sizes[-50:])
        row = f"memory after {WARM_RUNS} and {len(sizes)} runs"
        table.add_row(row, f"{before:.0f}, {after:.0f} MiB ({after / before - 1:+.1%})")
    table.add_row("from SIGTERM to the end, during a run", f"{end_seconds:.1f} s")
    output(100).print(table)


if __name__ == "__main__":
    main()
