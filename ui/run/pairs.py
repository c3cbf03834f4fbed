"""The parts of the page that depend on the chosen pair and on which pairs are loaded."""

from typing import Any

import gradio as gr
from gradio.blocks import Block

from ui.assets import component, render
from ui.explain.models import models_in_short, models_markup
from ui.host.catalog import Catalog
from ui.notify import QUIET
from ui.run.controls import drafter_choices

Looks = dict[str, dict[str, Any]]  # attributes of components, by the components' names in `follow_pairs`


def build_notice(catalog: Catalog) -> gr.HTML:
    """A line per pair that is not ready. `assets/js/page.js` polls until none is loading, then triggers `settled`."""

    def loading(_: object) -> bool:
        """Whether a pair is still loading."""
        return bool(catalog.loading)

    calls: dict[str, Any] = {"events": ["settled"], "server_functions": [loading]}
    return component("page", value=_notice(catalog), mount="mountNotice", elem_id="loading", **calls)


def choices(catalog: Catalog) -> list[tuple[str, str]]:
    """The menu of pairs: labels with values. The default has the value "", so that links need not name it."""
    loading = catalog.loading
    return [
        (f"{label} (loading)" if name in loading else label, name if number else "")
        for number, (name, label) in enumerate(catalog.labels.items())
    ]


def follow_pairs(catalog: Catalog, page: gr.Blocks, parts: dict[str, Any]) -> None:
    """Update the page when another pair is chosen, and when loading ends: the components `notice`, `pair`, `line`, `models`,
    `drafter`, `chat`, `questions` and `stories`. Pages opened later show the pairs as they are then."""
    pair, notice = parts["pair"], parts["notice"]
    choice: dict[str, Any] = {
        "inputs": [pair, parts["drafter"]],
        "preprocess": False,
        "queue": False,
        **QUIET,
    }  # see `_of_choice`

    def update(looks: Looks) -> dict[Block, Any]:
        return {parts[name]: gr.update(**attributes) for name, attributes in looks.items()}

    def settled(name: Any, drafter: Any) -> dict[Block, Any]:
        return update(_of_catalog(catalog) | _of_choice(catalog, name, drafter))

    def refresh() -> None:
        for name, attributes in (_of_catalog(catalog) | _of_choice(catalog, "")).items():
            for attribute, value in attributes.items():
                setattr(parts[name], attribute, value)
        page.config = page.get_config_file()

    chosen = [parts[name] for name in _of_choice(catalog, "")]
    pair.change(lambda name, drafter: update(_of_choice(catalog, name, drafter)), outputs=chosen, **choice)
    notice.settled(settled, outputs=[*chosen, *(parts[name] for name in _of_catalog(catalog))], **choice)
    catalog.settled = refresh


def _of_choice(catalog: Catalog, name: Any, drafter: Any = None) -> Looks:
    """The looks for a chosen pair, the default for an unknown one. Both arrive unchecked: a link may name a drafter before the
    menu has it. That is left alone unless the pair lacks it."""
    name = name if isinstance(name, str) and name in catalog.pairs else ""
    served = catalog.of(name)
    chats, lacks = served.engine.about.chat, drafter and drafter not in served.drafters
    return {
        "drafter": {"choices": drafter_choices(served.drafters), **({"value": ""} if lacks else {})},
        "line": {"value": models_in_short(catalog, name)},
        "chat": {"visible": chats},
        "questions": {"visible": chats},
        "stories": {"visible": not chats},
    }


def _of_catalog(catalog: Catalog) -> Looks:
    chosen = {"value": ""} if catalog.missing else {}  # the default changed, and the new one may have been chosen by name
    return {
        "notice": {"value": _notice(catalog)},
        "pair": {"choices": choices(catalog), "visible": len(catalog.pairs) > 1, **chosen},
        "models": {"value": models_markup(catalog)},
    }


def _notice(catalog: Catalog) -> str:
    return render("notice", lines=catalog.notices, loading=bool(catalog.loading))
