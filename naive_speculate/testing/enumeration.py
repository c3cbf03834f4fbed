"""All paths of the real decoder through its random choices: its output distribution, exactly."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from naive_speculate.pair import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.testing.paths import Deviation, Path, exactly, numbers
from naive_speculate.testing.toys import EOS

Outputs = dict[tuple[int, ...], float]
"""A distribution of outputs: probabilities by generated tokens; those of a run that ended in an error end with -1."""

_REPEATS = 16
"""So often a run is made again before it is said to repeat itself: a part that draws from elsewhere may hit upon the same."""


@dataclass
class Enumeration:
    """What all paths come to.

    Attributes:
        outputs: The output distribution.
        likeliest: Of every output, its most probable path and that one's probability.
        num_paths: How many there are.
        num_drafted: How many tokens were drafted on all of them.
        coarse: Whether some draw was from probabilities of less than float64.
        hint: What looks wrong about the drafter; "" for nothing.
        message: What went wrong on a path that ended in an error; None where none did.
    """

    outputs: Outputs = field(default_factory=dict)
    likeliest: dict[tuple[int, ...], tuple[float, list[float]]] = field(default_factory=dict)
    num_paths: int = 0
    num_drafted: int = 0
    coarse: bool = False
    hint: str = ""
    message: str | None = None

    def add(self, run: Path) -> None:
        """Take a path in."""
        probability = run.probability
        self.outputs[run.tokens] = self.outputs.get(run.tokens, 0.0) + probability
        if run.tokens not in self.likeliest or probability > self.likeliest[run.tokens][0]:
            self.likeliest[run.tokens] = probability, run.taken
        self.num_paths += 1
        self.num_drafted += run.drafted
        self.coarse |= run.coarse
        self.hint = self.hint or run.hint
        self.message = self.message or run.message


def enumerate_paths(pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object) -> Enumeration:
    """Every path of the real decoder through drafts, verdicts and resamples, with its probability.

    The acceptance probabilities that its events state are not taken on trust. Wherever a path parts from those before it, and
    there is an acceptance draw from there on, it is run twice: with draws of 0 and then the largest number below the stated one
    where a draft is to be kept, with that number itself and then the largest below 1 where it is to be refused. Both runs must
    be the same.

    Args:
        pair: Models of few tokens.
        prompt: Token ids.
        params: How tokens are chosen; `max_tokens` is best 3 or 4.
        **options: As for `SpeculativeDecoder.stream`; `detail` must not be "none".

    Raises:
        Deviation: If something else happens on a path than is stated, or not the same every time.
    """
    decoder, found = SpeculativeDecoder(pair), Enumeration()
    waiting: list[tuple[list[float], list[list[float] | float | None]]] = [([], [])]
    while waiting:
        path, known = waiting.pop()
        run = Path(decoder, path, prompt, params, **options)
        if run.stated[: len(known)] != known:
            raise _unsteady(run)
        parted = run.stated[max(0, len(path) - 1) :]  # the draws before were walked along where the path parts from
        if any(not isinstance(stated, list) for stated in parted):
            again = Path(decoder, run.other_end(), prompt, params, **options)
            if (again.tokens, again.stated) != (run.tokens, run.stated):
                repeated = [Path(decoder, run.taken, prompt, params, **options) for _ in range(_REPEATS)]
                raise _differing(run, again, repeated)
        for place in range(len(path), len(run.taken)):
            stated, before = run.stated[place], run.taken[:place]
            if isinstance(stated, list):
                waiting += [([*before, other], run.stated[: place + 1]) for other in range(1, len(stated))]
            elif stated is not None and 0 < stated < 1:
                waiting.append(([*before, stated], run.stated[: place + 1]))
        found.add(run)
    return found


def enumerate_outputs(pair: ModelPair, prompt: list[int], params: SamplingParams, **options: object) -> Outputs:
    """See `enumerate_paths`; a `Deviation` also if nothing was drafted on any path, although it could have been."""
    found = enumerate_paths(pair, prompt, params, **options)
    if not found.num_drafted and options.get("num_draft_tokens") != 0:
        raise Deviation("nothing was drafted, which proves nothing")
    return found.outputs


def exact_outputs(
    next_probs: Callable[[tuple[int, ...]], torch.Tensor], max_tokens: int, stops: frozenset[int] = frozenset({EOS})
) -> Outputs:
    """The distribution of plain decoding: `next_probs` gives the next token's probabilities after the generated ones."""
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
    """Largest difference of the two distributions at any output."""
    return max(abs(a.get(tokens, 0.0) - b.get(tokens, 0.0)) for tokens in a.keys() | b.keys())


def _unsteady(run: Path) -> Deviation:
    why = "something draws from elsewhere, or remembers earlier runs"
    return Deviation(f"the same choices of the row's random source do not repeat the run: {why}", run.told())


def _differing(run: Path, again: Path, repeated: list[Path]) -> Deviation:
    """Why two runs differ in which every draw is on the same side of the number that it is said to be compared with."""
    if any((other.tokens, other.stated) != (run.tokens, run.stated) for other in repeated):
        return _unsteady(run)
    stated = zip(run.stated, again.stated, strict=False)
    place = next((place for place, (one, other) in enumerate(stated) if one != other), 0)
    outcomes = [f"{exactly(path.taken)} gives {list(path.tokens)}" for path in (run, again)]
    if run.tokens == again.tokens:
        outcomes = [f"after {exactly(path.taken[:place])} comes {_told(path.stated[place])}" for path in (run, again)]
    why = f"draws on the same side of the stated accept_probs decide differently: {', '.join(outcomes)}"
    return Deviation(why, run.told())


def _told(stated: list[float] | float | None) -> str:
    return f"a draw from {numbers(stated)}" if isinstance(stated, list) else f"a verdict with {stated}"
