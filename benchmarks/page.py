"""The cost of the page: the decoder's speed alone, with clients that read slowly, and with a
browser on the same cores.

    python -m benchmarks.page [--tokens 400] [--runs 30] [--only-smooth]

Prints, for the bundled pair: tokens per second in each case and its share of the speed alone,
the time from a click on Run to the first token on the screen, events per second in the browser,
and the longest task of the page's own scripts, charts included. Then the smoothness of a live
run of 1,000 tokens, and the loading time on a phone: a processor four times as slow, 1.6 Mbit/s
and 150 ms to the server, as in Lighthouse.

The server is this process, so that the same decoder is measured alone and serving: two processes
with the same weights can differ by a third. Clients and browser run in another process.
"""

import argparse
import itertools
import json
import os
import re
import secrets
import shutil
import statistics
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gradio as gr
from playwright.sync_api import Page, sync_playwright

from benchmarks.load import Asked, begin, post
from benchmarks.server import free_port
from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.infer.memory import settle_memory
from naive_speculate.infer.threads import share_cores
from naive_speculate.serving import LocalEngine
from ui.host.catalog import load_catalog
from ui.host.configuration import read_configuration
from ui.page import build_page, launch
from ui.run.runs import Runs

Measure = Callable[[int], float]
"""Tokens per second of a seed's run."""

PROMPT = "Once upon a time there was a king who had three daughters"
SLOW_BYTES, SLOW_SECONDS = 16384, 0.1
PHONE_NETWORK = {
    "offline": False,
    "latency": 150,
    "downloadThroughput": 200_000,
    "uploadThroughput": 94_000,
}
PHONE_SLOWNESS = 4
LONG_RUN = 1000
SLOWEST = 100
"""A speed that the decoder always reaches; after the corresponding time the rest is read at
once."""

LONG_MS = 50
"""Longest task that a visitor does not notice."""
WATCH = """
new PerformanceObserver((list) => {
  for (const frame of list.getEntries()) {
    const ours = frame.scripts.filter((script) => script.sourceURL.includes("/scripts-"));
    const longest = Math.max(0, ...ours.map((script) => script.duration));
    window.longest = Math.max(window.longest, longest);
    window.slow.push(longest);
  }
}).observe({ type: "long-animation-frame" });
(function count() { window.frames_ += 1; requestAnimationFrame(count); })();
const clicked = () => { window.clicked = performance.now(); };
document.querySelector("#run").addEventListener("click", clicked, true);
new MutationObserver(() => {
  if (window.first) return;
  const stage = document.querySelector(".ns-stage");
  const judged = "#tokens :is([data-kind=accepted], [data-kind=resampled], [data-kind=bonus])";
  if (stage.dataset.run === window.before || !stage.querySelector(judged)) return;
  window.first = performance.now();
}).observe(document.querySelector("#tokens"), { childList: true, subtree: true, attributes: true });
"""
NEXT = """
Object.assign(window, { slow: [], frames_: 0, longest: 0, first: 0 });
window.before = document.querySelector(".ns-stage").dataset.run;
"""


def alone(decoder: SpeculativeDecoder, tokens: int, seed: int) -> float:
    """Tokens per second of the decoder alone, on the same run."""
    params = SamplingParams(temperature=0.7, max_tokens=tokens, seed=seed)
    events = list(decoder.stream(PROMPT, params))
    return float((events[-1].metrics or {})["tokens_per_second"])


def read_slowly(url: str, tokens: int) -> float:
    """The decoder's tokens per second from the last event of a stream that is read at about 160
    kB/s."""
    received = b""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        while piece := answer.read1(SLOW_BYTES):
            received += piece
            if time.perf_counter() - began < tokens / SLOWEST:
                time.sleep(SLOW_SECONDS)
            elif b"process_completed" in received:
                break
    return float(re.findall(rb'tokens_per_second[\\"]+: ?([0-9.]+)', received)[-1])


def slow_program(url: str, tokens: int, seed: int) -> float:
    """The decoder's tokens per second for a program that reads slowly."""
    return read_slowly(begin(url, PROMPT, seed, Asked(tokens, 0.7, 5)), tokens)


