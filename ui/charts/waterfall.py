"""The waterfall from tokens a round to the speedup, with sliders, which `assets/js/waterfall.js` draws and recomputes.

Its machines other than this one are calculated: the least time that a pass can take, from the size of the weights, how fast the
memory gives them, and how fast they are multiplied (`theory.pass_seconds`).
"""

import html
from dataclasses import dataclass

import gradio as gr

from naive_speculate.theory import pass_seconds
from ui.assets import component, markup_of
from ui.charts.plot import place
from ui.labels import to_json

TITLE = "Where did the tokens of a target pass go?"
ALPHA = 0.75
"""Of T5-XXL with T5-small, translating at temperature 0: Leviathan et al. 2023, Table 2."""


@dataclass(frozen=True)
class Model:
    """A model's weights, and a page that says so."""

    name: str
    parameters: float
    weight_bytes: float
    source: str


@dataclass(frozen=True)
class Machine:
    """What computes: bytes a second that its memory gives, operations a second that it does, and a page that says so."""

    name: str
    bandwidth: float
    flops: float
    told: str
    source: str

    def seconds(self, model: Model, tokens: int) -> float:
        """Least time of a pass over so many tokens."""
        return pass_seconds(
            tokens,
            weight_bytes=model.weight_bytes,
            bandwidth=self.bandwidth,
            parameters=model.parameters,
            flops=self.flops,
        )


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
        """A draft pass, in target passes over one token."""
        return self.machine.seconds(self.draft, 1) / self.machine.seconds(self.target, 1)

    @property
    def compute_share(self) -> float:
        """Computing with one token, in the time that reading the target's weights takes."""
        return 2 * self.target.parameters / self.machine.flops / (self.target.weight_bytes / self.machine.bandwidth)

    def check(self, k: int) -> float:
        """The check of k drafts, in target passes over one token."""
        return self.machine.seconds(self.target, k + 1) / self.machine.seconds(self.target, 1)


GPU = Machine(
    "an H100 SXM",
    3.35e12,
    1.979e15,
    "3.35 TB/s of memory and 1,979 TFLOPS in FP8 (half of NVIDIA's figure, which counts zeros that are skipped)",
    "https://www.nvidia.com/en-us/data-center/h100/",
)
LAPTOP = Machine(
    "a laptop with DDR5-5600",
    89.6e9,
    0.768e12,
    "two channels, which give 2 × 8 bytes × 5.6 GHz = 89.6 GB/s, and 8 cores × 3 GHz × 32 operations = 0.77 TFLOPS",
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
        Model("Llama 3.1 8B in 4 bits", 8.03e9, 4.92e9, HUB + "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF"),
        Model("Llama 3.2 1B in 4 bits", 1.24e9, 0.81e9, HUB + "bartowski/Llama-3.2-1B-Instruct-GGUF"),
        5,
    ),
)


def build_waterfall() -> gr.HTML:
    """The component; it follows the stage, and its sliders."""
    return component("waterfall", markup(), label=TITLE)


def markup() -> str:
    """The chart's place, the buttons of the machines, the sliders, and how the calculated machines are calculated."""
    buttons = [("here", "This run, measured"), *((preset.key, preset.label) for preset in PRESETS)]
    machines = "".join(
        f'<button type="button" data-machine="{key}" aria-pressed="false">{html.escape(label)}</button>'
        for key, label in buttons
    )
    return markup_of(
        "waterfall",
        presets=html.escape(to_json({preset.key: _values(preset) for preset in PRESETS}), quote=True),
        chart=place('id="chart-waterfall"', TITLE, "ns-chart", term="tokens-a-pass"),
        machines=machines,
        sources="".join(f"<li>{_source(preset)}</li>" for preset in PRESETS),
        alpha=str(ALPHA),
    )


def _source(preset: Preset) -> str:
    ms = preset.machine.seconds(preset.target, 1) * 1e3
    models = " and ".join(
        f'<a href="{model.source}">{model.name}</a> ({model.weight_bytes / 1e9:.2f} GB)'
        for model in (preset.target, preset.draft)
    )
    where = f'<a href="{preset.machine.source}">{preset.machine.name}</a>: {preset.machine.told}'
    return (
        f"{preset.label}: {models}, on {where}. A pass takes {ms:.0f} ms, a drafted token {preset.draft_cost:.3f} of it, "
        f"and checking {preset.k} drafts {preset.check(preset.k):.2f} passes."
    )


def _values(preset: Preset) -> dict[str, float]:
    return {"alpha": ALPHA, "k": preset.k, "draftCost": preset.draft_cost, "computeShare": preset.compute_share}
