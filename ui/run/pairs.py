"""The parts of the page that depend on the chosen pair and on which pairs are loaded; what their
models are."""

import os
import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from naive_speculate.models.known import KNOWN
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.speculate import step
from ui.assets import component, render
from ui.host.catalog import Catalog
from ui.notify import QUIET
from ui.run.controls import drafter_choices

OF_CHOICE = ("drafter", "line", "chat", "questions", "stories")
"""The parts that depend on the chosen pair."""
ON_HUB = re.compile(r"[^\W_][^/]*/[^\W_][^/]*")  # a model's name there
MODEL_CARD, CODE = "model-card.md", "step.py"
FILTERED = (
    "Words unsuitable for a classroom are blocked{}: tokens that would complete one are banned."
)


def build_notice(catalog: Catalog) -> gr.HTML:
    """A line per pair that is not ready. `assets/js/page.js` polls until none is loading, then
    triggers `settled`."""

    def loading(_: object) -> bool:
        return bool(catalog.loading)

    calls: dict[str, Any] = {"events": ["settled"], "server_functions": [loading]}
    return component("page", mount="mountNotice", elem_id="loading", **calls)


def choices(catalog: Catalog) -> list[tuple[str, str]]:
    """The menu of pairs: labels with values. The default has the value "", so that links need
    not name it."""
    loading = catalog.loading
    return [
        (f"{label} (loading)" if name in loading else label, name if number else "")
        for number, (name, label) in enumerate(catalog.labels.items())
    ]


def follow_pairs(catalog: Catalog, page: gr.Blocks, parts: dict[str, Any]) -> None:
    """Fill the components `notice`, `pair`, `line`, `models`, `drafter`, `chat`, `questions` and
    `stories`, and update them when another pair is chosen, and when loading ends. Pages opened
    later show the pairs as they are then."""

    def follow(event: Callable[..., object], names: Collection[str]) -> None:
        def update(pair: Any, drafter: Any) -> dict[Block, Any]:
            return {
                parts[name]: gr.update(**look)
                for name, look in _looks(catalog, pair, drafter).items()
                if name in names
            }

        inputs, outputs = [parts["pair"], parts["drafter"]], [parts[name] for name in names]
        # without preprocessing: see `_looks`
        event(update, inputs, outputs, preprocess=False, queue=False, **QUIET)

    def refresh() -> None:
        for name, look in _looks(catalog).items():
            for attribute, value in look.items():
                setattr(parts[name], attribute, value)
        page.config = page.get_config_file()

    refresh()
    follow(parts["pair"].change, OF_CHOICE)
    follow(parts["notice"].settled, parts)
    catalog.settled = refresh


def _looks(catalog: Catalog, pair: Any = "", drafter: Any = None) -> dict[str, dict[str, Any]]:
    """The attributes of the components in `follow_pairs` for a chosen pair, the default for an
    unknown one. Both arguments arrive unchecked: a link may name a drafter before the menu has
    it. That is left alone unless the pair lacks it."""
    pair = pair if isinstance(pair, str) and pair in catalog.pairs else ""
    served = catalog.of(pair)
    chats, lacks = served.engine.about.chat, drafter and drafter not in served.drafters
    # the default changed, and the new one may have been chosen by name
    chosen = {"value": ""} if catalog.missing else {}
    return {
        "notice": {"value": render("notice", lines=catalog.notices, loading=bool(catalog.loading))},
        "pair": {"choices": choices(catalog), "visible": len(catalog.pairs) > 1, **chosen},
        "models": {"value": models_markup(catalog)},
        "drafter": {
            "choices": drafter_choices(served.drafters),
            **({"value": ""} if lacks else {}),
        },
        "line": {"value": models_in_short(catalog, pair)},
        "chat": {"visible": chats},
        "questions": {"visible": chats},
        "stories": {"visible": not chats},
    }


def documents() -> list[Route]:
    """The routes of the bundled pair's model card and of the code of one step, as text."""
    files = {MODEL_CARD: BUNDLED_PAIR / "README.md", CODE: Path(step.__file__)}
    return [Route(f"/{name}", partial(_as_text, path)) for name, path in files.items()]


def _as_text(path: Path, _request: Request) -> FileResponse:
    return FileResponse(path, media_type="text/plain; charset=utf-8")


def size(parameters: int) -> str:
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if parameters >= unit:
            amount = parameters / unit
            return f"{amount:.1f} {name}" if amount < 100 else f"{amount:.0f} {name}"
    return f"{parameters:,}"


def models_in_short(catalog: Catalog, pair: str = "") -> str:
    """What a visitor must know about a pair before the first run, shown below the prompt, as
    HTML."""
    served = catalog.of(pair)
    english = served.is_tales or str(served.target) in KNOWN
    return render("models_line", tales=served.is_tales, english=english)


def models_markup(catalog: Catalog) -> str:
    tales = any(served.is_tales for served in catalog.pairs.values())
    filtered = [
        catalog.labels[name] for name, served in catalog.pairs.items() if served.filter_words
    ]
    where = "" if len(filtered) == len(catalog.pairs) else f" for {' and '.join(filtered)}"
    return render(
        "models",
        rows=_rows(catalog),
        filtered=FILTERED.format(where) if filtered else "",
        tales=tales,
        card=MODEL_CARD,
        code=CODE,
        space=os.environ.get("SPACE_ID"),
    )


def _rows(catalog: Catalog) -> list[dict[str, Any]]:
    """A row per model: its role, pair, name, address on the Hub, and notes."""
    rows = []
    for name, served in catalog.pairs.items():
        about = served.engine.about
        pair = catalog.labels[name] if len(catalog.pairs) > 1 else ""
        for role, model in about.models.items():
            amount = about.num_parameters.get(role)
            notes = [f"{size(amount)} parameters"] if amount else []
            notes += [about.weights] if role == "target" and about.weights else []
            address = f"https://huggingface.co/{model}" if ON_HUB.fullmatch(model) else ""
            rows.append(
                {"role": role, "pair": pair, "model": model, "address": address, "notes": notes}
            )
    return rows
