"""Weights in 8 bits: how they are rounded, their products, and which models can be loaded so."""

import re

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models import wrap
from naive_speculate.models.llama import onnx_session
from naive_speculate.models.llama.onnx_session import is_exact
from naive_speculate.models.llama.rounded import (
    TOP,
    Basis,
    floats,
    is_rounded,
    parts,
    rounded,
    turned,
)
from tests.models.llama.llamas import FAMILIES, SHAPE, random_model
from tests.programs import refusal
from tests.tokenizers_of_tests import byte_level, llama, save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(llama(byte_level(), 0), byte_level(), tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("exact", [0, 5])
def test_a_rounded_matrix_is_the_matrix_up_to_half_a_step(exact):
    matrix = torch.randn(5000, 63, generator=torch.Generator().manual_seed(0))
    matrix[1, exact:] = 0
    numbers, scales, floats = parts(rounded(matrix, exact), exact)
    assert torch.equal(floats, matrix[:, :exact])
    steps = matrix[:, exact:].abs().amax(1) / TOP
    assert torch.equal(scales, steps)
    errors = (numbers * scales[:, None] - matrix[:, exact:]).abs()
    assert (errors <= steps[:, None] / 2 + 1e-6).all()


@pytest.mark.parametrize("width", [1, 7, 50, 96, 560])
def test_a_turn_is_orthogonal_its_own_inverse_and_turns_each_vector_by_itself(width):
    vectors = np.random.default_rng(0).standard_normal((5, 3, width)).astype(np.float32)
    found = turned(vectors)
    np.testing.assert_allclose(turned(found), vectors, atol=1e-5)
    np.testing.assert_allclose((found**2).sum(-1), (vectors**2).sum(-1), rtol=1e-4)
    assert np.array_equal(turned(vectors[2, 1]), found[2, 1])


def test_the_largest_columns_of_the_stream_stay_exact():
    """As the embedding, the norms and the matrices that write say."""
    random = torch.Generator().manual_seed(0)
    embedding, matrix = (torch.randn(size, generator=random) for size in ((300, 64), (64, 40)))
    embedding[:, 7] *= 30
    matrix[50] *= 30
    norms = [torch.ones(64), torch.ones(64)]
    norms[1][20] = 30
    basis = Basis.of(embedding, zip(norms, (matrix, matrix), strict=True))
    stream = np.arange(64, dtype=np.float32)
    assert {7, 20, 50} <= set(basis.into(stream)[: basis.exact])
    np.testing.assert_allclose(basis.back(basis.into(stream)), stream, atol=1e-4)


FORMS = {name: FAMILIES[name] for name in ("llama tied", "qwen2", "mistral window", "qwen3 tied")}
WIDTHS = [(48, 80, 6), (36, 50, 3), (72, 72, 9), (40, 96, 5), (8, 7, 2)]
FORMS |= {
    f"{hidden} numbers, {inner} in the MLP": lambda hidden=hidden, inner=inner, heads=heads: (
        LlamaConfig(
            **SHAPE
            | {
                "hidden_size": hidden,
                "intermediate_size": inner,
                "num_attention_heads": heads,
                "num_key_value_heads": heads,
            }
        )
    )
    for hidden, inner, heads in WIDTHS
}


@pytest.mark.parametrize("make", FORMS.values(), ids=FORMS)
def test_every_model_is_rounded_and_computes_almost_the_same(make):
    """Of any width; also its hidden states, embeddings and matrix before the logits."""
    source = random_model(make())
    near, exact, ids = wrap(source, weights="int8"), wrap(source, "onnx"), torch.arange(40)[None]
    results = []
    for model in (near, exact):
        forward = model.forward(ids, model.new_cache(1), layers=[0, 1, 2])
        matrices = model.input_embeddings, model.output_embeddings
        results.append([*forward, *map(floats, matrices)])
    for found, wanted in zip(*results, strict=True):
        assert 0 < (found - wanted).norm() < 0.06 * wanted.norm()
    assert near.num_parameters == exact.num_parameters


@pytest.mark.parametrize("signed", [True, False])
def test_sums_of_whole_numbers_are_those_in_int64_at_extreme_values(signed):
    """With weights in both forms, whichever this processor takes."""
    assert is_exact(signed)


def test_signed_and_unsigned_weights_give_the_same_bits(monkeypatch):
    source, ids, found = random_model(FAMILIES["llama"]()), torch.arange(9)[None], []
    for signed in (True, False):
        monkeypatch.setattr(f"{onnx_session.__name__}.takes_signed", lambda form=signed: form)
        model = wrap(source, weights="int8")
        found.append(model.forward(ids, model.new_cache(1)))
    assert torch.equal(*found)


def test_progress_reaches_the_end_once_for_each_model(folder):
    shares = []
    pair = load_pair(folder, weights="int8", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert pair.weights == "float32 weights, rounded to 8 bits"
    assert is_rounded(pair.target.input_embeddings)
    result = SpeculativeDecoder(pair).generate("Hi", SamplingParams(max_tokens=3, temperature=0))
    assert result.trace.started.weights == pair.weights


def test_what_cannot_be_had_in_8_bits_is_one_line(folder, tmp_path):
    GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=300, eos_token_id=1)
    ).save_pretrained(tmp_path / "gpt2")
    byte_level().save_pretrained(tmp_path / "gpt2")
    for options, message in (
        ({"weights": "int3"}, "weights must be one of float32, int8, got 'int3'"),
        ({"weights": "int8", "executor": "torch"}, "weights='int8' needs the executor onnx"),
        ({"weights": "int8", "executor": "transformers"}, "weights='int8' needs the executor onnx"),
        ({"weights": "int8", "dtype": "bfloat16"}, "weights='int8': executor \"onnx\" runs"),
        ({"weights": "int8", "device_map": "auto"}, "weights='int8' is for one CPU"),
        ({"weights": "int8", "target": tmp_path / "gpt2"}, "is for the Llama family: model_type"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as raised:
            load_pair(**{"target": folder} | options)
        assert "\n" not in str(raised.value)
    said = refusal("naive_speculate.__main__", ["generate", "Hi", "--weights", "int3"])
    assert said.endswith("--weights must be one of float32, int8, got 'int3'")
    with pytest.raises(ValueError, match=r"^weights must be one of"):
        wrap(llama(byte_level(), 0), weights="int3")


def test_weights_whose_bits_depend_on_their_company_are_refused(folder, monkeypatch):
    monkeypatch.setattr("naive_speculate.models.load.row_difference", lambda rounding: 2e-6)
    with pytest.raises(ValueError, match="weights='int8': with this processor's kernels a token"):
        load_pair(folder, weights="int8")
