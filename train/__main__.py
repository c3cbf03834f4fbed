"""Make a pair: ``python -m train --corpus FOLDER --work FOLDER --out assets/pair [--minutes N] [--preset gpu]``."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from train import card
from train.config import HEADS, PRESETS, TOGETHER, HeadRecipe
from train.data import open_tokens, save_json
from train.distil import LESSONS, begin_draft, train_draft
from train.errors import TrainingError
from train.export import export
from train.head import STAGES, HeadModel, begin_head, export_head, train_head
from train.legs import FILE as LEGS_FILE
from train.legs import joint_leg, this_leg
from train.loop import Budget
from train.pipeline import Workshop, prepare, train_target
from train.together import NAME as TOGETHER_NAME
from train.together import Trio, train_together


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m train", description="Train a target and a draft model for it.")
    found.add_argument(
        "--corpus", type=Path, required=True, nargs="+", help="text files (.txt, .txt.xz, UTF-8) or folders of them"
    )
    found.add_argument("--valid", type=Path, help="held-out text file; without it 1 %% of the corpus is held out")
    found.add_argument("--work", type=Path, required=True, help="checkpoints and logs; run again to resume")
    found.add_argument("--out", type=Path, required=True, help="where the finished pair goes")
    found.add_argument("--minutes", type=float, default=60.0, help="training time of the target (default 60)")
    found.add_argument("--tokens", type=float, help="train the target on so many tokens, in place of --minutes (such as 2e7)")
    found.add_argument("--draft-minutes", type=float, help="training time of the draft (default a quarter of --minutes)")
    found.add_argument("--head-minutes", type=float, default=0.0, help="training time of a draft head (default 0: none)")
    found.add_argument(
        "--together-minutes", type=float, default=0.0,
        help="training time of target, draft and head together, afterwards (default 0: none)",
    )  # fmt: skip
    found.add_argument("--preset", choices=sorted(PRESETS), default="cpu", help="sizes and rates (default cpu)")
    found.add_argument("--init", type=Path, help="an exported target to go on from, with its tokenizer; it may be smaller")
    found.add_argument("--init-draft", type=Path, help="an exported draft to distil further; it may be smaller")
    found.add_argument("--init-head", type=Path, help="an exported head of the shape of the preset's draft, to distil further")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, …")
    found.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    found.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    return found


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainingError(f"unknown --device: {name}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainingError(f"--device {name}: CUDA is not available here")
    return device


def make_pair(arguments: argparse.Namespace) -> None:
    for name in ("minutes", "draft_minutes", "head_minutes", "together_minutes"):
        if (getattr(arguments, name) or 0) < 0:
            raise TrainingError(f"--{name.replace('_', '-')} must not be negative")
    if arguments.together_minutes and not arguments.head_minutes and not arguments.init_head:
        raise TrainingError("--together-minutes trains a head too: give --head-minutes or --init-head")
    if arguments.tokens is not None and not arguments.tokens > 0:
        raise TrainingError("--tokens must be above 0")
    if arguments.threads is not None:
        if arguments.threads < 1:
            raise TrainingError("--threads must be at least 1")
        torch.set_num_threads(arguments.threads)
    shop = Workshop(
        recipe=replace(PRESETS[arguments.preset], seed=arguments.seed),
        work=arguments.work,
        device=choose_device(arguments.device),
        compile=arguments.preset != "tiny" and not arguments.no_compile,
        init=arguments.init,
        init_draft=arguments.init_draft,
        init_head=arguments.init_head,
    )
    prepare(shop, arguments.corpus, arguments.valid)
    beginning = begin_draft(shop)  # a wrong --init-draft is told now, not after the target's hours
    recipe, head = HEADS[arguments.preset], None
    if arguments.head_minutes or arguments.together_minutes:  # and a wrong --init-head
        head = begin_head(shop, beginning, recipe)
    target, target_step = train_target(shop, Budget(minutes=arguments.minutes, tokens=arguments.tokens))
    draft_minutes = arguments.minutes / 4 if arguments.draft_minutes is None else arguments.draft_minutes
    draft = beginning
    if draft_minutes or not arguments.init_draft:
        draft = train_draft(shop, target, target_step, draft_minutes)
    if arguments.head_minutes:
        head = train_head(shop, target, draft, target_step, recipe, arguments.head_minutes)
    if arguments.together_minutes and head is not None:
        joint = TOGETHER[arguments.preset]
        train_together(shop, Trio(target, draft, head), target_step, recipe, joint, arguments.together_minutes)
    tokenizer = shop.tokenizer()
    arguments.out.mkdir(parents=True, exist_ok=True)
    export(target, tokenizer, arguments.out / "target")
    export(draft, tokenizer, arguments.out / "draft")
    if head is not None:
        export_head(head, recipe, arguments.out / "head")
    finish(shop, arguments.out, target_step, arguments.preset)
    if head is not None:
        finish_head(shop, arguments.out, target_step, head, recipe)


def finish(shop: Workshop, out: Path, target_step: int, preset: str) -> None:
    """Measure the exported pair and write its model card and loss curve."""
    folder = shop.work / f"draft-of-{target_step:07d}"
    logs = {
        "target": shop.work / "target.csv",
        "draft before distillation": shop.work / "draft-pretrain.csv",
        f"target + {TOGETHER[preset].weight:g} × variation": folder / f"{TOGETHER_NAME}.csv",
    }
    data = shop.data_card()
    room = shop.recipe.positions - 32
    measured = card.measure(out, shop.tokens("valid"), data["valid_bytes"], new_tokens=min(128, room))
    parameters = {name: sum(p.numel() for p in card.load(out / name).parameters()) for name in ("target", "draft")}
    target_run, draft_run = together([logs["target"]]), together([folder / "draft.csv", folder / "draft-polish.csv"])
    draft_run["lessons"] = len(open_tokens(folder / LESSONS)) if (folder / LESSONS).exists() else 0
    going_on, recipe = shop.init_draft is not None, asdict(shop.recipe) | {"preset": preset}
    legs, joint_run = [*data["earlier_legs"]], together([folder / f"{TOGETHER_NAME}.csv"])
    if target_run["tokens"] or not joint_run["tokens"]:
        legs.append(this_leg(recipe, data, target_run))
    if joint_run["tokens"]:
        legs.append(joint_leg(recipe, TOGETHER[preset], data, joint_run))
    text = card.model_card(recipe, data, measured, parameters, legs, draft_run, card.samples(out), going_on)
    (out / "README.md").write_text(text, encoding="utf-8")
    save_json(legs, out / LEGS_FILE)
    if not card.plot_losses(logs, out / "loss-curve.png"):
        print("matplotlib is not installed: no loss curve drawn", file=sys.stderr)
    for name, loss in (("target", measured.target_loss), ("draft", measured.draft_loss)):
        print(f"{name}: {loss:.3f} nats per token, {measured.bits_per_byte(loss):.3f} bits per byte on held-out text")
    for name, acceptance in (("greedy", measured.greedy), ("temperature 1", measured.sampled)):
        print(f"{name}: mean accepted length {acceptance.mean_length:.2f}, accepted ÷ drafted {acceptance.rate:.2f}")


def finish_head(shop: Workshop, out: Path, target_step: int, head: HeadModel, recipe: HeadRecipe) -> None:
    """Measure the exported head and tell of it in the model card."""
    folder, told = shop.work / f"draft-of-{target_step:07d}", out / "README.md"
    lengths = card.measure_head(out, shop.tokens("valid"))
    for name, length in lengths.items():
        print(f"head, {name}: {length:.2f} tokens a target forward")
    trained = sum(parameter.numel() for parameter in head.parameters() if parameter.requires_grad)
    run, going_on = together([folder / f"{name}.csv" for name in STAGES]), shop.init_head is not None
    text = card.with_head(told.read_text(encoding="utf-8"), asdict(recipe), trained, lengths, run, going_on)
    told.write_text(text, encoding="utf-8")


def together(logs: Sequence[Path]) -> dict[str, int]:
    """Steps, tokens and seconds of runs that followed one another, by the last lines of their logs."""
    ends = [rows[-1] for rows in map(card.read_log, logs) if rows]
    return {key: int(sum(float(end[key]) for end in ends)) for key in ("step", "tokens", "seconds")}


def main(argv: Sequence[str] | None = None) -> int:
    try:
        make_pair(parser().parse_args(argv))
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
