"""One page: what was tested, what differs, how certain that is, and what it cost."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from naive_speculate.text import visible
from naive_speculate.tools.goodness import POWER, smallest_bias
from naive_speculate.tools.prove.evidence import ERROR_RATE, NEAR_TIE, Evidence, Finding, Greedy
from naive_speculate.tools.prove.plan import Cost
from naive_speculate.tools.tables import table

_SHOWN = 12
_PARTS = (
    *("settings", "against", "greedy", "drafted", "num_answers", "cost", "complete"),
    "one_text",
)


class Status(IntEnum):
    """The exit status."""

    NO_DIFFERENCE = 0
    DIFFERS = 1
    UNDECIDED = 3


@dataclass(frozen=True)
class Drafted:
    """What was tested of draft tokens."""

    # whether the server shows which tokens are of steps with drafts, by their missing logprobs;
    # otherwise all tokens after the first may be
    known: bool
    num_tokens: int  # sampled tokens of steps with drafts that were tested
    num_left_out: int  # sampled tokens whose probabilities are not known
    smallest_bias: float | None  # the total variation that is found with 90% power in them

    @classmethod
    def of(cls, evidence: Evidence, findings: Sequence[Finding]) -> "Drafted":
        rate = ERROR_RATE / max(1, len(findings))
        drafted = [one for one in findings if one.num_drafted and one.fit.degrees]
        biases = [smallest_bias(one.num_drafted, one.fit.degrees, rate) for one in drafted]
        num_tokens = sum(one.num_drafted for one in findings)
        least = min(biases, default=None)
        return cls(evidence.tells_drafts, num_tokens, evidence.num_left_out, least)

    def __str__(self) -> str:
        which = "that may be drafted (all but the first, which most engines do not draft)"
        if self.known:
            how = "the server states no logprobs there; they were requested by prefix"
            which = f"of steps with drafts ({how})"
        power = "no bias could be found in them"
        if self.smallest_bias is not None:
            power = f"a bias in them from {self.smallest_bias:.3f} is found with {POWER:.0%} power"
        words = f"{self.num_tokens} sampled tokens were tested {which}: {power}."
        return words + (f" {_left_out(self.num_left_out)}" if self.num_left_out else "")


def _left_out(number: int) -> str:
    return f"{number} more are left out, as their probabilities are not known."


class Report:
    """Of a server whose answers were compared with `against`; `cost` is of this run."""

    def __init__(self, evidence: Evidence, against: str, cost: Cost) -> None:
        self.settings, self.against = evidence.settings, against
        self.findings, self.greedy = evidence.findings(), evidence.greedy()
        self.drafted = Drafted.of(evidence, self.findings)
        # completions that were tested, those of an earlier run included
        self.num_answers = len(evidence.answers)
        self.cost, self.complete, self.one_text = cost, evidence.complete(), evidence.one_text()

    @property
    def status(self) -> Status:
        if self.greedy.num_differing or any(finding.differs for finding in self.findings):
            return Status.DIFFERS
        tested = any(finding.fit.degrees for finding in self.findings)
        return Status.NO_DIFFERENCE if self.complete and tested else Status.UNDECIDED

    @property
    def verdict(self) -> str:
        if self.status == Status.NO_DIFFERENCE:
            return "No difference found."
        if self.status == Status.UNDECIDED:
            why = self.cost.stopped or "no token frequencies could be tested"
            return f"Undecided: no difference found so far, but {why}."
        differs = "The server's output differs from the distribution of its model"
        if self.one_text:
            return (
                f"{differs}: each prompt gets the same text every time. It seems to ignore the"
                " temperature."
            )
        return (
            f"{differs}. Speculative decoding is one cause, a truncation (top-k, top-p, min-p) or"
            " penalty that is still on another. Compare with speculation switched off."
        )

    def to_dict(self) -> dict[str, Any]:
        """For pydantic's JSON."""
        tests = [
            asdict(one) | {"differs": one.differs, "interval": one.fit.interval}
            for one in self.findings
        ]
        verdict = {"status": int(self.status), "verdict": self.verdict, "error_rate": ERROR_RATE}
        return verdict | {name: getattr(self, name) for name in _PARTS} | {"tests": tests}

    def show(self, console: Console) -> None:
        def say(text: str, style: str = "") -> None:
            words = text.lstrip()
            if console.is_terminal:  # a line breaks between words, and keeps its indentation
                console.print(Padding(Text(words, style), (0, 0, 0, len(text) - len(words))))
            else:
                console.print(Text(text, style), soft_wrap=True)

        settings, greedy, cost = self.settings, self.greedy, self.cost
        say("Tested", "bold")
        say(f"  {visible(settings.model)} at {settings.endpoint}, against {self.against}")
        for number, prompt in enumerate(settings.prompts, 1):
            say(f"  prompt {number}: {visible(prompt):.100}")
        ways = "; ".join(way.name for way in settings.ways)
        temperatures = ", ".join(f"{t:g}" for t in settings.temperatures)
        say(f"  {self.num_answers} completions at temperatures 0 and {temperatures}: {ways}")
        say("What differs", "bold")
        differing = [finding for finding in self.findings if finding.differs]
        tested = [finding for finding in self.findings if finding.fit.degrees]
        shown = "; the most significant:" if tested else "."
        say(f"  {len(differing)} of {len(tested)} tests of token frequencies differ{shown}")
        if tested:
            rows = [_row(finding) for finding in tested[:_SHOWN]]
            styles = ["bold red" if finding.differs else "" for finding in tested[:_SHOWN]]
            shown_table = table(rows, left=["test"], styles=styles, box=None, padding=(0, 1, 0, 0))
            console.print(shown_table, soft_wrap=False)
            say("  T: temperature; p: adjusted; finds: from which bias on, with 90% power")
        if few := len(self.findings) - len(tested):
            say(f"  {few} more tests have too few samples.")
        say(f"  {greedy_words(greedy)}")
        say("How certain", "bold")
        say(
            f"  A correct server raises any alarm with probability {ERROR_RATE:g} at most (Holm,"
            f" {len(self.findings)} tests)."
        )
        powers = [finding.smallest_bias for finding in self.findings if finding.fit.degrees]
        if powers:
            least, most = min(powers), max(powers)
            say(
                f"  A bias (total variation) from {least:.3f} in the largest test to {most:.3f} in"
                f" the smallest is found with {POWER:.0%} power."
            )
            say(f"  {self.drafted}")
        say("Cost", "bold")
        say(
            f"  {cost.num_requests} requests in {cost.seconds:.0f} s"
            + (f"; {cost.stopped}." if cost.stopped else ".")
        )
        say(self.verdict, "bold")


def greedy_words(greedy: Greedy) -> str:
    parted = f"The texts of {greedy.num_parted} prompts are not all the same."
    said = [
        f"{greedy.num_differing} of {greedy.num_tokens} greedy tokens in {greedy.num_texts} texts"
        " are less probable than the most probable one by more than a near tie"
        f" ({NEAR_TIE:g} nats); the largest gap is {greedy.largest_gap:.3f}.",
        *([parted] if greedy.num_parted else []),
        *([_left_out(greedy.num_left_out)] if greedy.num_left_out else []),
    ]
    return " ".join(said)


def _row(finding: Finding) -> dict[str, str]:
    low, high = finding.fit.interval
    return {
        "test": finding.name.replace("temperature", "T").replace(", position", ", token"),
        "samples": f"{finding.fit.num_samples}",
        "bias": f"{finding.fit.bias:.3f}",
        "95% interval": f"{low:.3f} to {high:.3f}",
        "p": f"{finding.p_value:.2g}",
        "finds": f"{finding.smallest_bias:.3f}",
    }
