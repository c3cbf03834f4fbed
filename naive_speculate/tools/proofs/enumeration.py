"""Enumerates all paths of the real decoder through its random choices: its exact output
distribution."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch

from naive_speculate.pair import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.tools.proofs.paths import Deviation, Path, exactly, numbers
from naive_speculate.tools.proofs.toys import EOS

Outputs = dict[tuple[int, ...], float]
"""Probabilities by generated tokens; the tokens of a run that ended in an error end with -1."""

# repetitions of a run before it counts as reproducible, since a draw from another source may repeat
# by chance
_REPEATS = 16


@dataclass
class Enumeration:
    """The result of all paths."""

    outputs: Outputs = field(default_factory=dict)  # the output distribution
    # per output, its most probable path and the path's probability
    likeliest: dict[tuple[int, ...], tuple[float, list[float]]] = field(default_factory=dict)
    num_paths: int = 0  # number of paths
    num_drafted: int = 0  # draft tokens on all paths
    coarse: bool = False  # whether some draw used probabilities of less than float64
    hint: str = ""  # a possible fault of the drafter; "" for none
    message: str | None = None  # the message of a path that ended in an error; None if none did

    def add(self, run: Path) -> None:
        probability = run.probability
        self.outputs[run.tokens] = self.outputs.get(run.tokens, 0.0) + probability
        if run.tokens not in self.likeliest or probability > self.likeliest[run.tokens][0]:
            self.likeliest[run.tokens] = probability, run.taken
        self.num_paths += 1
        self.num_drafted += run.drafted
        self.coarse |= run.coarse
        self.hint = self.hint or run.hint
        self.message = self.message or run.message


def every_path(
    pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object
) -> Iterator[Path]:
    """Every path of the real decoder through draft tokens, verdicts and resampled tokens.

    The stated acceptance probabilities are checked. A path with an acceptance draw after its
    branching point is run twice: for accepted tokens with draws of 0 and of the largest number
    below the stated probability, for rejected tokens with that probability and with the largest
    number below 1. Both runs must agree. `options` are as for `SpeculativeDecoder.stream`;
    `detail` must not be "none". Raises `Deviation` if a path contradicts its stated
    probabilities, or is not reproducible.
    """
    decoder = SpeculativeDecoder(pair)
    pending: list[tuple[list[float], list[list[float] | float]]] = [([], [])]
    while pending:
        path, stated_before = pending.pop()
        run = Path(decoder, path, prompt, params, **options)
        if run.stated[: len(stated_before)] != stated_before:
            raise _not_reproducible(run)
        # earlier draws were checked on the path that this one branches from
        branched = run.stated[max(0, len(path) - 1) :]
        if any(not isinstance(stated, list) for stated in branched):
            again = Path(decoder, run.other_end(), prompt, params, **options)
            if (again.tokens, again.stated) != (run.tokens, run.stated):
                repeat = partial(Path, decoder, run.taken, prompt, params, **options)
                raise _differing(run, again, [repeat() for _ in range(_REPEATS)])
        for index in range(len(path), len(run.taken)):
            stated, others = run.stated[index], list[float]()
            if isinstance(stated, list):
                others += range(1, len(stated))
            elif 0 < stated < 1:
                others.append(stated)
            so_far = run.taken[:index], run.stated[: index + 1]
            pending += [([*so_far[0], other], so_far[1]) for other in others]
        yield run


def enumerate_paths(
    pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object
) -> Enumeration:
    """The sums over `every_path`."""
    enumeration = Enumeration()
    for run in every_path(pair, prompt, params, **options):
        enumeration.add(run)
    return enumeration


def enumerate_outputs(
    pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object
) -> Outputs:
    """The output distribution over `every_path`; also a `Deviation` if drafting was possible and
    nothing was drafted."""
    enumeration = enumerate_paths(pair, prompt, params, **options)
    if not enumeration.num_drafted and options.get("num_draft_tokens") != 0:
        raise Deviation("nothing was drafted, which proves nothing")
    return enumeration.outputs


def exact_outputs(
    next_probs: Callable[[tuple[int, ...]], torch.Tensor],
    max_tokens: int,
    stops: frozenset[int] = frozenset({EOS}),
) -> Outputs:
    """The distribution of plain decoding: `next_probs` returns the next token's probabilities
    after the generated ones."""
    outputs: Outputs = {}

    def walk(tokens: tuple[int, ...], probability: float) -> None:
        if len(tokens) == max_tokens or (tokens and tokens[-1] in stops):
            outputs[tokens] = outputs.get(tokens, 0.0) + probability
            return
        for token, p in enumerate(next_probs(tokens).tolist()):
            if p > 0:
                walk((*tokens, token), probability * p)

    walk((), 1.0)
    return outputs


def largest_difference(a: Outputs, b: Outputs) -> float:
    """The largest difference of the two distributions at any output."""
    return max(abs(a.get(tokens, 0.0) - b.get(tokens, 0.0)) for tokens in a.keys() | b.keys())


def _not_reproducible(run: Path) -> Deviation:
    why = "something draws from another source, or remembers earlier runs"
    return Deviation(
        f"the same choices of the row's random source do not repeat the run: {why}", run.describe()
    )


def _differing(run: Path, again: Path, repeated: list[Path]) -> Deviation:
    """Two runs differ, although every draw is on the same side of the stated probability."""
    if any((other.tokens, other.stated) != (run.tokens, run.stated) for other in repeated):
        return _not_reproducible(run)
    stated = zip(run.stated, again.stated, strict=False)
    first = next((index for index, (one, other) in enumerate(stated) if one != other), 0)
    outcomes = [f"{exactly(path.taken)} gives {list(path.tokens)}" for path in (run, again)]
    if run.tokens == again.tokens:
        both = [(exactly(path.taken[:first]), path.stated[first]) for path in (run, again)]
        outcomes = [
            f"after {taken} comes a "
            + (f"draw from {numbers(one)}" if isinstance(one, list) else f"verdict with {one}")
            for taken, one in both
        ]
    why = "draws on the same side of the stated accept_probs decide differently"
    return Deviation(f"{why}: {', '.join(outcomes)}", run.describe())
