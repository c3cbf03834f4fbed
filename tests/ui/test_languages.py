"""The tables of translations: every text of the page has a whole translation in every language,
and no table has more."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from naive_speculate.tools.doctor.rules import COUNTS, RULES
from ui.assets import LANGUAGES, ROOT
from ui.experiments import sweep
from ui.experiments.learn import _MARKDOWN, LESSONS, read_labels, read_steps
from ui.experiments.lessons import drafters
from ui.host.catalog import WARM_PROMPT
from ui.run import controls, settings
from ui.run.controls import EXAMPLES, QUESTIONS

SILENT = re.compile(
    r"ui/(assets|checks|record_examples|run/api"
    r"|host/(configuration|operations|options|limits|process|zero))\.py"
)
"""Modules without texts of the page."""
ENGINE = [
    *("tools/show/palette.py", "tools/show/columns.py"),
    *("tools/doctor/suspects.py", "tools/differ/compare.py"),
    *(f"models/foreign/{name}_drafter.py" for name in ("assistant", "block", "mtp")),
    "models/heads/suffix_head.py",
    *(f"speculate/draft/{name}.py" for name in ("head", "model", "prompt_lookup", "suffix")),
]
"""Modules of the engine whose texts the page shows."""
OPTIONS = re.compile(r" \(?(?:--[a-z-]+(?:, )?)+\)?")
"""The command line's options, which the page leaves out."""
WORD = re.compile(r"[^\W\d_]{2}")


class Keys(HTMLParser):
    """The keys of a piece of HTML: as in language.js, an element with texts and elements is one
    key."""

    EMPTY = ("br", "input", "link", "meta", "path", "svg", "text")
    INLINE = ("a", "b", "code", "em", "i", "small", "strong")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[tuple[str, list]] = [("", [])]
        self.feed(html)
        self.close()
        self.take(self.open[0])

    def handle_starttag(self, tag, attributes):
        self.found += [
            value
            for name, value in attributes
            if name in ("title", "aria-label", "placeholder") and value
        ]
        node = (tag, [])
        self.open[-1][1].append(node)
        if tag not in self.EMPTY:
            self.open.append(node)

    def handle_endtag(self, tag):
        while tag not in self.EMPTY and len(self.open) > 1 and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        self.open[-1][1].append(data)

    def take(self, node) -> None:
        texts = [child for child in node[1] if isinstance(child, str) and child.strip()]
        others = [child for child in node[1] if not isinstance(child, str)]
        if node[0] in ("script", "style"):
            return
        if texts and others and all(tag in self.INLINE for tag, _ in others):
            self.found.append(self.key(node, iter(range(99))))
            return
        self.found += texts
        for other in others:
            self.take(other)

    def key(self, node, numbers) -> str:
        parts = []
        for child in node[1]:
            number = None if isinstance(child, str) else next(numbers)
            inner = child if number is None else self.key(child, numbers)
            parts.append(
                inner
                if number is None
                else f"<{number}>{inner}</{number}>"
                if inner.strip()
                else f"<{number}/>"
            )
        return "".join(parts)


def of_module(path: Path) -> Iterator[str]:
    """The strings of a module except docstrings; what is inserted is {}."""
    tree = ast.parse(path.read_text("utf-8"))
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):  # an f-string comes before its parts
        if id(node) in seen:
            continue
        if isinstance(node, ast.JoinedStr):
            formats = [getattr(part, "format_spec", None) or part for part in node.values]
            seen |= {
                id(inner)
                for part in formats
                if not isinstance(part, ast.FormattedValue)
                for inner in ast.walk(part)
            }
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
REGEX = re.compile(r"(?<=[(=,:] )/(?:[^/\\\n]|\\.)+/|(?<=\()/(?:[^/\\\n]|\\.)+/")


def of_script(code: str) -> list[str]:
    """The strings of a script; what is inserted is {}."""
    found: list[str] = []

    def scan(at: int, end: str) -> int:
        depth = 0
        while at < len(code):
            if code.startswith("//", at):
                at = code.index("\n", at)
            elif match := STRING.match(code, at):
                found.append(match[1])
                at = match.end() - 1
            elif code[at] == "`":
                at = template(at + 1) - 1
            elif code[at] == "/" and (match := REGEX.match(code, at)):
                at = match.end() - 1
            elif code[at] == end and not depth:
                return at + 1
            depth += (code[at] == "{") - (code[at] == "}")
            at += 1
        return at

    def template(at: int) -> int:
        text = ""
        while code[at] != "`":
            at, more = (
                (scan(at + 2, "}"), "{}") if code.startswith("${", at) else (at + 1, code[at])
            )
            text += more
        found.append(text)
        return at + 1

    scan(0, "")
    return found


