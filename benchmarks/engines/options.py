"""Options that drafts may forget: each is tried plainly and with drafts, on the same prompts."""

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.engines.models import GREEDY_TOKENS, TOKENS, VOCAB
from benchmarks.engines.running import Running
from benchmarks.engines.serve import Ask

TEXTS = 50
SAMPLED: dict[str, dict[str, Any]] = {"min-p": {"options": {}}, "seed": {"seed": TEXTS}}
ALLOWED = [token for token, text in enumerate(TOKENS) if set(text) <= set("abcdefgh")]
Text = list[int]


def option_asks() -> dict[str, Callable[[Ask, Text], Ask]]:
    """From a request and its greedy text to the request with an option that changes the text."""

    def having(**options: Any) -> Callable[[Ask, Text], Ask]:
        return lambda ask, text: replace(ask, options=options)

    return {
        "logit bias": having(logit_bias={"3": 2.0, "9": -2.0, "12": 2.0}),
        "forbidden token": lambda ask, text: replace(
            ask, options={"forbidden": [_favourite(text)]}
        ),
        "no repeated pair": having(no_repeat_ngram_size=2),
        "grammar": having(letters="abcdefgh", allowed=ALLOWED),
        "min-p": lambda ask, text: replace(ask, temperature=1.0, options={"min_p": 0.9999}),
        "stop string": lambda ask, text: replace(ask, options={"stop": _ending(text)}),
        "minimum length": having(min_tokens=GREEDY_TOKENS // 2),
        "seed": lambda ask, text: replace(ask, temperature=1.0),
    }


def _favourite(text: Text) -> int:
    """The most frequent token of a text that does not end it."""
    counts = Counter(token for token in text if token)
    return counts.most_common(1)[0][0] if counts else 1


def _ending(text: Text) -> str:
    """The third and fourth token of a text as a string."""
    return "".join(TOKENS[token] for token in text[2:4] if token) or TOKENS[1]


def all_options(engine: Running) -> dict[str, dict[str, dict[str, int]]]:
    """By option that the engine takes and by way, "plain" among them: `equal` of so many `texts`
    are what they must be, and so many are `as_without` the option. What the adapter skips, since
    the engine refuses it or ends, has none."""
    random = torch.Generator().manual_seed(0)
    prompts = [torch.randint(1, VOCAB, (8,), generator=random).tolist() for _ in range(TEXTS)]
    asks = [Ask(prompt, max_tokens=GREEDY_TOKENS, seed=seed) for seed, prompt in enumerate(prompts)]
    texts = [(ask, engine.ask(ask).token_ids) for ask in asks] if engine.about["options"] else []
    options = option_asks()
    return {
        name: one_option(engine, name, [(options[name](*text), text[1]) for text in texts])
        for name in engine.about["options"]
    }


def one_option(
    engine: Running, name: str, asks: list[tuple[Ask, Text]]
) -> dict[str, dict[str, int]]:
    """One option, with the greedy texts without it. A text with drafts must be the plain one; what
    min-p cuts to one token must be the greedy text; two texts of one seed must be the same."""
    plain = [engine.ask(ask).token_ids for ask, _ in asks]
    result = {}
    for way in ["plain", *engine.about["ways"]]:
        if f"{name}, {way}" in engine.about["skips"]:
            continue
        expected, without = plain, [greedy for _, greedy in asks]
        if name in SAMPLED:
            expected = without if name == "min-p" else _texts(engine, asks, way)
            without = _texts(engine, asks, way, **SAMPLED[name])
        own = plain if way == "plain" and name != "seed" else _texts(engine, asks, way)
        result[way] = {
            "equal": sum(map(operator.eq, own, expected)),
            "texts": len(asks),
            "as_without": sum(map(operator.eq, own, without)),
        }
    return result


def _texts(engine: Running, asks: list[tuple[Ask, Text]], way: str, **other: Any) -> list[Text]:
    return [engine.ask(replace(ask, way=way, **other)).token_ids for ask, _ in asks]


def verdict_of(own: dict[str, int]) -> str:
    """What one option and way show, in a word."""
    if own["as_without"] == own["texts"]:
        return "ignored"
    return "kept" if own["equal"] == own["texts"] else "forgotten"


def forgotten(result: dict[str, Any], way: str) -> str:
    """The cell of a way: the options that texts with drafts do not keep, that do nothing, and that
    end with an error."""
    tried = {name: ways[way] for name, ways in result.get("options", {}).items() if way in ways}
    said = []
    for name, own in tried.items():
        if (verdict := verdict_of(own)) != "kept":
            how = verdict if verdict == "ignored" else f"{own['equal']} of {own['texts']}"
            said.append(f"**{name}: {how}**")
    errors = [name for name in result.get("options", {}) if f"{name}, {way}" in result["skips"]]
    said += [f"**{name}: an error**" for name in errors]
    return ", ".join(said) or (f"none of {len(tried)}" if tried else "–")
