"""One path of the real decoder through its random choices, and what its events say about them."""

import math
from collections.abc import Sequence

import torch

from naive_speculate.events import Event, EventKind
from naive_speculate.events.event import FinishReason
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import Proposal
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.verify import Verifier

ALMOST_ONE = math.nextafter(1.0, 0.0)
_JUDGED = {EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED}


class Deviation(AssertionError):
    """A verifier or a drafter does something else than it states, so that its paths have no probabilities.

    Attributes:
        told: The path that shows it, in words, a step a line; as far as it came.
    """

    def __init__(self, message: str, told: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.told = told


class Branches:
    """A random source that takes a given path through its choices, and remembers what it was asked.

    A path holds a number for every choice: what a uniform draw gives, or which of the possible tokens a categorical draw takes.
    Behind its end, a draft is kept if that is possible at all, and the first possible token is taken.

    Attributes:
        asked: For every choice the probabilities of the possible tokens, or None where it was a uniform draw.
        coarse: Whether some draw was from probabilities of less than float64.
        drafting: Whether it is the drafter that draws.
    """

    def __init__(self, path: Sequence[float]) -> None:
        self.path = path
        self.asked: list[list[float] | None] = []
        self.coarse = False
        self.drafting = False

    def _choice(self) -> float:
        place = len(self.asked) - 1
        return self.path[place] if place < len(self.path) else 0

    def uniform(self) -> float:
        """See `RandomSource.uniform`."""
        if self.drafting:
            raise Deviation("the drafter calls the row's uniform(), whose branches are unknown: draw with categorical(probs)")
        self.asked.append(None)
        return self._choice()

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        """See `RandomSource.categorical`."""
        given = probs.tolist()
        total = sum(given)
        if not abs(total - 1) <= 1e-5 or min(given) < 0:
            who = "the drafter draws from" if self.drafting else "next_probs are"
            raise Deviation(f"{who} no distribution: {numbers(given)}, which sum to {number(total)}")
        possible = [token for token, p in enumerate(given) if p > 0]
        weights = [given[token] for token in possible]
        if probs.dtype != torch.float64 and len(possible) > 1:
            self.coarse = True
            weights = [weight / total for weight in weights]
        self.asked.append(weights)
        choice = int(self._choice())
        return torch.tensor(possible[choice if choice < len(possible) else 0])


class _Watched(Batch):
    """Notes when it is the drafter that draws, and tokens that it says were drawn although it drew nothing."""

    def __init__(self, decoder: SpeculativeDecoder, source: Branches) -> None:
        super().__init__(decoder.pair, decoder.admission.vocabulary)
        self.source = source
        self.hint = ""

    def propose(self, rows: Sequence[SequenceState]) -> Proposal:
        before, self.source.drafting = len(self.source.asked), True
        try:
            draft = super().propose(rows)
        finally:
            self.source.drafting = False
        if draft.probs is not None and len(self.source.asked) == before and draft.lengths[0]:
            stated = pick(draft.probs, draft.token_ids)[0, : draft.lengths[0]]
            if bool((stated < 1 - 1e-6).any()):
                self.hint = f"the drafter states q = {numbers(stated.tolist())}, but drew nothing from the row's random source"
        return draft


class Path:
    """One run of the real decoder along a path.

    Attributes:
        taken: A number for every choice of the run; as far as the path went, the path.
        stated: For every choice the probabilities of its branches, or of a uniform draw the one that the events say it was
            compared with; None where no verdict looked at it.
        tokens: The generated tokens; -1 stands at the end of those of a run that ended in an error.
        drafted: How many tokens were drafted.
        message: What went wrong in a run that ended in an error.
        hint: What looks wrong about its drafter; "" for nothing.
        coarse: As of `Branches`.

    Raises:
        Deviation: If a verdict does not follow from the draws and the probabilities that the events state.
    """

    def __init__(
        self, decoder: SpeculativeDecoder, path: Sequence[float], prompt: list[int], params: SamplingParams, **options: object
    ) -> None:
        source = Branches(path)
        request = Request(prompt, params, **options)  # type: ignore[arg-type]
        run, batch = decoder.prepare(request, random=lambda seed, index: source), _Watched(decoder, source)
        (row,) = run.rows
        self.taken: list[float] = []
        self.stated: list[list[float] | float | None] = []
        self.drafted = 0
        self._events: list[Event] = []
        try:
            batch.admit(run.rows)
            while not run.over:
                began = len(source.asked)
                events = run.tell(batch.step(run.rows))
                self._events += events
                self.taken = [*path, *[0.0] * len(source.asked)][: len(source.asked)]
                self._read_step(source.asked[began:], self.taken[began:], events, row.verifier)
        except Deviation as deviation:
            deviation.told = self.told()
            raise
        except Exception as error:
            raise Deviation(f"it fails: {type(error).__name__}: {' '.join(str(error).split())}", self.told()) from error
        self.message = row.message
        self.hint, self.coarse = batch.hint, source.coarse
        self.tokens = (*row.output_token_ids, *((-1,) if row.finish_reason == FinishReason.ERROR else ()))

    def _read_step(
        self, asked: Sequence[list[float] | None], taken: Sequence[float], events: Sequence[Event], verifier: Verifier
    ) -> None:
        judged = {e.index: e.accept_prob for e in events if e.kind in _JUDGED and e.accept_prob is not None}
        if any(math.isnan(stated) for stated in judged.values()):
            raise Deviation(f"accept_probs hold NaN: {numbers(judged.values())}")
        uniforms = [drawn for drawn, branches in zip(taken, asked, strict=True) if branches is None]
        verdicts = iter([judged.get(place) for place in range(len(uniforms))])
        self.stated += [next(verdicts) if branches is None else branches for branches in asked]
        self.drafted += sum(e.kind == EventKind.PROPOSED for e in events)
        step = next((e for e in events if e.kind == EventKind.STEP), None)
        if step is None or not uniforms:
            return
        passed = [place in judged and u < judged[place] for place, u in enumerate(uniforms)] + [False]
        kept = passed.index(False)
        if verifier.judges_all:
            kept = max((place + 1 for place, passes in enumerate(passed) if passes), default=0)
        if step.num_accepted != kept:
            raise Deviation(
                f"the verifier states accept_probs {numbers(judged.values())} and was given u = {exactly(uniforms)}: "
                f"that keeps {kept} of {len(uniforms)} drafts, but num_accepted is {step.num_accepted}"
            )

    @property
    def probability(self) -> float:
        """The probability of the run's every choice."""
        return math.prod(
            1.0
            if stated is None
            else stated[int(taken)]
            if isinstance(stated, list)
            else min(1.0, stated)
            if taken < stated
            else 1 - max(0.0, stated)
            for stated, taken in zip(self.stated, self.taken, strict=True)
        )

    def other_end(self) -> list[float]:
        """The same choices, with uniform draws from the other end of the same verdict: just small enough, or just below 1."""
        return [
            taken
            if isinstance(stated, list)
            else math.nextafter(stated, 0)
            if stated is not None and taken < stated <= 1
            else ALMOST_ONE
            for stated, taken in zip(self.stated, self.taken, strict=True)
        ]

    def told(self) -> list[str]:
        """The path in words, a step a line."""
        steps: dict[int, list[str]] = {}
        for event in self._events:
            if event.kind in _JUDGED | {EventKind.RESAMPLED, EventKind.BONUS} and event.step is not None:
                steps.setdefault(event.step, []).append(_in_words(event))
        return [f"step {step + 1}: {', '.join(words)}" for step, words in steps.items()]


def _in_words(event: Event) -> str:
    if event.kind in (EventKind.RESAMPLED, EventKind.BONUS):
        drawn = "resampled" if event.kind == EventKind.RESAMPLED else "drawn as bonus"
        return f"{event.token_id} {drawn}"
    known = [f"{name} = {number(p)}" for name, p in (("q", event.draft_prob), ("p", event.target_prob)) if p is not None]
    if event.accept_prob is not None and event.uniform is not None:
        known.append(f"u = {number(event.uniform)} against {number(event.accept_prob)}")
    fate = {EventKind.ACCEPTED: "kept", EventKind.REJECTED: "refused"}.get(event.kind, "discarded")
    return f"{event.token_id} drafted ({', '.join(known)}) and {fate}"


def number(value: float) -> str:
    """For people."""
    return f"{value:.6g}"


def numbers(values: object) -> str:
    """For people."""
    return f"[{', '.join(map(number, values))}]"  # type: ignore[call-overload]


def exactly(values: Sequence[float]) -> str:
    """To the last digit: such draws lie a rounding away from where the verdict turns."""
    return f"[{', '.join(map(repr, values))}]"
