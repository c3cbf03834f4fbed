"""The page's style sheets, scripts and languages from `assets/`, its templates from
`ui/templates`, its Gradio theme, and the palette as CSS variables."""

import json
import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import gradio as gr
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from naive_speculate.tools.show.palette import DARK, LIGHT, PROMPT, STYLES, TARGET
from ui import labels

ROOT = Path(__file__).resolve().parent.parent / "assets"
PLOTLY = ROOT / "plotly" / "plotly-cartesian.min.js"
"""The part of plotly.js for charts with axes, in the version of the Python package that checks
figures."""
PREVIEWS = {file.name: file for file in sorted((ROOT / "previews").glob("*.png"))}
"""What posted links to the page show; `docs/pictures.py` makes them."""
MODULES = {file.name: file for file in [*sorted((ROOT / "js").glob("*.js")), PLOTLY]}
TABLES = {f"{file.stem}.js": file for file in sorted((ROOT / "languages").glob("*.json"))}
"""The languages' tables of translations, by the names of the scripts that contain them."""
IMPORT = re.compile(r'((?:from|import) )"\./([\w-]+)\.js"')  # how our scripts import one another
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}
LANGUAGES = {"en": "English", "es": "Español", "zh": "中文"}
"""The page's languages by code. All but English, the source, have a table of translations in
`assets/languages`."""
_OF_PARTS = (
    "page machine race tokens rounds player odds waterfall experiments lessons rooms"
    " strategies connection first_paint"
)
STYLE_SHEETS = [
    *_OF_PARTS.split(),
    "narrow",
    "views",
    "guided",
    "forced",
]  # later ones override earlier ones
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    name: getattr(labels, name)
    for name in ("visible", "number", "percent", "count", "to_json", "token")
}
SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
EDGE = ("#85878e", "#7b7d84")
"""Field borders: a contrast of three to one against the background, so that a field is visible
as one."""

SURFACES = {
    "body_background_fill": "page",
    "body_text_color": "ink",
    "body_text_color_subdued": "muted",
    "block_background_fill": "page",
    "block_info_text_color": "muted",
    "block_label_text_color": "ink",
    "block_title_text_color": "ink",
    "border_color_primary": "rule",
    "input_placeholder_color": "muted",
    "button_secondary_background_fill": "panel",
    "button_secondary_text_color": "ink",
}
"""Theme variables that take the palette's surface colours."""
COLORS = {name: (getattr(LIGHT, part), getattr(DARK, part)) for name, part in SURFACES.items()} | {
    "input_background_fill": (LIGHT.page, DARK.panel),
    "input_border_color": EDGE,
    "checkbox_border_color": EDGE,
    "slider_color": (TARGET.light, TARGET.dark),
    "button_primary_background_fill": (TARGET.light, TARGET.dark),
    "button_primary_background_fill_hover": ("#174a9e", "#7dbaff"),
    "button_primary_text_color": ("#ffffff", DARK.page),
}
"""Theme variables in light and dark."""
SIZES = {"block_border_width": "0px", "block_info_text_size": "13.5px", "input_border_width": "1px"}


def scripts() -> Route:
    """The route that serves `assets/js`, Plotly and the languages. Its address changes with the
    files, so that no browser mixes old with new."""

    async def module(request: Request) -> Response:
        name = request.path_params["name"]
        if name in TABLES:  # the script that translates the page, with one language's table
            script, table = (
                file.read_text(encoding="utf-8") for file in (MODULES["language.js"], TABLES[name])
            )
            return Response(
                f"{script}\nspeak({table});", media_type="text/javascript", headers=FOR_GOOD
            )
        if name in MODULES:
            return FileResponse(MODULES[name], media_type="text/javascript", headers=FOR_GOOD)
        return Response(status_code=404)

    # Starlette's StaticFiles does not find its files if a proxy serves the page below a path.
    return Route(f"{folder()}/{{name}}", module)


