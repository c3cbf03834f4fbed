"""What the models are: their names and sizes as loaded, what they were fed, and where to read more."""

import html
import os
from pathlib import Path

import gradio as gr
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.speculate import step
from ui.explain.glossary import link
from ui.host.catalog import Catalog

MODEL_CARD, CODE = "model-card.md", "step.py"
PAPERS = {
    "Leviathan et al. 2023": "https://arxiv.org/abs/2211.17192",
    "Chen et al. 2023": "https://arxiv.org/abs/2302.01318",
    "block verification": "https://arxiv.org/abs/2403.10444",
    "typical acceptance": "https://arxiv.org/abs/2401.10774",
}
FED = (
    "The tales pair was trained here, its target together with its drafters, so its speedup says little about other models. "
    "It read old English prose, children's books above all, and made-up tales, letters and questions: begin a story. "
    "Other prompts ramble, and nothing that it says is knowledge."
)
FILTERED = "Words that do not belong into a classroom are never generated{}: the tokens that would complete one are banned."


def documents() -> list[Route]:
    """The routes that serve the bundled pair's card, and the code of a step, as text."""

    def route(name: str, path: Path) -> Route:
        async def document(_request: Request) -> FileResponse:
            return FileResponse(path, media_type="text/plain; charset=utf-8")

        return Route(f"/{name}", document)

    return [route(MODEL_CARD, BUNDLED_PAIR / "README.md"), route(CODE, Path(step.__file__))]


def size(parameters: int) -> str:
    """A number of parameters as people say it."""
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if parameters >= unit:
            amount = parameters / unit
            return f"{amount:.1f} {name}" if amount < 100 else f"{amount:.0f} {name}"
    return f"{parameters:,}"


def models_in_short(catalog: Catalog, pair: str = "") -> str:
    """One line under the prompt on the pair of that name, as HTML."""
    served = catalog.of(pair)
    about = served.engine.about
    sizes = {role: size(amount) for role, amount in about.num_parameters.items()}
    said = link("Target", "target") + (f": {sizes['target']} parameters" if "target" in sizes else "")
    for role, name in (("draft", "draft"), ("head", "draft head")):
        if role in about.models:
            said += ", " + link(name, role) + (f": {sizes[role]}" if role in sizes else "")
    trained = "Trained on tales, together with its drafters; other prompts ramble. " if served.is_tales else ""
    return f'<p class="ns-models-line">{said}. {trained}<a href="#models">About them</a></p>'


def build_models(catalog: Catalog) -> gr.HTML:
    """The section at the end of the page."""
    return gr.HTML(models_markup(catalog), html_template="${value}", apply_default_css=False, elem_id="about")


def models_markup(catalog: Catalog) -> str:
    """Every pair that is served, and what to read, as HTML."""
    rows = ""
    for name, served in catalog.pairs.items():
        about = served.engine.about
        for role, model in about.models.items():
            amount = about.num_parameters.get(role)
            pair = f", {html.escape(catalog.labels[name])}" if len(catalog.pairs) > 1 else ""
            told = [f"{size(amount)} parameters"] if amount else []
            if role == "target" and about.weights:
                told.append(html.escape(about.weights))
            rows += (
                f"<tr><th scope='row'>{link(role.capitalize(), role)}{pair}</th><td>{_named(model)}</td>"
                f"<td>{', '.join(told) or '–'}</td></tr>"
            )
    tales = any(served.is_tales for served in catalog.pairs.values())
    papers = ", ".join(_away(name, address) for name, address in PAPERS.items())
    filtered = [catalog.labels[name] for name, served in catalog.pairs.items() if served.filter_words]
    whose = "" if len(filtered) == len(catalog.pairs) else " by " + html.escape(" and ".join(filtered))
    fed = " ".join([*([FED] if tales else []), *([FILTERED.format(whose)] if filtered else [])])
    card = f'<a href="{MODEL_CARD}" target="_blank">Model card</a>. ' if tales else ""
    code = f'<a href="{CODE}" target="_blank">The code of one round</a>'
    if space := os.environ.get("SPACE_ID"):
        code += ", " + _away("all of it", f"https://huggingface.co/spaces/{space}/tree/main")
    return (
        '<section class="ns-models" id="models" tabindex="-1" aria-labelledby="models-title">'
        '<h2 id="models-title">The models, the papers, the code</h2>'
        f"<table>{rows}</table>{f'<p>{fed}</p>' if fed else ''}<p>{card}{code}. Papers: {papers}.</p></section>"
    )


def _named(model: str) -> str:
    """The model's name; where it is one of the Hub's, a link to its card there."""
    parts = model.split("/")
    if len(parts) == 2 and all(part and part[0].isalnum() for part in parts):
        return _away(model, f"https://huggingface.co/{model}")
    return html.escape(model)


def _away(text: str, address: str) -> str:
    return f'<a href="{html.escape(address, quote=True)}" target="_blank" rel="noopener">{html.escape(text)}</a>'
