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
from serve import VOCAB, Answer, Ask, Engine, allowed, serve

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


def only(tokens: list[int]) -> Callable[[Any, Any], Any]:
    """A processor that leaves these tokens."""
    mask = mx.full((VOCAB,), -mx.inf)
    mask[mx.array(tokens)] = 0.0
    return lambda _, logits: logits + mask


ENGINE = Engine(
    packages=["mlx-lm", "mlx"],
    ways=["draft model"],
    rule="The draft is drawn; it is accepted if the target's own draw is the same token. With "
    "drafts a penalty sees no token of the prompt but its last.",
    source="mlx_lm/generate.py:635, speculative_generate_step",
    counts="from_draft marks each token that was drafted and kept. A text that fills up inside a "
    "step lacks that step's own token, so unmarked tokens are not always one per pass.",
    top_p_first=True,
    options=["logit bias", "forbidden token", "grammar", "min-p", "seed"],
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target, draft = (load_model(f"{folder}/{name}")[0] for name in ("target", "draft"))

    def draw(ask: Ask) -> Answer:
        mx.random.seed(ask.seed)
        top_p = ask.top_p if ask.top_p < 1 else 0.0
        sampler = make_sampler(ask.temperature, top_p, ask.options.get("min_p", 0.0))
        bias = {int(token): value for token, value in ask.options.get("logit_bias", {}).items()}
        processors = make_logits_processors(
            bias or None, ask.repetition_penalty if ask.repetition_penalty != 1 else None, 256
        )
        if (tokens := allowed(ask.options)) is not None:
            processors.append(only(tokens))
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
