# /// script
# dependencies = [
#   "openvino-genai==2026.4.1.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0", "numpy",
# ]
# ///
"""OpenVINO GenAI on a CPU, with a draft model and with prompt lookup."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from serve import Answer, Ask, Engine, serve

ENGINE = Engine(
    packages=["openvino-genai", "openvino"],
    ways=["draft model", "prompt lookup"],
    rule="A draft is accepted if a random number is at most q(draft) ÷ p(the target's own sample).",
    source="src/cpp/src/sampling/sampler.cpp, validate_candidate",
    options=["no repeated pair", "grammar", "stop string", "minimum length", "seed"],
    counts="The last step's accepted tokens are counted, its draft tokens are not.",
)


def extra(
    config: Any,
    letters: str = "",
    stop: str = "",
    min_tokens: int = 0,
    no_repeat_ngram_size: int = 0,
    **_: Any,
) -> None:
    """Set the options."""
    config.min_new_tokens = min_tokens
    if no_repeat_ngram_size:
        config.no_repeat_ngram_size = no_repeat_ngram_size
    if stop:
        config.stop_strings, config.include_stop_str_in_output = {stop}, True
    if letters:
        config.structured_output_config = genai.StructuredOutputConfig(regex=f"[{letters}]*")


def load(folder: str) -> Callable[[Ask], Answer]:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.enable_prefix_caching = 1, False
    options: dict[str, Any] = {
        "scheduler_config": scheduler,
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": 1,
    }

    @cache
    def converted(name: str) -> str:
        """OpenVINO reads a draft in its own format only; it writes that next to a copy."""
        own = Path(f"{folder}/openvino-{name}")
        own.mkdir(exist_ok=True)
        (own / "model.gguf").write_bytes(Path(f"{folder}/{name}-f16.gguf").read_bytes())
        genai.LLMPipeline(str(own / "model.gguf"), "CPU", enable_save_ov_model=True, **options)
        return str(own)

    @cache
    def pipeline(way: str) -> Any:
        extra: dict[str, Any] = {}
        if way == "draft model":
            extra = {"draft_model": genai.draft_model(converted("draft"), "CPU")}
        if way == "prompt lookup":
            extra = {"prompt_lookup": True}
        return genai.LLMPipeline(converted("target"), "CPU", **extra, **options)

    def draw(ask: Ask) -> Answer:
        config = genai.GenerationConfig()
        config.max_new_tokens = ask.max_tokens
        config.do_sample, config.rng_seed = ask.temperature > 0, ask.seed
        if ask.temperature:
            config.temperature, config.top_p = ask.temperature, ask.top_p
        config.repetition_penalty = ask.repetition_penalty
        extra(config, **ask.options)
        if ask.way != "plain":
            config.num_assistant_tokens = 3
        if ask.way == "prompt lookup":
            config.max_ngram_size = 2
        ids = np.array([ask.prompt], dtype=np.int64)
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        result = pipeline(ask.way).generate(inputs, config)
        said = result.extended_perf_metrics  # prompt lookup has none
        if said is None:
            return Answer(list(result.tokens[0]))
        passes = len(said.main_model_metrics.raw_metrics.m_batch_sizes)
        drafted, accepted = said.get_num_draft_tokens(), said.get_num_accepted_tokens()
        return Answer(list(result.tokens[0]), drafted, accepted, passes=passes)

    return draw


serve(ENGINE, load)
