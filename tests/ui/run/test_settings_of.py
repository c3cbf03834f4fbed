"""The settings of a run, from its trace."""

from naive_speculate import SamplingParams, Trace
from naive_speculate.events import Event, EventKind
from tests.ui.handmade import run
from ui.run.runs import Run, Runs
from ui.run.settings import Settings, from_query, settings_of
from ui.run.stage import _server_functions


def test_a_real_run_gives_back_what_was_requested(small_decoder):
    asked = Settings(
        prompt="Once upon a time", drafter="prompt_lookup", auto=True, temperature=0.4, max_tokens=9, seed=4, top_p=0.9,
        top_k=30, min_p=0.01, repetition_penalty=1.1, stop="king\nline\\nbreak", ignore_eos=True, num_draft_tokens=5,
    )  # fmt: skip
    request = asked.request()
    trace = small_decoder.generate(
        request.prompt,
        request.params,
        num_draft_tokens="auto",
        verify_strategy=request.verify_strategy,
        drafter=request.drafter,
    ).trace
    assert settings_of(Trace.from_jsonl(trace.to_jsonl())) == asked


def test_a_drawn_seed_is_reported(small_decoder):
    trace = small_decoder.generate("Once", SamplingParams(max_tokens=2)).trace
    assert settings_of(trace).seed == trace.started.seed


def test_traces_that_say_too_little_or_nonsense_give_none():
    assert settings_of(Trace([Event(EventKind.BONUS)])) is None
    assert settings_of(Trace([Event(EventKind.STARTED, schema_version=1)])) is None
    for odd in ({"temperature": "<b>"}, {"max_tokens": [1]}, {"stop": 5}, {"num_draft_tokens": {}}):
        assert settings_of(Trace([Event(EventKind.STARTED, settings={"verify_strategy": "greedy_match", **odd})])) is None


def test_a_link_repeats_prompt_and_seed_even_where_they_are_as_usual():
    runs = Runs()
    mine = Run(run([(2, 1)]).events)
    mine.settings = Settings(prompt="Once", seed=1)
    runs.add("visitor", mine)
    *_, link, _ = _server_functions(runs)
    assert link(mine.id) == "prompt=Once&seed=1"
    assert link("another") == link(None) == ""
    linked = from_query(dict(part.split("=") for part in link(mine.id).split("&")))
    assert linked == {"prompt": "Once", "seed": 1}


def test_a_copy_of_a_run_outlives_its_first_visitor():
    runs = Runs()
    mine = Run(run([(2, 1)]).events, title="t")
    mine.settings, mine.measure = Settings(prompt="Once"), list
    runs.add("first", mine)
    theirs = mine.copy()
    runs.add("second", theirs)
    runs._forget("first")
    assert runs.get(mine.id) is None
    kept = runs.get(theirs.id)
    assert (kept.events, kept.settings, kept.measure, kept.title) == (mine.events, mine.settings, list, "t")
    assert kept.id != mine.id
