"""`naive.py`, the method in one file: it agrees with transformers, with the engine and with the
target's exact distribution."""

import math
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
import transformers

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, naive
from naive_speculate.events import EventKind
from naive_speculate.events.event import OUTPUT_KINDS
from naive_speculate.models import wrap
from naive_speculate.naive import StepTokens, speculative_decode
from naive_speculate.sampling.random_source import SeededRandom
from naive_speculate.testing import (
    EOS,
    ToyModel,
    enumerate_outputs,
    exact_outputs,
    largest_difference,
)
from naive_speculate.tools.proofs.paths import ALMOST_ONE, Branches
from naive_speculate.tools.show.palette import STYLES
from tests.models.llama.llamas import random_model
from tests.programs import refusal, run_program
from tests.tiny import noised, save_model, shape, tiny_llama

WINDOWS = {"layer_types": ["sliding_attention", "full_attention"]}
SHAPE = shape(
    num_hidden_layers=2,
    head_dim=8,
    max_position_embeddings=80,
    bos_token_id=None,
    eos_token_id=None,
)
CONFIGS = {
    "Llama": transformers.LlamaConfig(**SHAPE),
    "Gemma 3": transformers.Gemma3TextConfig(
        **SHAPE | WINDOWS, sliding_window=8, query_pre_attn_scalar=8, tie_word_embeddings=False
    ),
    "GPT-2": transformers.GPT2Config(
        vocab_size=97,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=80,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    ),
}
PROMPT = [5, 17, 3, 60, 8]
LENGTH = 20
TOY_PROMPT = [1, 1]
NEAR = 1e-12
"""Draws so near to an acceptance probability must still decide as draws far from it do."""


@cache
def transformers_pair(name: str) -> tuple[transformers.PreTrainedModel, ModelPair]:
    """A random target in float64, where rounding decides nothing, and a draft that is the target
    with some noise."""
    target, draft = (
        random_model(CONFIGS[name], attention=None, dtype=torch.float64) for _ in range(2)
    )
    return target, ModelPair(
        wrap(target, "transformers"), wrap(noised(draft, 0.01), "transformers")
    )


def tokens_of(steps: Sequence[StepTokens]) -> list[int]:
    return [token for step in steps for token in step.token_ids]


@pytest.mark.parametrize("family", CONFIGS)
def test_greedy_tokens_are_those_of_transformers_and_of_the_engine(family):
    model, pair = transformers_pair(family)
    k = 1 if family == "Llama" else 4
    steps = list(speculative_decode(pair, PROMPT, num_draft_tokens=k, max_new_tokens=LENGTH))
    expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=LENGTH, do_sample=False)[
        0, len(PROMPT) :
    ].tolist()
    engine = SpeculativeDecoder(pair).generate(
        PROMPT, SamplingParams(max_tokens=LENGTH, temperature=0), num_draft_tokens=k
    )
    assert tokens_of(steps) == expected == engine.token_ids
    assert any(step.num_accepted == k for step in steps), (
        "a step must accept the whole window, so that a cache lags"
    )
    assert any(step.num_accepted < len(step.draft_token_ids) for step in steps), (
        "a step must reject, so that caches roll back"
    )


