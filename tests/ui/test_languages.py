"""The tables of translations: every text of the page has a whole translation in every language, and no table has more."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ui.assets import LANGUAGES, ROOT
from ui.experiments.lessons.course import LESSONS
from ui.experiments.lessons.text import _MARKDOWN, read_steps

NAME, TAG = re.compile(r"(?<!%){\w*}"), re.compile(r"</?\d+/?>")
WORD = re.compile(r"[^\W\d_]{2}")
SAME = {
    "es": {"{n} tokens", "{n} token", "Prompt", "prompt", "{n} prompts", "{n} prompt", "prompts", "tokens", "token", "Token"}
    | {"Error", "Argmax", "nats", "residual", "No", "tokens/s", "Doctor", "head", "Leviathan et al. 2023", "Chen et al. 2023"}
    | {"%{x:.0f} tokens: %{y:.1f} ms", "%{x} tokens: %{y:.1f} ms", "{draws}, top-k {n}", "{machine}, {n} core"},
    "zh": {"{draws}, top-k {n}"},
}
"""Texts that are the same in another language: the field's terms, and names."""
GRADIO = (
    "Warning|Error|Info|Use via API|Built with Gradio|More tabs|Gradio footer navigation|Reset to default value|Stop Recording"
    "|number input for {name}|range slider for {name}|Loading|Open cell menu|File upload"
).split("|")
"""Texts of Gradio's components."""
SILENT = re.compile(r"ui/(assets|gradio_gaps|record_examples|theme|host/(calls|cluster|configuration|operations|origin|limits|zero))\.py")
"""Modules without texts of the page."""
ENGINE = [
    *("palette.py", "doctor/suspects.py", "doctor/report.py", "differing/compare.py"),
    *(f"speculate/draft/{name}.py" for name in ("head", "model", "prompt_lookup", "suffix", "suffix_head")),
]
"""Modules of the engine whose texts the page shows."""
OPTIONS = re.compile(r" \(?(?:--[a-z-]+(?:, )?)+\)?")
"""The command line's options, which the page leaves out."""
UNSAID = re.compile(
    r"ns-|=>|^[.#\[*/$(\\]|^[a-z_]+$|://|^--|;$|__|aria-|px\b|var\(|rgba|rotate|^[\w{}.+-]*/[\w{}./+-]*$|^[\w{}]+[-_+.:][\w{}.:+-]*$"
    r"|^(?:Arrow|Page|Escape|Enter|Home|End$)|^\w+\[|^:|'none'|^[A-Z_]+$|^[a-z]+[A-Z]\w+$|^underline|^line-through|charset|^\\"
)
"""What code uses in a string but never shows."""


