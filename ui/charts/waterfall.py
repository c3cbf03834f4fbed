"""The waterfall from tokens per target pass to the speedup, with sliders;
`assets/js/waterfall.js` draws it.

Machines other than this one are calculated: the least time of a pass follows from the size of
the weights, the memory bandwidth and the arithmetic speed (`theory.pass_seconds`).
"""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from naive_speculate.speculate.theory import pass_seconds
from ui.assets import component, render

TITLE = "Where did the tokens of a target pass go?"
MOST_K = 16  # of the slider; `theory.js` also looks at the two next
# the α of T5-XXL with T5-small, translating at temperature 0: Leviathan et al. 2023, Table 2
ALPHA = 0.75


@dataclass(frozen=True)
class Model:
    """A model's weights, with a source."""

    name: str
    parameters: float
    weight_bytes: float
    source: str


@dataclass(frozen=True)
class Machine:
    """A machine: memory bandwidth in bytes per second, arithmetic in operations per second, with
    a note and a source."""

    name: str
    bandwidth: float
    flops: float
    note: str
    source: str

    def seconds(self, model: Model, tokens: int) -> float:
        """Least time of a pass over so many tokens, in seconds."""
        sizes = {"weight_bytes": model.weight_bytes, "parameters": model.parameters}
        return pass_seconds(tokens, **sizes, bandwidth=self.bandwidth, flops=self.flops)


@dataclass(frozen=True)
class Preset:
    """A target and a draft on a machine."""

    key: str
    label: str
    machine: Machine
    target: Model
    draft: Model
    k: int

    @property
    def draft_cost(self) -> float:
        """Cost of a draft pass, in target passes over one token."""
        return self.machine.seconds(self.draft, 1) / self.machine.seconds(self.target, 1)

    def check(self, k: int) -> float:
        """Cost of verifying k draft tokens, in target passes over one token."""
        return self.machine.seconds(self.target, k + 1) / self.machine.seconds(self.target, 1)


GPU = Machine(
    "an H100 SXM",
    3.35e12,
    1.979e15,
    "3.35 TB/s of memory and 1,979 TFLOPS in FP8 (half of NVIDIA's figure, which assumes sparse"
    " weights)",
    "https://www.nvidia.com/en-us/data-center/h100/",
)
LAPTOP = Machine(
    "a laptop with DDR5-5600",
    89.6e9,
    0.768e12,
    "two channels of 8 bytes × 5.6 billion transfers per second give 89.6 GB/s, "
    "and 8 cores × 3 GHz × 32 operations give 0.77 TFLOPS",
    "https://en.wikipedia.org/wiki/DDR5_SDRAM",
)
HUB = "https://huggingface.co/"
PRESETS = (
    Preset(
        "h100",
        "H100, 70B + 1B",
        GPU,
        Model("Llama 3.1 70B in FP8", 70.6e9, 70.6e9, HUB + "meta-llama/Llama-3.1-70B-Instruct"),
        Model("Llama 3.2 1B in FP8", 1.24e9, 1.24e9, HUB + "meta-llama/Llama-3.2-1B-Instruct"),
        5,
    ),
    Preset(
        "laptop",
        "Laptop, 8B + 1B",
        LAPTOP,
        Model(
            "Llama 3.1 8B in 4 bits",
            8.03e9,
            4.92e9,
            HUB + "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
        ),
        Model(
            "Llama 3.2 1B in 4 bits", 1.24e9, 0.81e9, HUB + "bartowski/Llama-3.2-1B-Instruct-GGUF"
        ),
        5,
    ),
)


def build_waterfall() -> gr.HTML:
    """The component: the chart, the machine buttons, the sliders, and the sources of the
    calculated machines. It follows the stage and its sliders."""
    markup = render("waterfall", title=TITLE, presets=PRESETS, values=values(), alpha=ALPHA)
    return component("waterfall", markup, label=TITLE)


def values() -> dict[str, dict[str, Any]]:
    """The calculated machines for the script, by key; `checks` are the costs of verifying 0, 1,
    2 … draft tokens."""
    return {
        made.key: {
            "alpha": ALPHA,
            "k": made.k,
            "draftCost": made.draft_cost,
            "checks": [*map(made.check, range(MOST_K + 3))],
        }
        for made in PRESETS
    }
