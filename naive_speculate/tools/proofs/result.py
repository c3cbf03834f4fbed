"""The results of a proof."""

from collections.abc import Sequence
from dataclasses import dataclass

from naive_speculate.tools.goodness import POWER, Fit


@dataclass(frozen=True)
class Counterexample:
    """Shows that something is not lossless.

    Attributes:
        reason: The fault.
        case: The models, the prompt and the parameters.
        path: The decoder's choices that lead there, one line per step.
        token_ids: The generated tokens after which the next token's distribution differs; None
            if a verdict contradicts itself.
        expected, found: The next token's distribution there, under the target and of the decoder.
    """

    reason: str
    case: str
    path: Sequence[str] = ()
    token_ids: tuple[int, ...] | None = None
    expected: tuple[float, ...] = ()
    found: tuple[float, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.reason, f"  with {self.case}", *(f"  {step}" for step in self.path)])


@dataclass(frozen=True)
class Proof:
    """The result of an enumeration.

    Attributes:
        lossless: Whether the output distribution equals the target's; for samples, whether no
            difference was found.
        max_difference: The largest difference of an output's probability; NaN if a verdict
            contradicts its stated probability.
        num_paths: Number of enumerated paths, or of samples.
        counterexample: The first distribution that differs; None if none does.
        tolerance: Largest difference that counts as equal; for samples, the smallest bias that
            is found with 90% power.
        fits: For samples, the test of each case.
        error_rate: For samples, the rate of false alarms over all cases.
    """

    lossless: bool
    max_difference: float
    num_paths: int
    counterexample: Counterexample | None
    tolerance: float
    fits: tuple[Fit, ...] = ()
    error_rate: float = 0.0

    def __str__(self) -> str:
        if self.counterexample is None and self.fits:
            low, high = (max(fit.interval[end] for fit in self.fits) for end in (0, 1))
            return (
                f"no bias found in {self.num_paths} samples: a bias (total variation) of"
                f" {self.tolerance:g} or more is found with {POWER:.0%} power at"
                f" {self.error_rate:.1%} false alarms; 95% interval: {low:.3f} to {high:.3f}"
            )
        if self.counterexample is None:
            return f"lossless, to {self.tolerance:.0e}, over {self.num_paths} paths"
        return f"not lossless: {self.counterexample}"
