"""The palette is measured, not trusted: contrast after WCAG 2.2, colour vision after Machado et
al. 2009."""

from itertools import combinations, pairwise

import pytest

from naive_speculate.events import TOKEN_KINDS
from naive_speculate.tools.show.palette import DARK, LIGHT, PROMPT, STYLES
from ui.experiments.maps import ACCEPTANCE, INK, SLOWER_FASTER

# Machado, Oliveira & Fernandes 2009, severity 1.0, on linear RGB.
COLOUR_VISION = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
JUST_NOTICEABLE = 0.02  # about one in OKLab


def linear_rgb(color: str) -> tuple[float, ...]:
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


def contrast(a: str, b: str) -> float:
    def luminance(color: str) -> float:
        red, green, blue = linear_rgb(color)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def tint(color: str, surface: str, share: float = 0.14) -> str:
    mixed = (
        round(int(color[i : i + 2], 16) * share + int(surface[i : i + 2], 16) * (1 - share))
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{c:02x}" for c in mixed)


def oklab_as_seen(color: str, vision: str) -> tuple[float, ...]:
    rgb = linear_rgb(color)
    red, green, blue = (
        min(1.0, max(0.0, sum(w * c for w, c in zip(row, rgb, strict=True))))
        for row in COLOUR_VISION[vision]
    )
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    medium = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_has_aa_contrast_on_page_panel_and_its_own_tint(dark):
    surface = DARK if dark else LIGHT
    for background in (surface.page, surface.panel):
        assert contrast(surface.ink, background) >= 7
        assert contrast(surface.muted, background) >= 4.5
        for style in (*STYLES.values(), PROMPT):
            assert contrast(style.color(dark), background) >= 4.5, style.label
            assert contrast(style.color(dark), tint(style.color(dark), background)) >= 4.5, (
                style.label
            )


@pytest.mark.parametrize("vision", COLOUR_VISION)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_kinds_stay_apart_for_every_kind_of_colour_vision(dark, vision):
    for a, b in combinations(STYLES.values(), 2):
        seen = (oklab_as_seen(style.color(dark), vision) for style in (a, b))
        apart = sum((x - y) ** 2 for x, y in zip(*seen, strict=True)) ** 0.5
        # Two and a half times what is just noticeable, and three where it is as common as red-green
        # blindness.
        assert apart >= JUST_NOTICEABLE * (2.5 if vision == "tritanopia" else 3), (a.label, b.label)


def test_none_is_shown_by_colour_alone_and_numbers_on_a_heat_map_read_wherever_they_stand():
    assert set(STYLES) == TOKEN_KINDS
    for name in ("mark", "line", "label"):
        assert len({getattr(style, name) for style in STYLES.values()}) == len(STYLES), name
    assert all(len(style.mark) == 1 for style in STYLES.values())
    for (_, begin), (_, end) in (*pairwise(ACCEPTANCE), *pairwise(SLOWER_FASTER)):
        for share in (0, 0.25, 0.5, 0.75, 1):
            assert contrast(INK, tint(end, begin, share)) >= 4.5