def test_an_end_token_ends_the_text_wherever_in_a_window_it_stands(monkeypatch):
    model, pair = transformers_pair("Llama")
    plain = tokens_of(list(speculative_decode(pair, PROMPT, max_new_tokens=LENGTH)))
    found = set()
    for end in dict.fromkeys(plain[:10]):  # as an accepted, a resampled or a bonus token
        for wrapped in (model, pair.draft.model):
            monkeypatch.setattr(wrapped.generation_config, "eos_token_id", end)
        steps = list(speculative_decode(pair, PROMPT, num_draft_tokens=4, max_new_tokens=LENGTH))
        assert tokens_of(steps) == plain[: plain.index(end) + 1]
        found.add(
            next(
                kind
                for kind, token in reversed(steps[-1].tokens())
                if kind not in ("rejected", "discarded")
            )
        )
        params = SamplingParams(max_tokens=LENGTH, temperature=0)
        assert (
            tokens_of(steps)
            == SpeculativeDecoder(pair).generate(PROMPT, params, num_draft_tokens=4).token_ids
        )
    assert {EventKind.ACCEPTED, EventKind.RESAMPLED} <= found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_step_drafts_accepts_and_emits_what_the_engine_s_does(temperature):
    """For each k and each length, so that every number of remaining tokens comes; with k = 0, both
    decode plainly."""
    pair, ends = ModelPair(ToyModel(4, 9), ToyModel(4, 8)), set()
    decoder = SpeculativeDecoder(pair)
    for k, length, seed in product(range(6), range(1, 9), range(4)):
        options = {"temperature": temperature, "random": SeededRandom(seed)}
        steps = list(
            speculative_decode(
                pair, TOY_PROMPT, num_draft_tokens=k, max_new_tokens=length, **options
            )
        )
        params = SamplingParams(max_tokens=length, temperature=temperature, seed=seed)
        events = list(decoder.stream(TOY_PROMPT, params, num_draft_tokens=k, drafter="model"))
        assert [(len(step.draft_token_ids), step.num_accepted) for step in steps] == [
            (event.num_draft, event.num_accepted)
            for event in events
            if event.kind == EventKind.STEP
        ]
        assert tokens_of(steps) == [
            event.token_id for event in events if event.kind in OUTPUT_KINDS
        ]
        ends.add(events[-1].finish_reason)
    assert len(ends) == 2, "some texts reach their limit, others an end token"


@pytest.mark.parametrize("shorter", ["target", "draft"])
def test_a_text_may_take_every_position_of_both_models_and_no_more(shorter):
    models = {
        role: wrap(tiny_llama(1, seed=0, positions=24 if role == shorter else 30))
        for role in ("target", "draft")
    }
    pair, room = ModelPair(**models), 24 - len(PROMPT)
    assert (
        len(
            tokens_of(
                list(speculative_decode(pair, PROMPT, num_draft_tokens=7, max_new_tokens=room))
            )
        )
        == room
    )
    with pytest.raises(
        ValueError, match="max_new_tokens is 20: prompt and output may take 24 tokens, not 25"
    ):
        next(speculative_decode(pair, PROMPT, max_new_tokens=room + 1))


def test_a_step_says_what_happened_to_each_token():
    rejected = StepTokens([4, 5, 6, 7], 1, [4, 9])
    assert rejected.tokens() == [
        ("accepted", 4),
        ("rejected", 5),
        ("discarded", 6),
        ("discarded", 7),
        ("resampled", 9),
    ]
    assert rejected.num_judged == 2
    whole = StepTokens([4, 5], 2, [4, 5, 9])
    assert whole.tokens() == [("accepted", 4), ("accepted", 5), ("bonus", 9)]
    assert whole.num_judged == 2
    assert StepTokens([4, 5], 2, [4, 5]).tokens() == [
        ("accepted", 4),
        ("accepted", 5),
    ]  # the text ends with the window


def probs_after(model: ToyModel, tokens: Sequence[int], temperature: float) -> torch.Tensor:
    return torch.softmax(model.logits((*TOY_PROMPT, *tokens)) / temperature, -1)


def accept_probs(
    pair: ModelPair, steps: Sequence[StepTokens], temperature: float
) -> list[float | None]:
    """min(1, p(x) / q(x)) for every uniform draw of a run, computed from the models themselves;
    None after a rejection."""
    found: list[float | None] = []
    text: list[int] = []
    for step in steps:
        for i, x in enumerate(step.draft_token_ids):
            before = [*text, *step.draft_token_ids[:i]]
            p, q = (
                probs_after(model, before, temperature)[x].item()
                for model in (pair.target, pair.draft)
            )
            found.append(min(1.0, p / q) if i <= step.num_accepted else None)
        text += step.token_ids
    return found


