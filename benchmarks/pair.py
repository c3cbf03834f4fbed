"""How well the bundled pair writes and how much speculation with it gains.

    python benchmarks/pair.py [--valid FILE] [--pair FOLDER] [--drafters model head] [--num-draft-tokens K …] [--json]

64 prompts of 32 tokens, 128 new tokens, 4 drafted tokens a step (or several windows), greedy and at temperatures 0.8 and 1
(there with both lossless ways to verify), by the draft model and the draft head, each beside plain decoding of the same prompt
by the same decoder, in turn, so that a busy machine slows all alike. The validation loss needs held-out text: ``--valid FILE``
(passages separated by ``<|endoftext|>`` lines), from which the prompts then come too.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Column, Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tables import numbers, output  # noqa: E402
from naive_speculate import SpeculativeDecoder, load_pair  # noqa: E402
from naive_speculate.bench.measure import compare  # noqa: E402
from naive_speculate.bench.ways import our_way  # noqa: E402
from naive_speculate.speculate.draft import DRAFTERS  # noqa: E402
from train.card import load, prompts_from  # noqa: E402
from train.corpus import read_text, split_passages  # noqa: E402
from train.data import TokenArray  # noqa: E402
from train.errors import TrainingError  # noqa: E402
from train.loop import mean_loss  # noqa: E402

PROMPTS = Path(__file__).with_name("prompts.txt")
PROMPT_TOKENS = 32
LOSS_WINDOW = 512
WIDTH = 120  # of a table that goes into a file
SAMPLING, BLOCK = "speculative_sampling", "block_verification"
WAYS = ((0.0, SAMPLING), (0.8, SAMPLING), (0.8, BLOCK), (1.0, SAMPLING), (1.0, BLOCK))


@dataclass(frozen=True)
class Gain:
    """Speculative beside plain decoding. Speeds are medians over the prompts, in output tokens per second, prompt included."""

    drafter: str
    temperature: float
    verify_strategy: str
    num_draft_tokens: int
    mean_acceptance_length: float
    draft_acceptance_rate: float
    alpha: float
    plain_tokens_per_second: float
    tokens_per_second: float

    @property
    def speedup(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second


@dataclass(frozen=True)
class Loss:
    nats_per_token: float
    bits_per_byte: float


def encode_passages(tokenizer: Any, passages: Sequence[str]) -> TokenArray:
    """All passages one after another, each ending with the end-of-text token."""
    ids: list[int] = []
    for passage in passages:
        ids += [*tokenizer.encode(passage, add_special_tokens=False, verbose=False), tokenizer.eos_token_id]
    return np.array(ids, dtype=np.uint16)


def losses(folder: Path, tokens: TokenArray, passages: Sequence[str]) -> dict[str, Loss]:
    """Next-token loss of both models over windows of held-out text, in float32 weights and bfloat16 products."""
    size = sum(len(passage.encode()) for passage in passages)
    found = {}
    for name in ("target", "draft"):
        nats = mean_loss(load(folder / name), tokens, LOSS_WINDOW, rows=8)
        found[name] = Loss(nats, nats * len(tokens) / size / math.log(2))
    return found


def measure(
    decoder: SpeculativeDecoder,
    prompts: Sequence[list[int]],
    temperature: float,
    new_tokens: int,
    windows: Sequence[int],
    verify_strategy: str = SAMPLING,
    drafters: Sequence[str] = ("model",),
) -> list[Gain]:
    """Decode every prompt plainly and with each drafter's drafts in each of these windows, in turn."""
    kinds = list(product(drafters, windows))
    ways = [our_way(decoder, 0, temperature, new_tokens, verify_strategy)]
    ways += [our_way(decoder, window, temperature, new_tokens, verify_strategy, drafter=name) for name, window in kinds]
    plain, *drafting = compare(ways, prompts, None, lambda: None)
    return [
        Gain(
            drafter=drafter,
            temperature=temperature,
            verify_strategy=verify_strategy,
            num_draft_tokens=window,
            mean_acceptance_length=line.tokens_per_forward,
            draft_acceptance_rate=line.acceptance or 0.0,
            alpha=line.alpha or 0.0,
            plain_tokens_per_second=plain.tokens_per_second,
            tokens_per_second=line.tokens_per_second,
        )
        for (drafter, window), line in zip(kinds, drafting, strict=True)
    ]


