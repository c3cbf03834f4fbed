# /// script
# dependencies = ["xllamacpp==2026.10.11549", "numpy"]
# ///
"""llama.cpp's server (built into xllamacpp), with a draft model under both of its rules."""

from collections.abc import Callable
from functools import cache
from typing import Any

import xllamacpp
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["xllamacpp"],
    ways=["draft model", "drawn drafts"],
    rule="The most probable draft token is accepted if the target's own draw is the same token; "
    "drawn drafts (--spec-draft-sampling probabilistic) with probability min(1, p/q).",
    source="common/speculative.cpp and common/sampling.cpp, common_sampler_sample_and_accept_n",
    counts="Accepted draft tokens after the end of the text are counted too.",
    top_p_first=True,
    options=["logit bias", "forbidden token", "grammar", "min-p", "stop string", "seed"],
)


def extra(
    letters: str = "",
    stop: str = "",
    min_p: float = 0.0,
    logit_bias: dict[str, float] | None = None,
    forbidden: tuple[int, ...] = (),
    **_: Any,
) -> dict[str, Any]:
    """The options' fields."""
    bias: list[Any] = [[int(token), value] for token, value in (logit_bias or {}).items()]
    bias += [[token, False] for token in forbidden]
    fields = {"min_p": min_p, "logit_bias": bias, "stop": [stop] if stop else []}
    return fields | ({"grammar": f"root ::= [{letters}]*"} if letters else {})


def load(folder: str) -> Callable[[Ask], Answer]:
    @cache
    def server(way: str) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel = f"{folder}/target.gguf", 256, 1
        params.warmup, params.verbosity, params.fit_params = False, 0, False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        if way != "plain":
            kinds = xllamacpp.common_speculative_type
            params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            params.speculative.draft.mparams.path = f"{folder}/draft.gguf"
            params.speculative.draft.n_max = 3
            params.speculative.draft.probabilistic = way == "drawn drafts"
        return xllamacpp.Server(params)

    def draw(ask: Ask) -> Answer:
        body: dict[str, Any] = {
            "prompt": ask.prompt,
            "n_predict": ask.max_tokens,
            "seed": ask.seed,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "top_k": 0,
            "repeat_penalty": ask.repetition_penalty,
            "repeat_last_n": 256,
            "cache_prompt": False,
            **extra(**ask.options),
            "n_probs": 1,
        }
        answer = server(ask.way).handle_completions(body)
        choice, timings = answer["choices"][0], answer.get("timings", {})
        content = (choice.get("logprobs") or {}).get("content", [])
        logprobs = [one["logprob"] if one["top_logprobs"] else None for one in content]
        ids = [one["id"] for one in content]
        return Answer(ids, timings.get("draft_n"), timings.get("draft_n_accepted"), logprobs)

    return draw


serve(ENGINE, load)
