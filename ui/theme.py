"""The page's Gradio theme: system fonts, the palette's surfaces, one accent, in light and dark."""

import gradio as gr

from naive_speculate.palette import DARK, LIGHT, TARGET

SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
EDGE = {"light": "#85878e", "dark": "#7b7d84"}
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
"""Theme variables that take the palette's surface colours, in light and dark."""


def theme() -> gr.themes.Base:
    """The theme; it uses system fonts, so that nothing is fetched from other hosts."""
    made = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
        radius_size=gr.themes.sizes.radius_md,
        text_size=gr.themes.sizes.text_md,
        font=SANS,
        font_mono=MONO,
    )
    light = {name: getattr(LIGHT, part) for name, part in SURFACES.items()}
    dark = {f"{name}_dark": getattr(DARK, part) for name, part in SURFACES.items()}
    return made.set(
        **light,
        **dark,
        input_background_fill=LIGHT.page,
        input_background_fill_dark=DARK.panel,
        input_border_color=EDGE["light"],
        input_border_color_dark=EDGE["dark"],
        checkbox_border_color=EDGE["light"],
        checkbox_border_color_dark=EDGE["dark"],
        block_border_width="0px",
        block_info_text_size="13.5px",
        block_title_text_weight="600",
        input_border_width="1px",
        color_accent=TARGET.light,
        slider_color=TARGET.light,
        slider_color_dark=TARGET.dark,
        button_primary_background_fill=TARGET.light,
        button_primary_background_fill_hover="#174a9e",
        button_primary_background_fill_dark=TARGET.dark,
        button_primary_background_fill_hover_dark="#7dbaff",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark=DARK.page,
    )
