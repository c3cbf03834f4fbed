"""The page in its other languages: the browser, a link or the menu chooses one, and no room has
an English text left."""

import re

from playwright.sync_api import Page, expect

from tests.browser.steps import run, script, toast
from ui.assets import ROOT

_SCRIPT = (ROOT / "js" / "language.js").read_text("utf-8")
THEIRS = "".join(re.findall('"([^"]*)"', _SCRIPT.split("const THEIRS =")[1].split(";")[0]))
"""The selector of texts that are never translated."""
ROOMS = script("rooms")
COLUMN = re.compile(r": q [<\d.]+, p [<\d.]+")  # the spoken name of one begins with its token
TERMS = re.compile(
    r"“[^”]*”|\d+ Ġ\S+|\S*[/_]\S*|(?<![A-Za-z])(?:Naive"
    r" Speculate|English|Español|HTML|SVG|PNG|JSONL?|CSV|SXM|API|MTP|KV|FP8"
    r"|[KMGT]B|ms|GHz|TFLOPS|[TG]B/s|NVIDIA|XXL|ln|b?float(?:32|16)|nat|min|max|[Tt]op-[pk]"
    r"|[Mm]in-p|argmax|logit"
    r"|Schema|[Tt]ales|Leviathan|Kalman|Matias|Chen|Llama|T5-small|DDR5|transformers|EAGLE"
    r"|vLLM|mlx-lm|llama\.cpp|SGLang|TensorRT-LLM|LMDeploy|LM Studio|tabbyAPI"
    r"|DeepSeek|GLM|DFlash|PARD|n-gram|Esc|Page (?:Up|Down)|Gradio"
    r"|--[a-z-]+ (?:probabilistic|int8)|python -m|differ|\d+B|AMD EPYC|Intel.*|common\.complete"
    r"|noisy)(?![A-Za-z])"
)
"""Names, units and signs that are the same in Chinese, and a token's number with its piece."""


def speaks(page: Page, language: str) -> None:
    expect(page.locator("html")).to_have_attribute("lang", language)
    expect(page.locator("#run")).to_have_text(
        {"en": "Run", "es": "Ejecutar", "zh": "运行"}[language]
    )


def test_no_room_has_an_english_text_left(open_page):
    """In Chinese; what has a translation there has one in every language, as
    tests/ui/test_languages.py states."""
    page = open_page("?lang=zh")
    run(page, "Once upon a time", max_tokens=8)
    page.locator("#tokens [data-step]").first.click()
    expect(page.locator(".inspector-why p").first).to_be_attached()
    speaks(page, "zh")
    places, found = page.evaluate(ROOMS, THEIRS)
    found = [one for one in found if not COLUMN.search(one[0])]
    assert {"run", "explore", "learn", "lesson 1, step 0", "lesson 11, step 3"} < set(places)
    assert {"run", "explore", "learn", "lesson 11, step 3"} < {where for _, where, _ in found}
    assert [(text, where) for text, where, done in found if not done] == []
    assert [
        (text, where) for text, where, _ in found if re.search("[A-Za-z]{2}", TERMS.sub("", text))
    ] == []


def test_the_browser_chooses_the_language_and_the_menu_is_remembered(open_page):
    page = open_page("?temperature=-1", locale="es-MX")
    speaks(page, "es")
    page.locator("#run").click()
    toast(page, "Temperatura debe ser un número, al menos 0")
    page.locator(".ns-language select").select_option("zh")
    speaks(page, "zh")
    page.goto(page.url.split("?")[0] + "?lang=en")
    speaks(page, "en")
    page.goto(page.url.split("?")[0])
    speaks(page, "zh")
