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
from naive_speculate.tools.arguments import Parser, adder, positive, print_for_people, whole_number
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
    parser = Parser(prog="python -m train", description="Train a drafter for a target.")
    commands = parser.add_subparsers(
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
    return parser


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
    args = parser().parse_args(arguments)
    try:
        train_drafter(args)
    except (ValueError, OSError) as error:
        print(f"python -m train: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("python -m train: interrupted; the same command resumes", file=sys.stderr)
        return 130
    return 0


def train_drafter(args: argparse.Namespace) -> None:
    """Collect data, train, export and measure."""
    check_out(args.out, args.work, Path(args.target))
    pair = load_pair(args.target, device=args.device, executor="torch" if args.stream else "auto")
    model: Any = pair.target
    depth = getattr(model, "num_layers", 0)
    layers = args.layers or [min(2, depth), depth // 2, max(0, depth - 3)]
    source = source_of(pair, args.target, layers)
    data = _data(pair, source, args)
    torch.manual_seed(args.seed)
    embeddings = model.input_embeddings.detach().float().cpu()
    known = _known(source, data, args)
    if args.kind == "model":
        draft = DraftModel(
            embeddings,
            known,
            args.width,
            args.depth,
            model.eos_token_ids,
            model.max_positions,
        )
        _train(draft, data, source, args)
        export_model(draft.llama, pair.tokenizer, args.out)
    else:
        sizes = source.hidden_size, source.vocab_size
        drafter: HeadModel | BlockModel
        if args.kind == "head":
            shape = shape_of(LlamaConfig, *sizes, args.mlp, depth=1)
            drafter = HeadModel(shape, embeddings, len(layers), known, args.steps or 3)
        else:
            blocks = shape_of(Qwen3Config, *sizes, args.mlp, args.depth)
            rank = args.rank if args.kind == "dspark" else 0
            drafter = BlockModel(blocks, embeddings, len(layers), known, args.steps or 7, rank)
        drafter.begin(model.output_embeddings.detach().float().cpu())
        _train(drafter, data, source, args)
        if isinstance(drafter, HeadModel):
            export_head(drafter, source, args.out)
        else:
            export_block(drafter, source, args.out)
    report(args.target, args.kind, args.out, data.prompts(), args.device)


def _data(pair: ModelPair, source: Source, args: argparse.Namespace) -> Data:
    """Stage 1: conversations with what the target computed there, or with `--stream` their
    tokens alone."""
    if not args.stream:
        collect(
            pair,
            source,
            args.work,
            args.answer_tokens,
            args.given,
            args.text,
            args.seed,
        )
        return PartData(args.work)
    open_work(args.work, source)
    path, template = args.work / "texts.safetensors", chat_template(pair.tokenizer)
    if not path.exists():
        passages = read_passages(args.text, pair.tokenizer, args.seed) if args.text else []
        if template is None and not passages:
            lack = "has no passage of 40 tokens" if args.text else "is needed"
            raise ValueError(
                f"--text {lack}: the target has no chat template, so it continues given text"
            )
        save_whole(
            vars(stream(pair, template, passages, args.answer_tokens, args.stream, args.seed)),
            path,
        )
    texts = Texts.load(path)
    print(f"data: {path} has {int(texts.answers.sum()):,} answer tokens", flush=True)
    return TextData(texts, pair.target, source.layers)


def _known(source: Source, data: Data, args: argparse.Namespace) -> Tensor:
    """The tokens that the target's answers need most; later runs use the same."""
    path = args.work / f"known-{args.vocabulary}.safetensors"
    if not path.exists():
        counts = data.frequencies(source.vocab_size)
        known = counts.topk(min(args.vocabulary, source.vocab_size)).indices.sort().values
        save_whole({"known": known}, path)
    return load_whole(path)["known"]


def _train(model: torch.nn.Module, data: Data, source: Source, args: argparse.Namespace) -> None:
    """Stage 2, on the requested device."""
    device = (
        "cuda"
        if args.device == "auto" and torch.cuda.is_available()
        else args.device.replace("auto", "cpu")
    )
    shape: dict[str, Any] = {
        key: getattr(args, key) for key in ("mlp", "vocabulary", "width", "depth")
    }
    if args.kind == "dspark":
        shape["rank"] = args.rank
    shape["streamed"] = args.stream is not None or None  # None as in older checkpoints
    settings = source._asdict() | shape
    training = Training(
        args.kind,
        model.to(device),
        data,
        args.work,
        settings,
        args.batch_tokens,
        args.seed,
    )
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # the target's states, on a GPU in TF32
    try:
        training.run(60 * args.minutes, args.updates)
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    sys.exit(main())
