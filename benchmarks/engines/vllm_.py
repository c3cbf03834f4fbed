# /// script
# dependencies = [
#   "transformers==5.23.0", "torch==2.13.0", "numpy", "triton==3.9.0", "cbor2", "psutil", "pyzmq",
#   "urllib3", "aiohttp", "requests", "openai-harmony", "openai", "pydantic",
# ]
# [tool.engines]
# without-dependencies = ["vllm==0.33.0"]
# ///
"""vLLM's own rejection sampler; transformers computes the logits, because vLLM's attention needs a
GPU. So do most of its dependencies, which are left out."""

from collections.abc import Callable

import torch
from hugging_face import PENALTY, TOP_P, models, plain
from serve import Answer, Ask, Engine, serve
from vllm_samplers import WAYS, judged

K = 3
ENGINE = Engine(
    packages=["vllm", "triton", "transformers", "torch"],
    ways=list(WAYS),
    rule="Accepted with probability min(1, p/q); block judges windows; fly may keep other tokens.",
    source="vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py:697, rejection_sample",
    counts="Only the sampler of its second model runner is tried here, and it counts nothing.",
    skips=dict.fromkeys((TOP_P, PENALTY), "The sampler gets logits to which it was applied."),
    not_timed="Only its sampler runs without a GPU.",
    smallest=0.2,  # Triton's interpreter is slow
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)

    def drafted(ids: torch.Tensor, ask: Ask) -> tuple[torch.Tensor, torch.Tensor]:
        """The text with a window of draft tokens, and the window's logits."""
        said = []
        for _ in range(K):
            said.append(draft(ids).logits[0, -1] / (ask.temperature or 1.0))
            certain = ask.temperature == 0 or "argmax" in ask.way
            token = said[-1].argmax() if certain else said[-1].softmax(-1).multinomial(1)[0]
            ids = torch.cat([ids, token.view(1, 1)], dim=1)
        return ids, torch.stack(said)

    @torch.no_grad()
    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask))
        ids = list(ask.prompt)
        while len(ids) < len(ask.prompt) + ask.max_tokens:
            window, said = drafted(torch.tensor([ids]), ask)
            logits = target(window).logits[0, -K - 1 :] / (ask.temperature or 1.0)
            ids += judged(logits, window[0, -K:], said, ask, len(ids))
        return Answer(ids[len(ask.prompt) :])

    return draw


serve(ENGINE, load)
