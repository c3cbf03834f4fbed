"""The last table: what a drafter gains on held-out prompts, measured by decoding them."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.tools.bench.measure import decode_all, lines_of, our_way
from naive_speculate.tools.tables import table

NUM_PROMPTS, MAX_TOKENS = 8, 96
WINDOWS = (3, 5)


def report(
    target: str, kind: str, folder: Path, held_out: Sequence[list[int]], device: str
) -> None:
    """Decode held-out prompts without and with the drafter, alternating, and print a table;
    speeds are medians, their ratios geometric means."""
    pair = load_pair(
        target, *((folder, None) if kind == "model" else (None, folder)), device=device
    )
    decoder = SpeculativeDecoder(pair)
    prompts = random.Random(0).sample(held_out, min(NUM_PROMPTS, len(held_out)))
    rows = []
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, max_tokens=MAX_TOKENS)
        ways = [our_way(decoder, k, params, pair.default_drafter) for k in (0, *WINDOWS)]
        for line in lines_of(ways, decode_all(ways, prompts)):
            compared = line.num_draft_tokens and not temperature
            rows.append(
                {
                    "temperature": f"{temperature:g}",
                    "draft tokens": str(line.num_draft_tokens),
                    "tokens per target pass": f"{line.tokens_per_step:.2f}",
                    "alpha": "–" if line.alpha is None else f"{line.alpha:.2f}",
                    "tokens/s": f"{line.tokens_per_second:.1f}",
                    "times plain": f"{line.over_plain:.2f}",
                    "same text": f"{round(line.same_as_plain * len(prompts))} of {len(prompts)}"
                    if compared
                    else "–",
                }
            )
    title = (
        f"{kind} of {target}: {len(prompts)} held-out prompts, {torch.get_num_threads()} threads"
    )
    Console().print(table(rows, title=title))
