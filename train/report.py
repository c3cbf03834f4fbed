"""The last table: what a drafter gains on held-out prompts, measured by decoding them."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair

NUM_PROMPTS, MAX_TOKENS = 8, 96
WINDOWS = (3, 5)


def report(target: str, kind: str, folder: Path, held_out: Sequence[list[int]], device: str) -> None:
    """Decode held-out prompts without and with the drafter, alternating, and print a table."""
    pair = load_pair(target, *((folder, None) if kind == "model" else (None, folder)), device=device)
    decoder = SpeculativeDecoder(pair)
    prompts = random.Random(0).sample(held_out, min(NUM_PROMPTS, len(held_out)))
    table = Table(title=f"{kind} of {target}: {len(prompts)} held-out prompts, {torch.get_num_threads()} threads")
    for heading in ("temperature", "draft tokens", "tokens per target pass", "alpha", "tokens/s", "times plain", "same text"):
        table.add_column(heading, justify="right")
    for temperature in (0.0, 1.0):
        sums: dict[int, list[float]] = {k: [0.0] * 5 for k in (0, *WINDOWS)}
        same = dict.fromkeys(WINDOWS, 0)
        for number, prompt in enumerate(prompts):
            params = SamplingParams(temperature=temperature, max_tokens=MAX_TOKENS, seed=number)
            texts = {}
            for k in sums:
                began = time.perf_counter()
                result = decoder.generate(prompt, params, num_draft_tokens=k, drafter=kind)
                taken, m = time.perf_counter() - began, result.metrics
                texts[k] = result.token_ids
                kept = m.num_accepted_draft_tokens
                counted = (len(result.token_ids), m.num_spec_steps, kept, kept + m.num_rejected_draft_tokens, taken)
                sums[k] = [a + b for a, b in zip(sums[k], counted, strict=True)]
            for k in WINDOWS:
                same[k] += texts[k] == texts[0]
        plain = sums[0][0] / sums[0][4]
        for k, (tokens, steps, accepted, judged, taken) in sums.items():
            alpha = f"{accepted / judged:.2f}" if judged else "–"
            equal = f"{same[k]} of {len(prompts)}" if k and not temperature else "–"
            row = (f"{temperature:g}", str(k), f"{tokens / steps:.2f}", alpha, f"{tokens / taken:.1f}")
            table.add_row(*row, f"{tokens / taken / plain:.2f}", equal)
    Console().print(table)
