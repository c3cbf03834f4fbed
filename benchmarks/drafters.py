"""Tokens per target forward by drafter, on texts that repeat themselves.

    python benchmarks/drafters.py [--target M --draft M] [--windows 5 8 16] [--drafters D …] [--own] [--new-tokens N] [--json]

The texts (`repeating/`: a list, code repeated with small changes, a quoted passage) have a prompt and a continuation. The small
bundled target would not continue like this, as large ones do. So by default the target is a model that is certain of the text's
next token, and its forwards are counted. With `--own` the pair's own target continues freely. Greedy, every drafter in turn;
the draft model is the pair's own.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.tables import numbers, output  # noqa: E402
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair  # noqa: E402
from naive_speculate.infer import KVCache, KVState  # noqa: E402
from naive_speculate.speculate.draft import DRAFTERS  # noqa: E402

TEXTS = Path(__file__).with_name("repeating")
WINDOWS = (5, 8, 16)
BASELINE = "prompt_lookup"


@dataclass(frozen=True)
class Text:
    """A prompt and its continuation, as token ids, and the kind of text."""

    kind: str
    prompt: list[int]
    rest: list[int]


@dataclass(frozen=True)
class Figure:
    """The figures of one drafter on all texts of a kind.

    Attributes:
        tokens_per_forward: Generated tokens ÷ forwards of the target.
        drafts_per_forward: Drafted tokens ÷ the same.
        over_lookup: Tokens per forward relative to prompt lookup.
    """

    kind: str
    window: int
    drafter: str
    tokens_per_forward: float
    drafts_per_forward: float
    over_lookup: float


class Reciter:
    """A language model that is certain of a text's next token, whatever came before."""

    def __init__(self, token_ids: Sequence[int], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._token_ids = torch.tensor([*token_ids, 0])

    @property
    def eos_token_id(self) -> int:
        """It has none."""
        raise ValueError("a text that is recited has no end-of-sequence token")

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        """See `LanguageModel.forward`."""
        begin = kv_cache.get_num_tokens()
        states = query_token_ids.float().view(1, 1, -1, 1)
        kv_cache.update([KVState(states, states)])
        following = (torch.arange(query_token_ids.shape[1]) + begin + 1).clamp_max(len(self._token_ids) - 1)
        return torch.nn.functional.one_hot(self._token_ids[following], self.vocab_size)[None].float() * 50


def read_texts(encode: Callable[[str], list[int]], folder: Path = TEXTS) -> list[Text]:
    """The texts of a folder, `KIND-NAME.txt`; a line of "=====" ends the prompt."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        prompt, rest = path.read_text(encoding="utf-8").split("\n=====\n")
        begin = len(encode(prompt))
        whole = encode(f"{prompt}\n{rest}")
        found.append(Text(path.stem.partition("-")[0], whole[:begin], whole[begin:]))
    return found


def measure(
    pair: ModelPair, texts: Sequence[Text], names: Sequence[str], windows: Sequence[int], own: bool, new_tokens: int
) -> list[Figure]:
    """Every drafter that the pair supports on every text with every window."""
    counts: dict[tuple[str, int, str], list[int]] = {}
    for text in texts:
        if not own:
            reciter = Reciter([*text.prompt, *text.rest], pair.vocab_size)
        decoder = SpeculativeDecoder(pair if own else ModelPair(reciter, pair.draft, pair.tokenizer))
        count = new_tokens if own else min(new_tokens, len(text.rest))
        params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        drafters = [name for name in names if DRAFTERS[name].obstacle(decoder.pair) is None]
        for window, drafter in product(windows, drafters):
            result = decoder.generate(text.prompt, params, num_draft_tokens=window, drafter=drafter, detail="none")
            if not own and list(result.token_ids) != text.rest[:count]:
                raise RuntimeError(f"{drafter} with k = {window} changed a text of kind {text.kind}")
            run = result.metrics
            numbers = (run.num_generated_tokens, run.num_draft_tokens, run.num_spec_steps)
            key = (text.kind, window, drafter)
            counts[key] = [a + b for a, b in zip(counts.get(key, (0, 0, 0)), numbers, strict=True)]
    speeds = {key: tokens / forwards for key, (tokens, _, forwards) in counts.items()}
    return [
        Figure(*key, speeds[key], drafts / forwards, speeds[key] / speeds[(*key[:2], BASELINE)])
        for key, (_, drafts, forwards) in counts.items()
    ]


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print a row per kind of text and window, a column per drafter."""
    names = list(dict.fromkeys(figure.drafter for figure in figures))
    table = Table("text", *numbers("k", *names), title="Tokens per forward (× prompt lookup; draft tokens per forward)")
    for row in dict.fromkeys((figure.kind, figure.window) for figure in figures):
        cells = {figure.drafter: _cell(figure) for figure in figures if (figure.kind, figure.window) == row}
        table.add_row(row[0], str(row[1]), *(cells[name] for name in names))
    console.print(table)


def _cell(figure: Figure) -> str:
    return f"{figure.tokens_per_forward:.2f} (×{figure.over_lookup:.2f}; {figure.drafts_per_forward:.1f})"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description="Tokens per target forward by drafter, on texts that repeat themselves.")
    found.add_argument("--target", help="Hub id or folder (default: the bundled pair)")
    found.add_argument("--draft", help="Hub id or folder")
    found.add_argument("--windows", type=int, nargs="+", default=list(WINDOWS), help="draft tokens per step (default 5 8 16)")
    found.add_argument("--drafters", nargs="+", choices=list(DRAFTERS), default=list(DRAFTERS), help="which (default all)")
    found.add_argument("--new-tokens", type=int, default=400, help="most tokens per text (default 400)")
    found.add_argument("--own", action="store_true", help="let the target continue freely")
    found.add_argument("--device", default="auto")
    found.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit status."""
    options = parser().parse_args(argv)
    try:
        if min(*options.windows, options.new_tokens) < 1:
            raise ValueError("--windows and --new-tokens must be at least 1")
        pair = load_pair(options.target, options.draft, device=options.device)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not options.own:
        torch.set_num_threads(1)  # the computation is small
    names = [name for name in DRAFTERS if name in (*options.drafters, BASELINE)]
    texts = read_texts(SpeculativeDecoder(pair).admission.encode)
    figures = measure(pair, texts, names, options.windows, options.own, options.new_tokens)
    if options.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        show(figures, output(120))
    return 0


if __name__ == "__main__":
    sys.exit(main())
