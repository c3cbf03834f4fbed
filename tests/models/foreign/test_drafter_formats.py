"""Drafters that speculators 0.9.0 and dflash 0.1.0 wrote (`drafters/write.py`): ours compute what
the library computed."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from naive_speculate.models.foreign.block import BlockHead
from naive_speculate.models.foreign.parallel import ParallelHead
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.files import is_head

FOLDERS = sorted(path.parent for path in (Path(__file__).parent / "drafters").glob("*/config.json"))
NUM_LAYERS = 5


def parts(folder: Path):
    """What the library computed, and a target with its matrices."""
    expected = load_file(folder / "expected.safetensors")
    return expected, SimpleNamespace(
        num_layers=NUM_LAYERS,
        vocab_size=len(expected["input_embeddings"]),
        input_embeddings=expected["input_embeddings"],
        output_embeddings=expected["output_embeddings"],
    )


def loaded(folder: Path, target):
    return load_head(folder, target, torch.device("cpu"), torch.float32)


def drafted(head: BlockHead, tokens, features):
    """Logits and greedy drafts of two texts, side by side and through a cache."""
    cache = head.new_cache(2)
    rows, last = cache.all_rows(), [row[-2:].tolist() for row in tokens]
    head.read(torch.nn.utils.rnn.pad_sequence(features, batch_first=True), rows)
    for row, states in enumerate(features):
        cache.keep(row, len(states))
    block = head.compute([row[-1] for row in last], rows)
    found, logits, token_ids = [], [], torch.tensor(last)
    for index in range(head.options.num_drafts):
        logits.append(head.logits_after(block, index, token_ids))
        token_ids = logits[-1].argmax(-1)
        found.append(token_ids)
    return torch.stack(logits, 1), torch.stack(found, 1)


def drafted_in_parallel(head: ParallelHead, tokens, features):
    """The same of a head that reads masks."""
    cache, num_masks = head.new_cache(2), 4
    mask = head.mask_state.expand(num_masks, -1)
    read = [torch.cat([states, mask]) for states in features]
    query = [torch.cat([row[1:], torch.full((num_masks,), head.mask_token_id)]) for row in tokens]
    ends = [len(states) - 1 + index for index in range(num_masks + 1) for states in features]
    pad = torch.nn.utils.rnn.pad_sequence
    logits, _ = head.forward(pad(query, True), pad(read, True), cache.all_rows(), ends)
    logits = logits.unflatten(0, (-1, 2)).transpose(0, 1)
    return logits, logits.argmax(-1)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_drafter_computes_what_its_library_does(folder):
    """Two texts of different lengths."""
    expected, target = parts(folder)
    head = loaded(folder, target)
    assert is_head(folder)
    assert head.layers == (1, 2, 3)
    tokens, features = (
        [expected[f"{name}_{index}"] for index in (0, 1)] for name in ("tokens", "features")
    )
    draft = drafted_in_parallel if isinstance(head, ParallelHead) else drafted
    logits, drafts = draft(head, tokens, features)
    for row in (0, 1):
        assert drafts[row].tolist() == expected[f"drafts_{row}"].tolist()
        wanted = expected[f"logits_{row}"]
        ours = logits[row]
        if ours.shape[-1] != wanted.shape[-1]:
            ours = ours[:, ours[0].isfinite()]
        torch.testing.assert_close(
            ours.log_softmax(-1), wanted.log_softmax(-1), atol=1e-4, rtol=1e-4
        )


HERE = FOLDERS[0].parent


def changed(folder: Path, name: str, config=None, tensors=None) -> Path:
    """A copy of a drafter with other options, and with other tensors: None removes one."""
    shutil.copytree(HERE / name, folder / name)
    path = folder / name / "config.json"
    found = json.loads(path.read_text(encoding="utf-8")) | (config or {})
    path.write_text(json.dumps(found), encoding="utf-8")
    path = folder / name / "model.safetensors"
    stored = load_file(path) | (tensors or {})
    save_file({key: each for key, each in stored.items() if each is not None}, path)
    return folder / name


@pytest.mark.parametrize(
    ("name", "config", "tensors", "message"),
    [
        (
            "dflash",
            {"aux_hidden_state_layer_ids": None},
            {},
            "aux_hidden_state_layer_ids is missing",
        ),
        (
            "dflash",
            {"aux_hidden_state_layer_ids": [1, "2", 3]},
            {},
            "aux_hidden_state_layer_ids must",
        ),
        (
            "dflash",
            {"mask_token_id": None},
            {},
            "mask_token_id must be one of the target's 48 tokens",
        ),
        ("dflash", {"block_size": None}, {}, "block_size must be a whole number of at least 2"),
        (
            "dflash",
            {"markov_rank": 6},
            {},
            "its configuration has markov_rank = 6, which is not read",
        ),
        ("dflash", {}, {"d2t": None}, "d2t is missing"),
        ("dspark", {"markov_head_type": "lstm"}, {}, "markov_head_type is 'lstm', not 'vanilla'"),
        ("dspark", {"markov_rank": "6"}, {}, "markov_rank must be a whole number of at least 0"),
        ("dspark", {"markov_rank": 0}, {}, "it holds markov_head.markov_w1.weight, which is not"),
        (
            "dspark",
            {},
            {"markov_head.markov_w2.weight": torch.ones(30, 5)},
            r"markov_head.markov_w2.weight is \[30, 5\], its configuration requires \[30, 6\]",
        ),
        (
            "dspark-rnn",
            {},
            {"markov_head.joint_proj.bias": None},
            "markov_head.joint_proj.bias is mis",
        ),
        ("dflash2", {"selector_top_k": 49}, {}, "selector_top_k is 49, the target has 48 tokens"),
        ("dflash2", {"conv_group_size": 5}, {}, "conv_group_size is 5, which does not divide"),
        ("dflash2", {"conv_kernel_size": 0}, {}, "conv_kernel_size must be a whole number"),
        (
            "xpress",
            {},
            {"refiner_head.mix_l": torch.ones(6, 4, 4)},
            r"refiner_head.mix_l is \[6, 4",
        ),
        (
            "z-lab",
            {"architectures": ["DSparkDraftModel"]},
            {},
            "it is 'DSparkDraftModel', not DFlash in the layout of z-lab/dflash",
        ),
        ("z-lab", {"projector_type": "domino"}, {}, "it is 'domino', not DFlash in the layout"),
        ("z-lab", {"num_anchor_layers": 3}, {}, "its configuration has num_anchor_layers = 3"),
        (
            "dflash",
            {"speculators_model_type": "medusa"},
            {},
            "speculators_model_type is 'medusa', not",
        ),
        ("peagle", {"mask_token_id": None}, {}, "mask_token_id must be one of the target's 48"),
        ("peagle", {}, {"mask_hidden": None}, "mask_hidden is missing"),
        ("peagle", {}, {"mask_hidden": torch.ones(1, 1, 47)}, r"mask_hidden is \[1, 1, 47\]"),
        ("dflash", {"speculators_model_type": "mtp"}, {}, "it is an 'mtp' drafter of speculators"),
    ],
)
def test_a_broken_drafter_or_one_of_another_method_is_refused_in_one_line(
    tmp_path, name, config, tensors, message
):
    folder = changed(tmp_path, name, config, tensors)
    assert is_head(folder)
    with pytest.raises(ValueError, match=f"^head='.*' cannot be loaded: {message}") as caught:
        loaded(folder, parts(folder)[1])
    assert "\n" not in str(caught.value)


def test_a_block_of_unknown_size_in_z_lab_s_layout_has_sixteen_positions(tmp_path):
    folder = changed(tmp_path, "z-lab", {"block_size": None})
    assert loaded(folder, parts(folder)[1]).options.num_drafts == 15
