"""What an engine does where the target is its own draft: windows are often accepted whole, and the
token after them is tested."""

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks.engines.compare import COPIES
from benchmarks.engines.models import GREEDY_TOKENS, PROMPT, VOCAB
from benchmarks.engines.running import Running
from benchmarks.engines.serve import Answer, Ask
from naive_speculate.tools.goodness import holm, rank_test, samples_needed, smallest_bias

K = 3
SMALLEST = 0.2  # smallest bias worth finding
ERROR_RATE = 0.001
TOKENS = 8  # that are tested: two whole steps
COLD = 0.01  # a temperature at which the most probable token is nearly certain


def full_steps(engine: Running) -> dict[str, dict[str, int]]:
    """Passes of the target for a text whose draft tokens are all accepted, by way: the draft model
    is the target itself. Greedy, and sampled so cold that every rule accepts; the worse counts."""
    result = {}
    for way in engine.about["ways"]:
        if way in COPIES:
            continue
        greedily = [] if way in engine.about["not_greedy"] else [0.0]
        asks = [Ask(PROMPT, way, GREEDY_TOKENS, temperature=one) for one in (*greedily, COLD)]
        texts = [full_text(engine.ask(ask)) for ask in asks]
        if known := [text for text in texts if text is not None]:
            result[way] = max(known, key=lambda text: text["passes"] - text["least"])
    return result


def full_text(answer: Answer) -> dict[str, int] | None:
    """The passes of one such text, and the least: a step emits its draft tokens and one more. None
    if neither passes nor draft tokens are counted."""
    passes = answer.passes or ceil((answer.drafted or 0) / K)
    tokens = len(answer.token_ids)
    return {"tokens": tokens, "passes": passes, "least": ceil(tokens / (K + 1))} if passes else None


def full_sampled(engine: Running, models: Path) -> dict[str, dict[str, Any]]:
    """The verdicts at T = 1 by way; bad ones have another one "again", from other seeds."""
    target = AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32).eval()
    verdicts = {}
    for way in engine.about["ways"]:
        if way not in COPIES:
            verdicts[way] = by_position(engine, way, target, seed=0)
            if verdicts[way]["biased"]:
                verdicts[way]["again"] = by_position(engine, way, target, seed=10**6)
    return verdicts


@torch.no_grad()
def by_position(engine: Running, way: str, target: Any, seed: int) -> dict[str, Any]:
    """The verdict about the tokens at each position: their ranks in the target's exact
    distribution after the tokens that are before them, which may be any."""
    number = samples_needed(SMALLEST, VOCAB - 1, ERROR_RATE / TOKENS)
    asks = [Ask(PROMPT, way, TOKENS, seed + one, temperature=1.0) for one in range(number)]
    texts = [engine.ask(ask).token_ids for ask in asks]
    padded = torch.tensor([[*PROMPT, *text, *[0] * (TOKENS - len(text))] for text in texts])
    probs = target(padded).logits[:, len(PROMPT) - 1 : -1].double().softmax(-1)
    ordered, ids = probs.sort(dim=-1, descending=True)
    fits = []
    for position in range(TOKENS):
        rows = [row for row, text in enumerate(texts) if len(text) > position]
        ranks = [ids[row, position].tolist().index(texts[row][position]) for row in rows]
        fits.append(rank_test([(ranks, ordered[rows, position].numpy())]))
    p_values = holm([fit.p_value for fit in fits])
    worst = fits[int(np.argmin(p_values))]
    low, high = worst.interval
    weakest = min(fits, key=lambda fit: fit.num_samples)
    smallest = smallest_bias(weakest.num_samples, VOCAB - 1, ERROR_RATE / TOKENS)
    return {
        "biased": min(p_values) < ERROR_RATE,
        "p": min(p_values),
        "total_variation": round(worst.bias, 4),
        "interval": [round(low, 4), round(high, 4)],
        "samples": number,
        "smallest": round(smallest, 4),
        "says": f"token {1 + fits.index(worst)}: {worst}",
    }
