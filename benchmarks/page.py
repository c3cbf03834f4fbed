"""What the page costs: the decoder's speed alone, with a client that reads slowly, and with a browser on the same cores.

    python -m benchmarks.page [--tokens 400] [--runs 3]

Prints, for the bundled pair: tokens a second in each case and its share of the speed alone, the time from a click on Run to
the first token on the screen, events a second that reached the browser, and the longest frame of the page's own scripts.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import statistics
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.server import Server
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.cores import leave_cores_to, share_cores

PROMPT = "Once upon a time there was a king who had three daughters"
SLOW_BYTES, SLOW_SECONDS = 4096, 0.1

WATCH = """
window.longest = 0; window.first = 0;
new PerformanceObserver((list) => {
  const ours = list.getEntries().flatMap((frame) => frame.scripts)
    .filter((script) => ["draw", "drawOne", "receive"].includes(script.sourceFunctionName));
  window.longest = Math.max(window.longest, ...ours.map((script) => script.duration));
}).observe({ type: "long-animation-frame" });
document.querySelector("#run").addEventListener("click", () => { window.clicked = performance.now(); }, true);
new MutationObserver(() => {
  const stage = document.querySelector(".ns-stage");
  const judged = "#tokens :is([data-kind=accepted], [data-kind=resampled], [data-kind=bonus])";
  if (!window.first && stage.dataset.run !== window.before && stage.querySelector(judged)) window.first = performance.now();
}).observe(document.querySelector("#tokens"), { childList: true, subtree: true, attributes: true });
window.before = document.querySelector(".ns-stage").dataset.run;
"""


def alone(decoder: SpeculativeDecoder, tokens: int, seed: int) -> float:
    """Tokens a second of the decoder with nobody watching, of the same run that the others ask for."""
    params = SamplingParams(temperature=0.7, max_tokens=tokens, seed=seed)
    events = list(decoder.stream(PROMPT, params))
    return float((events[-1].metrics or {})["tokens_per_second"])


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """The server's answer to a call."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def read_slowly(url: str) -> float:
    """The decoder's tokens a second, told by the last event of a stream of which some 40 kB are read a second."""
    received = b""
    with urllib.request.urlopen(url) as answer:
        while piece := answer.read1(SLOW_BYTES):
            received += piece
            if b"process_completed" in received:
                break
            time.sleep(SLOW_SECONDS)
    return float(re.findall(rb'tokens_per_second[\\"]+: ?([0-9.]+)', received)[-1])


def slow_program(url: str, tokens: int, seed: int) -> float:
    """Tokens a second that the server's decoder reaches for a program that reads slowly."""
    asked = post(f"{url}gradio_api/call/generate", {"data": [PROMPT, tokens, 0.7, 1.0, seed, 5, "speculative_sampling"]})
    return read_slowly(f"{url}gradio_api/call/generate/{asked['event_id']}")


def slow_page(url: str, tokens: int, seed: int) -> float:
    """The same for a page that reads slowly: the calls that a browser makes, without a browser."""
    with urllib.request.urlopen(f"{url}config") as answer:
        config = json.load(answer)
    props = {component["id"]: component["props"] for component in config["components"]}
    run = next(d for d in config["dependencies"] if d["api_name"] == "_decode")
    wanted = {"prompt": PROMPT, "max-tokens": tokens, "seed": seed}
    data = [wanted.get(props[input].get("elem_id"), props[input].get("value")) for input in run["inputs"]]
    session = secrets.token_hex(8)
    post(f"{url}gradio_api/queue/join", {"data": data, "fn_index": run["id"], "session_hash": session})
    return read_slowly(f"{url}gradio_api/queue/data?session_hash={session}")


def browser(page: Page, tokens: int, seed: int) -> dict[str, float]:
    """One run on the page."""
    for name, value in (("max-tokens", tokens), ("seed", seed)):
        field = page.locator(f"#{name} input").first
        field.fill(str(value))
        field.press("Tab")
    page.evaluate(WATCH)
    began = time.perf_counter()
    page.locator("#run").click()
    page.wait_for_function("document.querySelector('.ns-stage').dataset.run !== window.before")
    page.locator(".ns-stage[data-state=done]").wait_for()
    seconds = time.perf_counter() - began
    run = page.locator(".ns-stage").get_attribute("data-run")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save trace").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    metrics: dict[str, Any] = json.loads(lines[-1])["metrics"]
    assert run is not None
    return {
        "rate": metrics["tokens_per_second"],
        "first_ms": page.evaluate("window.first - window.clicked"),
        "events": len(lines) / seconds,
        "longest_ms": page.evaluate("window.longest"),
    }


def repeat(runs: int, measure: Callable[[int], float]) -> float:
    """The median over seeds."""
    return statistics.median(measure(seed) for seed in range(runs))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    share_cores()  # as the app does, which it is compared with
    decoder = SpeculativeDecoder(load_pair(device="cpu"))
    leave_cores_to(decoder.pair.target)
    alone(decoder, 64, 0)
    headless = repeat(args.runs, lambda seed: alone(decoder, args.tokens, seed))
    with Server() as server:
        url = server.url
        slow = repeat(args.runs, lambda seed: slow_page(url, args.tokens, seed))
        program = repeat(args.runs, lambda seed: slow_program(url, args.tokens, seed))
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = chromium.new_page(viewport={"width": 1440, "height": 900})
            page.goto(url)
            page.locator("#tokens [data-step]").first.wait_for()
            page.locator("#chart-speedup .main-svg").first.wait_for(state="attached")
            seen = [browser(page, args.tokens, seed) for seed in range(args.runs)]
            chromium.close()
    watched = statistics.median(run["rate"] for run in seen)
    print(f"{os.cpu_count()} cores, median of {args.runs} runs of {args.tokens} tokens")
    print(f"decoder alone                {headless:8.1f} tokens/s")
    print(f"with a page that reads slowly {slow:7.1f} tokens/s ({slow / headless:.0%})")
    print(f"a program that reads slowly  {program:8.1f} tokens/s ({program / headless:.0%})")
    print(f"with Chromium on the same cores {watched:5.1f} tokens/s ({watched / headless:.0%})")
    print(f"click to first token         {statistics.median(run['first_ms'] for run in seen):8.0f} ms")
    print(f"events to the browser        {statistics.median(run['events'] for run in seen):8.0f} a second")
    print(f"longest of our scripts' turns {max(run['longest_ms'] for run in seen):7.0f} ms")


if __name__ == "__main__":
    main()
