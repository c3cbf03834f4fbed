"""The page's Gradio theme: system fonts, the palette's surfaces, one accent, in light and dark."""

import gradio as gr

from naive_speculate.palette import DARK, LIGHT, TARGET

SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
EDGE = ("#85878e", "#7b7d84")
"""Field borders: a contrast of three to one against the background, so that a field is visible as one."""

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


def theme() -> gr.themes.Base:
    """The theme; it uses system fonts, so that nothing is fetched from other hosts."""
    hues, sizes = gr.themes.colors, gr.themes.sizes
    made = gr.themes.Base(
        primary_hue=hues.blue,
        neutral_hue=hues.zinc,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=SANS,
        font_mono=MONO,
    )
    light = {name: color for name, (color, _) in COLORS.items()}
    dark = {f"{name}_dark": color for name, (_, color) in COLORS.items()}
    return made.set(**light, **dark, **SIZES, block_title_text_weight="600", color_accent=TARGET.light)
