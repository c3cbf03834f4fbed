"""With weights in 8 bits, drafts and company change no text: the bundled pair, every drafter."""

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.events import EventKind

PROMPTS = (
    "Once upon a time there was a fox who",
    "The old house by the river",
    "Dear sister, the letter that you sent me came on a day when",
    "One, two, three, one, two, three, one, two, three, one,",
)
DRAFTERS = ("model", "head", "suffix", "suffix+head", "prompt_lookup")


@pytest.fixture(scope="module")
def decoder():
    return SpeculativeDecoder(load_pair(weights="int8"))


def texts(decoder, settings, order=(0, 1, 2, 3), **options) -> dict[int, list[int]]:
    """The tokens of the prompts, decoded as one batch in an order."""
    outputs = decoder.generate(
        [PROMPTS[number] for number in order], [settings[number] for number in order], **options
    )
    return {number: output.token_ids for number, output in zip(order, outputs, strict=True)}


GREEDY = [SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)] * len(PROMPTS)


@pytest.fixture(scope="module")
def plain(decoder):
    return texts(decoder, GREEDY, num_draft_tokens=0)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_text_with_drafts_is_plain_decoding_s(decoder, plain, drafter):
    for number, wanted in plain.items():
        options = {"drafter": drafter, "num_draft_tokens": 5}
        assert texts(decoder, GREEDY, [number], **options)[number] == wanted
    assert texts(decoder, GREEDY, drafter=drafter, num_draft_tokens="auto") == plain


@pytest.mark.parametrize("drafter", ["model", "head", "suffix+head"])
def test_a_seeded_text_is_the_same_alone_in_a_batch_and_in_any_order(decoder, drafter):
    settings = [
        SamplingParams(temperature=1, seed=number, max_tokens=16 + 4 * number, ignore_eos=True)
        for number in range(len(PROMPTS))
    ]
    options = {"drafter": drafter, "num_draft_tokens": 4}
    alone = {
        number: texts(decoder, settings, [number], **options)[number]
        for number in range(len(PROMPTS))
    }
    assert texts(decoder, settings, **options) == alone
    assert texts(decoder, settings, (2, 0, 3, 1), **options) == alone


def test_drafts_of_the_head_have_the_same_bits_alone_and_in_a_batch(decoder):
    """So no second form of the head in float32 is needed where a seed must repeat them."""
    settings = [SamplingParams(temperature=1, seed=number, max_tokens=24) for number in range(4)]
    options = {"drafter": "head", "num_draft_tokens": 4, "detail": "probs"}
    together = decoder.generate(list(PROMPTS), settings, **options)
    for prompt, own, output in zip(PROMPTS, settings, together, strict=True):
        alone = decoder.generate(prompt, own, **options)
        found, wanted = (
            [(e.token_id, e.draft_prob) for e in each.trace if e.kind == EventKind.PROPOSED]
            for each in (output, alone)
        )
        assert found == wanted
