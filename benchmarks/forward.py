"""Times a forward: transformers, our torch and ONNX Runtime executors, by shape, context and batch.

    python -m benchmarks.forward [--shapes 1x192 6x384 …] [--rounds N] [--json]

Random weights, medians of alternating runs. "5 ÷ 1" is the cost of verifying four draft tokens relative to one token.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Column, Table
from transformers import AutoModelForCausalLM, LlamaConfig

from naive_speculate.arguments import Parser, positive
from naive_speculate.bench.measure import forward_timer
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.models import wrap

SHAPES = {"1x192": 512, "2x192": 512, "6x384": 1024, "8x320": 864, "8x448": 1216, "8x512": 1408, "12x512": 1376}
"""Layers x width, with the width of the MLP."""
WAYS = ("transformers", "torch", "onnx")
CONTEXTS, BATCHES, COUNTS = (100, 1000), (1, 8), (1, 5)
HEAD_DIM, VOCAB = 64, 4096


def random_model(shape: str) -> Any:
    """A Llama of `layers x width` with random weights."""
    layers, width = map(int, shape.split("x"))
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=SHAPES[shape],
        num_hidden_layers=layers,
        num_attention_heads=width // HEAD_DIM,
        num_key_value_heads=width // HEAD_DIM,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def measure(shape: str, rounds: int) -> list[dict[str, Any]]:
    """Every way, context, batch and number of tokens for one shape."""
    source = random_model(shape)
    found = []
    models = {way: as_batch_model(wrap(source, way)) for way in WAYS}
    for context in CONTEXTS:
        for batch in BATCHES:
            timers = {
                (way, count): forward_timer(model, context, count, batch) for way, model in models.items() for count in COUNTS
            }
            times: dict[tuple[str, int], list[float]] = {key: [] for key in timers}
            for _ in range(rounds):
                for key, run in timers.items():
                    run()  # warm-up: the previous run has replaced the weights in the processor's caches
                    times[key].append(run())
            for (way, count), values in times.items():
                case = {"shape": shape, "way": way, "context": context, "batch": batch, "tokens": count}
                found.append(case | {"ms": 1e3 * median(values)})
    return found


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the table."""
    by_key = {(r["shape"], r["context"], r["batch"], r["way"], r["tokens"]): r["ms"] for r in rows}
    headings = ("layers x width", "context", "batch", *WAYS, "onnx, 5 ÷ 1")
    table = Table(*(Column(name, justify="right") for name in headings), title="A forward, ms for one token (of five)")
    for shape, context, batch in dict.fromkeys(key[:3] for key in by_key):
        cells = []
        for way in WAYS:
            one, five = (by_key[shape, context, batch, way, count] for count in COUNTS)
            cells.append(f"{one:.2f} ({five:.2f})")
        table.add_row(shape, str(context), str(batch), *cells, f"{five / one:.2f}")
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=positive, default=15)
    parser.add_argument("--torch-threads", type=positive, help="default: torch's own")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON and nothing else")
    options = parser.parse_args(argv)
    if options.torch_threads is not None:
        torch.set_num_threads(options.torch_threads)
    rows = [row for shape in options.shapes for row in measure(shape, options.rounds)]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        output = Console()
        show(rows, output if output.is_terminal else Console(width=130))
    return 0


if __name__ == "__main__":
    sys.exit(main())