def show(gains: Sequence[Gain], found: dict[str, Loss], console: Console) -> None:
    headings = ("drafter", "k", "accepted length", "accepted ÷ drafted", "α", "plain tok/s", "with drafts tok/s", "speedup")
    table = Table(Column(no_wrap=True), *numbers(*headings), title="Speculation with the bundled pair")
    for gain in gains:
        table.add_row(
            _name(gain), gain.drafter, str(gain.num_draft_tokens),
            f"{gain.mean_acceptance_length:.2f}", f"{gain.draft_acceptance_rate:.2f}", f"{gain.alpha:.2f}",
            f"{gain.plain_tokens_per_second:.0f}", f"{gain.tokens_per_second:.0f}", f"{gain.speedup:.2f}×",
        )  # fmt: skip
    console.print(table)
    if found:
        table = Table("", "nats per token", "bits per byte", title="Loss on held-out text")
        for name, loss in found.items():
            table.add_row(name, f"{loss.nats_per_token:.3f}", f"{loss.bits_per_byte:.3f}")
        console.print(table)


def _name(gain: Gain) -> str:
    if gain.temperature == 0:
        return "greedy"
    block = ", block verification" if gain.verify_strategy == BLOCK else ""
    return f"temperature {gain.temperature:g}{block}"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Acceptance, speed and loss of a pair.")
    found.add_argument("--pair", type=Path, default=ROOT / "assets" / "pair", help="folder with target/ and draft/")
    found.add_argument("--valid", type=Path, help="held-out text (.txt or .txt.xz)")
    found.add_argument("--prompts", type=int, default=64, help="number of prompts (default 64)")
    found.add_argument("--new-tokens", type=int, default=128)
    found.add_argument(
        "--num-draft-tokens", type=int, nargs="+", default=[4], metavar="K", help="one or more windows (default 4)"
    )
    found.add_argument(
        "--drafters", nargs="+", choices=DRAFTERS, help="default: the pair's draft model, and its head if it has one"
    )
    found.add_argument("--device", default="auto")
    found.add_argument("--executor", default="auto")
    found.add_argument("--json", action="store_true", help="print the numbers as JSON and nothing else")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        if min(options.prompts, options.new_tokens, *options.num_draft_tokens) < 1:
            raise ValueError("--prompts, --new-tokens and --num-draft-tokens must be at least 1")
        if options.valid is not None and not options.valid.is_file():
            raise ValueError(f"validation file not found: {options.valid}")
        if not (options.pair / "target").is_dir() or not (options.pair / "draft").is_dir():
            raise ValueError(f"no pair in {options.pair}: the folders target and draft are needed")
        passages = list(split_passages(read_text(options.valid))) if options.valid is not None else []
        bundled = options.pair.resolve() == (ROOT / "assets" / "pair").resolve() and options.executor == "auto"
        head = options.pair / "head"
        where = () if bundled else (options.pair / "target", options.pair / "draft", head if head.is_dir() else None)
        pair = load_pair(*where, device=options.device, executor=options.executor)
        drafters = options.drafters or [name for name in DRAFTERS if name in pair.names or name == "model"]
        for name in drafters:
            if (obstacle := DRAFTERS[name].obstacle(pair)) is not None:
                raise ValueError(f"--drafters {name}: {obstacle}")
    except (TrainingError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    tokens = encode_passages(pair.tokenizer, passages)
    if passages:
        prompts = prompts_from(tokens, options.prompts, PROMPT_TOKENS).tolist()
    else:
        lines = PROMPTS.read_text(encoding="utf-8").splitlines()[: options.prompts]
        prompts = [pair.tokenizer.encode(line, verbose=False)[:PROMPT_TOKENS] for line in lines]
    decoder = SpeculativeDecoder(pair)
    measure(decoder, prompts[:1], 1.0, 16, options.num_draft_tokens, drafters=drafters)  # warm-up
    gains = [
        gain
        for temperature, strategy in WAYS
        for gain in measure(decoder, prompts, temperature, options.new_tokens, options.num_draft_tokens, strategy, drafters)
    ]
    found = losses(options.pair, tokens, passages) if passages else {}
    if options.json:
        report = {
            "device": str(decoder.admission.device),
            "threads": torch.get_num_threads(),
            "prompts": len(prompts),
            "new_tokens": options.new_tokens,
            "num_draft_tokens": options.num_draft_tokens,
            "runs": [{**asdict(gain), "speedup": gain.speedup} for gain in gains],
            "loss": {name: asdict(loss) for name, loss in found.items()},
        }
        print(json.dumps(report, indent=2))
    else:
        show(gains, found, output(WIDTH))
    return 0


if __name__ == "__main__":
    sys.exit(main())
