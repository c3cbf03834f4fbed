"""Verification strategies: one file each, and their registry. `Verifier.judge` is what all of
them implement."""

from enum import StrEnum

from naive_speculate.speculate.rules import Verifier
from naive_speculate.speculate.verify.block import BlockVerifier
from naive_speculate.speculate.verify.greedy import GreedyVerifier
from naive_speculate.speculate.verify.rejection import RejectionSampler
from naive_speculate.speculate.verify.sample_match import SampleMatchVerifier
from naive_speculate.speculate.verify.typical import TypicalAcceptanceSampler


class VerifyStrategy(StrEnum):
    """How drafts are judged. Speculative sampling, block verification and sample matching give
    exactly the target's distribution; greedy match writes what the target writes at temperature
    0, whatever the temperature; typical acceptance is lossy."""

    GREEDY_MATCH = "greedy_match"
    SPECULATIVE_SAMPLING = "speculative_sampling"
    TYPICAL_ACCEPTANCE = "typical_acceptance"
    BLOCK_VERIFICATION = "block_verification"
    SAMPLE_MATCH = "sample_match"


VERIFIERS: dict[str, Verifier] = {
    VerifyStrategy.GREEDY_MATCH: GreedyVerifier(),
    VerifyStrategy.SPECULATIVE_SAMPLING: RejectionSampler(),
    VerifyStrategy.TYPICAL_ACCEPTANCE: TypicalAcceptanceSampler(),
    VerifyStrategy.BLOCK_VERIFICATION: BlockVerifier(),
    VerifyStrategy.SAMPLE_MATCH: SampleMatchVerifier(),
}
"""Verifiers by the name that `verify_strategy` takes; `VERIFIERS["mine"] = Mine()` adds one."""


def verifier_for(verify_strategy: str, greedy: bool) -> Verifier:
    """What judges a sequence's drafts: at temperature 0, greedy matching under every strategy.
    Raises `ValueError` if no verifier has this name."""
    if not isinstance(verify_strategy, str) or verify_strategy not in VERIFIERS:
        raise ValueError(
            f"verify_strategy must be one of {', '.join(VERIFIERS)}, got {verify_strategy!r:.80}"
        )
    return VERIFIERS[VerifyStrategy.GREEDY_MATCH if greedy else verify_strategy]


__all__ = [
    "VERIFIERS",
    "BlockVerifier",
    "GreedyVerifier",
    "RejectionSampler",
    "SampleMatchVerifier",
    "TypicalAcceptanceSampler",
    "Verifier",
    "VerifyStrategy",
    "verifier_for",
]
