"""Toy language models and exact enumeration, which are public: `naive_speculate.testing`."""

from naive_speculate import ModelPair, SamplingParams, VerifyStrategy
from naive_speculate.testing import (
    EOS,
    ToyModel,
    enumerate_outputs,
    exact_outputs,
    largest_difference,
)
from naive_speculate.tools.proofs.enumeration import Outputs

__all__ = [
    "EOS",
    "LOSSLESS",
    "ToyModel",
    "check_lossless",
    "enumerate_outputs",
    "exact_outputs",
    "largest_difference",
    "toys",
]

LOSSLESS = [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION]


def toys(vocab_size: int = 3, target: int = 1, draft: int = 2, **options: object) -> ModelPair:
    """A target and a draft of these seeds."""
    return ModelPair(*(ToyModel(vocab_size, seed, **options) for seed in (target, draft)))


LAST: list = []
"""Pair, parameters, prompt and outputs of the last plain decoding, for the next strategy."""


def check_lossless(
    pair: ModelPair,
    params: SamplingParams,
    num_draft_tokens: int | str = 2,
    prompt: list[int] | str = [1, 2],  # noqa: B006 (it is only read)
    within: float = 1e-12,
    **options: object,
) -> Outputs:
    """The exact output distribution, which is that of plain decoding by the same decoder."""
    if LAST[:3] != [pair, params, prompt]:
        LAST[:] = (
            pair,
            params,
            prompt,
            enumerate_outputs(pair, prompt, params, num_draft_tokens=0, detail="probs"),
        )
    options = {"num_draft_tokens": num_draft_tokens, "detail": "probs"} | options
    found = enumerate_outputs(pair, prompt, params, **options)
    assert abs(sum(found.values()) - 1) < 1e-6
    assert largest_difference(found, LAST[3]) < within
    return found
