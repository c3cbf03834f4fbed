# /// script
# dependencies = []
# [tool.engines]
# npm = ["--omit=optional", "node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1"]
# ///
"""node-llama-cpp, llama.cpp in Node, with a draft model and with its lookup in the input."""

from collections.abc import Callable
from dataclasses import asdict

from in_node import Node, versions
from serve import Answer, Ask, Engine, serve

ERROR = "The draft model refuses a bias that was made for the target: the process ends."
ENGINE = Engine(
    packages=[],
    versions=versions("node-llama-cpp"),
    ways=["draft model", "prompt lookup"],
    rule="The draft token is accepted if the target's own draw is the same token, and one at most "
    "per pass: the list that would mark the second one is never filled. A penalty sees no token "
    "that was drafted and not yet given out.",
    source="dist/evaluator/LlamaContext/LlamaContext.js:1713 and 1853, _speculativeEvaluate",
    counts="Draft tokens after the first of a window count as refuted, whatever they are.",
    top_p_first=True,
    options=["logit bias", "forbidden token", "grammar", "min-p", "stop string", "seed"],
    skips={f"{name}, draft model": ERROR for name in ("logit bias", "forbidden token")},
    not_timed="One draft token per pass at most can be accepted.",
)


def load(folder: str) -> Callable[[Ask], Answer]:
    node = Node("node_llama_cpp.mjs", folder)
    return lambda ask: Answer(**node(asdict(ask)))


serve(ENGINE, load)
