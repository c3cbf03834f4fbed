"""The texts that the page can show, read from its sources: templates, scripts, modules, lessons, glossary."""

import ast
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from ui.assets import ROOT
from ui.experiments.learn import _MARKDOWN, LESSONS, read_steps

SILENT = re.compile(r"ui/(assets|checks|gradio_gaps|record_examples|host/(configuration|operations|origin|limits|zero))\.py")
"""Modules without texts of the page."""
ENGINE = [
    *("palette.py", "doctor/suspects.py", "differing/compare.py"),
    *(f"speculate/draft/{name}.py" for name in ("block", "head", "model", "prompt_lookup", "suffix", "suffix_head")),
]
"""Modules of the engine whose texts the page shows."""
OPTIONS = re.compile(r" \(?(?:--[a-z-]+(?:, )?)+\)?")
"""The command line's options, which the page leaves out."""
WORD = re.compile(r"[^\W\d_]{2}")


class Keys(HTMLParser):
    """The keys of a piece of HTML: as in language.js, an element with texts and elements is one key."""

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
        self.found += [value for name, value in attributes if name in ("title", "aria-label", "placeholder") and value]
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
            parts.append(inner if number is None else f"<{number}>{inner}</{number}>" if inner.strip() else f"<{number}/>")
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
            seen |= {id(inner) for part in formats if not isinstance(part, ast.FormattedValue) for inner in ast.walk(part)}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
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
            at, more = (scan(at + 2, "}"), "{}") if code.startswith("${", at) else (at + 1, code[at])
            text += more
        found.append(text)
        return at + 1

    scan(0, "")
    return found


def _raw() -> Iterator[str]:
    for path in sorted(Path("ui/templates").glob("*.html")):
        html = re.sub(r'{{ term\("?([^,"]*)"?,.*?}}', "<a>{}</a>", path.read_text("utf-8"))
        yield from Keys(re.sub(r"{%.*?%}", "", re.sub(r"{{.*?}}", "{}", html))).found
        for code in re.findall(r"{[{%].*?[%}]}", path.read_text("utf-8")):
            yield from re.findall(r'"([^"{}]*)"', code)
    for step in (step for lesson in LESSONS for step in read_steps(lesson.number)):
        yield from (step.title, *Keys(_MARKDOWN.render(step.text)).found)
        if step.question:
            yield from (*Keys(f"<p>{_MARKDOWN.renderInline(step.question.ask)}</p>").found, *step.question.choices)
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
    for path in sorted(Path("assets/js").glob("*.js")):
        yield from of_script(path.read_text("utf-8"))


def texts() -> list[str]:
    """Every text of the page, and strings that are none."""
    clean = (OPTIONS.sub("", " ".join(text.removesuffix("<extra></extra>").split())) for text in _raw())
    return list(dict.fromkeys(text for text in clean if WORD.search(re.sub(r"(?<!%){\w*}", "", text))))
