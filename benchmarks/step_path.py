"""How far one decoding step goes through the package: its calls, files and changes of file.

    python -m benchmarks.step_path [--functions NAME]

Counts Python calls by `sys.setprofile`, with the bundled pair and four draft tokens. The path of a
step is the difference of a long and a short run, so that loading and admission do not count. A
file counts if it is entered in every step. `--functions` lists one case's calls by function.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import naive_speculate
from benchmarks.measuring import options_of
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.naive import speculative_decode

ROOT = str(Path(naive_speculate.__file__).parent) + "/"
PROMPT, SHORT, LONG = "Once upon a time", 24, 72
TARGETS = {"greedy": (260, 14, 90), "sampled": (420, 18, 150), "naive": (130, 6, None)}
"""What is aimed at: calls, files, changes of file."""
Calls = list[tuple[str, str]]  # the file and the name of each called function, in order


def calls_of(run: Callable[[], int]) -> tuple[Calls, int]:
    """The calls of a run within the package, and its number of steps, which it returns."""
    calls: Calls = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            calls.append((code.co_filename[len(ROOT) :], code.co_qualname))

    sys.setprofile(note)
    steps = run()
    sys.setprofile(None)
    return calls, steps


def path_of(run: Callable[[int], int]) -> tuple[Counter[tuple[str, str]], int, set[str], float]:
    """The path of one step of runs over so many tokens: calls by function in all further steps of
    the long run, the number of these steps, the files of each step, and its changes of file."""
    run(SHORT)
    (short, few), (long, many) = (calls_of(partial(run, n)) for n in (SHORT, LONG))
    steps = many - few
    (counts := Counter(long)).subtract(short)
    by_file = Counter[str]()
    for (file, _), times in counts.items():
        by_file[file] += times
    changes = [sum(a[0] != b[0] for a, b in pairwise(calls)) for calls in (long, short)]
    files = {file for file, times in by_file.items() if times >= steps}
    return counts, steps, files, (changes[0] - changes[1]) / steps


def main() -> None:
    """Print a line for each kind of step."""
    options = options_of(__doc__, choices={"functions": TARGETS}, functions=None)
    torch.set_num_threads(1)
    pair = load_pair(device="cpu")
    decoder = SpeculativeDecoder(pair)

    def engine(temperature: float, detail: str) -> Callable[[int], int]:
        drawn = SamplingParams(temperature=temperature, ignore_eos=True, seed=1)
        ours: Any = {"num_draft_tokens": 4, "detail": detail, "drafter": "model"}

        def run(tokens: int) -> int:
            params = replace(drawn, max_tokens=tokens)
            return decoder.generate(PROMPT, params, **ours).metrics.num_spec_steps

        return run

    def naive(tokens: int) -> int:
        prompt = pair.tokenizer(PROMPT).input_ids
        steps = speculative_decode(pair, prompt, num_draft_tokens=4, max_new_tokens=tokens)
        return len(list(steps))

    cases = {"greedy": engine(0.0, "none"), "sampled": engine(0.8, "full"), "naive": naive}
    for name, run in cases.items():
        counts, steps, files, changes = path_of(run)
        calls, (most_calls, most_files, most_changes) = counts.total() / steps, TARGETS[name]
        aim = "" if most_changes is None else f" ({most_changes})"
        entered = f"{calls:4.0f} calls ({most_calls})  {len(files):3} files ({most_files})"
        print(f"{name:8} {entered}  {changes:4.0f} changes of file{aim}")
        if options.functions == name:
            for (file, function), count in counts.most_common():
                if count >= steps / 10:
                    print(f"{count / steps:9.1f}  {file:32} {function}")


if __name__ == "__main__":
    main()