def slow_page(url: str, tokens: int, seed: int) -> float:
    """The decoder's tokens per second for a page that reads slowly: a browser's calls, without a
    browser."""
    with urllib.request.urlopen(f"{url}config") as answer:
        config = json.load(answer)
    props = {component["id"]: component["props"] for component in config["components"]}
    run = next(d for d in config["dependencies"] if d["api_name"] == "_decode")
    wanted = {"prompt": PROMPT, "max-tokens": tokens, "seed": seed}
    data = [
        wanted.get(props[input].get("elem_id"), props[input].get("value"))
        for input in run["inputs"]
    ]
    session = secrets.token_hex(8)
    post(
        f"{url}gradio_api/queue/join",
        {"data": data, "fn_index": run["id"], "session_hash": session},
    )
    return read_slowly(f"{url}gradio_api/queue/data?session_hash={session}", tokens)


@cache
def open_browser(url: str) -> Page:
    """The page in Chromium, for the life of this process."""
    playwright = sync_playwright().start()
    chromium = playwright.chromium.launch(
        executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
    )
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(180_000)
    page.goto(url)
    page.locator("#tokens [data-step]").first.wait_for()
    page.locator(".ns-stage[data-state=done]").wait_for()
    page.get_by_role("button", name="More").click()
    page.evaluate(NEXT + WATCH)
    return page


def browser(url: str, tokens: int, seed: int, *, to_the_end: bool = False) -> dict[str, Any]:
    """The figures of one run on the page; with `to_the_end` it continues after the end of the
    text."""
    page = open_browser(url)
    page.get_by_label("Ignore the end token").set_checked(to_the_end)
    for name, value in (("max-tokens", tokens), ("seed", seed)):
        field = page.locator(f"#{name} input").first
        field.fill(str(value))
        field.press("Tab")
    page.evaluate(NEXT)
    began = time.perf_counter()
    page.locator("#run").click()
    page.wait_for_function("document.querySelector('.ns-stage').dataset.run !== window.before")
    page.locator(".ns-stage[data-state=done]").wait_for()
    seconds = time.perf_counter() - began
    run = page.locator(".ns-stage").get_attribute("data-run")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").strip().split("\n")
    metrics: dict[str, Any] = json.loads(lines[-1])["metrics"]
    assert run is not None
    return {
        "rate": metrics["tokens_per_second"],
        "first_ms": page.evaluate("window.first - window.clicked"),
        "events": len(lines) / seconds,
        "longest_ms": page.evaluate("window.longest"),
        "slow": page.evaluate("window.slow.length"),
        "slow_by_us": page.evaluate(f"window.slow.filter((ms) => ms > {LONG_MS}).length"),
        "frames": page.evaluate("window.frames_"),
    }


def phone(url: str) -> dict[str, float]:
    """A first visit with a phone.

    Returns:
        dict: Milliseconds until the first text and until the stage has tokens, the bytes so far,
            and whether they include the
        charts' library.
    """
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        context = chromium.new_context(
            viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
        )
        page = context.new_page()
        page.set_default_timeout(180_000)
        tools = context.new_cdp_session(page)
        received: list[float] = []
        requested_urls: list[str] = []
        tools.on("Network.dataReceived", lambda event: received.append(event["encodedDataLength"]))
        tools.on(
            "Network.requestWillBeSent",
            lambda event: requested_urls.append(event["request"]["url"]),
        )
        tools.send("Network.enable")
        tools.send("Network.emulateNetworkConditions", PHONE_NETWORK)
        tools.send("Emulation.setCPUThrottlingRate", {"rate": PHONE_SLOWNESS})
        page.goto(url, wait_until="commit")
        page.locator("#tokens [data-step]").first.wait_for()
        return {
            "ready_ms": page.evaluate("performance.now()"),
            "seen_ms": page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            ),
            "bytes": sum(received),
            "charts_too": any("plotly-cartesian" in requested for requested in requested_urls),
        }


def in_turn(
    ways: Mapping[str, Measure], seeds: Sequence[int], warm: Measure
) -> dict[str, list[float]]:
    """Each way's figure for each seed, one seed after the other, since a machine's speed changes
    over minutes.

    The decoder runs alone before each, since its caches are cold after a slow client.
    """
    found: dict[str, list[float]] = {way: [] for way in ways}
    for seed in seeds:
        for way, measure in ways.items():
            warm(seed)
            found[way].append(measure(seed))
    return found


