"""Rows of every kind in one batch: each gives what it gives alone."""

from itertools import cycle

import pytest

from naive_speculate import SamplingParams, VerifyStrategy
from naive_speculate.events import FinishReason
from naive_speculate.speculate.request import GivenDraft
from tests.speculate.rows import COMMON, admitted
from tests.speculate.test_no_distribution import nothing_from_the_third

PROMPTS = [
    "Once upon a time there was a",
    "The hen and the fox and the hen and",
    "In the forest",
    '"Who are you?" said',
]


ROWS = {  # sampling parameters, and options
    "plain": ({}, {"num_draft_tokens": 0}),
    **{
        strategy.value: ({}, {"verify_strategy": strategy, "num_draft_tokens": 3})
        for strategy in VerifyStrategy
    },
    "greedy": ({"temperature": 0}, {}),
    "adaptive": ({}, {"num_draft_tokens": "auto"}),
    "confident": ({}, {"draft_confidence": 0.3, "num_draft_tokens": 8}),
    "argmax": ({}, {"draft_sampling": "argmax"}),
    "suffix": ({"temperature": 0.3}, {"drafter": "suffix"}),
    "prompt lookup": ({"temperature": 0}, {"drafter": "prompt_lookup", "num_draft_tokens": "auto"}),
    "tree": ({}, {"tree": "3x2"}),
    "given": ({"temperature": 0.8}, {"given_draft": GivenDraft(" king", 0.5)}),
    "forced": ({"guided_decoding": {"json": {"enum": ["hippopotamus", "hill"]}}}, {}),
    "filtered": ({"filter_words": COMMON}, {}),
    "warped": (
        {"temperature": 0.7, "top_k": 10, "top_p": 0.8, "min_p": 0.05, "frequency_penalty": 0.5},
        {},
    ),
    "stopped": ({"stop": ["e", " a"], "logprobs": 1, "prompt_logprobs": 1}, {}),
    "short": ({"max_tokens": 4}, {}),
    "broken": ({"logits_processors": [nothing_from_the_third]}, {}),
}


@pytest.fixture(scope="module")
def decoded(small_decoder):
    """Each row and what its steps did, stepped together and alone."""

    def stepped(names: list[str]) -> dict[str, tuple]:
        batch, rows, outcomes = small_decoder.new_batch(), {}, {name: [] for name in names}
        for name, prompt, detail in zip(
            ROWS, cycle(PROMPTS), cycle(["none", *["full"] * 4, "probs"]), strict=False
        ):
            if name in names:
                params, options = ROWS[name]
                params = SamplingParams(**{"max_tokens": 12, "seed": 3} | params)
                rows[admitted(small_decoder, batch, prompt, params, detail=detail, **options)] = (
                    name
                )
        while going_on := [row for row in rows if not row.ended]:
            for row, record in batch.step(going_on).items():
                outcomes[rows[row]].append(record.outcome)
        return {name: (row, outcomes[name]) for row, name in rows.items()}

    alone = {name: stepped([name])[name] for name in ROWS}
    return {name: (found, alone[name]) for name, found in stepped(list(ROWS)).items()}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_a_batch_gives_what_it_gives_alone(decoded, name):
    (row, outcomes), (alone, expected) = decoded[name]
    assert (row.output_token_ids, row.finish_reason, row.stop_reason) == (
        *(alone.output_token_ids, alone.finish_reason, alone.stop_reason),
    )
    for field in ("draft_token_ids", "num_accepted", "copied_from", "others", "obstacle"):
        assert [getattr(outcome, field) for outcome in outcomes] == [
            getattr(outcome, field) for outcome in expected
        ], field
    for found, other in zip(outcomes, expected, strict=True):
        assert found.typical_distances == (
            other.typical_distances and pytest.approx(other.typical_distances, abs=1e-4)
        )
    if name == "broken":
        assert (len(row.output_token_ids), row.finish_reason) == (2, FinishReason.ERROR)
    elif name != "plain":
        assert sum(len(outcome.draft_token_ids) for outcome in outcomes) > 0


def test_some_rows_copied_and_some_drafts_were_judged_by_other_strategies_too(decoded):
    sources = {
        name: {outcome.copied_from is None for outcome in found[1]}
        for name, (found, _) in decoded.items()
    }
    assert {name for name, kinds in sources.items() if False in kinds} == {
        "suffix",
        "prompt lookup",
    }
    told = {
        name for name, (found, _) in decoded.items() if any(outcome.others for outcome in found[1])
    }
    assert told >= {"speculative_sampling", "block_verification"}