@cache
def table(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((ROOT / "languages" / f"{language}.json").read_text("utf-8"))
    return found


OTHERS = [language for language in LANGUAGES if language != "en"]
KEYS = table(OTHERS[0])


class Texts(HTMLParser):
    """The keys of a piece of HTML: as in language.js, an element with texts and others is one key."""

    EMPTY = ("br", "input", "link", "meta", "path", "svg", "text", "tspan")
    INLINE = ("a", "b", "code", "em", "i", "small", "strong")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.open: list[tuple[str, list]] = [("", [])]
        self.feed(html)
        self.close()
        self.take(self.open[0])

    def handle_starttag(self, tag, attributes):
        self.keys += [value for name, value in attributes if name in ("title", "aria-label", "placeholder") and value]
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
            self.keys.append(self.key(node, iter(range(99))))
            return
        self.keys += texts
        for other in others:
            self.take(other)

    def key(self, node, numbers) -> str:
        if isinstance(node, str):
            return node
        parts = []
        for child in node[1]:
            number = None if isinstance(child, str) else next(numbers)
            inner = self.key(child, numbers)
            parts.append(inner if number is None else f"<{number}>{inner}</{number}>" if inner.strip() else f"<{number}/>")
        return "".join(parts)


def python(path: Path) -> Iterator[str]:
    """The strings of a module but its docstrings; what is inserted is {}."""
    tree = ast.parse(path.read_text("utf-8"))
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in seen:
            parts = node.values
            seen |= {id(inner) for part in parts for inner in ast.walk(getattr(part, "format_spec", None) or part)}
            seen -= {id(i) for p in parts if isinstance(p, ast.FormattedValue) for i in ast.walk(p.value)}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            yield node.value


def script(path: Path) -> Iterator[str]:
    """The strings of a script; what is inserted is {}."""
    code, found = path.read_text("utf-8"), list[str]()

    def scan(at: int, end: str) -> int:
        """Read code up to a closing sign at this level; returns the position after it."""
        depth = 0
        while at < len(code):
            if code.startswith("//", at):
                at = code.index("\n", at)
            elif match := re.compile(r'"((?:[^"\\\n]|\\.)*)"').match(code, at):
                found.append(match[1])
                at = match.end() - 1
            elif code[at] == "`":
                at = template(at + 1) - 1
            elif code[at] == "/" and (match := re.compile(r"(?<=[(,=] )/(?:[^/\\\n]|\\.)+/|(?<=[(])/(?:[^/\\\n]|\\.)+/").match(code, at)):
                at = match.end() - 1
            elif code[at] == end and not depth:
                return at + 1
            depth += (code[at] == "{") - (code[at] == "}")
            at += 1
        return at

    def template(at: int) -> int:
        text = ""
        while code[at] != "`":
            if code.startswith("${", at):
                at, text = scan(at + 2, "}"), text + "{}"
            else:
                at, text = at + 1, text + code[at]
        found.append(text)
        return at + 1

    scan(0, "")
    yield from found


@cache
def sources() -> tuple[str, ...]:
    """Every text that the page can show, and more."""
    texts: list[str] = []
    for path in Path("ui/templates").glob("*.html"):
        html = re.sub(r'{{ term\("?([^,"]*)"?,.*?}}', r"<a>{}</a>", path.read_text("utf-8"))
        texts += Texts(re.sub(r"{%.*?%}", "", re.sub(r"{{.*?}}", "{}", html))).keys
        texts += re.findall(r'"([^"{}]*)"', " ".join(re.findall(r"{[{%].*?[%}]}", path.read_text("utf-8"))))
    for lesson in LESSONS:
        for step in read_steps(lesson.number):
            texts += [step.title, *Texts(_MARKDOWN.render(step.text)).keys]
            if step.question:
                texts += [*Texts(f"<p>{_MARKDOWN.renderInline(step.question.ask)}</p>").keys, *step.question.choices]
    texts += Texts(_MARKDOWN.render((ROOT / "lessons" / "answers.md").read_text("utf-8"))).keys
    for term in tomllib.loads((ROOT / "glossary.toml").read_text("utf-8")).values():
        texts += [term["name"], term["meaning"]]
    for kind in tomllib.loads((ROOT / "lessons" / "drafters.toml").read_text("utf-8"))["kind"]:
        texts += [kind["name"], kind["reads"], kind["costs"]]
    modules = [path for path in sorted(Path("ui").rglob("*.py")) if not SILENT.search(str(path))]
    for path in [*modules, *(Path("naive_speculate") / name for name in ENGINE), *Path("assets/js").glob("*.js")]:
        for text in python(path) if path.suffix == ".py" else script(path):
            marked = _MARKDOWN.renderInline(text) if "](#term-" in text else text
            texts += Texts(marked).keys if re.search("</(a|b)>", marked) else [text.removesuffix("<extra></extra>")]
    texts = [OPTIONS.sub("", " ".join(text.split())) for text in texts]
    return tuple(dict.fromkeys(text for text in texts if WORD.search(NAME.sub("", text))))


def pieces(text: str) -> list[str]:
    """The words of a text between names, tags and sentences, which every table has in its keys as they are."""
    return [piece.strip() for piece in re.split(r"{\w*}|</?\d+/?>|(?<=[.!?…]) ", text) if WORD.search(piece)]


def test_every_text_of_the_page_is_in_the_tables():
    known = "\n".join(KEYS).lower()
    missing = [text for text in sources() if not UNSAID.search(text) and not all(piece.lower() in known for piece in pieces(text))]
    assert missing == []


def test_the_tables_have_the_same_texts_and_none_that_the_page_no_longer_has():
    for language in OTHERS:
        assert list(table(language)) == list(KEYS)
    known = "\n".join([*sources(), *GRADIO]).lower()

    def parts(piece: str) -> int:
        """Of how many texts of the sources a piece of a key consists; many if it is new."""
        words, amount = piece.lower().split(" "), 0
        while words:
            most = next((n for n in range(len(words), 0, -1) if " ".join(words[:n]) in known), 0)
            if not most:
                return 99
            words, amount = words[most:], amount + 1
        return amount

    assert [key for key in KEYS if key.strip() in key and any(parts(piece) > 4 for piece in pieces(key))] == []


@pytest.mark.parametrize("language", OTHERS)
def test_translations_are_translated_and_have_the_same_names_and_tags(language):
    for key, said in table(language).items():
        assert said.strip(), key
        for pattern in (re.compile(r"%?{.*?}|%{.*?}"), TAG):
            assert sorted(pattern.findall(said)) == sorted(pattern.findall(key)), key
    same = {key for key, said in table(language).items() if key == said and WORD.search(re.sub(r"%?{.*?}|</?\d+>", "", key))}
    assert same == SAME[language] & set(KEYS) == SAME[language]
