"""The page's own style sheets and scripts, read from `assets/`, and the palette as CSS variables."""

import json
import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from naive_speculate.palette import DARK, LIGHT, PROMPT, STYLES, Surface

ROOT = Path(__file__).resolve().parent.parent / "assets"
PLOTLY = ROOT / "plotly" / "plotly-cartesian.min.js"
"""The part of plotly.js with the charts that have axes, of the version that the Python package checks figures for."""
IMPORT = re.compile(r'((?:from|import) )"\./([\w-]+)\.js"')
"""How one of our scripts names another."""
PLACE = re.compile(r"<!-- (\w+) -->")
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}
_SHEETS = (
    "page tokens rounds player odds waterfall experiments lessons roll rooms others connection narrow views opening guided "
    "forced"
)
STYLE_SHEETS = _SHEETS.split(" ")


def scripts() -> Route:
    """The route that serves `assets/js` and Plotly; its address changes with the files, so that no browser mixes old ones with
    new."""
    modules = {file.name: file for file in _modules()}

    async def module(request: Request) -> Response:
        file = modules.get(request.path_params["name"])
        return FileResponse(file, media_type="text/javascript", headers=FOR_GOOD) if file else Response(status_code=404)

    # Starlette's StaticFiles do not find their files where a proxy has put the page deeper.
    return Route(f"{folder()}/{{name}}", module)


def component(
    module: str, markup: str = "${value}", value: str = "", *, events: Iterable[str] = (), elem_id: str = "", **options: Any
) -> gr.HTML:
    """A component of ours: HTML that a module in `assets/js` keeps alive.

    Args:
        module: The module's name, and the component's id where there is no `elem_id`.
        markup: The HTML; Gradio never touches what the script adds to it, unless it holds the value.
        value: What the script finds at first.
        events: What it triggers, by their names there.
        elem_id: The component's id.
        **options: What else `gr.HTML` takes, such as its label.
    """
    return gr.HTML(
        value,
        html_template=markup,
        js_on_load=mounting(module, *events),
        apply_default_css=False,
        elem_id=elem_id or module,
        **options,
    )


def mounting(module: str, *events: str) -> str:
    """What a component of `gr.HTML` runs once it is there: `mount` of a module in `assets/js`, given the component. Gradio
    looks here for the names of the events that it triggers."""
    component = f"{{ element, trigger, props, server, watch, events: {json.dumps(events)} }}"
    return f"{calling(module, 'mount', component)};"


def calling(module: str, function: str, arguments: str) -> str:
    """The JavaScript that calls a function of a module in `assets/js`."""
    file = f'new URL(".{folder()}/{module}.js", document.baseURI)'  # beside the page, whatever Gradio believes of its address
    return f"import({file}).then(({{ {function} }}) => {function}({arguments}))"


def markup_of(name: str, **parts: str) -> str:
    """The markup in `assets/{name}.html`, in which `parts` take the place of the comments of their names."""
    text = (ROOT / f"{name}.html").read_text(encoding="utf-8").rstrip("\n")
    return PLACE.sub(lambda place: parts[place[1]], text)


@cache
def folder() -> str:
    """The folder of the scripts, as a path below the page's."""
    return "/scripts-" + sha256(b"".join(file.read_bytes() for file in _modules())).hexdigest()[:12]


def _modules() -> list[Path]:
    return [*sorted((ROOT / "js").glob("*.js")), PLOTLY]


def modules_for(entries: Iterable[str]) -> dict[str, str]:
    """The texts of these scripts, and of all that they import, by their names."""
    found: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (ROOT / "js" / f"{name}.js").read_text(encoding="utf-8")
            waiting += [match[2] for match in IMPORT.finditer(found[name])]
    return found


def styles() -> str:
    """Every style sheet of the page, after the palette."""
    return variables() + sheets(*STYLE_SHEETS)


def sheets(*names: str) -> str:
    """These style sheets, one after the other."""
    return "\n".join((ROOT / "css" / f"{name}.css").read_text(encoding="utf-8") for name in names)


def variables() -> str:
    """The palette as CSS variables, for both themes."""
    return f":root {{{_colors(LIGHT, dark=False)}}}\n.dark {{{_colors(DARK, dark=True)}}}\n"


def _colors(surface: Surface, *, dark: bool) -> str:
    grounds = {name: getattr(surface, name) for name in ("page", "panel", "ink", "muted", "rule")}
    named = grounds | {kind: style.color(dark) for kind, style in {"prompt": PROMPT, **STYLES}.items()}
    return "".join(f"--ns-{name}:{color};" for name, color in named.items())
