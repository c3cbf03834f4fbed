"""Engines on MLX: mlx-lm's `from_draft` (the field of each `GenerationResponse`, as JSON or as
Python prints it), the line of Ollama's MLX runner (at log level debug), and oMLX's line."""

import re
from dataclasses import replace

from naive_speculate.tools.doctor.reading import Format, Part, Reading, histogram_of, rates_of

_OLLAMA = Format(
    "Ollama", "log line “speculative decode stats”", "x/mlxrunner/speculate_stats.go (2026)"
)
_OMLX = Format(
    "oMLX", "log line “MTP[…]”", "omlx/patches/mlx_lm_mtp/batch_generator.py, _log_mtp_stats (2026)"
)
_MLX_LM = Format("mlx-lm", "`from_draft` of each token", "mlx_lm/generate.py (0.32)")
_STATS = re.compile(
    r"speculative decode stats\"?[^\n]{0,80}?\biterations=(\d+) drafted=(\d+) accepted=(\d+)"
    r"(?:[^\n]{0,80}?\bmax_draft=(\d+))?"
)
_MTP = re.compile(
    r"\bMTP\[[^\]\n]{0,80}\] [^\n]{0,200}?\bcycles=(\d+)[^\n]{0,80}?\baccept=(\d+)/(\d+)"
    r"(?:[^\n]{0,40}?\sdepth\[([^\]\n]{0,400})\])?(?:\s+d0=(\d+))?"
)
_FROM_DRAFT = re.compile(r"\bfrom_draft[\"']?\s*[=:]\s*(true|false)\b", re.IGNORECASE)
_ADAPTS = "Ollama adapts the window to what is accepted (at most {}), so windows differ in length."
_JUDGED = (
    "oMLX counts the draft tokens that it judged, up to the first rejection, and not those after"
    " it: its rate is α, and the window is taken to be its deepest index."
)
_NO_WINDOW = (
    "mlx-lm does not report the window: give it (--num-draft-tokens). The rates per index end at"
    " the most tokens that a step accepted."
)


def read_ollama(text: str) -> Reading | None:
    lines = [[int(number or 0) for number in line] for line in _STATS.findall(text)]
    parts = [Part(accepted, drafted, steps) for steps, drafted, accepted, _ in lines if steps]
    if not parts:
        return None
    most = max(line[-1] for line in lines)
    unknown = (most and _ADAPTS.format(most), "This line has no rates per index.")
    return _OLLAMA.total(parts, unknown=unknown)


def read_omlx(text: str) -> Reading | None:
    """Cycles without a draft token are no steps."""
    parts, drafting, cycles = list[Part](), 0, 0
    for all_cycles, accepted, drafted, depth, parked in _MTP.findall(text):
        steps = int(all_cycles) - int(parked or 0)
        counts = [tuple(map(int, one)) for one in re.findall(r"d\d+=(\d+)/(\d+)", depth)]
        if not int(drafted) or steps < 1:
            continue
        drafting, cycles = drafting + steps, cycles + int(all_cycles)
        part = Part(int(accepted), int(drafted), steps)
        if counts and sum(hits for hits, _ in counts) == int(accepted):
            part = part._replace(rates=tuple(min(hits / steps, 1.0) for hits, _ in counts))
            reached = [steps, *(hits for hits, _ in counts)]
            if all(judged <= most for (_, judged), most in zip(counts, reached, strict=False)):
                part = part._replace(judged=tuple(judged / steps for _, judged in counts))
        parts.append(part)
    if not parts:
        return None
    reading = _OMLX.total(parts, drafted_share=drafting / cycles)
    if not reading.judged:
        return reading
    width = float(sum(share > 0 for share in reading.judged))
    return replace(reading, drafted_per_step=width, unknown=(_JUDGED,))


def read_from_draft(text: str) -> Reading | None:
    """Each step gives its accepted draft tokens and one of the target; a run may end within a
    step."""
    accepted, steps = 0, list[int]()
    for match in _FROM_DRAFT.finditer(text):
        if match[1].lower() == "true":
            accepted += 1
        else:
            steps.append(accepted)
            accepted = 0
    steps += [accepted] if accepted else []
    if not any(steps):
        return None
    part = Part(sum(steps), None, len(steps), rates_of(histogram_of(steps), None))
    return _MLX_LM.total([part], unknown=(_NO_WINDOW,))
