"""What several runs with the same settings add up to: tokens a pass, how often guesses are kept, and how fast it went."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from naive_speculate.events import Event, EventKind
from ui.experiments.lessons.lesson import Data, Progress, Trial
from ui.experiments.measured import undisturbed

SEEDS = (1, 2, 3)


@dataclass
class RunTotals:
    """Sums over the rounds of runs.

    Attributes:
        rounds: How many there were: passes of the target.
        drafted, kept, judged: Guesses that were made, kept, and looked at.
        kept_at: For every place in the window, how many rounds kept the guess there.
        times: Seconds of every round but each run's first, which pays for warming up.
        speeds: Tokens a second of every run by itself, reckoned as `result` does it.
    """

    rounds: int = 0
    drafted: int = 0
    kept: int = 0
    judged: int = 0
    kept_at: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Count a run."""
        own = RunTotals()
        for event in events:
            if event.kind != EventKind.STEP:
                continue
            drafted, kept = event.num_draft or 0, event.num_accepted or 0
            self.rounds += 1
            self.drafted += drafted
            self.kept += kept
            self.judged += kept + (kept < drafted)
            self.kept_at += [0] * (drafted - len(self.kept_at))
            for place in range(kept):
                self.kept_at[place] += 1
            own.rounds += 1
            own.kept += kept
            if event.step and event.total_seconds:
                own.times.append(event.total_seconds)
        self.times += own.times
        self.speeds += [own.speed] if own.speed else []

    @property
    def speed(self) -> float | None:
        """Tokens a second, had all rounds been as quick as the quicker ones: other programs do not count."""
        return (1 + self.kept / self.rounds) / undisturbed(self.times) if self.times else None

    def result(self) -> dict[str, Any]:
        """The figures that a picture needs, as JSON has them; empty before the first round."""
        if not self.rounds:
            return {}
        found = asdict(self)
        del found["times"]
        return found | {
            "tokens_a_pass": 1 + self.kept / self.rounds,
            "kept_share": self.kept / self.drafted if self.drafted else None,
            "alpha": self.kept / self.judged if self.judged else None,
            "speed": self.speed,
        }


def run_all(trial: Trial, cases: Mapping[str, Mapping[str, Any]], **common: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run every case with several seeds, turn by turn, so that a busy moment of the machine hits all alike.

    Yields:
        tuple: The case that is run now, and what is known of each so far; the last one names none.

    Raises:
        ValueError: Names the setting that cannot be.
    """
    known = {name: RunTotals() for name in cases}
    for seed in SEEDS:
        for name, changes in cases.items():
            yield name, _known(known)
            known[name].add(trial.run(**{**common, **changes}, seed=seed))
            if trial.cancel.is_set():
                return
    yield "", _known(known)


def progress_of(name: str, known: dict[str, Any], cases: Mapping[str, Any], said: str) -> Progress:
    """What an experiment says between two runs, and what it has found once every case was timed."""
    done = len(known) == len(cases) and all(run["speed"] for run in known.values())
    return Progress(said if name else "Done.", {"known": known} if done else None)


def gain(data: Data, name: str, plain: str) -> float:
    """How many times as fast as plain decoding one of the cases was."""
    return float(data["known"][name]["speed"] / data["known"][plain]["speed"])


def _known(totals: Mapping[str, RunTotals]) -> dict[str, Any]:
    return {name: result for name, total in totals.items() if (result := total.result())}
