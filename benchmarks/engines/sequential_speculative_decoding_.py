# /// script
# dependencies = [
#   "sequential-speculative-decoding==0.1.1", "transformers==5.24.0", "torch==2.13.0", "numpy",
# ]
# ///
"""The three methods of sequential-speculative-decoding."""

from collections.abc import Callable
from typing import Any

import torch
from hugging_face import NO_PENALTY, NO_TOP_P, models, plain
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step
from serve import Answer, Ask, Engine, serve

STEPS: dict[str, Any] = {
    "standard": standard_speculative_step,
    "naive_hsd": naive_hsd_step,
    "capped_hsd": capped_hsd_step,
}
ENGINE = Engine(
    packages=["sequential-speculative-decoding", "torch"],
    ways=list(STEPS),
    rule="standard: accepted with probability min(1, p/q); the other two judge whole windows.",
    source="seqspecdecod/standard_sd.py:65, naive_hsd.py and capped_hsd.py",
    counts="A step returns accepted and drafted tokens.",
    skips=NO_TOP_P | NO_PENALTY,
    not_greedy={"capped_hsd": "At temperature 0 it divides zero by zero and raises an error."},
    not_timed="Its steps have no cache.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask))
        ids, drafted, accepted = torch.tensor([ask.prompt]), 0, 0
        while ids.shape[1] < len(ask.prompt) + ask.max_tokens:
            ids, kept, proposed = STEPS[ask.way](
                draft,
                target,
                ids,
                gamma=3,
                draft_temperature=ask.temperature,
                target_temperature=ask.temperature,
            )
            drafted, accepted = drafted + proposed, accepted + kept
        return Answer(ids[0, len(ask.prompt) :].tolist(), drafted, accepted)

    return draw


serve(ENGINE, load)
