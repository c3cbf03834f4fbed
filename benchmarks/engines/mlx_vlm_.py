# /// script
# dependencies = [
#   "mlx==0.32.4", "mlx-cpu==0.32.4", "mlx-lm==0.32.2", "tqdm", "pillow", "requests",
# ]
# [tool.engines]
# without-dependencies = ["mlx-vlm==0.7.10"]
# ///
"""mlx-vlm on Linux's CPU: its EAGLE-3 rounds, with the draft model in the place of a head. The
target is its Llama, with the two members that these rounds ask of a target."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_vlm.generate import generate_step
from mlx_vlm.models.llama import Model, ModelConfig
from mlx_vlm.models.llama.language import LanguageModel
from mlx_vlm.speculative.common import verify_forward
from serve import VOCAB, Answer, Ask, Engine, allowed, serve

K = 3
ENGINE = Engine(
    packages=["mlx-vlm", "mlx"],
    ways=["draft model"],
    rule="The draft is drawn; it is accepted if the target's own draw is the same token. "
    "Penalties, logit_bias and logits processors reach the first token alone.",
    source="mlx_vlm/generate/ar.py:528 and mlx_vlm/speculative/eagle3.py:16, _eagle3_walk",
    counts="accept_lens and draft_lens have what was accepted and drafted in each step.",
    options=["logit bias", "forbidden token", "grammar", "min-p", "seed"],
    not_timed="Its heads are trained for one target, and there is none for SmolLM2.",
)


class Target(LanguageModel):  # type: ignore[misc]
    """Llama with what the rounds ask for: hidden states, which the drafter here does not read."""

    rollback_speculative_cache = None  # requested, and not called: each pass is a transaction

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        captured = options.pop("capture_layer_ids", None) is not None
        if options.pop("speculative_verify", False):
            cache = options.pop("cache")
            output, output.gdn_states = verify_forward(self, inputs, cache, capture_layer_ids=[])
            return output
        output = super().__call__(inputs, *args, **options)
        if captured:
            output.hidden_states = [self.model.embed_tokens(inputs)]
        return output


class Drafter:
    """The draft model as an EAGLE-3 head. It reads the whole text for each token."""

    config = SimpleNamespace(block_size=K + 1, target_layer_ids=[0], model_type=None)

    def __init__(self, model: Any) -> None:
        self.model, self.text = model, list[int]()
        self.accept_lens, self.draft_lens = list[int](), list[int]()

    def reset(self, target: Any) -> None:
        self.accept_lens, self.draft_lens = [], []

    def prefill_from_target_hidden(
        self, prompt: Any, hidden: Any, first: int, *_: Any, **__: Any
    ) -> None:
        self.text = [*prompt[0].tolist(), first]

    def draft_block(
        self, last: int, hidden: Any, cache: Any, size: int, sampler: Any, *_: Any
    ) -> Any:
        tokens = list[int]()
        for _step in range(size - 1):
            logits = self.model(mx.array([[*self.text, *tokens]])).logits[:, -1]
            tokens.append(int(sampler(logits - logits.logsumexp(axis=-1, keepdims=True))))
        return mx.array([tokens], dtype=mx.int32)

    def accept_verified_tokens(
        self, hidden: Any, drafts: Any, accepted: int, tokens: list[int], *_: Any, **__: Any
    ) -> None:
        self.text += tokens


def load(folder: str) -> Callable[[Ask], Answer]:
    def model(name: str, language_model: Any) -> Any:
        config = json.loads(Path(folder, name, "config.json").read_text("utf-8"))
        own = Model(ModelConfig.from_dict(config | {"rope_theta": 10000.0}))
        own.language_model = language_model(own.config)
        weights = mx.load(str(Path(folder, name, "model.safetensors")))
        own.load_weights(list(own.sanitize(weights).items()))
        return own

    target, drafter = model("target", Target), Drafter(model("draft", LanguageModel))

    def draw(ask: Ask) -> Answer:
        mx.random.seed(ask.seed)
        options: dict[str, Any] = {"temperature": ask.temperature, "top_p": ask.top_p}
        options |= {"min_p": ask.options.get("min_p", 0.0), "max_tokens": ask.max_tokens}
        options["seed"] = ask.seed
        if bias := ask.options.get("logit_bias"):
            options["logit_bias"] = {int(token): value for token, value in bias.items()}
        if ask.repetition_penalty != 1:
            options |= {"repetition_penalty": ask.repetition_penalty}
            options["repetition_context_size"] = 256
        if (tokens := allowed(ask.options)) is not None:
            mask = mx.full((VOCAB,), -mx.inf)
            mask[mx.array(tokens)] = 0.0
            options["logits_processors"] = [lambda _, logits: logits + mask]
        if ask.way != "plain":
            options |= {"draft_model": drafter, "draft_kind": "eagle3", "draft_block_size": K + 1}
        steps = generate_step(mx.array([ask.prompt]), target, None, None, **options)
        ids = [int(token) for _, (token, _) in zip(range(ask.max_tokens), steps, strict=False)]
        if ask.way == "plain":
            return Answer(ids)
        passes = 1 + len(drafter.accept_lens)
        return Answer(ids, sum(drafter.draft_lens), sum(drafter.accept_lens), passes=passes)

    return draw


serve(ENGINE, load)
