"""What a finished pair is worth, measured, and the model card that says so."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerBase

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.sampling.words import classroom_words
from train.acceptance import Acceptance, measure_acceptance
from train.data import TokenArray
from train.legs import Leg, table
from train.loop import mean_loss
from train.sampling import continue_prompts

SAMPLE_PROMPTS = (
    "Once upon a time there was a little girl named",
    "There was once a fox who lived in the wood.",
    "It was a dark night, and the wind",
    '"Where have you been?" asked the old woman.',
    "The king had three sons.",
    "Tom and Lily went to the river to",
    "One morning the captain came on deck and",
    "In the garden there stood a great tree.",
    "My dear Watson,",
    "The rabbit sat down and began to cry, because",
    "A miller had a donkey that",
    '"I will tell you a story," said the owl.',
)
SAMPLE_TEMPERATURE = 0.7
SAMPLE_TOKENS = 120
CARD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

LEGS = ", in {} legs, each begun with the weights of the one before (a larger one grown from them, `train/grow.py`)"

DISTILLED = """, then distilled from what the target says of {:.2f} M tokens, books and
text that it wrote itself, {:.1f} M read in all, with total variation and forward KL, and at the end with
total variation alone (DistillSpec, arXiv 2310.08461)"""
HEAD_LEARNED = ",\nthen distilled on {:.1f} M tokens: first one step of a window, then {} of them simulated"
JOINT = """
Where the table says so, target, draft and draft head learned together (`train/together.py`): the drafters to guess the target,
and the target, beside its next-token loss, to say what they guess, by total variation.
"""


@dataclass(frozen=True)
class Measured:
    """Losses in nats per token on held-out text, acceptance with four drafted tokens."""

    target_loss: float
    draft_loss: float
    bytes_per_token: float
    greedy: Acceptance
    sampled: Acceptance

    def bits_per_byte(self, loss: float) -> float:
        return loss / math.log(2) / self.bytes_per_token


def prompts_from(tokens: TokenArray, count: int, length: int) -> Tensor:
    """``(count, length)`` token ids from evenly spaced places."""
    starts = np.linspace(0, len(tokens) - length - 1, count).astype(int)
    return torch.from_numpy(np.stack([tokens[start : start + length] for start in starts]).astype(np.int64))


def load(folder: Path) -> LlamaForCausalLM:
    model: LlamaForCausalLM = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model


def measure(out: Path, valid: TokenArray, valid_bytes: int, new_tokens: int) -> Measured:
    target, draft = load(out / "target"), load(out / "draft")
    length = min(512, target.config.max_position_embeddings, len(valid) - 1)
    beginnings = prompts_from(valid, 64, min(32, length // 2))
    greedy, sampled = (measure_acceptance(target, draft, beginnings, new_tokens, temperature) for temperature in (0.0, 1.0))
    target_loss, draft_loss = (mean_loss(model, valid, length, rows=8) for model in (target, draft))
    return Measured(target_loss, draft_loss, valid_bytes / len(valid), greedy, sampled)


def measure_head(out: Path, valid: TokenArray) -> dict[str, float]:
    """Tokens a target forward that the exported head brings with five drafted tokens, decoded."""
    decoder = SpeculativeDecoder(load_pair(out / "target", head=out / "head", device="cpu"))
    room = decoder.admission.max_positions or 512
    beginnings = prompts_from(valid, 16, min(32, room // 4)).tolist()
    found = {}
    for name, temperature in (("greedy", 0.0), ("temperature 1", 1.0)):
        params = SamplingParams(temperature=temperature, max_tokens=min(64, room // 2), seed=1, ignore_eos=True)
        results = decoder.generate(beginnings, params, drafter="head", num_draft_tokens=5, detail="none")
        found[name] = sum(len(one.token_ids) for one in results) / sum(one.metrics.num_spec_steps for one in results)
    return found


def samples(out: Path) -> list[tuple[str, str]]:
    """One continuation of each prompt, seed 1: the first that comes, not the best."""
    model = load(out / "target")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(out / "target")
    generator = torch.Generator().manual_seed(1)
    written = []
    for prompt in SAMPLE_PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt)])
        room = model.config.max_position_embeddings - ids.shape[1]
        tokens = continue_prompts(model, ids, min(SAMPLE_TOKENS, room), SAMPLE_TEMPERATURE, generator)[0]
        continuation = tokens[ids.shape[1] :].tolist()
        if tokenizer.eos_token_id in continuation:
            continuation = continuation[: continuation.index(tokenizer.eos_token_id)]
        written.append((prompt, str(tokenizer.decode(continuation))))
    return written


def read_log(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def plot_losses(logs: dict[str, Path], picture: Path) -> bool:
    """Loss over tokens, one line for each log that there is; False when matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=110)
    for label, path in logs.items():
        if not (rows := read_log(path)):
            continue
        tokens = [int(row["tokens"]) / 1e6 for row in rows]
        axes.plot(tokens, [float(row["train_loss"]) for row in rows], label=f"{label}, training", alpha=0.6)
        held_out = [(x, float(row["valid_loss"])) for x, row in zip(tokens, rows, strict=True) if row["valid_loss"]]
        if held_out:
            axes.plot(*zip(*held_out, strict=True), marker="o", markersize=3, label=f"{label}, held-out books")
    axes.set_xlabel("million tokens")
    axes.set_ylabel("nats per token")
    axes.set_ylim(top=min(7.0, axes.get_ylim()[1]))  # a new model's first losses would press the rest flat
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    figure.tight_layout()
    figure.savefig(picture)
    pyplot.close(figure)
    return True


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.splitlines())


