"""Possible causes of a low speedup, from the figures: suspicions, not proofs, each with what to
measure next."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from naive_speculate.costs import CostTable
from naive_speculate.tools.doctor.diagnosis import Diagnosis, Suspect
from naive_speculate.tools.doctor.ends import (
    ALIVE,
    DEAD,
    EVIDENCE,
    UNKNOWN_STEPS,
    Fade,
    drop,
    fade,
    likelihood,
)
from naive_speculate.tools.doctor.reading import Reading, mean

NONE, LOW_FIRST, CLIFF, SMALL, GAIN = 0.1, 0.5, 0.75, 0.15, 1.03
# above about this many tokens per pass, computing takes longer than reading the weights on current
# GPUs
MANY_TOKENS = 256
RARE = 0.5  # the share of steps with draft tokens below which drafts are rare
# tokens per step from which drafting should pay, and the measured speedup that counts as one
HIGH, FASTER = 1.5, 1.15
COSTLY = 0.35  # the drafter's share of a step from which it costs too much
MUCH = 0.7  # the share of the others' rate below which a process is named
ARITHMETIC = (
    "The share of draft tokens that are accepted falls with k by arithmetic, as later ones are"
    " reached less often: compare α, or tokens per pass."
)

_EXPERTS = re.compile(
    r"\b\d+(?:\.\d+)?[BT]-A\d+(?:\.\d+)?B\b|\b\d+x\d+B\b"
    r"|\b(?:Mixtral|DeepSeek-(?:V[2-9]|R1(?!-Distill))|Kimi-K\d|gpt-oss|GLM-(?:4\.[5-9](?!V-Flash)|[5-9])|Llama-4|MiniMax-M\d|Qwen\d?-?MoE|OLMoE)[\w.-]*"
    r"|--enable-expert-parallel\b|\benable_expert_parallel['\"]?\s*[=:]\s*True"
    r"|\bn_expert\s*=\s*[1-9]\d*|\bnum_(?:local_)?experts['\"]?\s*[=:]\s*[1-9]\d*",
    re.IGNORECASE,
)
_TEXTS = {  # by name: evidence with possible causes, and what to measure next
    "fades": (
        (
            "Acceptance drops to zero {where}: {fade.before:.0%} of the steps elsewhere accept a"
            " draft token, {after} of these {fade.steps:,.0f} steps. {stays}Possible causes: texts"
            " longer than the drafter's context (max_position_embeddings, or its draft"
            " max_model_len; vLLM reports the drafts that it skips as rejected, vllm#34734,"
            " sglang#6783), other RoPE scaling than the target's, or a sliding window that the"
            " engine does not apply."
        ),
        (
            "short and long prompts apart. Compare the length at which acceptance ends with the"
            " drafter's config.json."
        ),
    ),
    "one_is_dead": (
        (
            "All steps without acceptance are of {names}: there {dead} of {steps:,.0f} steps"
            " accept a draft token, in the other processes {alive}. So it is not the text."
            " Possible causes: this process loaded other weights, another drafter or another"
            " configuration than the others (vllm#50158), its drafter failed at the start, or it"
            " receives other requests."
        ),
        (
            "the same prompt sent to this process and to another one; then compare their start-up"
            " lines, versions and arguments."
        ),
    ),
    "one_differs": (
        (
            "The processes differ: α is {low:.2f} in {process} and {rest:.2f} in the"
            " others.{windows} Possible causes: other requests (one long or unusual"
            " prompt), another drafter, version or configuration, or a cache of the drafter that"
            " was damaged."
        ),
        "the same prompts sent to this process and to another one.",
    ),
    "after_end": (
        (
            "llama.cpp counts draft tokens that it accepted after the end of the answer, such as"
            " after a stop string: {reading.num_after_end} of the responses accept more than they"
            " have room for. So tokens per pass cannot be derived from them."
        ),
        (
            "the `statistics` line (-lv 4), which counts the steps; or answers that end at"
            " max_tokens."
        ),
    ),
    "drops_to_zero": (
        (
            "Acceptance drops to zero at index {index}: {before} of the steps accept index {last},"
            " {rate} index {index}. {reached}Possible causes: a drafter made for shorter windows,"
            " wrong positions or cache after that index, or a block drafter whose attention window"
            " is broken (its sliding-window layers run as full attention, or the text is past its"
            " context; vllm#40898, vllm#34734)."
        ),
        (
            "the speed with k = {index}, which loses nothing; then prompts of fewer than 1,000"
            " tokens: if index {index} works there, the drafter's context is too short."
        ),
    ),
    "near_zero": (
        (
            "{first}: almost nothing, from the first index on. Possible causes: another chat"
            " template, tokenizer or system prompt than the drafter was trained with; a head that"
            " reads the wrong layers of the target, or was trained for another target; missing or"
            " wrongly mapped weights; texts longer than the drafter's context (vllm#34734).{copies}"
        ),
        (
            "one short prompt in the drafter's own chat template, greedy, with k = 1. If it stays"
            " near zero, compare weights and layer numbers."
        ),
    ),
    "mismatch": (
        (
            "{first}: draft and target rarely agree, from the first token on. Check that both get"
            " the same chat template, system prompt, tokenizer, temperature and top-p (a greedy"
            " draft loses if the target samples), that the head was trained for this target, and"
            " that the weights are not quantised too strongly."
        ),
        "the same prompts at temperature 0: if acceptance rises, sampling is the cause.",
    ),
    "cliff": (
        (
            "A sharp drop after the first draft token: it is accepted in {first:.0%} of the steps,"
            " the second in {second:.0%} of those that reach it. Possible causes: a head trained to"
            " draft one token that drafts more from its own output, or a draft with wrong cache or"
            " positions after the first token."
        ),
        "the speed with k = 1.",
    ),
    "no_speedup": (
        (
            "High acceptance without speedup: {tokens:.2f} tokens per step, but {measured:.2f}"
            " times the speed of plain decoding. So a step takes as long as {step:.2f} plain"
            " tokens; it should take little more than one. Verification or drafting costs too much."
        ),
        (
            "the time of a target pass over 1 and over k + 1 tokens, and of one draft pass; then k"
            " = 1."
        ),
    ),
    "rare_drafts": (
        (
            "Drafts are rare: {share} of the steps have draft tokens, and the figures describe"
            " these alone. Over all steps the target emits {tokens:.2f} tokens per pass. The"
            " drafter finds nothing to propose: no n-gram repeats, or it is unsure."
        ),
        "text that repeats its prompt, such as edits of code; else a draft model or a head.",
    ),
    "draft_cost": (
        (
            "The drafter is expensive: it takes {share:.0%} of the time of a step. A draft model"
            " pays if it is many times smaller than the target's active parameters, and runs on the"
            " same device with compiled graphs."
        ),
        "one draft pass and one target pass; then a smaller drafter, a head, or n-gram drafting.",
    ),
    "experts": (
        (
            "The target is a mixture of experts ({experts}). Each draft token wakes other experts,"
            " so a pass over k + 1 tokens reads more weights than one over a single token, and"
            " acceptance alone predicts no speedup (mlx-lm#1132, vllm#46295)."
        ),
        (
            "the target's pass over 1, 2, 3 … tokens (--verify-cost), and k = 1. Larger batches"
            " wake all experts anyway."
        ),
    ),
    "batch": (
        (
            "The batch may be too large for drafting: {requests:.0f} requests × {width:.3g} tokens"
            " are {all:.0f} per pass, so verification is no longer nearly free. Measure the cost of"
            " such a pass relative to a plain one (--verify-cost), and draft less, or not at all"
            " under load."
        ),
        "the same prompts with one request at a time.",
    ),
}


def experts(text: str) -> str:
    """What in a text shows that the target is a mixture of experts; empty if nothing does."""
    match = _EXPERTS.search(text)
    return match[0] if match else ""


def diagnose(
    reading: Reading, costs: CostTable | None = None, *, num_draft_tokens: int | None = None
) -> Diagnosis:
    """Diagnose an engine's figures with these costs, and with this window if the figures lack
    one. Raises `ValueError` if `num_draft_tokens` is not positive, or the figures contradict
    each other."""
    diagnosis = Diagnosis(reading, costs, num_draft_tokens)
    apart = list(_processes(diagnosis))
    dead = any(suspect.name == "fades" for suspect in apart)
    # what the living and the dead have together describes neither
    counts = [] if not reading.num_after_end else [_suspect("after_end", reading=reading)]
    listed = [*apart, *(() if dead else _acceptance(diagnosis)), *_speed(diagnosis), *counts]
    dropped = dead or any(one.name in ("drops_to_zero", "near_zero") for one in listed)
    diagnosis.suspects = (*listed, *_window(diagnosis, dropped))
    return diagnosis


def is_set(width: float) -> bool:
    """Whether all windows have one length, that is, k ends them and not the drafter."""
    return abs(width - round(width)) < 0.05


def _suspect(name: str, **values: Any) -> Suspect:
    return Suspect(name, *(text.format(**values) for text in _TEXTS[name]))


def _processes(diagnosis: Diagnosis) -> Iterator[Suspect]:
    """The processes that accept nothing, or the one that accepts least, if chance does not
    explain that."""
    each = {name: Diagnosis(one) for name, one in diagnosis.reading.processes.items()}
    steps = {name: one.reading.num_steps or UNKNOWN_STEPS for name, one in each.items()}
    rates = {
        name: one.conditional[0] if one.conditional else one.alpha for name, one in each.items()
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < 2:
        return
    dead = [name for name, rate in known.items() if rate <= DEAD]
    apart = dead if dead and max(known.values()) >= ALIVE else [min(known, key=known.__getitem__)]
    rest = [name for name in known if name not in apart]

    def hits_of(names: Sequence[str]) -> tuple[float, float]:
        return sum(known[name] * steps[name] for name in names), sum(steps[name] for name in names)

    (hits, num), (other_hits, other_num) = hits_of(apart), hits_of(rest)
    gain = likelihood(hits, num) + likelihood(other_hits, other_num)
    if gain - likelihood(hits + other_hits, num + other_num) < EVIDENCE:
        return
    if apart is dead:
        texts = _TEXTS["one_is_dead"]
        values = {
            "names": ", ".join(apart),
            "dead": _percent(hits / num),
            "alive": _percent(other_hits / other_num),
            "steps": num,
        }
        yield Suspect("fades", *(text.format(**values) for text in texts))
        return
    if hits / num > MUCH * other_hits / other_num:
        return
    widths = {name: each[name].num_draft_tokens for name in known}
    shown = ", ".join(f"{width:.3g} in {name}" for name, width in widths.items() if width)
    differ = len({round(width, 2) for width in widths.values() if width}) > 1
    windows = f" Their windows differ, too (k = {shown}). {ARITHMETIC}" if differ else ""
    alphas = [each[name].alpha for name in rest if each[name].alpha is not None]
    low, mean_rest = each[apart[0]].alpha, mean(alpha for alpha in alphas if alpha is not None)
    if low is not None and mean_rest is not None:
        yield _suspect("one_differs", process=apart[0], low=low, rest=mean_rest, windows=windows)


def _fade_of(reading: Reading) -> tuple[Fade | None, str]:
    """Where acceptance ends during a run, and the process in which it does; "" if the text
    names none."""
    for name, one in reading.processes.items():
        if (decline := fade(one.course)) is not None:
            return decline, name
    return (None if reading.processes else fade(reading.course)), ""


def _acceptance(diagnosis: Diagnosis) -> Iterator[Suspect]:
    reading, conditional, tokens = (
        diagnosis.reading,
        diagnosis.conditional,
        diagnosis.mean_acceptance_length,
    )
    fades, process = _fade_of(reading)
    if fades is not None:
        where = (
            "in some reports"
            if fades.position is None
            else f"from about position {fades.position:,.0f} of the text on"
        )
        where += f" of {process}" if process else ""
        stays = (
            "It stays at zero until the end of the log, as if one long request had damaged the"
            " drafter's state. "
        )
        stays = stays if fades.position is None and fades.stays else ""
        yield _suspect("fades", fade=fades, where=where, after=_percent(fades.after), stays=stays)
    first = conditional[0] if conditional else diagnosis.alpha
    if first is None and tokens is not None and tokens - 1 < NONE:
        first = tokens - 1  # the window is unknown, but no index accepts more than this
    if first is None or (fades is not None and fades.before >= LOW_FIRST):
        return
    second = conditional[1] if len(conditional) > 1 else None
    subject = f"The first draft token is accepted in {_percent(first)} of the steps"
    subject = (
        subject if conditional else f"{_percent(first)} of the judged draft tokens are accepted"
    )
    # Where windows are short, an index without an accepted token may have had no draft token.
    zero = (
        None if _short(diagnosis) and not reading.judged else drop(reading.rates, reading.num_steps)
    )
    if zero is not None:
        index, chance = zero
        before, rate = reading.rates[index - 1 : index + 1]
        reached = (
            f"{round(reading.num_steps * before):,} windows reached it; by "
            if reading.num_steps
            else ""
        )
        reached += f"chance this would have a probability of {_chance(chance)}. " if reached else ""
        shares = {"before": _percent(before), "rate": _percent(rate)}
        yield _suspect("drops_to_zero", index=index, last=index - 1, reached=reached, **shares)
    if first < NONE:
        copies = ""
        if second is not None and second >= LOW_FIRST:
            copies = (
                f" But after an accepted first token the second is accepted in {second:.0%}: a"
                " drafter that copies (n-gram) looks like this on text that repeats little."
            )
        yield _suspect("near_zero", first=subject, copies=copies)
    elif first < LOW_FIRST:
        yield _suspect("mismatch", first=subject)
    elif zero is None and second is not None and second < CLIFF * first and diagnosis.whole_rates:
        yield _suspect("cliff", first=first, second=second)


def _speed(diagnosis: Diagnosis) -> Iterator[Suspect]:
    """Causes of a low speedup other than acceptance."""
    reading, measured, tokens, share = (
        diagnosis.reading,
        diagnosis.measured_speedup,
        diagnosis.mean_acceptance_length,
        diagnosis.draft_share,
    )
    if reading.drafted_share is not None and tokens is not None:  # a speed is of all steps
        tokens = 1 + (tokens - 1) * reading.drafted_share
        if reading.drafted_share < RARE:
            yield _suspect("rare_drafts", share=_percent(reading.drafted_share), tokens=tokens)
    slow, high = measured is not None and measured < FASTER, tokens is not None and tokens >= HIGH
    if measured is not None and slow and tokens is not None and high:
        yield _suspect("no_speedup", tokens=tokens, measured=measured, step=tokens / measured)
    if (
        share is not None
        and share >= COSTLY
        and (slow or (reading.draft_share is not None and measured is None))
    ):
        yield _suspect("draft_cost", share=share)
    if reading.experts and high and (measured is None or slow):
        yield _suspect("experts", experts=reading.experts)
    requests, width = reading.requests_running, (diagnosis.num_draft_tokens or 0) + 1
    if requests is not None and width > 1 and requests * width > MANY_TOKENS:
        yield _suspect("batch", requests=requests, width=width, all=requests * width)
    if diagnosis.speedup is not None and diagnosis.speedup < 1:
        expected = f"the expected speedup is {diagnosis.speedup:.2f}."
        words = f"Drafting does not pay with these costs: {expected}"
        yield Suspect("does_not_pay", words, "a smaller window, or a cheaper drafter.")
    elif slow and tokens is not None and not high:
        words = (
            f"Drafting does not pay: {measured:.2f} times the speed of plain decoding, with"
            f" {tokens:.2f} tokens per step."
        )
        yield Suspect("does_not_pay", words, "acceptance by kind of prompt; it is too low here.")


def _window(diagnosis: Diagnosis, dropped: bool) -> Iterator[Suspect]:
    rates, width, gain = diagnosis.unconditional, diagnosis.num_draft_tokens, diagnosis.gain
    if width is None:
        return
    best_k = diagnosis.best_k if is_set(width) else None
    if best_k is not None and gain is not None and gain > GAIN and best_k != width:
        words = (
            f"k is too large: with these costs {best_k} is best, {gain:.2f} times as fast as the"
            f" current {width:.3g}."
        )
        if best_k > width:
            words = (
                f"k is too small: with these costs {best_k} would be best, {gain:.2f} times as fast"
                " as the current "
            )
            words += f"{width:.3g}, if further draft tokens are accepted as often as the last one."
        yield Suspect(
            "k_too_large" if best_k < width else "k_too_small",
            words,
            f"the speed with k = {best_k}.",
        )
    elif (
        best_k is None and diagnosis.whole_rates and width > 1 and rates[-1] < SMALL and not dropped
    ):
        words = (
            f"k may be too large: the last draft token is accepted in {rates[-1]:.0%} of the steps."
            " Give costs to decide."
        )
        yield Suspect("k_too_large", words, "the cost of a draft pass (--draft-cost).")
    if _short(diagnosis):
        words = (
            f"Windows are short: {width:.2f} draft tokens per step of at most {len(rates)}. The"
            " drafter often proposes fewer (no n-gram found, or an unsure draft), or the engine"
            " adapts them (vLLM's num_speculative_tokens_per_batch_size, SGLang's"
            " speculative-adaptive), so rates after the first index include steps without a"
            " draft token there."
        )
        yield Suspect(
            "short_windows", words, "acceptance by window length, if the engine reports it."
        )


def _short(diagnosis: Diagnosis) -> bool:
    rates, width = diagnosis.unconditional, diagnosis.num_draft_tokens
    return width is not None and len(rates) > 1 and width < 0.8 * len(rates)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def _chance(chance: float) -> str:
    return (
        f"{chance:.1%}" if chance >= 0.001 else f"10^{math.floor(math.log10(max(chance, 1e-300)))}"
    )
