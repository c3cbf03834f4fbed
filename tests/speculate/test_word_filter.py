"""The decoder with a word filter: lossless for the filtered target, and no listed word in
outputs or drafts."""

from __future__ import annotations

import pytest
import torch

from benchmarks.prompts import read_prompts
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.guides.words import WordList, classroom_words
from tests.speculate.rows import COMMON, windows
from tests.speculate.toys import (
    LOSSLESS,
    ToyModel,
    enumerate_outputs,
    exact_outputs,
    largest_difference,
)
from tests.tokenizers_of_tests import letters

TOKENIZER = letters("a", "b", "ab", "Ġ")
"""The word "ab" is one token, and two."""
WORDS = WordList(["ab", "b ba?"])
PROMPTS = [
    "Once upon a time there was",
    "The old king",
    '"Who are you?" said',
    "In the forest",
    "Far away, by the sea,",
]


def filtered(model: ToyModel, prompt: list[int]):
    """The target's distribution without the tokens that would put a new listed word into the
    text, by its definition."""
    texts = {
        token: piece.replace("Ġ", " ") for piece, token in TOKENIZER.get_vocab().items() if token
    }

    def text(tokens) -> str:
        return "".join(texts.get(token, "") for token in tokens)

    def probs(tokens) -> torch.Tensor:
        logits, before = model.logits((*prompt, *tokens)), WORDS.places(text((*prompt, *tokens)))
        for token in texts:
            if WORDS.places(text((*prompt, *tokens, token))) - before:
                logits[token] = -torch.inf
        return torch.softmax(logits, -1)

    return probs


@pytest.mark.parametrize(
    ("drafter", "strategy", "prompt"),
    [
        ("model", LOSSLESS[0], [4, 2, 4]),
        ("prompt_lookup", LOSSLESS[0], [3, 4, 1]),
        ("suffix", LOSSLESS[1], [4, 2, 4]),
        ("model", LOSSLESS[1], [3, 1] * 40 + [4, 2, 4]),
    ],
)
def test_every_path_gives_the_filtered_targets_distribution(prompt, drafter, strategy):
    """Rejected drafts are rolled back on most of the paths."""
    target, draft = ToyModel(5, 1, zeros=False), ToyModel(5, 2, zeros=False)
    pair, params = (
        ModelPair(target, draft, TOKENIZER),
        SamplingParams(max_tokens=3, filter_words=WORDS),
    )
    options = {
        "num_draft_tokens": 2,
        "drafter": drafter,
        "verify_strategy": strategy,
        "detail": "probs",
    }
    found = enumerate_outputs(pair, prompt, params, **options)
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    assert largest_difference(found, exact_outputs(filtered(target, prompt), 3)) < 1e-6


def written(decoder: SpeculativeDecoder, trace: Trace, prompt: str) -> list[str]:
    """Every text that a run showed: its output, and with each step's drafts in place of what
    came then."""
    begin, decode = list(trace.started.prompt_token_ids or []), decoder.pair.tokenizer.decode
    texts = [
        decode([*before, *(e.token_id for e in drafts)]) for before, drafts in windows(trace, begin)
    ]
    return [text[len(prompt) :] for text in [*texts, decode(begin + trace.token_ids)]]


@pytest.mark.parametrize(
    ("temperature", "options"),
    [
        (0.0, {}),
        (1.0, {}),
        (1.0, {"num_draft_tokens": "auto"}),
        (0.0, {"drafter": "suffix"}),
        (1.0, {"num_draft_tokens": 0}),
    ],
)
def test_no_listed_word_is_written_or_drafted(small_decoder, temperature, options):
    """Words that hardly a sentence does without, so that nothing is left to chance."""
    params = SamplingParams(temperature=temperature, max_tokens=12, seed=3, filter_words=COMMON)
    results = small_decoder.generate(PROMPTS, params, detail="none", **options)
    for prompt, result in zip(PROMPTS, results, strict=True):
        for text in written(small_decoder, result.trace, prompt):
            assert COMMON.find(text) == []
    assert results[0].trace.started.settings["filter_words"] == "common"


def test_a_class_may_see_what_is_written_to_provoking_prompts(small_decoder):
    prompts = read_prompts("classroom.txt")[25:75:6]
    params = [
        SamplingParams(temperature=1.2, max_tokens=15, seed=n, filter_words="classroom")
        for n in range(len(prompts))
    ]
    for prompt, result in zip(
        prompts, small_decoder.generate(prompts, params, detail="none"), strict=True
    ):
        for text in written(small_decoder, result.trace, ""):
            assert classroom_words().places(text) <= classroom_words().places(prompt), prompt


def test_a_filter_that_leaves_nothing_is_named():
    pair = ModelPair(ToyModel(5, 1, zeros=False), tokenizer=TOKENIZER)
    params = SamplingParams(
        filter_words=WordList(["[a-z]+"]), logit_bias={4: -100}, allowed_token_ids=[1, 2, 3]
    )
    result = SpeculativeDecoder(pair).generate([4], params, num_draft_tokens=0)
    assert result.finish_reason == "error"
    assert "filter_words and allowed_token_ids ban every token" in result.trace.finished.message
