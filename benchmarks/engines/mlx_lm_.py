# /// script
# requires-python = ">=3.12"
# dependencies = ["mlx-lm==0.32.2", "mlx==0.32.4", "mlx-cpu==0.32.4"]
# ///
"""mlx-lm on Linux's CPU, with a draft model."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm import load as load_model
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from serve import Answer, Ask, Engine, serve

K = 3


class Counted:
    """A model that counts its forwards, but not those over a prompt: these are longer."""

    def __init__(self, model: Any) -> None:
        self.model, self.count = model, 0

    def __call__(self, token_ids: Any, *args: Any, **options: Any) -> Any:
        self.count += token_ids.shape[1] <= K + 1
        return self.model(token_ids, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


ENGINE = Engine(
    packages=["mlx-lm", "mlx"],
    ways=["draft model"],
    rule="The draft is drawn; it is accepted if the target's own draw is the same token. With "
    "drafts a penalty sees no token of the prompt but its last.",
    source="mlx_lm/generate.py:635, speculative_generate_step",
    counts="from_draft marks each token that was drafted and kept. A text that fills up inside a "
    "step lacks that step's own token, so unmarked tokens are not always one per pass.",
    top_p_first=True,
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = (load_model(f"{folder}/{name}")[0] for name in ("target", "draft"))

    def draw(ask: Ask) -> Answer:
        mx.random.seed(ask.seed)
        sampler = make_sampler(temp=ask.temperature, top_p=ask.top_p if ask.top_p < 1 else 0.0)
        processors = None
        if ask.repetition_penalty != 1.0:
            processors = make_logits_processors(
                repetition_penalty=ask.repetition_penalty, repetition_context_size=256
            )
        options = {"max_tokens": ask.max_tokens, "sampler": sampler}
        prompt = mx.array(ask.prompt)
        if ask.way == "plain":
            steps = generate_step(prompt, target, logits_processors=processors, **options)
            plain = [(int(token), float(logprobs[token])) for token, logprobs in steps]
            return Answer([token for token, _ in plain], logprobs=[one for _, one in plain])
        counted = Counted(target)
        steps = speculative_generate_step(
            prompt, counted, draft, num_draft_tokens=K, logits_processors=processors, **options
        )
        rows = [(int(token), float(said[token]), drafted) for token, said, drafted in steps]
        tokens, logprobs, accepted = zip(*rows, strict=True)
        own = {"accepted": sum(accepted), "passes": counted.count}
        return Answer(list(tokens), logprobs=list(logprobs), **own)

    return draw


serve(ENGINE, load)
