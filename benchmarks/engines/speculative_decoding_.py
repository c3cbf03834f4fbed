# /// script
# dependencies = [
#   "speculative-decoding==0.2.0", "transformers==5.24.0", "torch==2.13.0", "numpy",
# ]
# ///
"""speculative-decoding's function of that name, over networks of its interface."""

from collections.abc import Callable
from typing import Any

import torch
from hugging_face import NO_PENALTY, NO_TOP_P, models, plain
from serve import Answer, Ask, Engine, serve
from speculative_decoding import speculative_decoding

ENGINE = Engine(
    packages=["speculative-decoding", "transformers", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q).",
    source="speculative_decoding/speculative_decoding.py:184, speculative_decoding",
    counts="It returns the mean number of accepted tokens per step, before a text is cut.",
    skips=NO_TOP_P | NO_PENALTY,
    not_timed="It calls networks by an interface of its own; here that has no cache.",
)


class Net(torch.nn.Module):
    """A transformers model as the package calls networks. Its cache is a stand-in: the whole
    text is computed each time."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, **options: Any) -> tuple[torch.Tensor, Any]:
        """Logits `[batch, tokens, vocab_size]`, and a cache of the right length."""
        return self.model(ids).logits, (torch.zeros(1, 1, 1, ids.shape[1], 1), None)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = models(folder)

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(target, ask))
        ids, _ = speculative_decoding(
            Net(target),
            Net(draft),
            torch.tensor([ask.prompt]),
            seq_len=len(ask.prompt) + ask.max_tokens,
            gamma=3,
            temperature=ask.temperature,
            filter_thres=0.0,  # all tokens; the default keeps a tenth
        )
        return Answer(ids[0].tolist())

    return draw


serve(ENGINE, load)
