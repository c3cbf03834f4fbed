"""The page's own style sheets and scripts, read from `assets/`, and the palette as CSS variables."""

from pathlib import Path

from naive_speculate.palette import DARK, LIGHT, PROMPT, STYLES, Surface

ROOT = Path(__file__).resolve().parent.parent / "assets"
STYLE_SHEETS = ("page", "tokens", "rounds", "player", "experiments", "narrow")


def script(*names: str) -> str:
    """The named parts of `assets/js`, joined into one function body."""
    return "\n".join((ROOT / "js" / f"{name}.js").read_text(encoding="utf-8") for name in names)


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
        **{kind.value: style.color(dark) for kind, style in STYLES.items()},
    }
    return "".join(f"--ns-{name}:{color};" for name, color in named.items())
