"""The decoder's own time per step, without the models' forwards.

    python -m benchmarks.steps [--tokens 200] [--runs 9]

Prints median milliseconds per step for the bundled pair in ONNX Runtime: outside ONNX Runtime's
calls and inside. The same steps with the draft model as target separate the work itself from the
cost of cold processor caches after a larger target.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnxruntime

from benchmarks.measuring import options_of
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models.threads import leave_cores_to, num_threads
from naive_speculate.pair import BUNDLED_PAIR
from ui.host.measuring import machine_name

PROMPT = "Once upon a time there was a king"
KINDS = [
    ("none", 0, 0.0),
    ("none", 4, 0.0),
    ("full", 4, 0.0),
    ("none", 0, 1.0),
    ("none", 4, 1.0),
    ("full", 4, 1.0),
]
"""Detail of the events, draft tokens per step, temperature."""


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Seconds of ONNX Runtime's calls so far, as the only entry of a list."""
    seconds = [0.0]
    run = onnxruntime.InferenceSession.run_with_iobinding

    def timed(session: Any, *inputs: Any) -> None:
        began = time.perf_counter()
        run(session, *inputs)
        seconds[0] += time.perf_counter() - began

    onnxruntime.InferenceSession.run_with_iobinding = timed
    try:
        yield seconds
    finally:
        onnxruntime.InferenceSession.run_with_iobinding = run


def step(
    decoder: SpeculativeDecoder, tokens: int, detail: str, k: int, temperature: float
) -> tuple[float, float]:
    """Milliseconds per step of one run, outside ONNX Runtime and inside, from the first step's
    end to the last one's."""
    params = SamplingParams(max_tokens=tokens, temperature=temperature, seed=1, ignore_eos=True)
    ends, inside = [], []
    with stopwatch() as seconds:
        options: Any = {"num_draft_tokens": k, "detail": detail, "drafter": "model"}
        for event in decoder.stream(PROMPT, params, **options):
            if event.kind == "step":
                ends.append(time.perf_counter())
                inside.append(seconds[0])
    count, called = len(ends) - 1, (inside[-1] - inside[0]) * 1e3
    return ((ends[-1] - ends[0]) * 1e3 - called) / count, called / count


def measure(title: str, pair: ModelPair, tokens: int, runs: int) -> None:
    """Print a line for each kind of step."""
    leave_cores_to(pair.target)
    decoder = SpeculativeDecoder(pair)
    print(f"\n{title}")
    for detail, k, temperature in KINDS:
        seconds = [step(decoder, tokens, detail, k, temperature) for _ in range(runs + 1)][1:]
        own, called = (statistics.median(values) for values in zip(*seconds, strict=True))
        print(
            f"detail {detail:5} k = {k}  temperature {temperature:.0f}   own {own:.2f} ms   models"
            f" {called:.2f} ms"
        )


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, tokens=200, runs=9)
    print(
        f"{machine_name('cpu')}, {num_threads()} threads, medians of {options.runs} runs of"
        f" {options.tokens} tokens"
    )
    measure("the bundled pair", load_pair(device="cpu"), options.tokens, options.runs)
    draft = BUNDLED_PAIR / "draft"
    both = load_pair(draft, draft, device="cpu")
    measure("its draft model as target and draft", both, options.tokens, options.runs)


if __name__ == "__main__":
    main()
