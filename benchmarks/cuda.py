"""Time per step on a GPU against the time that reading the weights takes, with forced acceptance.

    python -m benchmarks.cuda [--pairs 8B/1B 1B/0.1B] [--accepted 0.8] [--tokens 128]

The models have Llama's shapes and no training. Their layers add nothing, and their output matrix
makes each token's successor certain; the draft has another successor for some tokens, so that it
is accepted as often as `--accepted` says. Layers that add nothing take as long as any others.
"Floor" is the weights that a step reads, divided by the speed of a copy on this machine.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.arguments import print_for_people
from naive_speculate.infer.load import wrap

# width, MLP, layers, heads, heads of keys
SHAPES = {
    "8B": (4096, 14336, 32, 32, 8),
    "1B": (2048, 8192, 16, 32, 8),
    "0.1B": (768, 2048, 12, 12, 4),
    "tiny": (64, 128, 2, 4, 2),
}
VOCAB_SIZE, WINDOWS, RUNS = 32_000, (0, 1, 2, 4, 8), 2
Run = Callable[[], tuple[int, int]]  # tokens and steps


def random_llama(name: str, accepted: float, device: str) -> LlamaForCausalLM:
    """A model that continues token t by t + 1, except a share of the tokens, where it is wrong."""
    width, mlp, layers, heads, kv_heads = SHAPES[name]
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    with torch.device(device), torch.no_grad():
        model = LlamaForCausalLM(config).eval()
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings = model.model.embed_tokens.weight.normal_()
        successor = (torch.arange(VOCAB_SIZE) + 1) % VOCAB_SIZE
        wrong = torch.rand(VOCAB_SIZE, generator=torch.Generator(device).manual_seed(0)) >= accepted
        successor[wrong] = successor[wrong].roll(1)
        model.lm_head.weight[successor] = embeddings
    torch.set_default_dtype(torch.float32)
    model.generation_config.pad_token_id = 0
    return model


def copy_speed(device: str) -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.empty(
        (1 << 30) if device == "cuda" else 1 << 26, dtype=torch.uint8, device=device
    )
    target, times = torch.empty_like(source), []
    for _ in range(5):
        began = time.perf_counter()
        target.copy_(source)
        target[0].item()
        times.append(time.perf_counter() - began)
    return 2 * len(source) / min(times)


def timed(run: Run) -> tuple[float, float]:
    """Milliseconds per step of the best of some runs, after one to warm up, and tokens per step."""
    tokens, steps = run()
    best = float("inf")
    for _ in range(RUNS):
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return 1e3 * best / steps, tokens / steps


def runs(
    target: LlamaForCausalLM, draft: LlamaForCausalLM, tokens: int
) -> Mapping[tuple[str, int], Run]:
    """What is timed, by name and number of draft tokens."""
    decoder = SpeculativeDecoder(ModelPair(wrap(target), wrap(draft)))
    params, prompt = (
        SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True),
        list(range(100, 116)),
    )

    def ours(k: int) -> tuple[int, int]:
        result = decoder.generate(prompt, params, num_draft_tokens=k, detail="none")
        assert result.token_ids == [prompt[-1] + 1 + n for n in range(tokens)]
        return (
            tokens,
            result.metrics.num_spec_steps + 1,
        )  # the prompt's pass, which transformers counts too

    def theirs(k: int) -> tuple[int, int]:
        passes = [0]
        counted = target.register_forward_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
        given: dict[str, Any] = {"assistant_model": draft} if k else {}
        draft.generation_config.update(
            num_assistant_tokens=k or 1, num_assistant_tokens_schedule="constant"
        )
        draft.generation_config.assistant_confidence_threshold = 0.0
        ids = torch.tensor([prompt], device=target.device)
        found: Any = target.generate(ids, max_new_tokens=tokens, do_sample=False, **given)
        counted.remove()
        return found.shape[1] - len(prompt), passes[0]

    return {("this decoder", k): partial(ours, k) for k in WINDOWS} | {
        ("transformers", k): partial(theirs, k) for k in (0, 4)
    }


def main() -> None:
    """Measure and print a table per pair."""
    print_for_people()
    parser = argparse.ArgumentParser(prog="benchmarks.cuda")
    parser.add_argument(
        "--pairs",
        nargs="+",
        default=["8B/1B", "1B/0.1B"],
        help=f"target/draft, of {', '.join(SHAPES)}",
    )
    parser.add_argument("--accepted", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speed = copy_speed(device)
    print(
        f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}; a copy moves"
        f" {speed / 1e9:.0f} GB/s",
        flush=True,
    )
    for pair in options.pairs:
        target, draft = (
            random_llama(name, share, device)
            for name, share in zip(pair.split("/"), (1.0, options.accepted), strict=True)
        )
        size, small = (
            (model.num_parameters() - VOCAB_SIZE * model.config.hidden_size) * model.dtype.itemsize
            for model in (target, draft)
        )
        print(f"\n{pair}, {options.accepted:.0%} of the draft's successors are right", flush=True)
        print(f"{'':13} k  ms per step  floor  tokens per step  tokens/s  × plain", flush=True)
        plain = 0.0
        for (name, k), run in runs(target, draft, options.tokens).items():
            step_ms, tokens = timed(run)
            plain = plain or step_ms
            floor, speed_up = 1e3 * (size + k * small) / speed, plain * tokens / step_ms
            print(
                f"{name:13} {k} {step_ms:12.2f} {floor:6.2f} {tokens:16.2f}"
                f" {1e3 * tokens / step_ms:9.0f} {speed_up:8.2f}",
                flush=True,
            )
        del target, draft, run
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
