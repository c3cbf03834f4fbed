"""One path of the real decoder through its random choices, and the probabilities that its events
state."""

import math
from collections.abc import Sequence

import torch

from naive_speculate.events import Event, EventKind
from naive_speculate.events.event import TARGET_KINDS, VERDICT_KINDS, FinishReason
from naive_speculate.events.steps import steps
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.batch import Batch, Runner
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import Proposal
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.rules import pick
from naive_speculate.speculate.sequence import SequenceState
from naive_speculate.speculate.tree import Tree
from naive_speculate.speculate.verify import Verifier

ALMOST_ONE = math.nextafter(1.0, 0.0)


class Deviation(AssertionError):
    """A verifier or drafter contradicts what it states, so that its paths have no probabilities.

    Attributes:
        path: The path that shows it, one line per step.
    """

    def __init__(self, message: str, path: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.path = path


class Branches:
    """A random source that follows a given path through its choices, and records them.

    A path holds a number per choice: the result of a uniform draw, or the index of a possible
    token. After its end, draft tokens are accepted if possible, and the first possible token is
    taken. `asked` has the probabilities of the possible tokens per choice, None for a uniform
    draw; `coarse` is set once a draw used probabilities of less than float64, `drafting` while
    the drafter draws.
    """

    def __init__(self, path: Sequence[float]) -> None:
        self.path = path
        self.asked: list[list[float] | None] = []
        self.coarse = False
        self.drafting = False

    def _choice(self) -> float:
        index = len(self.asked) - 1
        return self.path[index] if index < len(self.path) else 0

    def uniform(self) -> float:
        if self.drafting:
            raise Deviation(
                "the drafter calls the row's uniform(), whose branches are unknown: use"
                " categorical(probs)"
            )
        self.asked.append(None)
        return self._choice()

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        probabilities = probs.tolist()
        total = sum(probabilities)
        if not abs(total - 1) <= 1e-5 or min(probabilities) < 0:
            who = "the drafter draws from" if self.drafting else "next_probs are"
            raise Deviation(
                f"{who} no distribution: {numbers(probabilities)}, which sum to {number(total)}"
            )
        possible = [token for token, p in enumerate(probabilities) if p > 0]
        weights = [probabilities[token] for token in possible]
        if probs.dtype != torch.float64 and len(possible) > 1:
            self.coarse = True
            weights = [weight / total for weight in weights]
        self.asked.append(weights)
        choice = int(self._choice())
        return torch.tensor(possible[choice if choice < len(possible) else 0])


class _Watched(Runner):
    """Records whether the drafter draws, and tokens that it states as drawn although it drew
    nothing."""

    def __init__(self, batch: Batch, source: Branches) -> None:
        super().__init__(
            batch.target, batch.slots, batch.drafter_of, batch.vocabulary, batch.vocab_size
        )
        self.source = source
        self.hint = ""

    def propose(self, rows: Sequence[SequenceState]) -> Proposal:
        before, self.source.drafting = len(self.source.asked), True
        draft = super().propose(rows)
        self.source.drafting = False
        if draft.probs is not None and len(self.source.asked) == before and draft.lengths[0]:
            stated = pick(draft.probs, draft.token_ids)[0, : draft.lengths[0]]
            if bool((stated < 1 - 1e-6).any()):
                self.hint = (
                    f"the drafter states q = {numbers(stated.tolist())}, but drew nothing from the"
                    " row's random source"
                )
        return draft

    def propose_tree(self, row: SequenceState) -> Tree | None:
        self.source.drafting = True
        tree = super().propose_tree(row)
        self.source.drafting = False
        return tree


class Path:
    """One run of the real decoder along a path; a `Deviation` if a verdict contradicts the draws
    and the stated probabilities.

    Attributes:
        taken: A number per choice of the run; begins with the path.
        stated: Per choice the probabilities of its branches, or for a uniform draw the
            acceptance probability in the events, 1.0 if no verdict used the draw.
        events: The run's events.
        tokens: The generated tokens, then -1 if the run ended in an error, whose text is `message`.
        drafted: Number of draft tokens.
        hint: A possible fault of its drafter; "" for none.
    """

    def __init__(
        self,
        decoder: SpeculativeDecoder,
        path: Sequence[float],
        prompt: list[int],
        params: SamplingParams,
        **options: object,
    ) -> None:
        source = Branches(path)
        request = Request(prompt, params, **options)  # type: ignore[arg-type]
        run = decoder.prepare(request, random=lambda seed, index: source)
        batch = decoder.new_batch()
        batch.runner = watched = _Watched(batch, source)
        (row,) = run.rows
        self.taken: list[float] = []
        self.stated: list[list[float] | float] = []
        self.drafted = 0
        self.events: list[Event] = []
        try:
            batch.admit(run.rows)
            while not run.over:
                began = len(source.asked)
                events = run.events(batch.step(run.rows))
                self.events += events
                self.taken = [*path, *[0.0] * len(source.asked)][: len(source.asked)]
                self._read_step(source.asked[began:], self.taken[began:], events, row.verifier)
        except Deviation as deviation:
            deviation.path = self.describe()
            raise
        except Exception as error:
            raise Deviation(
                f"it fails: {type(error).__name__}: {' '.join(str(error).split())}", self.describe()
            ) from error
        self.message = row.message
        self.hint, self.coarse = watched.hint, source.coarse
        failed = row.finish_reason == FinishReason.ERROR
        self.tokens = (*row.output_token_ids, *((-1,) if failed else ()))

    def _read_step(
        self,
        asked: Sequence[list[float] | None],
        taken: Sequence[float],
        events: Sequence[Event],
        verifier: Verifier,
    ) -> None:
        step = next((e for e in events if e.kind == EventKind.STEP), None)
        if step is None or step.tree is None:
            verdicts = [e for e in events if e.kind in VERDICT_KINDS]
            judged = {e.index: e.accept_prob for e in verdicts if e.accept_prob is not None}
        else:  # nodes are judged in their order
            accept_probs = [node.accept_prob for node in step.tree if node.accept_prob is not None]
            judged = dict(enumerate(accept_probs))
        if any(math.isnan(stated) for stated in judged.values()):
            raise Deviation(f"accept_probs hold NaN: {numbers(judged.values())}")
        uniforms = [drawn for drawn, branches in zip(taken, asked, strict=True) if branches is None]
        accept = iter([judged.get(index, 1.0) for index in range(len(uniforms))])
        self.stated += [next(accept) if branches is None else branches for branches in asked]
        self.drafted += sum(e.kind == EventKind.PROPOSED for e in events)
        if step is None or not uniforms:
            return
        passed = [index in judged and u < judged[index] for index, u in enumerate(uniforms)]
        accepted = [*passed, False].index(False) if step.tree is None else sum(passed)
        if verifier.judges_all:
            accepted = max((index + 1 for index, passes in enumerate(passed) if passes), default=0)
        if step.num_accepted != accepted:
            raise Deviation(
                f"the verifier states accept_probs {numbers(judged.values())} and was given u ="
                f" {exactly(uniforms)}: that accepts {accepted} of {len(uniforms)} draft tokens,"
                f" but num_accepted is {step.num_accepted}"
            )

    @property
    def probability(self) -> float:
        probability = 1.0
        for stated, taken in zip(self.stated, self.taken, strict=True):
            if isinstance(stated, list):
                probability *= stated[int(taken)]
            else:
                probability *= min(1.0, stated) if taken < stated else 1 - max(0.0, stated)
        return probability

    def other_end(self) -> list[float]:
        """The same choices with uniform draws at the other end of the same verdict: just below the
        probability, or just below 1."""
        ends = list(self.taken)
        for index, stated in enumerate(self.stated):
            if not isinstance(stated, list):
                passes = ends[index] < stated <= 1
                ends[index] = math.nextafter(stated, 0) if passes else ALMOST_ONE
        return ends

    def describe(self) -> list[str]:
        """A line per step."""
        judged = (*VERDICT_KINDS, *TARGET_KINDS)
        return [
            f"step {step.number + 1}: "
            + ", ".join(_describe_event(event) for event in step.events if event.kind in judged)
            for step in steps(self.events)
        ]


def _describe_event(event: Event) -> str:
    if event.kind in TARGET_KINDS:
        drawn = "resampled" if event.kind == EventKind.RESAMPLED else "drawn as bonus"
        return f"{event.token_id} {drawn}"
    probs = {"q": event.draft_prob, "p": event.target_prob}
    numbers = [f"{name} = {number(p)}" for name, p in probs.items() if p is not None]
    if event.accept_prob is not None and event.uniform is not None:
        numbers.append(f"u = {number(event.uniform)} against {number(event.accept_prob)}")
    return f"{event.token_id} drafted ({', '.join(numbers)}) and {event.kind.value}"


def number(value: float) -> str:
    return f"{value:.6g}"


def numbers(values: object) -> str:
    return f"[{', '.join(map(number, values))}]"  # type: ignore[call-overload]


def exactly(values: Sequence[float]) -> str:
    """With all digits, since draws may be one rounding away from the decision boundary."""
    return f"[{', '.join(map(repr, values))}]"
