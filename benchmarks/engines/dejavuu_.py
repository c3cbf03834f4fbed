# /// script
# requires-python = ">=3.13"
# dependencies = ["dejavuu==0.2.0", "safetensors", "numpy"]
# ///
"""dejavuu's retrieval drafters, over a verifier in numpy: its own for transformers needs torch, and
torch for this Python comes with CUDA."""

from collections.abc import Callable

from dejavuu.core.engine import generate
from dejavuu.core.sampling import Sampler
from dejavuu.drafters import make_drafter
from numpy_llama import Llama
from serve import Answer, Ask, Engine, serve

WAYS = {"plain": "baseline", "prompt lookup": "pld", "tree of recycled tokens": "token_recycling"}
ENGINE = Engine(
    packages=["dejavuu"],
    ways=["prompt lookup", "tree of recycled tokens"],
    rule="A draft token is accepted if the target's own draw is the same token.",
    source="dejavuu/core/tree.py:136, pick_child",
    counts="Accepted and proposed draft tokens, also those after the end of a text.",
    not_timed="It has no draft model.",
    skips={"T = 1, repetition penalty 1.3": "It has no repetition penalty."},
)


def load(folder: str) -> Callable[[Ask], Answer]:
    target = Llama(folder)

    def draw(ask: Ask) -> Answer:
        sampler = Sampler(ask.temperature, ask.top_p, ask.seed) if ask.temperature else None
        drafter = make_drafter(WAYS[ask.way])
        options = {"budget": 3, "eos": 0, "tree": "tree" in ask.way, "sampler": sampler}
        result = generate(target, ask.prompt, ask.max_tokens, drafter, **options)
        return Answer(result.tokens, result.drafted, result.accepted)

    return draw


serve(ENGINE, load)
