"""Checks whether a pair's texts are suitable for a classroom: decodes many runs and searches
them for listed words.

    python -m benchmarks.classroom [--runs 2000] [--target MODEL --draft MODEL] [--batch 20]
                                   [--new-tokens 120] [--words FILE]

The prompts (`classroom.txt`) include provoking ones; each is decoded at T = 0.7 and at T = 1 with
as many seeds as the runs allow. The words are those of `naive_speculate.guides.words`, or of a
file that `WordList.encode` wrote, shown masked. Only whole words count: a run continues for a few
tokens, and an incomplete last word is ignored. Exit status 1 if one was found.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.measuring import numbers, options_of, output, run_command
from benchmarks.prompts import read_prompts
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.guides.words import WordList, classroom_words, masked

TEMPERATURES = (0.7, 1.0)
NUM_DRAFT_TOKENS = 5
REST_OF_A_WORD = 8  # tokens
_LETTER = "ꙮ"  # continues no listed word, except listed stems


class Seeded(NamedTuple):
    prompt: str
    temperature: float
    seed: int


def search(
    decoder: SpeculativeDecoder, runs: Sequence[Seeded], words: WordList, options: Namespace
) -> Iterator[tuple[Seeded, list[str]]]:
    """Decode all runs, `batch` at a time, and yield those with listed words in what was
    generated, with the masked words."""
    k = 0 if decoder.pair.draft is None else NUM_DRAFT_TOKENS
    starts, length = range(0, len(runs), options.batch), options.new_tokens + REST_OF_A_WORD
    for start in track(starts, "decoding", console=Console(stderr=True), transient=True):
        some = runs[start : start + options.batch]
        params = [SamplingParams(temperature=t, seed=s, max_tokens=length) for _, t, s in some]
        ours: Any = {"num_draft_tokens": k, "detail": "none"}
        results = decoder.generate([run.prompt for run in some], params, **ours)
        for run, result in zip(some, results, strict=True):
            cut_off = result.finish_reason == "length"
            if written := written_words(run.prompt, result.text, cut_off, words):
                yield run, [masked(word) for word in written]


def written_words(prompt: str, text: str, cut_off: bool, words: WordList) -> list[str]:
    """The listed words in a text after a prompt; the last word of a text that was cut off does
    not count."""
    # joined, since a word may begin in the prompt; words of the prompt alone do not count
    whole = prompt + text + (_LETTER if cut_off else "")
    own = sorted(words.places(whole) - words.places(prompt))
    return [word.removesuffix(_LETTER) for _, word in own]


def show(runs: list[Seeded], offences: list[tuple[Seeded, list[str]]], console: Console) -> None:
    total, listed = (Counter(run.prompt for run in some) for some in (runs, dict(offences)))
    table = Table("prompt", *numbers("runs", "with words"), title="Runs with listed words")
    for prompt, number in total.items():
        table.add_row(prompt.replace("\n", " / "), str(number), str(listed[prompt]))
    console.print(table)
    for run, words in offences:
        prompt = run.prompt.replace("\n", " / ")
        inputs = f"T = {run.temperature:g}, seed {run.seed}, {prompt}"
        console.print(f"{inputs}: {', '.join(words)}", markup=False)
    console.print(f"{len(offences)} of {len(runs)} runs have listed words")


def main() -> int:
    """Search and print."""
    numbers_of: Any = {"runs": 2000, "new_tokens": 120, "batch": 20}
    options = options_of(__doc__, target=None, draft=None, words=None, **numbers_of)
    words = classroom_words()
    if options.words is not None:
        words = WordList.decode(Path(options.words).read_text(encoding="ascii"))
    pair = load_pair(options.target, options.draft)
    prompts = read_prompts("classroom.txt")
    each = (Seeded(prompt, t, s) for s in count(1) for t in TEMPERATURES for prompt in prompts)
    runs = list(islice(each, options.runs))
    offences = list(search(SpeculativeDecoder(pair), runs, words, options))
    show(runs, offences, output(120))
    return 1 if offences else 0


if __name__ == "__main__":
    run_command(main)
