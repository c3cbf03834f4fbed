"""SmolLM2 in float32 and 8 bits: what rounding the weights gives, and what drafts add to it.

    python -m benchmarks.low_bits [--new-tokens 128] [--rounds 20]

The forms take turns, so that a busy machine slows all alike. Prints the milliseconds of a target
pass by its number of tokens; the largest difference between the logits of nine tokens computed in
one pass and in nine; tokens per second, after the prompt, of plain decoding and of `suffix+head`;
and how many greedy texts of both are the same.
"""

from statistics import median
from typing import Any

import torch
from rich.table import Column, Table

from benchmarks.measuring import numbers, options_of, output
from benchmarks.prompts import QUESTIONS
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.models.load import WEIGHTS
from naive_speculate.models.threads import leave_cores_to
from naive_speculate.tools.bench.measure import in_turn, our_way, pass_seconds

COUNTS, CONTEXT = (1, 2, 4, 6, 9), 64
WINDOWS: tuple[int | str, ...] = (0, "auto")


def difference(model: Any) -> float:
    """The largest difference between the logits of nine tokens, in one pass and in nine."""
    ids, most = torch.arange(1000, 1000 + CONTEXT + max(COUNTS))[None], max(COUNTS)
    together, apart = model.new_cache(1), model.new_cache(1)
    for cache in (together, apart):
        model.forward(ids[:, :CONTEXT], cache)
    singles = [model.forward(ids[:, at : at + 1], apart) for at in range(CONTEXT, CONTEXT + most)]
    return float((model.forward(ids[:, CONTEXT:], together) - torch.cat(singles, 1)).abs().max())


def decoding(pairs: dict[str, Any], new_tokens: int) -> dict[str, list[str]]:
    """Tokens per second of plain decoding and with drafts, and the number of same texts."""
    params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    decoders = {name: SpeculativeDecoder(pair) for name, pair in pairs.items()}
    ways = {
        (name, k): our_way(decoder, k, params, "suffix+head", chat=True)
        for name, decoder in decoders.items()
        for k in WINDOWS
    }
    tried: Any = {key: lambda text, way=way: way.decode(text, 0) for key, way in ways.items()}
    _, *runs = in_turn(tried, (QUESTIONS[0], *QUESTIONS))  # the first one warms up
    cells = {}
    for name in pairs:
        both = [(run[name, 0], run[name, "auto"]) for run in runs]
        same = sum(plain.token_ids == drafted.token_ids for plain, drafted in both)
        speeds = [
            f"{median(r.decoding_speed for r in each):.0f}" for each in zip(*both, strict=True)
        ]
        cells[name] = [*speeds, f"{same} of {len(both)}"]
    return cells


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, new_tokens=128, rounds=20)
    pairs = {name: load_pair("smollm2", device="cpu", weights=name) for name in WEIGHTS}
    leave_cores_to(next(iter(pairs.values())).target)
    headings = [*(f"{count} tokens" for count in COUNTS), "logits differ by"]
    headings += ["plain, tokens/s", "suffix+head", "same texts"]
    table = Table(Column(no_wrap=True), *numbers(*headings), title="A pass, ms, and decoding")
    models = {name: as_batch_model(pair.target) for name, pair in pairs.items()}
    seconds = pass_seconds(models, COUNTS, CONTEXT, options.rounds)
    speeds = decoding(pairs, options.new_tokens)
    for name, pair in pairs.items():
        times = [f"{1e3 * seconds[name][count]:.1f}" for count in COUNTS]
        table.add_row(name, *times, f"{difference(pair.target):.2g}", *speeds[name])
    output(140).print(table)


if __name__ == "__main__":
    main()
