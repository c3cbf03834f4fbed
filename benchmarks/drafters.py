"""Tokens per target forward by drafter, on texts that repeat themselves.

    python -m benchmarks.drafters [--windows 5 8 16] [--new-tokens N]

The texts (`repeating/`: a list, code repeated with small changes, a quoted passage) have a
prompt and a continuation. The small bundled target would not continue like this, as large ones
do. So the target is a model that is certain of the text's next token, and its forwards are
counted. Greedy, every drafter in turn; the draft model is the bundled pair's.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from benchmarks.measuring import numbers, options_of, output
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer import KVCache, KVState
from naive_speculate.speculate.draft import DRAFTERS

TEXTS = Path(__file__).with_name("repeating")
BASELINE = "prompt_lookup"


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
        places = torch.arange(query_token_ids.shape[1]) + begin + 1
        following = self._token_ids[places.clamp_max(len(self._token_ids) - 1)]
        return 50.0 * torch.nn.functional.one_hot(following, self.vocab_size)[None]


def read_texts(encode: Callable[[str], list[int]]) -> list[tuple[str, list[int], list[int]]]:
    """Kind, prompt and continuation of every `KIND-NAME.txt`; a line "=====" ends the prompt."""
    texts = []
    for path in sorted(TEXTS.glob("*.txt")):
        prompt, rest = path.read_text(encoding="utf-8").split("\n=====\n")
        begin, whole = len(encode(prompt)), encode(f"{prompt}\n{rest}")
        texts.append((path.stem.partition("-")[0], whole[:begin], whole[begin:]))
    return texts


def measure(pair: ModelPair, windows: Sequence[int], new_tokens: int) -> Table:
    """Every drafter that these models allow, on every text with every window."""
    # tokens, draft tokens and forwards by drafter
    counts: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(dict)
    for kind, prompt, rest in read_texts(SpeculativeDecoder(pair).admission.encode):
        target = Reciter([*prompt, *rest], pair.vocab_size)
        decoder = SpeculativeDecoder(ModelPair(target, pair.draft, pair.tokenizer))
        recited = rest[:new_tokens]
        params = SamplingParams(temperature=0, max_tokens=len(recited), ignore_eos=True)
        drafters = [name for name, kind in DRAFTERS.items() if not kind.obstacle(decoder.pair)]
        for window, drafter in product(windows, drafters):
            ours: Any = {"num_draft_tokens": window, "drafter": drafter, "detail": "none"}
            result = decoder.generate(prompt, params, **ours)
            if list(result.token_ids) != recited:
                raise RuntimeError(f"{drafter} with k = {window} changed a text of kind {kind}")
            run, sums = result.metrics, counts[kind, window].get(drafter, [0, 0, 0])
            new = (run.num_generated_tokens, run.num_draft_tokens, run.num_spec_steps)
            counts[kind, window][drafter] = [a + b for a, b in zip(sums, new, strict=True)]
    title = "Tokens per forward (× prompt lookup; draft tokens per forward)"
    table = Table("text", *numbers("k", *drafters), title=title)
    for (kind, window), sums_of in counts.items():
        base = sums_of[BASELINE][0] / sums_of[BASELINE][2]
        cells = (
            f"{n / passes:.2f} (×{n / passes / base:.2f}; {drafts / passes:.1f})"
            for n, drafts, passes in sums_of.values()
        )
        table.add_row(kind, str(window), *cells)
    return table


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, windows=[5, 8, 16], new_tokens=400)
    torch.set_num_threads(1)  # the computation is small
    output(120).print(measure(load_pair(), options.windows, options.new_tokens))


if __name__ == "__main__":
    main()
