"""What this processor offers a decoder: `python -m naive_speculate doctor --this-machine`.

Reading weights takes most of a pass. So a pass over several tokens costs little more than one over
one token, which drafting uses, and fewer bits make every pass faster. Where the bits of a token's
logits depend on the pass, a text with drafts may differ from the one without.
"""

import platform
from pathlib import Path
from typing import Any

from naive_speculate.infer.device import is_installed
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.models.llama.kernels import row_difference
from naive_speculate.models.threads import num_threads
from naive_speculate.tools.bench.measure import pass_seconds
from naive_speculate.tools.tables import Output, table

_COUNTS, _CONTEXT, _ROUNDS = (1, 2, 4, 8), 64, 7
_KNOWN = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp")
_FORMS = ("float32", "int8")


def measured() -> dict[str, Any]:
    """Instruction sets, threads, median milliseconds of a pass over each number of tokens, and
    whether a token's bits are the same alone and among others, by form of the weights."""
    if not is_installed("onnxruntime", "0"):
        raise ValueError(
            "--this-machine needs ONNX Runtime: pip install '.[onnx]' in the repository"
        )
    name, pairs = _pairs()
    models = {form: as_batch_model(pair.target) for form, pair in pairs.items()}
    seconds = pass_seconds(models, _COUNTS, _CONTEXT, _ROUNDS)
    return {
        "processor": platform.processor() or platform.machine(),
        "instruction_sets": instruction_sets(),
        "threads": num_threads(),
        "model": name,
        "milliseconds": {
            form: {count: 1e3 * time for count, time in times.items()}
            for form, times in seconds.items()
        },
        "independent": {form: not row_difference(form == "int8") for form in _FORMS},
    }


def instruction_sets(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Those that matter for products of matrices; empty where the system does not list them."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    listed = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return [name for name in _KNOWN if name in listed.partition(":")[2].split()]


def advice(measurement: dict[str, Any]) -> str:
    plain, rounded = (measurement["milliseconds"][form] for form in _FORMS)
    if not measurement["independent"]["int8"]:
        return (
            "Take --weights float32: with 8 bits this processor computes a token differently in"
            " another pass, so a text with drafts may differ from the one without."
        )
    ratio, four = plain[1] / rounded[1], rounded[4] / rounded[1]
    drafts = "drafts add to that" if four < 2 else "drafts add little to that"
    if ratio < 1:
        return f"Take --weights float32: 8 bits take {1 / ratio:.1f} times as long."
    return (
        f"Take --weights int8: a pass is {ratio:.1f} times as fast. One over 4 tokens takes"
        f" {four:.1f} times as long as one over 1, so {drafts}."
    )


def show(measurement: dict[str, Any], output: Output) -> None:
    sets = ", ".join(measurement["instruction_sets"]) or "not listed by the system"
    output.print(f"Instruction sets: {sets}. Threads: {measurement['threads']}.")
    rows = [
        {
            "weights": form,
            **{
                f"{count} token{'s' * (count > 1)}, ms": f"{ms:.1f}"
                for count, ms in measurement["milliseconds"].get(form, {}).items()
            },
            "same bits alone and among others": "yes" if same else "no",
        }
        for form, same in measurement["independent"].items()
    ]
    output.print(table(rows, left=("weights",), title=f"A pass of {measurement['model']}"))
    output.print(advice(measurement))


def _pairs() -> tuple[str, dict[str, Any]]:
    from naive_speculate.models import load_pair

    def forms(target: str | None) -> dict[str, Any]:
        return {form: load_pair(target, device="cpu", weights=form) for form in _FORMS}

    try:
        return "SmolLM2", forms("smollm2")
    except ValueError:
        return "the bundled target", forms(None)