def enumerate_naive(
    pair: ModelPair, temperature: float = 1.0, **options: int
) -> dict[tuple[int, ...], float]:
    """The exact output distribution of the real `speculative_decode`: every path through its
    draws, with its probability.

    Each path is run twice: with uniform draws far from the acceptance probabilities, and with
    draws next to them. Both runs must take the same steps, so a token is accepted with exactly
    min(1, p / q).
    """

    def run(choices: Sequence[float]) -> tuple[Branches, list[float], list[StepTokens]]:
        """The branches of each choice, the choices, and the steps."""
        walk = Branches(choices)
        steps = list(
            speculative_decode(pair, TOY_PROMPT, temperature=temperature, random=walk, **options)
        )
        assert not walk.coarse
        return walk, [*choices, *[0.0] * len(walk.asked)][: len(walk.asked)], steps

    outputs: dict[tuple[int, ...], float] = {}
    waiting: list[list[float]] = [[]]
    while waiting:
        path = waiting.pop()
        walk, choices, steps = run(path)
        stated = iter(accept_probs(pair, steps, temperature))
        probability, nearby = 1.0, []
        for place, (taken, asked) in enumerate(zip(choices, walk.asked, strict=True)):
            before = choices[:place]
            if asked is not None:
                probability *= asked[int(taken)]
                nearby.append(taken)
                if place >= len(path):
                    waiting += [[*before, other] for other in range(1, len(asked))]
                continue
            accept = next(stated)
            if accept is None:  # after a rejection, nothing depends on the draw
                nearby.append(ALMOST_ONE - taken)
            elif taken < accept:
                probability *= accept
                nearby.append(ALMOST_ONE if accept == 1 else accept - NEAR)
                if place >= len(path) and accept < 1:
                    waiting.append([*before, ALMOST_ONE])
            else:
                probability *= 1 - accept
                nearby.append(accept + NEAR)
        assert run(nearby)[-1] == steps
        tokens = tuple(tokens_of(steps))
        outputs[tokens] = outputs.get(tokens, 0.0) + probability
    return outputs


TOYS = [  # vocab_size, seeds of target and draft, γ, max_new_tokens, temperature
    (3, (3, 4), 2, 3, 0.6),
    (2, (5, 6), 2, 5, 1.4),
    (4, (9, 8), 1, 2, 1.0),
    (3, (7, 7), 3, 3, 1.0),
]


@pytest.mark.parametrize(("vocab_size", "seeds", "k", "length", "temperature"), TOYS)
def test_its_output_distribution_is_exactly_the_targets_and_the_engines(
    vocab_size, seeds, k, length, temperature
):
    target, draft = (ToyModel(vocab_size, seed) for seed in seeds)
    pair = ModelPair(target, draft)
    state = torch.get_rng_state()
    found = enumerate_naive(pair, temperature, num_draft_tokens=k, max_new_tokens=length)
    assert torch.equal(torch.get_rng_state(), state), "all draws come from the given source"
    assert sum(found.values()) == pytest.approx(1, abs=1e-10)
    assert any(tokens[-1] == EOS and len(tokens) < length for tokens in found), (
        "some texts end inside a window"
    )
    exact = exact_outputs(lambda tokens: probs_after(target, tokens, temperature), length)
    assert largest_difference(found, exact) < 1e-10
    params = SamplingParams(max_tokens=length, temperature=temperature)
    engine = enumerate_outputs(
        pair, TOY_PROMPT, params, num_draft_tokens=k, drafter="model", detail="probs"
    )
    assert largest_difference(found, engine) < 1e-10


def test_the_enumeration_finds_a_token_that_is_resampled_from_the_target(monkeypatch):
    def from_target(target_dists, proposal_dists, candidate_tokens, random):
        rejected_idx, _ = verify(target_dists, proposal_dists, candidate_tokens, random)
        return rejected_idx, random.categorical(target_dists[rejected_idx])

    verify = naive.speculative_sampling
    monkeypatch.setattr(naive, "speculative_sampling", from_target)
    pair = ModelPair(ToyModel(3, 1), ToyModel(3, 2))
    found = enumerate_naive(pair, num_draft_tokens=1, max_new_tokens=2)
    assert (
        largest_difference(
            found, exact_outputs(lambda tokens: probs_after(pair.target, tokens, 1.0), 2)
        )
        > 0.01
    )