def long_texts(decoder: SpeculativeDecoder, tokens: int, count: int) -> list[int]:
    """The first seeds with texts of at least `tokens` tokens."""

    def is_long(seed: int) -> bool:
        params = SamplingParams(temperature=0.7, max_tokens=tokens, seed=seed)
        return (
            decoder.generate(PROMPT, params, detail="none").metrics.num_generated_tokens == tokens
        )

    return list(itertools.islice(filter(is_long, itertools.count()), count))


def serve() -> tuple[str, SpeculativeDecoder, gr.Blocks]:
    """Start the page like `app.py`; returns its address, its decoder and itself."""
    share_cores()
    catalog = load_catalog(
        read_configuration(os.environ | {"NAIVE_SPECULATE_PAIRS": "bundled"}, {"device": "cpu"})
    )
    page = build_page(catalog, Runs())
    catalog.warm_up()
    settle_memory()
    url = launch(page, 32, server_port=free_port(), quiet=True)
    engine = next(iter(catalog.pairs.values())).engine
    assert isinstance(engine, LocalEngine)
    return url, engine.decoder, page


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument(
        "--runs", type=int, default=30, help="with slow clients; a browser gets a quarter of them"
    )
    parser.add_argument(
        "--only-smooth", action="store_true", help="only the long run and the phone"
    )
    args = parser.parse_args()
    url, decoder, page = serve()
    if not args.only_smooth:
        rates(url, decoder, args.tokens, args.runs)
    smoothness(url)
    page.close(verbose=False)


def smoothness(url: str) -> None:
    """Print the smoothness of a long run and the loading time on a phone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:
        run = clients.submit(browser, url, LONG_RUN, 1, to_the_end=True).result()
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:
        visit = clients.submit(phone, url).result()
    print(
        f"{LONG_RUN} tokens live: {run['slow']:.0f} of {run['frames']:.0f} frames over"
        f" {LONG_MS} ms,"
    )
    print(
        f"{run['slow_by_us']:.0f} of them by a task of our scripts; the longest took"
        f" {run['longest_ms']:.0f} ms"
    )
    print(f"a phone's first words            {visit['seen_ms']:7.0f} ms")
    print(
        f"a phone's stage                  {visit['ready_ms']:7.0f} ms, after"
        f" {visit['bytes'] / 1000:.0f} kB",
        end=" ",
    )
    print("with the charts' library" if visit["charts_too"] else "without the charts' library")


def rates(url: str, decoder: SpeculativeDecoder, tokens: int, runs: int) -> None:
    """Print the decoder's speed with clients, and the figures of the browser."""
    seeds = long_texts(decoder, tokens, runs)
    seen: list[dict[str, Any]] = []
    with ProcessPoolExecutor(1, get_context("spawn")) as clients:

        def watched(seed: int) -> float:
            seen.append(clients.submit(browser, url, tokens, seed).result())
            return seen[-1]["rate"]

        def without(seed: int) -> float:
            return alone(decoder, tokens, seed)

        slow = {
            "decoder alone": without,
            "with a page that reads slowly": (
                lambda seed: clients.submit(slow_page, url, tokens, seed).result()
            ),
            "a program that reads slowly": (
                lambda seed: clients.submit(slow_program, url, tokens, seed).result()
            ),
        }
        with_browser = {"decoder alone": without, "with Chromium on the same cores": watched}
        for measure in (*slow.values(), *with_browser.values()):  # the clients' first time
            measure(seeds[0])
        seen.clear()
        tables = [
            in_turn(slow, seeds, without),
            in_turn(with_browser, seeds[: max(1, len(seeds) // 4)], without),
        ]
    print(f"{os.cpu_count()} cores, {runs} runs of {tokens} tokens, {len(seen)} in Chromium;")
    print("medians of rates, and of shares run by run")
    for found in tables:
        for way, values in found.items():
            share = statistics.median(
                rate / base for rate, base in zip(values, found["decoder alone"], strict=True)
            )
            print(f"{way:33}{statistics.median(values):7.0f} tokens/s ({share:.0%})")
    print(
        "click to first token            "
        f" {statistics.median(run['first_ms'] for run in seen):7.0f} ms"
    )
    print(
        f"events to the browser            {statistics.median(run['events'] for run in seen):7.0f}"
        " per second"
    )
    print(f"longest task of our scripts      {max(run['longest_ms'] for run in seen):7.0f} ms")


if __name__ == "__main__":
    main()