def command(recipe: dict[str, Any], data: dict[str, Any], legs: list[Leg], draft_goes_on: bool) -> str:
    """What makes the last run's legs again."""
    source, own = data["source"], legs[len(data["earlier_legs"]) :]
    words = ["python -m train --corpus", *source["files"]]
    words += ["--preset", recipe["preset"]] if recipe["preset"] != "cpu" else []
    words += ["--valid", source["valid"]] if source["valid"] else []
    alone = [leg["tokens"] for leg in own if leg["tokens"] and not leg.get("together")]
    spent = [f"--tokens {alone[0]}" if alone else "--minutes 0"]
    words += ["--work FOLDER --out assets/pair", *spent, "--seed", str(recipe["seed"])]
    words += ["--init FOLDER/target"] if data["earlier_legs"] else []
    words += ["--init-draft FOLDER/draft"] if draft_goes_on else []
    words += [f"--init-head FOLDER/head --together-minutes {leg['minutes']}" for leg in own if leg.get("together")]
    return " ".join(words)


def with_head(
    text: str, recipe: dict[str, Any], parameters: int, lengths: dict[str, float], run: dict[str, int], goes_on: bool = False
) -> str:
    """The card of a pair that has a draft head too."""
    told = ", ".join(f"{length:.2f} ({name})" for name, length in lengths.items())
    layers, million = ", ".join(map(str, recipe["layers"])), 1e6
    size = f"{parameters / million:.1f} M parameters"
    begun = "a head that was there before" if goes_on else "the draft"
    learned = HEAD_LEARNED.format(run["tokens"] / million, recipe["steps"]) if run["tokens"] else ""
    section = f"""\
## Draft head

`head/` has the draft's shape, and adds to each token's embedding what it makes of the target's hidden states after layers
{layers} at the token before, fused as in EAGLE-3 (arXiv 2503.01840): {size}, begun as {begun}{learned}.
With five drafted tokens on held-out prompts it gives so many tokens a target forward: {told}.

"""
    return text.replace("## Limits\n", section + "## Limits\n", 1)


def model_card(
    recipe: dict[str, Any], data: dict[str, Any], measured: Measured, parameters: dict[str, int],
    legs: list[Leg], draft_run: dict[str, int], written: Iterable[tuple[str, str]], draft_goes_on: bool = False,
) -> str:  # fmt: skip
    target, draft, goes_on = recipe["target"], recipe["draft"], bool(data["earlier_legs"])
    million = 1e6
    distilled = DISTILLED.format(draft_run["lessons"] / million, draft_run["tokens"] / million)
    joint = [leg for leg in legs if leg.get("together")]
    story_share = data["story_tokens"] / data["train_tokens"]

    def row(name: str, shape: dict[str, Any], loss: float) -> str:
        return (
            f"| {name} | {shape['layers']} × {shape['hidden']} | {parameters[name] / million:.1f} M | {loss:.3f} "
            f"| {measured.bits_per_byte(loss):.3f} |"
        )

    lines = CARD.format(
        target_row=row("target", target, measured.target_loss),
        draft_row=row("draft", draft, measured.draft_loss),
        greedy=measured.greedy, sampled=measured.sampled,
        story_share=story_share, book_share=1 - story_share,
        listed_words=len(classroom_words()), taken_out=data["paragraphs_taken_out"],
        train_tokens=data["train_tokens"] / million, vocab_size=recipe["vocab_size"],
        unread=" that neither model was trained on" if data["source"]["valid"] or not goes_on else ", left out of the last leg",
        last="last leg of its " if goes_on else "",
        untouched="; what earlier legs read may have had more of them" if goes_on else "",
        tokenizer_origin="the texts of the first leg" if goes_on else "the same text",
        legs_told=LEGS.format(len(legs)) if len(legs) > 1 else "",
        joint_told=JOINT if joint else "",
        legs=table(legs), command=command(recipe, data, legs, draft_goes_on),
        sequence_length=recipe["sequence_length"], positions=recipe["positions"], decay_share=recipe["decay_share"],
        draft_origin="begun as the draft of an earlier target" if draft_goes_on else "trained on the corpus for a while",
        distilled=distilled if draft_run["lessons"] else "",
        temperature=SAMPLE_TEMPERATURE, sample_tokens=SAMPLE_TOKENS,
    ).splitlines()  # fmt: skip
    for prompt, text in written:
        lines += ["", quoted(f"**{prompt}**{text}")]
    lines += ["", "## Licence", "", f"Apache-2.0. Trained {date.today():%d %B %Y}.", ""]
    return "\n".join(lines)
