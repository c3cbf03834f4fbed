# /// script
# dependencies = ["rotalabs-accel==1.1.1", "transformers==5.24.0", "torch==2.13.0", "numpy"]
# ///
"""rotalabs-accel's rejection_sample; speculative_decode itself ends with a TypeError."""

from collections.abc import Callable

import torch
from hugging_face import NO_PENALTY, TOP_P, models, plain
from rotalabs_accel.speculative import rejection_sample
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["rotalabs-accel", "transformers", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q); a rejected token's q alone is subtracted from p.",
    source="rotalabs_accel/speculative/sampling.py:312 and 321, rejection_sample",
    counts="It reports no acceptance figure here: its decoding loop does not run.",
    skips={TOP_P: "The function has no top-p."} | NO_PENALTY,
    not_timed="Its decoding loop does not run.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)

    @torch.no_grad()
    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask))
        ids = list(ask.prompt)
        while len(ids) < len(ask.prompt) + ask.max_tokens:
            q = draft(torch.tensor([ids])).logits[0, -1].softmax(-1)
            token = torch.multinomial(q, 1)[0] if ask.temperature else q.argmax()
            logits = target(torch.tensor([ids])).logits[0, -1]
            p = logits.softmax(-1)
            _, final = rejection_sample(
                p[token], q[token], token, logits, use_sampling=ask.temperature > 0
            )
            ids.append(int(final))
        return Answer(ids[len(ask.prompt) :])

    return draw


serve(ENGINE, load)