def of_findings() -> list[str]:
    """What the doctor says, and what to measure next."""
    path = Path("naive_speculate/tools/doctor/findings.toml")
    findings = tomllib.loads(path.read_text("utf-8")).values()
    return [text for fields in findings for key, text in fields.items() if key != "name"]


def _raw() -> Iterator[str]:
    for path in sorted(Path("ui/templates").glob("*.html")):
        html = re.sub(r'{{ term\("?([^,"]*)"?,.*?}}', "<a>{}</a>", path.read_text("utf-8"))
        yield from Keys(re.sub(r"{%.*?%}", "", re.sub(r"{{.*?}}", "{}", html))).found
        for code in re.findall(r"{[{%].*?[%}]}", path.read_text("utf-8")):
            yield from re.findall(r'"([^"{}]*)"', code)
    yield from (label for lesson in LESSONS for label in read_labels(lesson).values())
    for step in (step for lesson in LESSONS for step in read_steps(lesson.number)):
        yield from (step.title, *Keys(_MARKDOWN.render(step.text)).found)
        if step.ask:
            yield from (*Keys(f"<p>{_MARKDOWN.renderInline(step.ask)}</p>").found, *step.choices)
    yield from Keys(_MARKDOWN.render((ROOT / "lessons" / "answers.md").read_text("utf-8"))).found
    for term in tomllib.loads((ROOT / "glossary.toml").read_text("utf-8")).values():
        yield from (term["name"], term["meaning"])
    for kind in tomllib.loads((ROOT / "lessons" / "drafters.toml").read_text("utf-8"))["kind"]:
        yield from (kind["name"], kind["reads"], kind["costs"])
    modules = [path for path in sorted(Path("ui").rglob("*.py")) if not SILENT.search(str(path))]
    for path in [*modules, *(Path("naive_speculate") / name for name in ENGINE)]:
        for text in of_module(path):
            html = _MARKDOWN.renderInline(text) if "](#term-" in text else text
            yield from Keys(html).found if re.search("</(a|b)>", html) else [text]
    yield from of_findings()
    for option in settings.OPTIONS.values():
        yield from (str(option.title), *Keys(_MARKDOWN.renderInline(option.help)).found)
        yield from (name.capitalize() for name in option.among)
    for path in sorted(Path("assets/js").glob("*.js")):
        yield from of_script(path.read_text("utf-8"))


@cache
def texts() -> list[str]:
    """Every text of the page, and strings that are none."""
    clean = (
        OPTIONS.sub("", " ".join(text.removesuffix("<extra></extra>").split())) for text in _raw()
    )
    return list(
        dict.fromkeys(text for text in clean if WORD.search(re.sub(r"(?<!%){\w*}", "", text)))
    )


