"""What each engine accepts, and what its figures count: as measured or read on the versions that
`docs/engines.md` names. p is the target's probability of a draft token, q the drafter's."""

_GREEDY = "At temperature 0 it accepts the target's most probable token."
_COMPARES = "draws the target's own token and accepts a draft that is equal"
_AFTER_END = (
    "{} counts draft tokens that were accepted after the end of an answer, so short answers look"
    " better than they are."
)
RULES = {
    "vLLM": (
        "vLLM accepts a draft token with probability min(1, p ÷ q). Its default drafts are the"
        " drafter's most probable tokens, with q = 1: then α is the mean of p(draft). Its option"
        " draft_sample_method draws them instead."
    ),
    "llama.cpp": (
        f"llama.cpp {_COMPARES}: α is the mean of p(draft). With probabilistic"
        " drafts (spec-draft-sampling; draft models and MTP layers only) it accepts with"
        " probability min(1, p ÷ q)."
    ),
    "SGLang": (
        "SGLang accepts a draft token with probability p(draft), unless its accept thresholds are"
        " lowered. With speculative-use-rejection-sampling it draws drafts and accepts with"
        " probability min(1, p ÷ q). On a CPU or an Intel GPU, and on an AMD GPU without that"
        " option, it accepts the target's most probable token only (0.5.23)."
    ),
    "TensorRT-LLM": (
        f"TensorRT-LLM {_COMPARES}: α is the mean of p(draft). With use_rejection_sampling, and"
        " with a separate draft model that gives its logits, it accepts with probability"
        " min(1, p ÷ q)."
    ),
    "mlx-lm": (
        f"mlx-lm {_COMPARES}. Its drafts are drawn too: α is the mean of Σ p·q, below Σ min(p, q)."
    ),
    "OpenVINO GenAI": (
        "OpenVINO GenAI with a draft model accepts by q(draft) ÷ p of another token, the target's"
        " own sample (2026.4.1): at a temperature its texts have not the target's distribution,"
        " and α is not that of a lossless rule."
    ),
    "Rapid-MLX": "Rapid-MLX accepts a draft token with probability min(1, p ÷ q).",
    "LM Studio": "LM Studio runs llama.cpp or MLX, and reports the figures of that engine.",
    "Naive Speculate": (
        "Naive Speculate accepts a draft token with probability min(1, p ÷ q), unless another"
        " strategy was chosen."
    ),
}
COUNTS = {
    "llama.cpp": _AFTER_END.format("llama.cpp"),
    "vLLM": _AFTER_END.format("vLLM"),
    "SGLang": (
        "SGLang's accept rate counts draft tokens that were accepted after the end of an answer;"
        " the accept length of a response does not (0.5.23)."
    ),
    "mlx-vlm": (
        "mlx-vlm counts draft tokens that were accepted after the end of a reply: in the reply,"
        " a pass gives (predicted tokens - 1) ÷ rounds (mlx-vlm#2324)."
    ),
    "OpenVINO GenAI": (
        "OpenVINO GenAI counts the accepted tokens of an answer's last step in its perf metrics,"
        " but not the draft tokens of that step."
    ),
    "tokenspeed": (
        "tokenspeed counted one draft token too many per step until September 2026"
        " (tokenspeed#1443)."
    ),
}


def rule(engine: str) -> list[str]:
    if engine in RULES:
        accepts = f"{RULES[engine]} {_GREEDY}"
    else:
        accepts = (
            f"The rule by which {engine} accepts is not known here: α at a temperature may mean"
            " something else than another engine's."
        )
    return [accepts, *filter(None, [COUNTS.get(engine)])]
