# /// script
# dependencies = ["mini-infer==0.2.5", "transformers==5.24.0", "torch==2.13.0", "numpy"]
# ///
"""mini-infer's speculative_step, and its engine as the control."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hugging_face import NO_PENALTY, TOP_P
from mini_infer.engine import InferenceEngine
from mini_infer.models.loader import load_model_from_safetensors
from mini_infer.speculative import speculative_step
from safetensors.torch import load_file, save_file
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["mini-infer", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q).",
    source="mini_infer/speculative/verifier.py:105, speculative_step",
    counts="A step returns its number of accepted tokens.",
    skips={TOP_P: "A step with drafts has no top-p."} | NO_PENALTY,
    not_timed="Its step has no cache.",
)


def as_qwen2(folder: str, name: str) -> Any:
    """The Llama as the Qwen2 that mini-infer reads: the biases of its projections are zero."""
    llama, own = Path(folder) / name, Path(folder) / f"qwen2-{name}"
    own.mkdir(exist_ok=True)
    shutil.copy(llama / "config.json", own)
    config = json.loads((own / "config.json").read_text(encoding="utf-8"))
    config |= {"rope_theta": config["rope_parameters"]["rope_theta"]}
    (own / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = load_file(llama / "model.safetensors")
    for key in [key for key in weights if key.split(".")[-2] in ("q_proj", "k_proj", "v_proj")]:
        weights[key.replace(".weight", ".bias")] = torch.zeros(len(weights[key]))
    save_file(weights, own / "model.safetensors")
    return load_model_from_safetensors(own, device="cpu", dtype=torch.float32)


def load(folder: str) -> Callable[[Ask], Answer]:
    torch.set_num_threads(1)
    (target, config), (draft, _) = (as_qwen2(folder, name) for name in ("target", "draft"))

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            engine = InferenceEngine(target, config, device=torch.device("cpu"))
            options = {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
            request = engine.add_request(ask.prompt, stop_token_ids={0}, **options)
            while len(request.output_token_ids) < ask.max_tokens and engine.step():
                pass
            return Answer(request.output_token_ids)
        ids, drafted, accepted = list(ask.prompt), 0, 0
        while len(ids) < len(ask.prompt) + ask.max_tokens:
            tokens, kept = speculative_step(
                target, draft, torch.tensor([ids]), k_draft=3, temperature=ask.temperature
            )
            ids += tokens
            drafted, accepted = drafted + 3, accepted + kept
        return Answer(ids[len(ask.prompt) :], drafted, accepted)

    return draw


serve(ENGINE, load)
