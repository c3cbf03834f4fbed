"""Stage 3: write a trained drafter in a layout that this library, vLLM and SGLang load."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from safetensors import SafetensorError
from transformers import LlamaForCausalLM

from train.block import BlockModel
from train.data import Source
from train.head import HeadModel, ReadsTarget

MAX_SHARD_SIZE = "9MB"  # of block drafters and draft models
# how the names of a model's files end
OF_A_MODEL = (".json", ".safetensors", ".jinja", ".model", "merges.txt")


def check_out(folder: Path, *others: Path) -> None:
    """Raise a `ValueError` if a drafter cannot be written, or would replace other files than a
    model's, or a folder with the current one or one of the others in it."""
    kept = [
        path
        for path in (Path.cwd(), *others)
        if path.exists() and path.resolve().is_relative_to(folder.resolve())
    ]
    with _beside(folder):
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
    if (
        kept
        or (names and "config.json" not in names)
        or not all(name.endswith(OF_A_MODEL) for name in names)
    ):
        raise ValueError(
            f"--out {folder}: the drafter would replace this folder and all in it; give a new one"
        )


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """An empty folder next to this one, which is removed at the end. Raises `ValueError` if
    something cannot be written there."""
    partial = folder.resolve().with_name(folder.resolve().name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
    except (OSError, SafetensorError) as error:
        raise ValueError(f"--out {folder}: cannot be written: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into; it replaces `folder` once everything is written."""
    with _beside(folder) as partial:
        yield partial
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)


def export_head(head: HeadModel, source: Source, folder: Path) -> None:
    """Write a head in float16, in the layout of EAGLE-3's authors (SafeAILab/EAGLE, `cnets.py`).

    The layers' numbers stand in the configuration twice: at the top as vLLM reads them (states
    that enter layer i), and in `eagle_config` as SGLang reads them (states that leave layer i).
    """
    ids = "eagle_aux_hidden_state_layer_ids"
    more = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "target_hidden_size": source.hidden_size,
        ids: source.layers,
        "eagle_config": {ids: [layer - 1 for layer in source.layers], "use_aux_hidden_state": True},
    }
    _export(head, more, folder, one_file=True)


def export_block(block: BlockModel, source: Source, folder: Path) -> None:
    """Write a block drafter in float16, in the layout of vLLM's speculators 0.9.0
    (`DFlashSpeculatorConfig`, `DSparkSpeculatorConfig`), which numbers layers as
    `source.layers`."""
    kind = "dspark" if block.rank else "dflash"
    proposal = {"proposal_type": "greedy", "speculative_tokens": block.num_drafts}
    more = {
        "architectures": ["DSparkDraftModel" if block.rank else "DFlashDraftModel"],
        "speculators_model_type": kind,
        "block_size": block.block_size,
        "aux_hidden_state_layer_ids": source.layers,
        "mask_token_id": block.mask_token_id,
        "sample_from_anchor": bool(block.rank),
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": None, "architectures": []},
        },
    }
    if block.rank:
        more |= {
            "markov_rank": block.rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": False,
            "confidence_head_with_markov": False,
        }
    _export(block, more, folder)


def _export(model: ReadsTarget, more: dict[str, Any], folder: Path, one_file: bool = False) -> None:
    """Write weights, the tokens that can be drafted, and a configuration with these additions.
    `one_file`: speculators' converter of heads takes no other."""
    tensors = {
        name: tensor.detach().half().contiguous() for name, tensor in model.state_dict().items()
    }
    known, vocab_size = model.known.cpu(), model.config.vocab_size
    if len(known) < vocab_size:
        tensors["d2t"] = known - torch.arange(len(known))
        tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, known, True)
    layers = model.config.to_dict() | {"dtype": "float16"}
    nested = {"transformer_layer_config": layers, "dtype": "float16"}
    config = nested if "speculators_model_type" in more else layers
    config = config | {"draft_vocab_size": len(known)} | more
    with whole_folder(folder) as partial:
        save_torch_state_dict(
            tensors,
            partial,
            max_shard_size="1TB" if one_file else MAX_SHARD_SIZE,
            metadata={"format": "pt"},
        )
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def export_model(model: LlamaForCausalLM, tokenizer: Any, folder: Path) -> None:
    """Write a draft model in float16 with the target's tokenizer, as transformers loads it."""
    with whole_folder(folder) as partial:
        model.half().save_pretrained(partial, max_shard_size=MAX_SHARD_SIZE)
        model.float()
        try:
            tokenizer.save_pretrained(partial)
        except OSError:
            raise
        except Exception as error:  # tokenizers raises plain Exception
            raise OSError(str(error)) from None
