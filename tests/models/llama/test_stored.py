"""Models read from a folder without transformers' model classes."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from naive_speculate import load_pair
from naive_speculate.models.llama.model import LlamaLanguageModel
from naive_speculate.models.llama.stored import read_llama
from tests.tiny import save_model

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def saved(folder: Path, **more: object) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES | {"num_key_value_heads": 2, "head_dim": 8, "eos_token_id": [3, 5]} | more
    )
    save_model(LlamaForCausalLM(config), folder)
    return folder


@pytest.mark.parametrize("executor", ["onnx", "torch"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_read_from_its_folder_is_the_one_that_transformers_loads(tmp_path, tied, executor):
    folder = saved(tmp_path, tie_word_embeddings=tied)
    stored = read_llama(folder, CPU, torch.float32)
    assert stored is not None
    lean = LlamaLanguageModel(stored, executor)
    usual = LlamaLanguageModel.from_transformers(
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), executor
    )
    told = (
        "name",
        "eos_token_ids",
        "vocab_size",
        "max_positions",
        "num_parameters",
        "num_layers",
        "hidden_size",
        "executor",
    )
    assert {name: getattr(lean, name) for name in told} == {
        name: getattr(usual, name) for name in told
    }
    query = torch.tensor([[1, 2, 3, 4, 5, 6]])
    assert torch.equal(
        lean.forward(query, lean.new_cache(1)), usual.forward(query, usual.new_cache(1))
    )


@pytest.mark.parametrize(
    "more",
    [
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
        {"attention_bias": True},
    ],
)
def test_what_a_folder_does_not_say_in_full_is_left_to_transformers(tmp_path, more):
    folder = saved(tmp_path, **more)
    assert read_llama(folder, CPU, torch.float32) is None
    assert load_pair(folder).target.num_layers == 2


WRONG = {
    "num_key_value_heads": None,
    "max_position_embeddings": None,
    "rms_norm_eps": None,
    "hidden_size": 32.0,
}
WRONG |= {
    "num_attention_heads": 0,
    "num_hidden_layers": 3,
    "intermediate_size": 40,
    "": None,
}  # the last ones do not fit


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_and_damaged_weights_are_left_to_transformers_to_refuse(tmp_path, name):
    folder = saved(tmp_path)
    file = folder / ("config.json" if name else "model.safetensors")
    content = file.read_bytes()
    file.write_bytes(
        json.dumps(json.loads(content) | {name: WRONG[name]}).encode() if name else content[:1000]
    )
    assert read_llama(folder, CPU, torch.float32) is None
    with pytest.raises(ValueError, match=r"^target='.*' cannot be loaded: "):
        load_pair(folder)
