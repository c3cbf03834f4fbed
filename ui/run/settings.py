"""What a visitor chose: the values behind the controls, as one record, and as the query string of a link."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BeforeValidator, FiniteFloat, ValidationError
from pydantic.dataclasses import dataclass

from naive_speculate.events.trace import Trace
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import Request
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.sequence import Detail
from naive_speculate.speculate.verify import VERIFIERS
from ui.checks import first_problem
from ui.run.guided import TITLES, controls_of, guide

MAX_PROMPT_CHARACTERS = 100_000

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Seed = Annotated[int | None, BeforeValidator(lambda value: None if value == "" else value)]


@dataclass(frozen=True)
class Settings:
    """A run's settings, named as in the library.

    `num_draft_tokens` counts only where `auto` is off. `stop` holds one string a line. An empty `seed` draws one.
    `guided` is the kind of a guide, empty for none, and `guided_text` the guide: texts one a line, as in `stop`.
    An empty `pair` is the host's usual one, an empty `drafter` the pair's own.
    """

    prompt: Text = ""
    verify_strategy: Text = "speculative_sampling"
    drafter: Text = ""
    num_draft_tokens: int = 5
    auto: bool = False
    temperature: FiniteFloat = 0.7
    max_tokens: int = 120
    seed: Seed = 0
    top_p: FiniteFloat = 1.0
    top_k: int = -1
    min_p: FiniteFloat = 0.0
    repetition_penalty: FiniteFloat = 1.0
    presence_penalty: FiniteFloat = 0.0
    frequency_penalty: FiniteFloat = 0.0
    stop: Text = ""
    ignore_eos: bool = False
    guided: Text = ""
    guided_text: Text = ""
    chat: bool = True
    pair: Text = ""

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings; in a line, `\\n` stands for a line break."""
        return [line.replace("\\n", "\n") for line in self.stop.split("\n") if line]

    def params(self) -> SamplingParams:
        """The library's parameters.

        Raises:
            ValueError: Names the field that is out of range.
        """
        same = {name: getattr(self, name) for name in ALIKE}
        return SamplingParams(**same, stop=self.stop_strings, guided_decoding=guide(self.guided, self.guided_text))

    def request(self, detail: Detail = "full") -> Request:
        """What the engine is asked for; without detail where only tokens and times are wanted, for the rest takes time.

        Raises:
            ValueError: Names the setting that cannot be.
        """
        if not self.prompt.strip():
            raise ValueError("prompt is empty: write the beginning of a text")
        return Request(
            self.prompt,
            self.params(),
            num_draft_tokens="auto" if self.auto else self.num_draft_tokens,
            verify_strategy=self.verify_strategy,
            drafter=self.drafter or None,
            detail=detail,
            chat=self.chat,
        )

    def query(self, usual: "Settings") -> str:
        """The settings as a query string that `from_query` reads; what is as usual is left out."""
        values = asdict(usual)
        changed = {name: value for name, value in asdict(self).items() if value != values[name]}
        return urlencode({name: "" if value is None else value for name, value in changed.items()})


ALIKE = {field.name for field in fields(Settings)} & {field.name for field in fields(SamplingParams)} - {"stop"}
"""Settings that the library has by the same names, with the same meanings."""
NOTHING = Settings(prompt="", seed=None)
"""What a link need not say: with it, every other value is in the link."""


def from_query(query: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a link carries, by field.

    Raises:
        ValueError: Names the value that does not fit its field.
    """
    linked = {field.name: query[field.name][:MAX_PROMPT_CHARACTERS] for field in fields(Settings) if field.name in query}
    settings = checked(linked)
    choices: dict[str, Collection[str]] = {
        "verify_strategy": VERIFIERS,
        "drafter": ["", *DRAFTERS],
        "guided": ["", *TITLES],
    }
    for name, known in choices.items():
        if name in linked and linked[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(filter(None, known))}, got {linked[name]!r:.80}")
    return {name: getattr(settings, name) for name in linked}


def settings_of(trace: Trace) -> Settings | None:
    """The settings that a run was made with, as far as its first event tells; None where that is too little to repeat it,
    or more than the controls take."""
    started = trace.started
    told = dict(trace.settings)
    if started is None or "verify_strategy" not in told:
        return None
    if told.get("num_draft_tokens") == "auto":
        told |= {"auto": True, "num_draft_tokens": None}
    if isinstance(stop := told.get("stop"), list):
        told["stop"] = "\n".join(str(line).replace("\n", "\\n") for line in stop)
    guided = controls_of(told.get("guided_decoding"))
    if guided is None:
        return None
    told |= guided | {"prompt": started.prompt or "".join(started.prompt_texts or []), "seed": started.seed}
    if any(len(value) > MAX_PROMPT_CHARACTERS for value in told.values() if isinstance(value, str)):
        return None  # Gradio keeps what the controls hold
    names = {field.name for field in fields(Settings)}
    try:
        return checked({name: value for name, value in told.items() if name in names and value is not None})
    except ValueError:
        return None


def checked(values: Mapping[str, Any]) -> Settings:
    """The settings of these values by field, as controls, links and programs give them; the others are as usual.

    Raises:
        ValueError: Names the field that is empty or of the wrong kind.
    """
    try:
        return Settings(**values)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None
