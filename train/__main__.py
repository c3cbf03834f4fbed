"""Train a drafter for any target: `python -m train drafter --target M --kind head --work FOLDER
--out FOLDER`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

from naive_speculate import ModelPair, load_pair
from naive_speculate.arguments import Parser, adder, positive, print_for_people, whole_number
from train.batches import Data, PartData
from train.block import BlockModel
from train.data import (
    Source,
    chat_template,
    collect,
    load_whole,
    open_work,
    read_passages,
    save_whole,
    source_of,
)
from train.export import check_out, export_block, export_head, export_model
from train.head import HeadModel, shape_of
from train.loop import Training
from train.model import DraftModel
from train.report import report
from train.stream import stream
from train.texts import TextData, Texts


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(prog="python -m train", description="Train a drafter for a target.")
    commands = found.add_subparsers(
        dest="command", required=True, parser_class=Parser, metavar="COMMAND"
    )
    drafter = commands.add_parser(
        "drafter", help="train a draft head, a block drafter or a draft model"
    )
    add = adder(drafter)
    add("--target", "a named pair, Hub id, local folder or GGUF file", required=True)
    kinds = "an EAGLE-3 head, a block drafter (DFlash or DSpark), or a small Llama (default: head)"
    add("--kind", kinds, default="head", choices=("head", "block", "dspark", "model"))
    add("--work", "data and checkpoints; the same command resumes", Path, required=True)
    add("--out", "where the drafter is written", Path, required=True)
    add("--seed", "of all random numbers", whole_number, 0)
    add("--device", "auto, cpu, cuda, cuda:1 …", default="auto")
    _add_data(drafter.add_argument_group("data"))
    _add_shape(adder(drafter.add_argument_group("the drafter's shape")))
    _add_training(drafter.add_argument_group("training"))
    return found


def _add_data(group: Any) -> None:
    add, source = adder(group), adder(group.add_mutually_exclusive_group())
    add("--answer-tokens", "size of the data", positive, 2_000_000)
    source("--stream ROWS", "conversations written at once, for a GPU; keeps tokens only", positive)
    source("--given", "JSON lines with token ids in prompt and answer, used first", Path)
    add("--text", "text files; some conversations are about passages of them", Path, [], nargs="+")


def _add_shape(add: Callable[..., None]) -> None:
    layers = "target layers that are read (default: 2, n / 2 and n - 3 of n)"
    add("--layers", layers, whole_number, nargs="+")
    add("--vocabulary", "tokens that the drafter learns to draft", positive, 6_144)
    add("--mlp", "width of the drafter's MLP (default: twice the target's width)", positive)
    add("--width", "width of a draft model", positive, 192)
    add("--depth", "layers of block drafter or draft model", positive, 3)
    add("--rank", "rank of a DSpark's product of the token before", positive, 128)


def _add_training(group: Any) -> None:
    add, length = adder(group), adder(group.add_mutually_exclusive_group())
    length("--minutes", "training time, over all runs together", positive, 240)
    length("--updates", "updates of the weights instead", positive)
    add("--steps", "draft steps in training (default: 3 of a head, 7 of a block drafter)", positive)
    add("--batch-tokens", "tokens per update", positive, 1_024)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the three stages; 2 for bad input, 130 when interrupted."""
    print_for_people()
    given = parser().parse_args(arguments)
    try:
        train_drafter(given)
    except (ValueError, OSError) as error:
        print(f"python -m train: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("python -m train: interrupted; the same command resumes", file=sys.stderr)
        return 130
    return 0


def train_drafter(given: argparse.Namespace) -> None:
    """Collect data, train, export and measure."""
    check_out(given.out, given.work, Path(given.target))
    pair = load_pair(
        given.target, device=given.device, executor="torch" if given.stream else "auto"
    )
    model: Any = pair.target
    depth = getattr(model, "num_layers", 0)
    layers = given.layers or [min(2, depth), depth // 2, max(0, depth - 3)]
    source = source_of(pair, given.target, layers)
    data = _data(pair, source, given)
    torch.manual_seed(given.seed)
    embeddings = model.input_embeddings.detach().float().cpu()
    known = _known(source, data, given)
    if given.kind == "model":
        draft = DraftModel(
            embeddings, known, given.width, given.depth, model.eos_token_ids, model.max_positions
        )
        _train(draft, data, source, given)
        export_model(draft.llama, pair.tokenizer, given.out)
    else:
        sizes = source.hidden_size, source.vocab_size
        drafter: HeadModel | BlockModel
        if given.kind == "head":
            shape = shape_of(LlamaConfig, *sizes, given.mlp, depth=1)
            drafter = HeadModel(shape, embeddings, len(layers), known, given.steps or 3)
        else:
            blocks = shape_of(Qwen3Config, *sizes, given.mlp, given.depth)
            rank = given.rank if given.kind == "dspark" else 0
            drafter = BlockModel(blocks, embeddings, len(layers), known, given.steps or 7, rank)
        drafter.begin(model.output_embeddings.detach().float().cpu())
        _train(drafter, data, source, given)
        if isinstance(drafter, HeadModel):
            export_head(drafter, source, given.out)
        else:
            export_block(drafter, source, given.out)
    report(given.target, given.kind, given.out, data.prompts(), given.device)


def _data(pair: ModelPair, source: Source, given: argparse.Namespace) -> Data:
    """Stage 1: conversations with what the target computed there, or with `--stream` their
    tokens alone."""
    if not given.stream:
        collect(pair, source, given.work, given.answer_tokens, given.given, given.text, given.seed)
        return PartData(given.work)
    open_work(given.work, source)
    path, template = given.work / "texts.safetensors", chat_template(pair.tokenizer)
    if not path.exists():
        passages = read_passages(given.text, pair.tokenizer, given.seed) if given.text else []
        if template is None and not passages:
            wanted = "has no passage of 40 tokens" if given.text else "is needed"
            raise ValueError(
                f"--text {wanted}: the target has no chat template, so it continues given text"
            )
        save_whole(
            vars(stream(pair, template, passages, given.answer_tokens, given.stream, given.seed)),
            path,
        )
    texts = Texts.load(path)
    print(f"data: {path} has {int(texts.answers.sum()):,} answer tokens", flush=True)
    return TextData(texts, pair.target, source.layers)


def _known(source: Source, data: Data, given: argparse.Namespace) -> Tensor:
    """The tokens that the target's answers need most; later runs use the same."""
    path = given.work / f"known-{given.vocabulary}.safetensors"
    if not path.exists():
        counts = data.frequencies(source.vocab_size)
        known = counts.topk(min(given.vocabulary, source.vocab_size)).indices.sort().values
        save_whole({"known": known}, path)
    return load_whole(path)["known"]


def _train(model: torch.nn.Module, data: Data, source: Source, given: argparse.Namespace) -> None:
    """Stage 2, on the requested device."""
    found = (
        "cuda"
        if given.device == "auto" and torch.cuda.is_available()
        else given.device.replace("auto", "cpu")
    )
    shape: dict[str, Any] = {
        key: getattr(given, key) for key in ("mlp", "vocabulary", "width", "depth")
    }
    if given.kind == "dspark":
        shape["rank"] = given.rank
    shape["streamed"] = given.stream is not None or None  # None as in older checkpoints
    settings = source._asdict() | shape
    training = Training(
        given.kind, model.to(found), data, given.work, settings, given.batch_tokens, given.seed
    )
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # the target's states, on a GPU in TF32
    try:
        training.run(60 * given.minutes, given.updates)
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    sys.exit(main())
