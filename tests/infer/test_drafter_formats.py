"""Drafters that speculators 0.9.0 and dflash 0.1.0 wrote (`drafters/write.py`): ours compute what
the library computed."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from naive_speculate.infer.head.block import BlockHead
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.head.files import is_head

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


def drafted(head: BlockHead, rows, tokens, last):
    """Logits and greedy drafts of rows whose states were read."""
    block = head.compute([row[-1] for row in last], rows)
    found, logits, token_ids = [], [], torch.tensor(last)
    for index in range(head.options.num_drafts):
        logits.append(head.logits_after(block, index, token_ids))
        token_ids = logits[-1].argmax(-1)
        found.append(token_ids)
    return torch.stack(logits, 1), torch.stack(found, 1)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_drafter_computes_what_its_library_does(folder):
    """Two texts of different lengths, side by side and through a cache."""
    expected, target = parts(folder)
    head = loaded(folder, target)
    assert is_head(folder)
    assert head.layers == (1, 2, 3)
    tokens, features = (
        [expected[f"{name}_{index}"] for index in (0, 1)] for name in ("tokens", "features")
    )
    cache = head.new_cache(2)
    head.read(torch.nn.utils.rnn.pad_sequence(features, batch_first=True), cache.all_rows())
    for row, states in enumerate(features):
        cache.keep(row, len(states))
    last = [row[-2:].tolist() for row in tokens]
    logits, drafts = drafted(head, cache.all_rows(), tokens, last)
    for row in (0, 1):
        assert drafts[row].tolist() == expected[f"drafts_{row}"].tolist()
        wanted = expected[f"logits_{row}"]
        ours = logits[row]
        if ours.shape[-1] != wanted.shape[-1]:
            ours = ours[:, ours[0].isfinite()]
        torch.testing.assert_close(
            ours.log_softmax(-1), wanted.log_softmax(-1), atol=1e-4, rtol=1e-4
        )
