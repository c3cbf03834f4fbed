"""Checks whether a pair's texts are suitable for a classroom: decodes many runs and searches
them for listed words.

    python -m benchmarks.classroom [--runs 2000] [--target MODEL --draft MODEL] [--new-tokens
    120] [--words FILE]

The prompts (`classroom.txt`) include provoking ones; each is decoded at T = 0.7 and at T = 1
with as many seeds as the runs allow. The words are those of `naive_speculate.sampling.words`;
they are shown masked. Only whole words count: a run continues for a few more tokens, and an
incomplete last word is ignored. Exit status 0 if none was found, 1 otherwise.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.tables import numbers, output
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.arguments import Parser, positive
from naive_speculate.sampling.words import WordList, classroom_words, masked

PROMPTS = Path(__file__).with_name("classroom.txt")
TEMPERATURES = (0.7, 1.0)
NUM_DRAFT_TOKENS = 5
REST_OF_A_WORD = 8  # tokens
WIDTH = 120  # of a table in a file
_LETTER = "ꙮ"  # continues no listed word, except listed stems


class Run(NamedTuple):
    """The inputs of a run."""

    prompt: str
    temperature: float
    seed: int


def read_prompts(path: Path = PROMPTS) -> list[str]:
    r"""One prompt per line; "\n" in it is a line break."""
    return [
        line.replace("\\n", "\n") for line in path.read_text(encoding="utf-8").split("\n") if line
    ]


def plan(prompts: Sequence[str], runs: int) -> list[Run]:
    """Every prompt at every temperature with seed 1, then with seed 2, and so on, until there
    are ``runs``."""
    seeds = range(1, -(-runs // (len(prompts) * len(TEMPERATURES))) + 1)
    return [Run(prompt, t, seed) for seed, t, prompt in product(seeds, TEMPERATURES, prompts)][
        :runs
    ]


def search(
    decoder: SpeculativeDecoder,
    runs: Sequence[Run],
    words: WordList,
    new_tokens: int,
    num_draft_tokens: int,
    batch: int,
) -> Iterator[tuple[Run, list[str]]]:
    """Decode all runs, ``batch`` at a time, and yield those with listed words in what was
    generated, with the masked words."""
    starts, length = range(0, len(runs), batch), new_tokens + REST_OF_A_WORD
    for start in track(starts, "decoding", console=Console(stderr=True), transient=True):
        some = runs[start : start + batch]
        params = [
            SamplingParams(temperature=run.temperature, seed=run.seed, max_tokens=length)
            for run in some
        ]
        prompts = [run.prompt for run in some]
        results = decoder.generate(
            prompts, params, num_draft_tokens=num_draft_tokens, detail="none"
        )
        for run, result in zip(some, results, strict=True):
            if found := written_words(
                run.prompt, result.text, result.finish_reason == "length", words
            ):
                yield run, [masked(word) for word in found]


def written_words(prompt: str, text: str, cut_off: bool, words: WordList) -> list[str]:
    """The listed words in a text after a prompt; the last word of a text that was cut off does
    not count."""
    end = _LETTER if cut_off else ""
    # joined, since a word may begin in the prompt; words of the prompt alone do not count
    return [
        word.removesuffix(_LETTER)
        for _, word in sorted(words.places(prompt + text + end) - words.places(prompt))
    ]


def show(runs: Sequence[Run], offences: Sequence[tuple[Run, list[str]]], console: Console) -> None:
    total, found = Counter(run.prompt for run in runs), Counter(run.prompt for run, _ in offences)
    table = Table("prompt", *numbers("runs", "with words"), title="Runs with listed words")
    for prompt, count in total.items():
        table.add_row(_line(prompt), str(count), str(found[prompt]))
    console.print(table)
    for run, words in offences:
        inputs = f"T = {run.temperature:g}, seed {run.seed}, {_line(run.prompt)}"
        console.print(f"{inputs}: {', '.join(words)}", markup=False)
    console.print(f"{len(offences)} of {len(runs)} runs have listed words")


def _line(prompt: str) -> str:
    return prompt.replace("\n", " / ")


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(description="Searches a pair's texts for words unsuitable for a classroom.")
    parser.add_argument("--runs", type=positive, default=2000, help="number of runs (default 2000)")
    parser.add_argument("--target", help="Hub id or folder (default: the bundled pair)")
    parser.add_argument("--draft", help="Hub id or folder")
    parser.add_argument(
        "--words", type=Path, metavar="FILE", help="another list, encoded by `WordList.encode`"
    )
    parser.add_argument("--new-tokens", type=positive, default=120)
    parser.add_argument(
        "--batch", type=positive, default=20, help="runs decoded together (default 20)"
    )
    options = parser.parse_args(argv)
    try:
        words = (
            WordList.decode(options.words.read_text(encoding="ascii"))
            if options.words
            else classroom_words()
        )
        pair = load_pair(options.target, options.draft)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    runs, drafts = plan(read_prompts(), options.runs), 0 if pair.draft is None else NUM_DRAFT_TOKENS
    offences = list(
        search(SpeculativeDecoder(pair), runs, words, options.new_tokens, drafts, options.batch)
    )
    show(runs, offences, output(WIDTH))
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
