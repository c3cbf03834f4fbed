"""The cost of the page: the decoder's speed alone, with clients that read slowly, and with a
browser on the same cores.

    python -m benchmarks.page [--tokens 400] [--runs 30] [--only-smooth]

Prints, for the bundled pair: tokens per second in each case and its share of the speed alone,
the time from a click on Run to the first token on the screen, events per second in the browser,
and the longest task of the page's own scripts. Then the smoothness of a live run of 1,000 tokens,
and the loading time on a phone, which `--only-smooth` measures alone. A browser gets a quarter of
the runs. The server is this process, so that the same decoder is measured alone and serving: two
processes with the same weights can differ by a third. Clients run in another process.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from statistics import median
from typing import Any

from benchmarks.browser import browser, smoothness
from benchmarks.clients import slow_page, slow_program
from benchmarks.measuring import options_of
from benchmarks.served import serve
from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.tools.bench.measure import in_turn

PROMPT = "Once upon a time there was a king who had three daughters"


def rates(url: str, decoder: SpeculativeDecoder, tokens: int, runs: int) -> None:
    """Print the decoder's speed with clients, and the figures of the browser."""

    def alone(seed: int) -> Any:
        params = SamplingParams(temperature=0.7, max_tokens=tokens, seed=seed)
        return decoder.generate(PROMPT, params, detail="full").metrics

    long = (seed for seed in count() if alone(seed).num_generated_tokens == tokens)
    seeds, reports = list(islice(long, runs)), list[dict[str, Any]]()
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:

        def watched(seed: int) -> float:
            reports.append(clients.submit(browser, url, tokens, seed).result())
            return float(reports[-1]["rate"])

        def after_alone(measure: Any, seed: int) -> float:
            alone(seed)  # the decoder's caches are cold after a slow client
            return float(measure(seed))

        def slowly(client: Any) -> Any:
            return lambda seed: clients.submit(client, url, PROMPT, tokens, seed).result()

        kinds = {
            "decoder alone": lambda seed: alone(seed).tokens_per_second,
            "with a page that reads slowly": slowly(slow_page),
            "a program that reads slowly": slowly(slow_program),
            "with Chromium on the same cores": watched,
        }
        ways = {name: partial(after_alone, kind) for name, kind in kinds.items()}
        first, *others, last = ways
        slow, live = ({name: ways[name] for name in (first, *some)} for some in (others, [last]))
        list(in_turn(ways, seeds[:1]))  # the clients' first time
        reports.clear()
        tables = [list(in_turn(slow, seeds)), list(in_turn(live, seeds[: max(1, runs // 4)]))]
    print(f"{os.cpu_count()} cores, {runs} runs of {tokens} tokens, {len(reports)} in Chromium;")
    print("medians of rates, and of shares run by run")
    for table in tables:
        for way in table[0]:
            share = median(run[way] / run["decoder alone"] for run in table)
            print(f"{way:33}{median(run[way] for run in table):7.0f} tokens/s ({share:.0%})")
    print(f"click to first token             {median(run['first_ms'] for run in reports):7.0f} ms")
    print(f"events to the browser {median(run['events'] for run in reports):18.0f} per second")
    print(f"longest task of our scripts      {max(run['longest_ms'] for run in reports):7.0f} ms")


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, tokens=400, runs=30, only_smooth=False)
    url, decoder, page = serve()
    if not options.only_smooth:
        rates(url, decoder, options.tokens, options.runs)
    smoothness(url)
    page.close(verbose=False)


if __name__ == "__main__":
    main()
