"""An option is one field: the command line, the endpoint, links, the drawer and the settings of
a run's first event follow from it."""

import argparse
import inspect
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

import gradio as gr
import pytest
from pydantic import Field
from pydantic.dataclasses import dataclass

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.sampling.checked import Real, checked
from naive_speculate.sampling.options import documented, option, options_of
from naive_speculate.speculate.request import Request
from naive_speculate.testing import ToyModel
from naive_speculate.tools.command_line import _add_options
from ui.run.api import PARAMETERS, _declare, parameters
from ui.run.controls import _Builder
from ui.run.settings import OPTIONS, Settings, with_options

_Warmth = Annotated[Real, Field(gt=0, le=2, description="a number, above 0 and at most 2")]


@documented
@checked()
class More(SamplingParams):
    """Parameters with four more options."""

    warmth: _Warmth = option(1.0, "Warms [each](#term-seed) token.", title="Warmth", step=0.25)
    calm: bool = option(False, "Calms.", more="A lot.", title="Calm")
    mood: Literal["glad", "sad"] = option("glad", "The mood.", title="Mood")
    rests: Annotated[int, Field(ge=0, description="a whole number")] | None = option(
        None, "Rests per line.", none="any number", title="Rests"
    )


@documented
@checked()
class Listed(SamplingParams):
    """Parameters with a list more."""

    refrains: Annotated[Sequence[str], Field(description="a list of texts")] | None = option(
        (), "Texts that come back."
    )


NEW = [each for name, each in options_of(More).items() if name not in options_of(SamplingParams)]
GIVEN: dict[str, Any] = {"warmth": 1.5, "calm": True, "mood": "sad", "rests": 3}


@dataclass(frozen=True)
@partial(with_options, options=NEW)
class Wide(Settings):
    """The page's settings with the new options."""


@pytest.fixture(scope="module")
def decoder() -> SpeculativeDecoder:
    return SpeculativeDecoder(ModelPair(ToyModel(7, 1), ToyModel(7, 2)))


def test_a_new_field_is_an_option_of_the_command_line_with_its_help_limits_and_default():
    parser = argparse.ArgumentParser()
    _add_options(parser, "sampling", More)
    arguments = ["--warmth", "1.5", "--calm", "--mood", "sad", "--rests", "3"]
    assert vars(parser.parse_args(arguments)) == GIVEN
    said = " ".join(parser.format_help().split())
    limits = "a number, above 0 and at most 2; default: 1.0"
    assert f"--warmth X Warms each token ({limits})" in said
    assert "--calm Calms. A lot " in said
    assert "The mood (one of glad, sad; default: glad)" in said
    assert "Rests per line (a whole number; default: any number)" in said


def test_a_new_field_is_in_the_class_s_docstring_and_its_limits_are_kept():
    assert "warmth: Warms each token. A number, above 0 and at most 2." in More.__doc__
    with pytest.raises(ValueError, match="warmth must be a number, above 0 and at most 2, got 3"):
        More(warmth=3)


def test_a_new_field_is_a_setting_that_a_link_carries_and_that_is_none_without_a_value():
    query = Wide(**GIVEN).query(Wide())
    assert dict(parse_qsl(query)) == {name: str(value) for name, value in GIVEN.items()}
    assert Wide(**dict(parse_qsl(query))) == Wide(**GIVEN)
    assert Wide(rests="") == Wide()


def test_a_new_field_is_a_control_of_the_drawer_that_fits_its_type():
    with gr.Blocks():
        builder = _Builder(Wide(**GIVEN))
        builder.add_others(NEW)
    made = builder.made
    assert {name: each.value for name, each in made.items()} == GIVEN
    assert [type(each) for each in made.values()] == [gr.Slider, gr.Checkbox, gr.Radio, gr.Number]
    slider = made["warmth"]
    assert (slider.minimum, slider.maximum, slider.step) == (0.25, 2, 0.25)
    assert (slider.label, slider.info) == ("Warmth", "Warms [each](#term-seed) token.")
    assert made["mood"].choices == [("Glad", "glad"), ("Sad", "sad")]


def test_a_new_field_is_a_parameter_of_the_endpoint_after_those_that_programs_send_by_place():
    def endpoint(*_: object) -> list: ...

    every = parameters([*OPTIONS.values(), *NEW])
    _declare(endpoint, every)
    declared = inspect.signature(endpoint).parameters
    assert [*declared] == [*PARAMETERS, *GIVEN]
    assert [declared[name].default for name in GIVEN] == [1.0, False, "glad", None]
    types = [float, bool, Literal["glad", "sad"], int | None]
    assert [declared[name].annotation for name in GIVEN] == types
    assert every["warmth"].line == "Warms each token. A number, above 0 and at most 2."
    assert every["mood"].line == "The mood. One of glad, sad."


def test_a_new_field_is_in_the_settings_of_a_run_s_first_event(decoder):
    first = next(iter(decoder.stream([1, 2], More(max_tokens=2, **GIVEN))))
    assert {name: first.settings[name] for name in GIVEN} == GIVEN


def test_a_new_field_that_is_a_list_takes_the_forms_of_other_lists(decoder):
    parser = argparse.ArgumentParser()
    _add_options(parser, "sampling", Listed)
    read = parser.parse_args(["--refrains", "ha", "--refrains", "ho"])
    assert vars(read) == {"refrains": ["ha", "ho"]}
    assert (Listed().refrains, Listed(refrains=None).refrains) == ((), ())
    assert Listed(refrains=(each for each in ["ha"])).refrains == ("ha",)
    for value, said in ("ha", "must be a list of texts, got 'ha'"), (["\ud800"], "is broken text"):
        with pytest.raises(ValueError, match=f"refrains {said}"):
            Listed(refrains=value)
    first = next(iter(decoder.stream([1, 2], Listed(max_tokens=2, refrains=("ha",)))))
    assert first.settings["refrains"] == ["ha"]


def test_every_option_is_in_all_the_places(decoder):
    first = next(iter(decoder.stream([1, 2], SamplingParams(max_tokens=2), draft_confidence=0.25)))
    parser = argparse.ArgumentParser()
    for of in (SamplingParams, Request):
        _add_options(parser, of.__name__, of)
        assert options_of(of).keys() <= first.settings.keys()
        assert options_of(of).keys() <= {action.dest for action in parser._actions}
    assert first.settings["draft_confidence"] == 0.25
    assert OPTIONS.keys() <= {field.name for field in fields(Settings)}
    assert OPTIONS.keys() <= PARAMETERS.keys()


@pytest.mark.parametrize("name", ["stream", "generate"])
def test_the_decoder_s_methods_show_every_option_of_a_request_with_its_default(decoder, name):
    shown = inspect.signature(getattr(decoder, name)).parameters
    assert [*shown][:3] == ["prompt", "params", "cancel"]
    options = {name: shown[name] for name in [*options_of(Request), "detail", "chat"]}
    assert {each.kind for each in options.values()} == {inspect.Parameter.KEYWORD_ONLY}
    usual = Request("")
    assert {name: each.default for name, each in options.items()} == {
        name: getattr(usual, name) for name in options
    }


def test_every_sampling_option_has_a_row_in_its_document():
    text = (Path(__file__).parent.parent / "docs" / "parameters.md").read_text("utf-8")
    rows = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert [name for name in options_of(SamplingParams) if f"`{name}`" not in rows] == []
