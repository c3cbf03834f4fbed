"""Totals over several runs with the same settings: tokens per pass, acceptance and speed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate, zip_longest
from typing import Any

from naive_speculate.events import EventKind
from naive_speculate.events.trace import Trace
from ui.experiments.lessons.lesson import Data, Progress, Trial
from ui.experiments.spread import undisturbed

SEEDS = (1, 2, 3)


@dataclass
class RunTotals:
    """Sums over the steps of runs."""

    rounds: int = 0  # steps, which is target passes
    # drafted, kept, judged: draft tokens that were proposed, accepted, and judged
    drafted: int = 0
    kept: int = 0
    judged: int = 0
    kept_at: list[int] = field(default_factory=list)  # for each position in the window, the number of steps that accepted it
    times: list[float] = field(default_factory=list)  # seconds per step, without each run's first, which includes the warm-up
    speeds: list[float] = field(default_factory=list)  # tokens per second of each run, computed as in `result`

    def add(self, trace: Trace) -> None:
        """Count a run."""
        m = trace.metrics
        times = [event.total_seconds for event in trace if event.kind == EventKind.STEP and event.step and event.total_seconds]
        self.rounds += m.num_spec_steps
        self.drafted += m.num_draft_tokens
        self.kept += m.num_accepted_draft_tokens
        self.judged += m.num_accepted_draft_tokens + m.num_rejected_draft_tokens
        kept_at = list(accumulate(m.acceptance_histogram[:0:-1]))[::-1]
        self.kept_at = [sum(both) for both in zip_longest(self.kept_at, kept_at, fillvalue=0)]
        self.times += times
        self.speeds += [(m.mean_acceptance_length or 0.0) / undisturbed(times)] if times else []

    def result(self) -> dict[str, Any]:
        """The numbers for a picture, in JSON types; empty before the first step. The speed is that of undisturbed steps."""
        if not self.rounds:
            return {}
        tokens_per_pass = 1 + self.kept / self.rounds
        found = asdict(self)
        del found["times"]
        return found | {
            "tokens_a_pass": tokens_per_pass,
            "kept_share": self.kept / self.drafted if self.drafted else None,
            "alpha": self.kept / self.judged if self.judged else None,
            "speed": tokens_per_pass / undisturbed(self.times) if self.times else None,
        }


def run_all(trial: Trial, cases: Mapping[str, Mapping[str, Any]], **common: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run every case with several seeds, alternating, so that a disturbance affects all cases. Yields the current case, empty
    at the end, and the results so far."""
    known = {name: RunTotals() for name in cases}
    for seed in SEEDS:
        for name, changes in cases.items():
            yield name, _known(known)
            known[name].add(trial.run(**{**common, **changes}, seed=seed))
            if trial.cancel.is_set():
                return
    yield "", _known(known)


def progress_of(name: str, known: dict[str, Any], cases: Mapping[str, Any], status: str) -> Progress:
    """An experiment's progress between two runs; it has a result once every case was timed."""
    done = len(known) == len(cases) and all(run["speed"] for run in known.values())
    return Progress(status if name else "Done.", {"known": known} if done else None)


def speedup(data: Data, name: str, plain: str) -> float:
    """The speedup of a case over plain decoding."""
    return float(data["known"][name]["speed"] / data["known"][plain]["speed"])


def _known(totals: Mapping[str, RunTotals]) -> dict[str, Any]:
    return {name: result for name, total in totals.items() if (result := total.result())}
