"""What the models are: names and sizes as loaded, training data, and further reading."""

import os
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.speculate import step
from ui.assets import render
from ui.host.catalog import Catalog

MODEL_CARD, CODE = "model-card.md", "step.py"
FILTERED = "Words unsuitable for a classroom are blocked{}: tokens that would complete one are banned."


def documents() -> list[Route]:
    """The routes of the bundled pair's model card and of the code of one step, as text."""
    files = {MODEL_CARD: BUNDLED_PAIR / "README.md", CODE: Path(step.__file__)}
    return [Route(f"/{name}", partial(_as_text, path)) for name, path in files.items()]


def _as_text(path: Path, _request: Request) -> FileResponse:
    return FileResponse(path, media_type="text/plain; charset=utf-8")


def size(parameters: int) -> str:
    """A number of parameters in words."""
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if parameters >= unit:
            amount = parameters / unit
            return f"{amount:.1f} {name}" if amount < 100 else f"{amount:.0f} {name}"
    return f"{parameters:,}"


def models_in_short(catalog: Catalog, pair: str = "") -> str:
    """What a visitor must know about a pair before the first run, shown below the prompt, as HTML."""
    return render("models_line", tales=catalog.of(pair).is_tales)


def models_markup(catalog: Catalog) -> str:
    """All pairs and further reading, as HTML."""
    tales = any(served.is_tales for served in catalog.pairs.values())
    filtered = [catalog.labels[name] for name, served in catalog.pairs.items() if served.filter_words]
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
        for role, model in about.models.items():
            amount = about.num_parameters.get(role)
            notes = [f"{size(amount)} parameters"] if amount else []
            notes += [about.weights] if role == "target" and about.weights else []
            pair = catalog.labels[name] if len(catalog.pairs) > 1 else ""
            parts = model.split("/")
            on_hub = len(parts) == 2 and all(part and part[0].isalnum() for part in parts)
            address = f"https://huggingface.co/{model}" if on_hub else ""
            rows.append({"role": role, "pair": pair, "model": model, "address": address, "notes": notes})
    return rows
