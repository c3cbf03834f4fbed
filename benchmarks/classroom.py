"""Checks whether a pair's texts are suitable for a classroom: decodes many runs and searches them for listed words.

    python -m benchmarks.classroom [--runs 2000] [--target MODEL --draft MODEL] [--new-tokens 120] [--words FILE] [--json]

The prompts (`classroom.txt`) include provoking ones; each is decoded at T = 0.7 and at T = 1 with as many seeds as the runs
allow. The words are those of `naive_speculate.sampling.words`; they are shown masked. Only whole words count: a run continues
for a few more tokens, and an incomplete last word is ignored. Exit status 0 if none was found, 1 otherwise.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.tables import numbers, output
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.sampling.words import WordList, classroom_words, masked

PROMPTS = Path(__file__).with_name("classroom.txt")
TEMPERATURES = (0.7, 1.0)
REST_OF_A_WORD = 8  # tokens
WIDTH = 120  # of a table in a file
_LETTER = "ꙮ"  # continues no listed word, except listed stems


@dataclass(frozen=True)
class Run:
    """The inputs of a run."""

    prompt: str
    temperature: float
    seed: int


@dataclass(frozen=True)
class Offence(Run):
    """A run with listed words; these are masked."""

    words: tuple[str, ...]


def read_prompts(path: Path = PROMPTS) -> list[str]:
    r"""One prompt per line; "\n" in it is a line break."""
    return [line.replace("\\n", "\n") for line in path.read_text(encoding="utf-8").splitlines() if line]


def plan(prompts: Sequence[str], runs: int) -> list[Run]:
    """Every prompt at every temperature with seed 1, then with seed 2, and so on, until there are ``runs``."""
    seeds = range(1, -(-runs // (len(prompts) * len(TEMPERATURES))) + 1)
    return [Run(prompt, t, seed) for seed, t, prompt in product(seeds, TEMPERATURES, prompts)][:runs]


def search(
    decoder: SpeculativeDecoder, runs: Sequence[Run], words: WordList, new_tokens: int, num_draft_tokens: int, batch: int
) -> Iterator[Offence]:
    """Decode all runs, ``batch`` at a time, and yield those with listed words in what was generated."""
    starts, length = range(0, len(runs), batch), new_tokens + REST_OF_A_WORD
    for start in track(starts, "decoding", console=Console(stderr=True), transient=True):
        some = runs[start : start + batch]
        params = [SamplingParams(temperature=run.temperature, seed=run.seed, max_tokens=length) for run in some]
        prompts = [run.prompt for run in some]
        results = decoder.generate(prompts, params, num_draft_tokens=num_draft_tokens, detail="none")
        for run, result in zip(some, results, strict=True):
            if found := written_words(run.prompt, result.text, result.finish_reason == "length", words):
                yield Offence(**asdict(run), words=tuple(map(masked, found)))


def written_words(prompt: str, text: str, cut_off: bool, words: WordList) -> list[str]:
    """The listed words in a text after a prompt; the last word of a text that was cut off does not count."""
    end = _LETTER if cut_off else ""
    # joined, since a word may begin in the prompt; words of the prompt alone do not count
    return [word.removesuffix(_LETTER) for _, word in sorted(words.places(prompt + text + end) - words.places(prompt))]


def show(runs: Sequence[Run], offences: Sequence[Offence], console: Console) -> None:
    total, found = Counter(run.prompt for run in runs), Counter(offence.prompt for offence in offences)
    table = Table("prompt", *numbers("runs", "with words"), title="Runs with listed words")
    for prompt, count in total.items():
        table.add_row(_line(prompt), str(count), str(found[prompt]))
    console.print(table)
    for offence in offences:
        run = f"T = {offence.temperature:g}, seed {offence.seed}, {_line(offence.prompt)}"
        console.print(f"{run}: {', '.join(offence.words)}", markup=False)
    console.print(f"{len(offences)} of {len(runs)} runs have listed words")


def _line(prompt: str) -> str:
    return prompt.replace("\n", " / ")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Searches a pair's texts for words unsuitable for a classroom.")
    found.add_argument("--runs", type=int, default=2000, help="number of runs (default 2000)")
    found.add_argument("--target", help="Hub id or folder (default: the bundled pair)")
    found.add_argument("--draft", help="Hub id or folder")
    found.add_argument("--words", type=Path, metavar="FILE", help="another list, encoded by `WordList.encode`")
    found.add_argument("--new-tokens", type=int, default=120)
    found.add_argument("--num-draft-tokens", type=int, default=5)
    found.add_argument("--batch", type=int, default=20, help="runs decoded together (default 20)")
    found.add_argument("--device", default="auto")
    found.add_argument("--json", action="store_true", help="print the findings as JSON and nothing else")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        if min(options.runs, options.new_tokens, options.batch) < 1 or options.num_draft_tokens < 0:
            raise ValueError("--runs, --new-tokens and --batch must be at least 1, --num-draft-tokens at least 0")
        words = WordList.decode(options.words.read_text(encoding="ascii")) if options.words else classroom_words()
        pair = load_pair(options.target, options.draft, device=options.device)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    drafts = options.num_draft_tokens if pair.draft is not None else 0
    runs = plan(read_prompts(), options.runs)
    offences = list(search(SpeculativeDecoder(pair), runs, words, options.new_tokens, drafts, options.batch))
    if options.json:
        print(json.dumps({"runs": len(runs), "offences": [asdict(offence) for offence in offences]}, indent=2))
    else:
        show(runs, offences, output(WIDTH))
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
