"""The race's result in words: lanes of different lengths, and times that other programs disturbed."""

from typing import Any

import pytest

VERDICT = "async ([run, plain, drafts]) => (await import('/race.js')).verdict(run, plain, drafts, 1)"
GREEDY, SAMPLED = {"temperature": 0}, {"temperature": 0.7}


def lane(tokens: int, seconds: float, passes: int) -> dict[str, Any]:
    """A lane whose first pass takes a second, because it also processes the prompt."""
    first = {"seconds": 1, "tokens": tokens // passes}
    return {"tokens": tokens, "ids": list(range(tokens)), "seconds": seconds, "passes": passes, "first": first}


@pytest.mark.parametrize(
    ("settings", "plain", "result", "rest"),
    [
        (GREEDY, lane(12, 6, 12), "1.5× faster", "6 target passes instead of 12 · same text"),
        (
            GREEDY,
            lane(8, 4.5, 8),  # it was stopped: the texts are the same. 0.5 seconds per token, and 0.3 with drafts
            "1.7× faster per token",
            "6 target passes instead of 12 · same text up to token 8, where the target alone was stopped",
        ),
        (
            SAMPLED,
            lane(4, 1.6, 4),
            "Slower: 0.67× per token",
            "6 target passes instead of 12 · same distribution; the target alone wrote 4 tokens",
        ),
        (
            SAMPLED,
            lane(1, 1, 1),
            "The text is too short to be timed.",
            "6 target passes instead of 12 · same distribution; the target alone wrote 1 token",
        ),
        (SAMPLED, lane(12, 4.1, 12), "As fast as without drafts", "6 target passes instead of 12 · same distribution"),
        (
            GREEDY,
            lane(12, 10, 12),
            "Other programs were busy, so the times say little",
            "6 target passes instead of 12 · same text",
        ),
    ],
)
def test_the_result_says_what_the_lanes_show(scripts, settings, plain, result, rest):
    run = {"settings": settings, "crowded": False}
    assert scripts.evaluate(VERDICT, [run, plain, lane(12, 4, 6)]) == [result, rest]


def test_the_most_that_is_possible_counts_what_is_timed(scripts):
    """Without the first pass, which gave one token: 11 tokens in 5 passes, 2.2 per pass, though all 12 are 2 per pass."""
    drafts = lane(12, 4, 6) | {"first": {"seconds": 1, "tokens": 1}}
    run = {"settings": SAMPLED, "crowded": False}
    assert scripts.evaluate(VERDICT, [run, lane(8, 5.2, 8), drafts])[0] == "2.2× faster per token"
