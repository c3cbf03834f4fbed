"""Time per step on a GPU against the time that reading the weights takes, with forced acceptance.

    python -m benchmarks.cuda [--pairs 8B/1B 1B/0.1B] [--accepted 0.8] [--tokens 128]

The pairs are target/draft of the sizes of `benchmarks/random_llama.py`: Llama's shapes without
training. Their layers add nothing, and their output matrix makes each token's successor certain;
the draft has another successor for some tokens, so that it is accepted as often as `--accepted`
says. Layers that add nothing take as long as any others. "Floor" is the weights that a step reads,
divided by the speed of a copy on this machine.
"""

import torch
from transformers import LlamaForCausalLM

from benchmarks.measuring import options_of, seconds
from benchmarks.random_llama import VOCAB_SIZE, random_llama
from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.models.load import wrap
from naive_speculate.tools.arguments import print_for_people
from naive_speculate.tools.bench.measure import Transformers, Way, our_way

WINDOWS, PLAIN_AND_FOUR, RUNS = (0, 1, 2, 4, 8), (0, 4), 2
PROMPT = list(range(100, 116))


def copy_speed(device: str) -> float:
    """Bytes per second that a copy reads and writes."""
    size = (1 << 30) if device == "cuda" else 1 << 26
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(lambda: target.copy_(source)[0].item(), 5, min)


def timed(way: Way, tokens: int) -> tuple[float, float]:
    """Milliseconds per step of the best of some runs, after one to warm up, and tokens per step."""
    run = way.decode(PROMPT, 0)
    assert run.token_ids == [PROMPT[-1] + 1 + n for n in range(tokens)]
    best = min(way.decode(PROMPT, 0).seconds for _ in range(RUNS))
    steps = run.target_forwards + way.ours  # the prompt's pass, which transformers counts too
    return 1e3 * best / steps, tokens / steps


def ways(target: LlamaForCausalLM, draft: LlamaForCausalLM, tokens: int) -> list[tuple[str, Way]]:
    """What is timed, with its name."""
    decoder = SpeculativeDecoder(ModelPair(wrap(target), wrap(draft)))
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    theirs = Transformers(target, draft, tokens)
    own = [("this decoder", our_way(decoder, k, params)) for k in WINDOWS]
    return own + [("transformers", theirs.way(k, 0.0)) for k in PLAIN_AND_FOUR]


def measure(pair: str, accepted: float, tokens: int, speed: float, device: str) -> None:
    """Print the table of a pair."""
    shares = zip(pair.split("/"), (1.0, accepted), strict=True)
    target, draft = (random_llama(name, share, device) for name, share in shares)
    size, small = (
        (model.num_parameters() - VOCAB_SIZE * model.config.hidden_size) * model.dtype.itemsize
        for model in (target, draft)
    )
    print(f"\n{pair}, {accepted:.0%} of the draft's successors are right")
    print(f"{'':13} k  ms per step  floor  tokens per step  tokens/s  × plain", flush=True)
    plain = 0.0
    for name, way in ways(target, draft, tokens):
        step_ms, per_step = timed(way, tokens)
        plain = plain or step_ms
        k = int(way.num_draft_tokens)
        floor, speedup = 1e3 * (size + k * small) / speed, plain * per_step / step_ms
        print(
            f"{name:13} {k} {step_ms:12.2f} {floor:6.2f} {per_step:16.2f}"
            f" {1e3 * per_step / step_ms:9.0f} {speedup:8.2f}",
            flush=True,
        )


def main() -> None:
    """Measure and print a table per pair."""
    print_for_people()
    options = options_of(__doc__, pairs=["8B/1B", "1B/0.1B"], accepted=0.8, tokens=128)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speed = copy_speed(device)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}; a copy moves {speed / 1e9:.0f} GB/s", flush=True)
    for pair in options.pairs:
        measure(pair, options.accepted, options.tokens, speed, device)
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
