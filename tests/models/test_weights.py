"""Weights in 8 bits: rounded once, from the values in the file; which models can be loaded so, and
which cannot."""

import re

import gguf
import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models import wrap
from naive_speculate.models.gguf.weights import read_gguf_llama
from naive_speculate.models.llama.blocks import Rounding, floats, in_blocks, is_in_blocks
from tests.models.gguf.files import written
from tests.models.llama.llamas import FAMILIES, random_model
from tests.programs import refusal
from tests.tokenizers_of_tests import byte_level, llama, save

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(llama(byte_level(), 0), byte_level(), tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(("bits", "middle"), [(8, 127), (4, 7)])
def test_a_matrix_in_blocks_is_the_matrix_up_to_half_a_step(bits, middle):
    matrix = torch.randn(5000, 64, generator=torch.Generator().manual_seed(0))
    matrix[1, 32:] = 0
    steps = matrix.unflatten(1, (2, 32)).abs().amax(-1) / middle
    blocks = in_blocks(matrix, bits)
    assert (blocks.shape, blocks.dtype) == ((5000, 2, 4 * bits + 4), torch.uint8)
    errors = (floats(blocks) - matrix).abs()
    assert (errors <= steps.repeat_interleave(32, 1) / 2 + 1e-6).all()
    assert not floats(blocks)[1, 32:].any()
    assert torch.equal(in_blocks(blocks), blocks)


def test_rows_that_are_not_whole_blocks_stay_as_they_are():
    matrix = torch.randn(3, 48)
    assert in_blocks(matrix) is matrix


def test_blocks_of_a_gguf_file_are_taken_as_they_are(tmp_path):
    """Also blocks whose largest number is not 127, which rounding once more would change; the
    rows of queries and keys in the order of our rotation."""
    model = llama(byte_level(), 0)
    path = written(model, tmp_path / "model.gguf", byte_level(), "q8_0")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path, "r+").tensors}
    name = "blk.0.ffn_down.weight"
    assert tensors[name].tensor_type == gguf.GGMLQuantizationType.Q8_0
    quarters = tensors[name].data.reshape(-1, 34)[:, 2:].view(np.int8)
    quarters //= 4
    tensors[name].data.flush()
    exact = read_gguf_llama(path, CPU, torch.float32)
    blocks = read_gguf_llama(path, CPU, torch.float32, Rounding(8))
    for part in ("qkv", "output", "gate_up", "down"):
        found = getattr(blocks.weights.layers[0], part)
        assert is_in_blocks(found)
        assert torch.equal(floats(found), getattr(exact.weights.layers[0], part))
    assert not torch.equal(floats(in_blocks(exact.weights.layers[0].down)), floats(found))


@pytest.mark.parametrize("family", ["llama tied", "qwen2", "mistral window", "qwen3 tied"])
def test_a_model_in_8_bits_computes_what_its_rounded_weights_say(family):
    """The products round what the weights are multiplied with as well, so within a few percent."""
    source = random_model(FAMILIES[family]())
    near = wrap(source, weights="int8")
    with torch.no_grad():
        for module in source.modules():
            if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
                module.weight.copy_(floats(in_blocks(module.weight.detach().clone())))
    exact, ids = wrap(source, "onnx"), torch.arange(40)[None]
    found, wanted = (model.forward(ids, model.new_cache(1)) for model in (near, exact))
    assert (found - wanted).norm() < 0.06 * wanted.norm()
    assert len(floats(near.input_embeddings)) == source.config.vocab_size
    assert near.num_parameters == exact.num_parameters


def test_progress_reaches_the_end_once_for_each_model(folder):
    shares = []
    pair = load_pair(folder, weights="int8", progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert pair.weights == "float32 weights, rounded to 8 bits"
    assert is_in_blocks(pair.target.input_embeddings)
    result = SpeculativeDecoder(pair).generate("Hi", SamplingParams(max_tokens=3, temperature=0))
    assert result.trace.started.weights == pair.weights


def test_what_cannot_be_had_in_8_bits_is_one_line(folder, tmp_path):
    GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=300, eos_token_id=1)
    ).save_pretrained(tmp_path / "gpt2")
    byte_level().save_pretrained(tmp_path / "gpt2")
    for options, message in (
        ({"weights": "int3"}, "weights must be one of float32, int8, int4, got 'int3'"),
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
    assert said.endswith("--weights must be one of float32, int8, int4, got 'int3'")
    with pytest.raises(ValueError, match=r"^weights must be one of"):
        wrap(llama(byte_level(), 0), weights="int3")


def test_weights_whose_bits_depend_on_their_company_are_told_apart(folder, monkeypatch, caplog):
    monkeypatch.setattr("naive_speculate.models.load.row_difference", lambda bits: 2e-6)
    with pytest.raises(ValueError, match="weights='int4': with this processor's kernels a token"):
        load_pair(folder, weights="int4")
    load_pair(folder, weights="int8")
    assert ["texts with drafts may differ" in record.message for record in caplog.records] == [True]
