"""The endpoint for programs: `/generate` streams a run's events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

import gradio as gr
from gradio.events import api
from pydantic import BaseModel, model_serializer

from ui.host.catalog import DECODING, Catalog
from ui.host.visitors import Weighed
from ui.run.runs import Run
from ui.run.settings import Settings, checked

SECONDS_PER_LIST = 0.15  # programs get fewer and longer lists than the page
_USUAL = Settings()


class _Unwritten(BaseModel):
    """A list of events for a program, converted to JSON values only when the reader fetches it.

    Gradio walks through all values several times, and blocks the decoder's thread meanwhile.
    This is a single value to Gradio, and an unread list costs nothing.
    """

    events: Any  # `Weighed`; not to be validated

    @model_serializer
    def _values(self) -> list[dict[str, Any]]:
        return [event.to_dict() for event in self.events.value]


def add_api(catalog: Catalog) -> None:
    """Add the endpoint to the page that is being built."""

    async def generate(
        prompt: str,
        max_tokens: int = _USUAL.max_tokens,
        temperature: float = _USUAL.temperature,
        top_p: float = _USUAL.top_p,
        seed: int = 0,
        num_draft_tokens: int | Literal["auto"] = _USUAL.num_draft_tokens,
        verify_strategy: str = _USUAL.verify_strategy,
        drafter: str = _USUAL.drafter,
        draft_sampling: Literal["sampled", "argmax"] = "sampled",
        tree: str = "",
    ) -> AsyncGenerator[list[dict[str, Any]]]:
        """Continue a prompt by speculative decoding.

        Args:
            prompt: The start of a text.
            max_tokens: Stop after this many tokens.
            temperature: 0 takes the most probable token.
            top_p: Keep the most probable tokens up to this total probability.
            seed: Same seed, same text.
            num_draft_tokens: Draft tokens per step; 0 is plain decoding, "auto" adapts to
                acceptance rate and costs. At
                temperature 0 it is the most: with many visitors, fewer may pay, and the text is
                    the same.
            verify_strategy: speculative_sampling, greedy_match, block_verification,
                sample_match or typical_acceptance.
            drafter: For example model or prompt_lookup; empty for the default.
            draft_sampling: Draft tokens are "sampled" from the draft model's distribution, or
                its "argmax".
            tree: Several candidates per position, such as 4x2x1: the children of a node by
                depth; empty for none.

        Yields:
            The new events as a list; all lists joined are the trace.
        """
        values = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed,
            "num_draft_tokens": num_draft_tokens,
            "verify_strategy": verify_strategy,
            "drafter": drafter,
            "draft_sampling": draft_sampling,
            "tree": tree,
        }
        async with aclosing(_lists(catalog, values)) as lists:
            async for events in lists:
                yield events

    api(
        generate,
        api_name="generate",
        concurrency_id=DECODING,
        concurrency_limit=catalog.concurrency,
    )


async def _lists(catalog: Catalog, values: dict[str, Any]) -> AsyncGenerator[Any]:
    """The run's new events, list by list. The run ends when the program stops reading."""
    if values["num_draft_tokens"] == "auto":
        values = values | {"auto": True, "num_draft_tokens": _USUAL.num_draft_tokens}
    run = Run(keeps=False)
    try:
        settings = checked(values)
        request = settings.request(shrink_in_batch=True)
        run.start(partial(catalog.start, settings.pair, request, reader=run.reader()))
        async for _, events in run.batches(SECONDS_PER_LIST):
            if events:
                yield _Unwritten(events=Weighed(events, run.weight_of(events)))
        if run.error is not None:
            raise run.error
    except ValueError as error:
        raise gr.Error(str(error), print_exception=False) from None
    finally:
        run.cancel.set()
