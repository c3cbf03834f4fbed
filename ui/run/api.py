"""The endpoint for programs: `/generate` streams a run's events."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

import gradio as gr
from gradio.events import api
from pydantic import BaseModel, model_serializer

from naive_speculate.events import Event
from ui.host.catalog import DECODING, Catalog
from ui.host.weight import Weighed
from ui.run.runs import Run
from ui.run.settings import Settings, checked

SECONDS_A_LIST = 0.15
"""Programs do not watch, so they get fewer and longer lists than the page."""
_USUAL = Settings()


class _Unwritten(BaseModel):
    """A list of events on its way to a program: JSON values from the moment when its reader takes it.

    Gradio goes through all values that it passes on, again and again, and takes the interpreter from the decoder meanwhile.
    This one is a single value to it, and what a slow reader has not taken costs nothing while the decoder is at work.
    """

    events: Any  # `Weighed`; not to be validated

    @model_serializer
    def _values(self) -> list[dict[str, Any]]:
        return [event.to_dict() for event in self.events.value]


def _unwritten(events: list[Event], size: int) -> Any:
    """The list of their JSON values, as far as its reader can tell."""
    return _Unwritten(events=Weighed(events, size))


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
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Continue a prompt by speculative decoding.

        Args:
            prompt: The beginning of a text.
            max_tokens: Number of tokens after which it ends.
            temperature: 0 takes the most probable token.
            top_p: Keep the most probable tokens up to this probability.
            seed: Same seed, same text.
            num_draft_tokens: Tokens drafted per step; 0 is plain decoding, "auto" chooses by the
                acceptance seen so far and the pair's costs.
            verify_strategy: speculative_sampling, greedy_match, block_verification or typical_acceptance.
            drafter: What drafts, such as model or prompt_lookup; empty for the pair's own.

        Yields:
            The list of the events since the last one; all lists joined are the trace.
        """
        run = Run(keeps=False)
        try:
            settings = checked(
                {
                    "prompt": prompt,
                    "max_tokens": max_tokens,
                    "temperature": temperature,
                    "top_p": top_p,
                    "seed": seed,
                    **({"auto": True} if num_draft_tokens == "auto" else {"num_draft_tokens": num_draft_tokens}),
                    "verify_strategy": verify_strategy,
                    "drafter": drafter,
                }
            )
            run.start(partial(catalog.start, settings.pair, settings.request(), reader=run.reader()))
            async for _, events in run.batches(SECONDS_A_LIST):
                if events:
                    yield _unwritten(events, run.weight_of(events))
            if run.error is not None:
                raise run.error
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None
        finally:
            run.cancel.set()

    api(generate, api_name="generate", concurrency_id=DECODING, concurrency_limit=catalog.concurrency)
