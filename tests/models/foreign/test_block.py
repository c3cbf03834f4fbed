"""Block drafters in the public layout: what they compute, and what is said about those that do
not fit."""

import pytest
import torch

from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models.foreign.block import BlockHead
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.files import is_head
from tests.heads import (
    BLOCK_CONFIG,
    BLOCK_SIZE,
    TARGET_WIDTH,
    VOCAB,
    block_tensors,
    eager_block,
    save_tensors,
)
from tests.tiny import tiny_llama

SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 6,
    "use_sliding_window": True,
}
KINDS = {
    "the target's matrices": ({}, None),
    "fewer tokens": ({}, 60),
    "a sliding layer": (SLIDING, None),
    "three layers": ({"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}, None),
}


@pytest.fixture(scope="module")
def target():
    return TransformersLanguageModel(tiny_llama(4, seed=0))


def loaded(folder, target):
    found = load_head(folder, target, torch.device("cpu"), torch.float32)
    assert isinstance(found, BlockHead)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_drafter_computes_what_its_definition_says(tmp_path, target, kind):
    """Through a cache, rows of different lengths side by side, with padding and drafts in
    between."""
    changes, known = KINDS[kind]
    config = BLOCK_CONFIG | changes
    tensors = block_tensors(config, known)
    block = loaded(save_tensors(tmp_path, tensors, config), target)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCAB, (2, 40), generator=generator)
    features = torch.randn(2, 40, 3 * TARGET_WIDTH, generator=generator)
    cache, embedding, output = block.new_cache(2), target.input_embeddings, target.output_embeddings
    assert not torch.equal(embedding, output)
    for lengths in ((7, 3), (1, 4), (5, 2), (2, 10)):
        begins, width = list(cache.lengths), max(lengths)
        block.read(
            torch.stack([f[at : at + width] for f, at in zip(features, begins, strict=True)]),
            cache.all_rows(),
        )
        ends = [at + length for at, length in zip(begins, lengths, strict=True)]
        for row, end in enumerate(ends):
            cache.keep(row, end)
        last = [int(tokens[row, end]) for row, end in enumerate(ends)]
        logits = block.draft(last, cache.all_rows())
        assert logits.shape == (2, BLOCK_SIZE - 1, VOCAB)
        assert cache.lengths == ends
        for row, end in enumerate(ends):
            wanted = eager_block(
                tensors, config, embedding, output, int(tokens[row, end]), features[row, :end]
            )
            torch.testing.assert_close(logits[row], wanted, atol=1e-3, rtol=1e-3)
    assert (block.vocab_size, block.target_hidden_size, block.layers) == (
        VOCAB,
        TARGET_WIDTH,
        (1, 2, 3),
    )


def dflash(**changes):
    return {"dflash_config": BLOCK_CONFIG["dflash_config"] | changes}


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        (
            {"dflash_config": {}, "mask_token_id": 5, "target_layer_ids": [1, 2, 3]},
            (2, 3, 4),
        ),  # some write it at the top
        (
            {
                "dflash_config": {"mask_token_id": 5},
                "num_hidden_layers": 1,
                "layer_types": ["full_attention"],
            },
            (5,),
        ),
        (
            {"dflash_config": {"mask_token_id": 5}},
            (2, 6),
        ),  # evenly, from the second layer to the third-last of eight
    ],
)
def test_options_are_found_where_public_checkpoints_have_them(tmp_path, changes, layers):
    config = BLOCK_CONFIG | changes
    folder = save_tensors(tmp_path, block_tensors(config, num_layers=len(layers)), config)
    assert is_head(folder)
    assert loaded(folder, TransformersLanguageModel(tiny_llama(8, seed=0))).layers == layers


@pytest.mark.parametrize(
    ("changes", "spoiled", "message"),
    [
        ({"block_size": 1}, {}, "block_size must be a whole number of at least 2, got 1"),
        ({"block_size": "8"}, {}, "block_size must be a whole number of at least 2, got '8'"),
        ({"is_causal": 1}, {}, "is_causal must be true or false, got 1"),
        ({"output_multiplier": "2"}, {}, "output_multiplier must be a number, got '2'"),
        (
            dflash(target_layer_ids=[1, 2, 3]),
            {},
            r"target_layer_ids \[1, 2, 3\] has the last layer, whose state"
            " z-lab/dflash reads after",
        ),
        (
            {"selector_rank": 8},
            {},
            "its configuration has selector_rank = 8, which is not read",
        ),
        (
            dflash(blocks_per_step=2),
            {},
            "its configuration has dflash_config.blocks_per_step = 2, which is not read",
        ),
        (
            dflash(mask_token_id=None),
            {},
            "mask_token_id must be one of the target's 97 tokens, got None",
        ),
        (
            dflash(mask_token_id=97),
            {},
            "mask_token_id must be one of the target's 97 tokens, got 97",
        ),
        (
            dflash(target_layer_ids=[-1, 2, 3]),
            {},
            r"target_layer_ids must be a list of layer numbers, got \[-1, 2, 3\]",
        ),
        (
            dflash(target_layer_ids=[0, 1, 2, 2, 1]),
            {},
            r"fc.weight is \[32, 96\], which does not fit 5 layers",
        ),
        (
            dflash(shift_label=True),
            {},
            "shift_label is not supported: a mask must predict the token at its own position",
        ),
        ({"model_type": "gemma3_text"}, {}, "model_type is gemma3_text, not one of llama"),
        ({}, {"fc.weight": None}, "fc.weight is missing"),
        ({}, {"hidden_norm.weight": None}, "hidden_norm.weight is missing"),
        (
            {},
            {"layers.1.mlp.up_proj.weight": torch.ones(32, 40)},
            r"layers.1.mlp.up_proj.weight is \[32, 40\]",
        ),
        (
            {},
            {"layers.0.self_attn.q_norm.weight": torch.ones(9)},
            r"layers.0.self_attn.q_norm.weight is \[9\]",
        ),
        (
            {},
            {"confidence_proj.weight": torch.ones(1, 32)},
            "it holds confidence_proj.weight, which is not",
        ),  # DSpark's
        ({}, {"lm_head.weight": torch.ones(50, 32)}, "d2t is missing"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, target, changes, spoiled, message):
    tensors = {
        name: tensor for name, tensor in (block_tensors() | spoiled).items() if tensor is not None
    }
    folder = save_tensors(tmp_path, tensors, BLOCK_CONFIG | changes)
    with pytest.raises(ValueError, match=rf"^head='.*' cannot be loaded: {message}") as caught:
        loaded(folder, target)
    assert "\n" not in str(caught.value)


def test_a_target_without_matrices_to_share_is_refused_in_one_line(tmp_path):
    folder = save_tensors(tmp_path, block_tensors(), BLOCK_CONFIG)
    with pytest.raises(
        ValueError,
        match=r"^head='.*' cannot be loaded: it has no input embeddings of its own, and object",
    ):
        loaded(folder, object())
