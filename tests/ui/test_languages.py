"""The tables of translations: every text of the page has a whole translation in every language, and no table has more."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.ui.page_texts import WORD, of_module, texts
from ui.assets import LANGUAGES, ROOT
from ui.experiments import sweep
from ui.experiments.lessons import drafters
from ui.host.catalog import WARM_PROMPT
from ui.run import controls
from ui.run.controls import EXAMPLES, QUESTIONS

SAME = {
    "es": {"{n} tokens", "{n} token", "{n} prompts", "{n} prompt", "Prompt", "prompt", "prompts", "tokens", "token", "Token"}
    | {"nats", "Error", "Argmax", "residual", "tokens/s", "Doctor", "Leviathan et al. 2023", "Chen et al. 2023"}
    | {"%{x:.0f} tokens: %{y:.1f} ms", "%{x} tokens: %{y:.1f} ms", "{draws}, top-k {n}"}
    | {"0.8³ = <0>51%</0>. 1 + 0.8 + 0.64 + 0.512 = <1>2.95 tokens</1>."},
    "zh": set(),
}
"""Texts that are the same in another language: the field's terms, and names."""
ELSEWHERE = [
    *(
        "Warning",
        "Error",
        "Info",
        "Use via API",
        "Built with Gradio",
        "More tabs",
        "Gradio footer navigation",
        "Stop Recording",
    ),
    *("Reset to default value", "number input for {}", "range slider for {}", "Loading", "Open cell menu", "File upload"),
    *("In queue: {} of {}", "queue: {}/{}", "must be greater than or equal to", "must be less than or equal to"),
    *("{} weights of {}", "{} weights", "dequantised"),
    *("must be a number", "a number", "at least", "at most", "above", "from {} to {}", "(all)", "Stop Recording"),
]
"""Texts of Gradio's components, of pydantic, and of the target's weights (`known.py`, `models.py`)."""
UNSAID = re.compile(
    r"ns-|=>|^[.#\[*/$(\\]|^[a-z_]+$|://|^--|;$|__|aria-|px\b|var\(|rgba|rotate|^[\w{}.+-]*/[\w{}./+-]*$|^[\w{}]+[-_+.:][\w{}.:+-]*$"
    r"|^(?:Arrow|Page|Escape|Enter|Home|End$)|^\w+\[|^:|'none'|^[A-Z_]+$|^[a-z]+[A-Z]\w+$|^underline|^line-through|charset|^\W*$"
    r"|^%{.*}$|^(?:figcaption|tbody|tfoot|top),? |csv, |<p role|<style|^{}(?:old woman|, (?:button|\[)|mcp| after which)|\(#{}"
    r"|app\.py|^gradio|^data:"
    r"|^smollm2|^Naive Speculate|^Español|^αⁿ|^Top-p, top-k, min-p$|^SpecDecoding|^{\"lost"
)
"""What code uses in a string but never shows, and names."""
INTERNAL = re.compile(
    "^Plotly|^unknown to the server|^model name|^there is no|^the session's name|^lesson {}|^a lesson must|close_rejection"
    "|^event number|inputs: the call|^not enough|^temperature is 0|^dtype|^{} returns|^hidden|^target has|^this pair has no"
    "|^chat is set|^prompt and text|^, a run of|^tokens must|^{} must be a number from|^a run starts"
    "|^(?:pair|guided|num_draft_tokens|start|num_rows) must be"
)
"""Errors that no visitor can cause, or that a more general text matches."""
PROMPTS = {*EXAMPLES.values(), *QUESTIONS, *sweep.PROMPTS, *sweep.REQUESTS, *controls.GUIDES.values(), drafters._CRY.strip()}
PROMPTS |= {WARM_PROMPT}
"""Texts for the models, which read English."""
CODES = [code for code in LANGUAGES if code != "en"]


@cache
def table(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((ROOT / "languages" / f"{language}.json").read_text("utf-8"))
    return found


def pieces(text: str) -> list[str]:
    """The words between names, numbers, tags and sentences: those of a text are also in its key."""
    parts = re.split(r"%?{[^}]*}|<[^>]*>|\d[\d.,]*|[^\w'’ {<%]+", text)
    return [" ".join(part.lower().split()) for part in parts if WORD.search(part)]


@cache
def every_text() -> list[str]:
    return texts()


def test_every_text_of_the_page_is_in_the_tables():
    known = "\n".join("\n".join(pieces(key)) for key in table(CODES[0]))
    prompts = {" ".join(prompt.split()) for prompt in PROMPTS}
    said = [text for text in every_text() if not UNSAID.search(text) and not INTERNAL.search(text) and text not in prompts]
    missing = [text for text in said if not all(piece in known for piece in pieces(text))]
    assert missing == []


def test_the_tables_have_the_same_texts_and_none_that_the_page_no_longer_has():
    for language in CODES:
        assert list(table(language)) == list(table(CODES[0]))
    doctor = [text for path in Path("naive_speculate/doctor").glob("*.py") for text in of_module(path)]
    known = "\n".join("\n".join(pieces(text)) for text in [*every_text(), *doctor, *ELSEWHERE])

    def parts(piece: str) -> int:
        """Of how many texts of the sources a piece of a key consists; many if it is new."""
        words, amount = piece.split(), 0
        while words:
            most = next((n for n in range(len(words), 0, -1) if " ".join(words[:n]).removesuffix("s") in known), 0)
            words, amount = (words[most:], amount + 1) if most else ([], 99)
        return amount

    assert [(key, piece) for key in table(CODES[0]) for piece in pieces(key) if parts(piece) > 4] == []


@pytest.mark.parametrize("language", CODES)
def test_translations_are_translated_and_have_the_same_names_and_tags(language):
    for key, said in table(language).items():
        assert said.strip() or not key.strip(), key
        for pattern in (r"%?{.*?}", r"</?\d+/?>"):
            assert sorted(re.findall(pattern, said)) == sorted(re.findall(pattern, key)), key
    same = {key for key, said in table(language).items() if key == said and pieces(key)}
    assert same == SAME[language]
