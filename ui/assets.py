"""The page's own style sheets and scripts, read from `assets/`, and the palette as CSS variables."""

import json
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from naive_speculate.palette import DARK, LIGHT, PROMPT, STYLES, Surface

ROOT = Path(__file__).resolve().parent.parent / "assets"
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}
STYLE_SHEETS = ("page", "tokens", "rounds", "player", "waterfall", "experiments", "lessons", "roll", "narrow", "views")


def scripts() -> Route:
    """The route that serves `assets/js`; its address changes with the files, so that no browser mixes old ones with new."""
    modules = {file.name: file for file in _modules()}

    async def module(request: Request) -> Response:
        file = modules.get(request.path_params["name"])
        return FileResponse(file, media_type="text/javascript", headers=FOR_GOOD) if file else Response(status_code=404)

    # Starlette's StaticFiles do not find their files where a proxy has put the page deeper.
    return Route(f"{_address()}/{{name}}", module)


def mounting(module: str, *events: str) -> str:
    """What a component of `gr.HTML` runs once it is there: `mount` of a module in `assets/js`, given the component.

    Args:
        module: The module's name.
        events: What it triggers; Gradio looks for these names here.
    """
    address = f"${{window.gradio_config.root}}{_address()}/{module}.js"
    component = f"{{ element, trigger, props, server, watch, events: {json.dumps(events)} }}"
    return f"import(`{address}`).then(({{ mount }}) => mount({component}));"


def _address() -> str:
    return "/scripts-" + sha256(b"".join(file.read_bytes() for file in _modules())).hexdigest()[:12]


def _modules() -> list[Path]:
    return sorted((ROOT / "js").glob("*.js"))


def styles() -> str:
    """Every style sheet of the page, after the palette."""
    sheets = ((ROOT / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLE_SHEETS)
    return variables() + "\n".join(sheets)


def variables() -> str:
    """The palette as CSS variables, for both themes."""
    return f":root {{{_colors(LIGHT, dark=False)}}}\n.dark {{{_colors(DARK, dark=True)}}}\n"


def _colors(surface: Surface, *, dark: bool) -> str:
    named = {
        "page": surface.page,
        "panel": surface.panel,
        "ink": surface.ink,
        "muted": surface.muted,
        "rule": surface.rule,
        "prompt": PROMPT.color(dark),
        **{kind: style.color(dark) for kind, style in STYLES.items()},
    }
    return "".join(f"--ns-{name}:{color};" for name, color in named.items())