def component(
    module: str,
    markup: str = "${value}",
    value: str = "",
    *,
    mount: str = "mount",
    events: Iterable[str] = (),
    elem_id: str = "",
    **options: Any,
) -> gr.HTML:
    """A custom component: HTML with a module in `assets/js` that drives it, by its function
    `mount`. The module's name is also the component's id if that is empty. Unless the markup
    contains the value, Gradio never changes what the script adds to it. `events` are those that
    the script triggers; Gradio reads their names from it."""
    script = (
        calling(
            module,
            mount,
            f"{{ element, trigger, props, server, watch, events: {json.dumps(list(events))} }}",
        )
        + ";"
    )
    elem_id = elem_id or module
    return gr.HTML(
        value,
        html_template=markup,
        js_on_load=script,
        apply_default_css=False,
        elem_id=elem_id,
        **options,
    )


def calling(module: str, function: str, arguments: str) -> str:
    """The JavaScript that calls a function of a module in `assets/js`; without a connection,
    once it is back."""
    # The addresses are relative to the page, whatever address Gradio assumes.
    file, connection = (
        f'new URL(".{folder()}/{name}.js", document.baseURI)' for name in (module, "connection")
    )
    missed = f"() => import({connection}).then(({{ missed }}) => missed({file}, load))"
    return (
        f"(function load() {{ return import({file}).then(({{ {function} }}) =>"
        f" {function}({arguments}), {missed}); }})()"
    )


def render(name: str, /, **values: Any) -> Markup:
    """The template `ui/templates/{name}.html` with these values. Text is escaped; `Markup` is
    not."""
    return Markup(_TEMPLATES.get_template(f"{name}.html").render(values))


@cache
def folder() -> str:
    """The scripts' folder, as a path relative to the page."""
    return (
        "/scripts-"
        + sha256(
            b"".join(file.read_bytes() for file in (*MODULES.values(), *TABLES.values()))
        ).hexdigest()[:12]
    )


_TEMPLATES.globals |= {"languages": LANGUAGES, "scripts_folder": folder}


def modules_for(entries: Iterable[str]) -> dict[str, str]:
    """The text of these scripts and of all scripts that they import, by name."""
    texts: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = MODULES[f"{name}.js"].read_text(encoding="utf-8")
            waiting += [match[2] for match in IMPORT.finditer(texts[name])]
    return texts


def styles() -> str:
    return variables() + sheets(*STYLE_SHEETS)


def sheets(*names: str) -> str:
    return "\n".join((ROOT / "css" / f"{name}.css").read_text(encoding="utf-8") for name in names)


def variables() -> str:
    """The palette as CSS variables, for both themes."""
    rules = []
    for selector, surface, dark in ((":root", LIGHT, False), (".dark", DARK, True)):
        grounds = {
            name: getattr(surface, name) for name in ("page", "panel", "ink", "muted", "rule")
        }
        named = grounds | {
            kind: style.color(dark) for kind, style in {"prompt": PROMPT, **STYLES}.items()
        }
        rules.append(
            f"{selector} {{{''.join(f'--ns-{name}:{color};' for name, color in named.items())}}}\n"
        )
    return "".join(rules)


def variable(name: str) -> str:
    """The CSS variable of a colour (see `variables`)."""
    return f"var(--ns-{name})"


def theme() -> gr.themes.Base:
    """The theme; it uses system fonts, so that nothing is fetched from other hosts."""
    made = gr.themes.Base(
        primary_hue="blue",
        neutral_hue="zinc",
        text_size="md",
        radius_size="md",
        font=SANS,
        font_mono=MONO,
    )
    light = {name: color for name, (color, _) in COLORS.items()}
    dark = {f"{name}_dark": color for name, (_, color) in COLORS.items()}
    return made.set(
        **light, **dark, **SIZES, block_title_text_weight="600", color_accent=TARGET.light
    )
