# /// script
# dependencies = [
#   "specdec==0.2.0", "transformers==5.24.0", "torch==2.13.0", "numpy", "matplotlib",
# ]
# ///
"""specdec's SpecDecoder with a draft model."""

from collections.abc import Callable

import torch
from hugging_face import NO_PENALTY, NO_TOP_P, Identity, plain
from serve import Answer, Ask, Engine, serve
from specdec import SpecDecoder

ENGINE = Engine(
    packages=["specdec", "transformers", "torch"],
    ways=["draft model"],
    rule="Accepted with probability min(1, p/q), at temperature 1 only.",
    source="specdec/decoder.py:48, verify",
    counts="It reports no acceptance figure; a text may be longer than the most new tokens.",
    skips=NO_TOP_P | NO_PENALTY,
    not_greedy={"draft model": "It has no temperature and no greedy mode: it always draws."},
    not_timed="It cannot decode greedily.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    torch.set_num_threads(1)
    decoder = SpecDecoder(f"{folder}/draft", f"{folder}/target", device="cpu")
    decoder.tokenizer = Identity()

    def draw(ask: Ask) -> Answer:
        torch.manual_seed(ask.seed)
        if ask.way == "plain":
            return Answer(plain(decoder.big_model, ask))
        ids = decoder.spec_gen(ask.prompt, ask.max_tokens, 3)
        return Answer(ids[len(ask.prompt) :])

    return draw


serve(ENGINE, load)