def test_the_targets_padding_is_never_emitted(small_pair):
    """Models of one family pad their vocabularies differently; the draft's logits are narrower
    here."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_pair[0])
    used = max(tokenizer.get_vocab().values()) + 1
    pair = ModelPair(ToyModel(2 * used, 1), ToyModel(used, 2), tokenizer)
    steps = list(
        speculative_decode(
            pair, TOY_PROMPT, max_new_tokens=20, temperature=1.0, random=SeededRandom(0)
        )
    )
    assert len(tokens_of(steps)) == 20
    assert max(tokens_of(steps)) < used


BAD = {
    "num_draft_tokens must not be negative, got -1": {"num_draft_tokens": -1},
    "max_new_tokens must be positive, got -1": {"max_new_tokens": -1},
    "temperature must be 0 or at least 0.001, got 1e-05": {"temperature": 1e-5},
    "temperature must be 0 or at least 0.001, got nan": {"temperature": math.nan},
    "prompt_token_ids is empty": {"prompt_token_ids": []},
    "pair has no draft model": {"pair": ModelPair(ToyModel(3, 1))},
    "prompt_token_ids holds 97, outside the vocabulary of 97": {"prompt_token_ids": [1, 97]},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_argument_is_named(tiny_pair, message):
    given = {"pair": tiny_pair, "prompt_token_ids": PROMPT} | BAD[message]
    with pytest.raises(ValueError, match=message):
        next(speculative_decode(**given))


def test_the_command_prints_every_step_with_marks_and_ends_with_a_summary(
    small_pair, small_decoder
):
    target, draft = map(str, small_pair)
    done = run_program(
        "naive_speculate.naive",
        ["Once upon a time", "--target", target, "--draft", draft, "--max-new-tokens", "24"],
    )
    assert (done.returncode, done.stderr) == (0, "")
    engine = small_decoder.generate(
        "Once upon a time", SamplingParams(max_tokens=24, temperature=0)
    )
    assert engine.text in done.stdout
    marks = {
        kind: STYLES[kind].mark
        for kind in ("accepted", "rejected", "discarded", "resampled", "bonus")
    }
    legend, *lines = done.stdout.splitlines()
    for kind, mark in marks.items():
        assert f"{mark} {kind}" in legend
    steps = [line for line in lines if line[:4].strip().isdecimal()]
    accepted = sum(line.count(marks["accepted"]) for line in steps)
    rejected = sum(line.count(marks["rejected"]) for line in steps)
    alpha, per_pass = accepted / (accepted + rejected), 24 / len(steps)
    assert (
        lines[-1] == f"24 tokens in {len(steps)} target passes: {per_pass:.2f} tokens per pass, α ="
        f" {alpha:.2f}"
    )
    assert engine.metrics.alpha == pytest.approx(alpha)


def test_a_seed_repeats_the_command_and_without_drafts_each_pass_gives_a_token(tmp_path):
    save_model(tiny_llama(1, seed=0), tmp_path)
    arguments = ["w5", "--target", str(tmp_path), "--draft", str(tmp_path), "--temperature", "1"]
    first, again, other = (
        run_program(
            "naive_speculate.naive", [*arguments, "--seed", seed, "--max-new-tokens", "12"]
        ).stdout
        for seed in "112"
    )
    assert first == again != other
    plain = run_program("naive_speculate.naive", [*arguments, "--num-draft-tokens", "0"])
    assert plain.stdout.endswith("64 tokens in 64 target passes: 1.00 tokens per pass\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([""], "prompt_token_ids is empty"),
        (["Hi", "--max-new-tokens", "many"], "must be a positive whole number, got 'many'"),
        (["Hi", "--max-new-tokens", "100000"], "--max-new-tokens is 100000"),
        (["Hi", "--temperature", "-1"], "--temperature must be 0 or at least 0.001, got -1.0"),
        (["Hi", "--seed", "-1"], "--seed must not be negative, got -1"),
        (["Hi", "--target", "nowhere"], "--target needs --draft"),
        (
            ["Hi", "--target", "./nowhere", "--draft", "./nowhere"],
            "--target='./nowhere': there is no such folder",
        ),
        (["\udcff"], "prompt"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_status_2(tmp_path, arguments, said):
    save_model(tiny_llama(1, seed=0), tmp_path)
    models = (
        [] if "--target" in arguments else ["--target", str(tmp_path), "--draft", str(tmp_path)]
    )
    assert said in refusal("naive_speculate.naive", [*arguments, *models])


def test_it_stays_one_page():
    assert len(Path(naive.__file__).read_text(encoding="utf-8").splitlines()) <= 130
