"""What 8 bits change in SmolLM2's answers.

    python -m benchmarks.quality CONVERSATIONS.jsonl [--limit 64] [--new-tokens 64]

A line of the file is an object with `prompt` and `answer`, token ids, such as `python -m train`
keeps of the texts that it has the target write. Prints per form of the weights: the perplexity of
the answers, how often the most probable token is float32's, the Kullback-Leibler divergence from
float32 (nats per token), and the share of greedy answers that equal float32's, to the last token.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from rich.table import Column, Table

from benchmarks.measuring import numbers, options_of, output, run_command
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair

FORMS = ("float32", "int8")


def log_probs(model: Any, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Before each token of an answer: log-probabilities, float32 `[len(answer), vocab_size]`."""
    ids = torch.tensor([[*prompt, *answer[:-1]]])
    logits = model.forward(ids, model.new_cache(1), num_logits=len(answer))
    return logits[0].float().log_softmax(-1)


def read(path: Path, limit: int) -> list[dict[str, Any]]:
    """The first conversations of a file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(limit), strict=False)]


def compared(logprobs: torch.Tensor, reference: torch.Tensor, answer: list[int]) -> torch.Tensor:
    """Over an answer's tokens: the sum of losses, the number of positions with the reference's
    favourite, and the sum of divergences from it, float64 `[3]`."""
    loss = -logprobs.gather(1, torch.tensor(answer)[:, None]).sum()
    same = (logprobs.argmax(1) == reference.argmax(1)).sum()
    return torch.stack([loss, same, (reference.exp() * (reference - logprobs)).sum()]).double()


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, conversations=Path, limit=64, new_tokens=64)
    decoders = {
        name: SpeculativeDecoder(load_pair("smollm2", device="cpu", weights=name)) for name in FORMS
    }
    params = SamplingParams(temperature=0.0, max_tokens=options.new_tokens)
    conversations = read(options.conversations, options.limit)
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in FORMS}
    num_equal = dict.fromkeys(FORMS, 0)
    for each in track(conversations, "conversations"):
        prompt, answer = each["prompt"], each["answer"]
        scores = {
            name: log_probs(one.pair.target, prompt, answer) for name, one in decoders.items()
        }
        texts = {
            name: one.generate(prompt, params, num_draft_tokens=0).token_ids
            for name, one in decoders.items()
        }
        for name in FORMS:
            sums[name] += compared(scores[name], scores[FORMS[0]], answer)
            num_equal[name] += texts[name] == texts[FORMS[0]]
    num_tokens = sum(len(each["answer"]) for each in conversations)
    headings = ["perplexity", "same favourite", "divergence, nats", "same greedy answers"]
    title = f"{num_tokens} tokens of {len(conversations)} answers"
    table = Table(Column(no_wrap=True), *numbers(*headings), title=title)
    for name in FORMS:
        loss, same, divergence = (sums[name] / num_tokens).tolist()
        equal = f"{num_equal[name]} of {len(conversations)}"
        table.add_row(name, f"{math.exp(loss):.3f}", f"{same:.2%}", f"{divergence:.5f}", equal)
    output(100).print(table)


if __name__ == "__main__":
    run_command(main)
