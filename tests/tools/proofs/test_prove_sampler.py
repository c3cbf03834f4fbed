"""`prove_sampler` finds an engine whose samples have another distribution, and no other."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.testing import ToyModel, prove_sampler
from naive_speculate.tools.proofs.sampler import exact_texts

PROMPT, PARAMS = [1, 2], SamplingParams(ignore_eos=True)
TARGET, OTHER = ToyModel(4, 1, zeros=False), ToyModel(4, 2, zeros=False)


def engine(target=TARGET, **options):
    """This decoder, with a draft model, as an engine."""
    decoder = SpeculativeDecoder(ModelPair(target=target, draft=OTHER))

    def draw(seed):
        params = replace(PARAMS, seed=seed, max_tokens=3)
        result = decoder.generate(PROMPT, params, num_draft_tokens=2, detail="none", **options)
        return result.token_ids

    return draw


def from_cells(levels, source, mixed=0.0):
    """A sampler of texts by the exact probabilities; a share of them is uniform."""
    texts, probs = zip(*levels[-1].probs.items(), strict=True)
    weights = (1 - mixed) * np.array(probs) / sum(probs) + mixed / len(probs)
    return lambda seed: texts[source.choice(len(texts), p=weights)]


def test_the_exact_probabilities_are_those_of_the_target():
    first, second = exact_texts(TARGET, PROMPT, PARAMS, 2)
    p = torch.softmax(TARGET.logits((1, 2)), -1)
    assert [first.probs[(token,)] for token in range(4)] == pytest.approx(p.tolist(), abs=1e-12)
    after = torch.softmax(TARGET.logits((1, 2, 3)), -1)
    assert second.probs[(3, 0)] == pytest.approx(float(p[3] * after[0]), abs=1e-12)
    assert first.rest == pytest.approx(0, abs=1e-9)
    few = exact_texts(TARGET, PROMPT, PARAMS, 2, max_cells=2)[1]
    assert few.rest == pytest.approx(1 - sum(sorted(second.probs.values())[-2:]), abs=1e-9)


def test_speculative_sampling_passes_and_typical_acceptance_is_found():
    settings = {"smallest": 0.2, "error_rate": 0.01, "num_tokens": 2}
    right = prove_sampler(engine(), TARGET, PROMPT, PARAMS, **settings)
    assert not right.biased
    assert "no bias found" in str(right)
    lossy = engine(verify_strategy="typical_acceptance")
    wrong = prove_sampler(lossy, TARGET, PROMPT, PARAMS, **settings)
    assert wrong.biased
    assert wrong.fit.bias > 0.1
    assert "not the target's distribution" in str(wrong)


def test_of_200_correct_engines_no_more_are_called_biased_than_stated():
    levels, source = exact_texts(TARGET, PROMPT, PARAMS, 2), np.random.default_rng(5)
    settings = {"smallest": 0.3, "error_rate": 0.05, "num_tokens": 2}
    alarms = sum(
        prove_sampler(from_cells(levels, source), TARGET, PROMPT, PARAMS, **settings).biased
        for _ in range(200)
    )
    assert alarms <= 19  # binomial(200, 0.05) is at most 19 in 99.8% of cases


def test_a_bias_as_small_as_stated_is_found():
    levels, source = exact_texts(TARGET, PROMPT, PARAMS, 3), np.random.default_rng(6)
    texts, probs = zip(*levels[-1].probs.items(), strict=True)
    distance = float(np.abs(np.array(probs) - 1 / len(texts)).sum() / 2)
    mixed = from_cells(levels, source, mixed=0.1 / distance)
    assert prove_sampler(mixed, TARGET, PROMPT, PARAMS, smallest=0.1).biased


def test_recorded_samples_are_not_drawn_again(tmp_path):
    drawn, work = [], tmp_path / "samples.jsonl"
    draw, settings = engine(), {"smallest": 0.3, "error_rate": 0.05, "num_tokens": 2}

    def until_interrupted(seed):
        if len(drawn) == 40:
            raise KeyboardInterrupt
        drawn.append(seed)
        return draw(seed)

    with pytest.raises(KeyboardInterrupt):
        prove_sampler(until_interrupted, TARGET, PROMPT, PARAMS, work=work, **settings)
    with work.open("a", encoding="utf-8") as file:
        file.write('{"seed": 40, "tok')  # the process ended while it wrote
    again = []
    continued = prove_sampler(
        lambda seed: again.append(seed) or draw(seed), TARGET, PROMPT, PARAMS, work=work, **settings
    )
    assert again == list(range(40, continued.num_samples))
    whole = prove_sampler(draw, TARGET, PROMPT, PARAMS, **settings)
    assert continued == whole
    assert len(work.read_text(encoding="utf-8").splitlines()) == 1 + continued.num_samples
    with pytest.raises(ValueError, match="another prompt"):
        prove_sampler(draw, TARGET, [2, 1], PARAMS, work=work, **settings)
    work.write_text(json.dumps({"something": "else"}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no samples"):
        prove_sampler(draw, TARGET, PROMPT, PARAMS, work=work, **settings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draw": 3}, "draw must be a function"),
        ({"params": SamplingParams(temperature=0)}, "params must sample, got temperature=0"),
        ({"smallest": 0}, "smallest must be between 0 and 1, got 0"),
        ({"num_tokens": 0}, "num_tokens must be a whole number from 1, got 0"),
        ({"draw": lambda seed: "text"}, r"draw\(0\) must return token ids, got 'text'"),
        ({"params": SamplingParams(top_k=1)}, "params leave one text only"),
    ],
)
def test_bad_input_is_named(options, said):
    given = {"draw": engine(), "params": PARAMS} | options
    with pytest.raises(ValueError, match=said):
        prove_sampler(target=TARGET, prompt_token_ids=PROMPT, **given)
