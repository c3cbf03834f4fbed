# /// script
# dependencies = [
#   "onnxruntime-genai==0.18.0", "onnxruntime==1.32.0", "onnx==1.23.2", "onnx-ir==1.1.0",
#   "transformers==5.24.0", "torch==2.13.0", "numpy", "tokenizers==0.23.3",
# ]
# ///
"""ONNX Runtime GenAI on a CPU, with a draft model and with n-gram lookup."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnxruntime_genai as genai
from onnx_models import converted
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["onnxruntime-genai", "onnxruntime"],
    ways=["draft model", "prompt lookup"],
    rule="Accepted with probability min(1, p/q); a looked-up token if the target's own draw is the "
    "same token.",
    source="docs/SpeculativeDecodingArchitecture.md, kDraftSampling",
    counts="get_speculative_stats counts what was examined before a rejection, and a second pass "
    "of the target in a step.",
    options=["no repeated pair", "grammar", "minimum length", "seed"],
    skips={
        "no repeated pair, draft model": "It refuses no_repeat_ngram_size with a draft model.",
    },
)


def load(folder: str) -> Callable[[Ask], Answer]:
    @cache
    def model(way: str) -> Any:
        target, draft = converted(folder, "target"), converted(folder, "draft")
        if way != "draft model":
            return genai.Model(str(target))
        here, name = target.parent, "genai_config.json"
        config, other = (json.loads((one / name).read_text("utf-8")) for one in (target, draft))
        config["model"]["draft"] = other["model"]["decoder"]
        for part, own in (("decoder", target), ("draft", draft)):
            config["model"][part]["filename"] = f"{own.name}/model.onnx"
        (here / name).write_text(json.dumps(config), encoding="utf-8")
        for file in target.glob("*token*"):
            (here / file.name).write_bytes(file.read_bytes())
        return genai.Model(str(here))

    def draw(ask: Ask) -> Answer:
        params = genai.GeneratorParams(model(ask.way))
        length = len(ask.prompt)
        search: dict[str, Any] = {"max_length": length + ask.max_tokens, "random_seed": ask.seed}
        search |= {"do_sample": ask.temperature > 0, "repetition_penalty": ask.repetition_penalty}
        if ask.temperature:
            search |= {"temperature": ask.temperature, "top_p": ask.top_p, "top_k": 0}
        if "min_tokens" in ask.options:
            search["min_length"] = length + ask.options["min_tokens"]
        if "no_repeat_ngram_size" in ask.options:
            search["no_repeat_ngram_size"] = ask.options["no_repeat_ngram_size"]
        params.set_search_options(**search)
        if "letters" in ask.options:
            params.set_guidance("regex", f"[{ask.options['letters']}]*")
        if ask.way != "plain":
            lookup = {"ngram_size": 2} if ask.way == "prompt lookup" else {}
            params.set_speculative_options(max_draft_tokens=3, **lookup)
        generator = genai.Generator(model(ask.way), params)
        generator.append_tokens(np.array([ask.prompt], dtype=np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        ids = [int(token) for token in generator.get_sequence(0)[length:]]
        if ask.way == "plain":
            return Answer(ids)
        said = generator.get_speculative_stats()
        drafted, accepted = said["draft_tokens_proposed"], said["draft_tokens_accepted"]
        return Answer(ids, drafted, accepted, passes=said["target_forward_passes"])

    return draw


serve(ENGINE, load)