SAME = {
    "es": (
        {
            "{n} tokens",
            "{n} token",
            "{n} prompts",
            "{n} prompt",
            "Prompt",
            "prompt",
            "prompts",
            "tokens",
            "token",
            "Token",
        }
        | {
            "nats",
            "8 bits",
            "Error",
            "Argmax",
            "residual",
            "tokens/s",
            "Doctor",
            "Leviathan et al. 2023",
            "Chen et al. 2023",
        }
        | {"%{x:.0f} tokens: %{y:.1f} ms", "%{x} tokens: %{y:.1f} ms", "{draws}, top-k {n}"}
        | {"0.8³ = <0>51%</0>. 1 + 0.8 + 0.64 + 0.512 = <1>2.95 tokens</1>."}
    ),
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
    *(
        "Reset to default value",
        "number input for {}",
        "range slider for {}",
        "Loading",
        "Open cell menu",
        "File upload",
    ),
    *(
        "In queue: {} of {}",
        "queue: {}/{}",
        "must be greater than or equal to",
        "must be less than or equal to",
    ),
    *("{} weights of {}", "{} weights", "dequantised", "rounded to {} bits"),
    *(
        "must be a number",
        "a number",
        "at least",
        "at most",
        "above",
        "from {} to {}",
        "'auto' or from {} to {}",
        "(all)",
        "Stop Recording",
    ),
]
"""Texts of Gradio's components, of pydantic, and of the target's weights (`known.py`,
`models.py`)."""
UNSAID = re.compile(
    r"ns-|=>|^[.#\[*/$(\\]|^[a-z_]+$|://|^--|;$|__|aria-|px\b|var\(|rgba|rotate|translate\("
    r"|^[\w{}.+-]*/[\w{}./+-]*$|^[\w{}]+[-_+.:][\w{}.:+-]*$"
    r"|^(?:Arrow|Page|Escape|Enter|Home|End$)|^\w+\[|^:|'none'|^[A-Z_]+$|^[a-z]+[A-Z]\w+$"
    r"|^underline|^line-through|charset|^\W*$"
    r"|^%{.*}$|^(?:figcaption|tbody|tfoot|top),? |csv, |<p role|<style|^{}(?:old woman|,"
    r" (?:button|\[)|mcp| after which)|\(#{}"
    r"|app\.py|^gradio|^data:"
    r"|^smollm2|^Naive Speculate|^Español|^αⁿ|^Top-p, top-k, min-p$|^SpecDecoding|^{\"lost"
)
"""What code uses in a string but never shows, and names."""
INTERNAL = re.compile(
    "^Cite as|^Plotly|"
    "^unknown to the server|^model name|^there is no|^the session's name|^lesson {}|^a"
    " lesson must|close_rejection|^event number|inputs: the call|^not enough|^temperature is"
    " 0|^dtype|^{} returns|^hidden|^target has|^this pair has no|^chat is set|^prompt and text|^, a"
    " run of|^tokens must|^{} must be a number from|^a run"
    " starts|^(?:pair|guided|num_draft_tokens|start|num_rows|drafter|tree) must be|^guided_text is"
    " empty|^Watch spec"
)
"""Errors that no visitor can cause, or that a more general text matches."""
PROMPTS = {
    *EXAMPLES.values(),
    *QUESTIONS,
    *sweep.PROMPTS,
    *sweep.REQUESTS,
    *controls.GUIDES.values(),
    drafters._CRY.strip(),
}
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


def test_every_text_of_the_page_is_in_the_tables():
    known = "\n".join("\n".join(pieces(key)) for key in table(CODES[0]))
    prompts = {" ".join(prompt.split()) for prompt in PROMPTS}
    said = [
        text
        for text in texts()
        if not UNSAID.search(text) and not INTERNAL.search(text) and text not in prompts
    ]
    missing = [text for text in said if not all(piece in known for piece in pieces(text))]
    assert missing == []


def test_what_the_doctor_says_of_each_engine_s_rule_and_counts_is_in_the_tables():
    said = [
        sentence
        for text in (*RULES.values(), *COUNTS.values())
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", text)
    ]
    assert len(said) > 10
    assert [sentence for sentence in said if sentence not in table(CODES[0])] == []


def test_the_tables_have_the_same_texts_and_none_that_the_page_no_longer_has():
    for language in CODES:
        assert list(table(language)) == list(table(CODES[0]))
    doctor = [
        text
        for path in Path("naive_speculate/tools/doctor").glob("*.py")
        for text in of_module(path)
    ]
    doctor += of_findings()
    drawing = of_module(Path("naive_speculate/tools/show/drawing.py"))
    known = "\n".join("\n".join(pieces(text)) for text in [*texts(), *doctor, *drawing, *ELSEWHERE])

    def parts(piece: str) -> int:
        """Of how many texts of the sources a piece of a key consists; many if it is new."""
        words, amount = piece.split(), 0
        while words:
            most = next(
                (
                    n
                    for n in range(len(words), 0, -1)
                    if " ".join(words[:n]).removesuffix("s") in known
                ),
                0,
            )
            words, amount = (words[most:], amount + 1) if most else ([], 99)
        return amount

    assert [
        (key, piece) for key in table(CODES[0]) for piece in pieces(key) if parts(piece) > 4
    ] == []


@pytest.mark.parametrize("language", CODES)
def test_translations_are_translated_and_have_the_same_names_and_tags(language):
    for key, said in table(language).items():
        assert said.strip() or not key.strip(), key
        for pattern in (r"%?{.*?}", r"</?\d+/?>"):
            assert sorted(re.findall(pattern, said)) == sorted(re.findall(pattern, key)), key
    same = {key for key, said in table(language).items() if key == said and pieces(key)}
    assert same == SAME[language]
