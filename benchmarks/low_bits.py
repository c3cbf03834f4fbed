"""SmolLM2's matrices in 8 and 4 bits, with ONNX Runtime's MatMulNBits: an experiment; the
library rounds draft heads only.

    python -m benchmarks.low_bits [--new-tokens 128]

Blocks of 32 numbers share a scale, and activations are rounded to 8 bits (`accuracy_level=4`),
as llama.cpp does. Prints the milliseconds of a target pass by its number of tokens; the largest
difference between the logits of nine tokens computed in one pass and in nine; tokens per second,
after the prompt, of plain decoding and of `suffix+head`; and how many greedy texts of both are
the same.
"""

import argparse
from collections.abc import Callable
from functools import partialmethod
from statistics import median
from typing import Any

import torch
from rich.table import Column, Table

from benchmarks.tables import numbers, output
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.head.onnx import rounded
from naive_speculate.infer.llama.onnx_graph import GraphBuilder
from naive_speculate.infer.threads import leave_cores_to
from naive_speculate.tools.bench.measure import forward_timer, our_way

BLOCK, COUNTS, CONTEXT, REPEATS = 32, (1, 2, 4, 6, 9), 64, 20
QUESTIONS = (
    "Explain gravity to a child.",
    "Write a Python function that reverses a list.",
    "Write a story about a fox.",
    "List five fruits.",
    "What is the capital of France?",
    "Why is the sky blue?",
)


def quantised(weight: torch.Tensor, bits: int) -> tuple[Any, Any]:
    """Numbers of 8 or 4 bits, two of the latter to a byte, and a scale per block."""
    whole, scales = (part.numpy() for part in rounded(weight.detach(), bits))
    return (whole if bits == 8 else whole[..., 0::2] | whole[..., 1::2] << 4), scales


def _product(self: Any, bits: int, source: str, weight: torch.Tensor) -> str:
    """In place of `GraphBuilder._product`."""
    numbers, scales = (self._weight(torch.from_numpy(values)) for values in quantised(weight, bits))
    shape = {"N": weight.shape[0], "K": weight.shape[1], "block_size": BLOCK}
    return self._add(
        "MatMulNBits",
        [source, numbers, scales],
        domain="com.microsoft",
        bits=bits,
        accuracy_level=4,
        **shape,
    )


def difference(model: Any, ids: list[int]) -> float:
    """The largest difference between the logits of the last nine tokens, computed in one pass
    and in nine."""
    tokens, end = torch.tensor([ids]), len(ids) - max(COUNTS)
    together, apart = model.new_cache(1), model.new_cache(1)
    for cache in (together, apart):
        model.forward(tokens[:, :end], cache)
    found = model.forward(tokens[:, end:], together)
    singles = [model.forward(tokens[:, at : at + 1], apart) for at in range(end, len(ids))]
    return float((found - torch.cat(singles, 1)).abs().max())


def row(name: str, new_tokens: int) -> list[str]:
    """Load the model and measure it."""
    pair: Any = load_pair("smollm2", device="cpu", dtype="float32")
    leave_cores_to(pair.target)
    timers: list[Callable[[], float]] = [
        forward_timer(pair.target, CONTEXT, count) for count in COUNTS
    ]
    passes = [median(1e3 * run() for _ in range(REPEATS)) for run in timers]
    decoder = SpeculativeDecoder(pair)
    params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    speeds, texts = [], []
    for k in (0, "auto"):
        way = our_way(decoder, k, params, "suffix+head", chat=True)
        way.decode(QUESTIONS[0], 0)  # type: ignore[arg-type]  # a text will do
        runs = [way.decode(question, 0) for question in QUESTIONS]  # type: ignore[arg-type]
        speeds.append(f"{median(run.decoding_speed for run in runs):.0f}")
        texts.append([run.token_ids for run in runs])
    same = sum(plain == drafted for plain, drafted in zip(*texts, strict=True))
    apart = difference(pair.target, decoder.admission.encode(" ".join(QUESTIONS)))
    return [
        name,
        *(f"{ms:.1f}" for ms in passes),
        f"{apart:.2g}",
        *speeds,
        f"{same} of {len(QUESTIONS)}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--new-tokens", type=int, default=128)
    options = parser.parse_args()
    headings = [
        *(f"{count} tokens" for count in COUNTS),
        "logits differ by",
        "plain, tokens/s",
        "suffix+head",
        "same texts",
    ]
    table = Table(
        Column(no_wrap=True), *numbers(*headings), title="A target pass, ms, and decoding"
    )
    table.add_row(*row("float32", options.new_tokens))
    for bits in (8, 4):
        GraphBuilder._product = partialmethod(_product, bits)  # type: ignore[method-assign, assignment]
        table.add_row(*row(f"{bits} bits", options.new_tokens))
    output(140).print(table)


if __name__ == "__main__":
    main()
