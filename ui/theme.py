"""The page's Gradio theme: system fonts, the palette's surfaces, one accent, in light and dark."""

import gradio as gr

from naive_speculate.palette import DARK, LIGHT, TARGET

SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
EDGE = {"light": "#85878e", "dark": "#7b7d84"}
"""Edges of fields: three to one against what they stand on, so that a field is seen to be one."""


def theme() -> gr.themes.Base:
    """The theme; its fonts are the system's, so that nothing is fetched from elsewhere."""
    made = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
        radius_size=gr.themes.sizes.radius_md,
        text_size=gr.themes.sizes.text_md,
        font=SANS,
        font_mono=MONO,
    )
    return made.set(
        body_background_fill=LIGHT.page,
        body_background_fill_dark=DARK.page,
        body_text_color=LIGHT.ink,
        body_text_color_dark=DARK.ink,
        body_text_color_subdued=LIGHT.muted,
        body_text_color_subdued_dark=DARK.muted,
        block_background_fill=LIGHT.page,
        block_background_fill_dark=DARK.page,
        block_border_width="0px",
        block_info_text_size="13.5px",
        block_info_text_color=LIGHT.muted,
        block_info_text_color_dark=DARK.muted,
        block_label_text_color=LIGHT.ink,
        block_label_text_color_dark=DARK.ink,
        block_title_text_color=LIGHT.ink,
        block_title_text_color_dark=DARK.ink,
        block_title_text_weight="600",
        border_color_primary=LIGHT.rule,
        border_color_primary_dark=DARK.rule,
        input_background_fill=LIGHT.page,
        input_background_fill_dark=DARK.panel,
        input_border_color=EDGE["light"],
        input_border_color_dark=EDGE["dark"],
        checkbox_border_color=EDGE["light"],
        checkbox_border_color_dark=EDGE["dark"],
        input_border_width="1px",
        input_placeholder_color=LIGHT.muted,
        input_placeholder_color_dark=DARK.muted,
        color_accent=TARGET.light,
        slider_color=TARGET.light,
        slider_color_dark=TARGET.dark,
        button_primary_background_fill=TARGET.light,
        button_primary_background_fill_hover="#174a9e",
        button_primary_background_fill_dark=TARGET.dark,
        button_primary_background_fill_hover_dark="#7dbaff",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark=DARK.page,
        button_secondary_background_fill=LIGHT.panel,
        button_secondary_background_fill_dark=DARK.panel,
        button_secondary_text_color=LIGHT.ink,
        button_secondary_text_color_dark=DARK.ink,
    )
