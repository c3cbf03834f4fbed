"""The lessons: their words, steps and views belong together, and are made of what was found,
recorded or live."""

import html
import json
import re
from contextlib import closing, nullcontext
from dataclasses import replace

import pytest
import torch

from docs.hooks import on_page_markdown
from naive_speculate import ModelPair, SpeculativeDecoder
from naive_speculate.events.trace import Trace
from naive_speculate.serving import LocalEngine
from naive_speculate.speculate.verify.typical import TypicalAcceptanceSampler
from tests.ui.drawn import drawn
from tests.ui.handmade import run
from ui.assets import ROOT, render
from ui.charts.figures import MUTED
from ui.experiments import learn
from ui.experiments.learn import (
    LESSONS,
    content,
    filled,
    parse,
    read_steps,
    recorded_lesson,
    titles,
    to_html,
)
from ui.experiments.lessons import (
    accept,
    batch,
    drafters,
    overlap,
    rounding,
    rules,
    slow,
    slower,
    temperature,
    unchanged,
    verify,
    window,
)
from ui.experiments.lessons.find_examples import ABOUT_A_THIRD, OPEN
from ui.experiments.lessons.lesson import Trial, showing, speedup, spoken, totals
from ui.experiments.lessons.unchanged import OTHERS
from ui.host.catalog import Catalog, ServedPair
from ui.labels import end_of, percent
from ui.run.recorded import FOLDER, OF_TARGETS, models_in_words
from ui.run.settings import Settings

NUMBERS = [lesson.number for lesson in LESSONS]
PROMPT = "Once upon a time there was a little fox who lived"


def trial(catalog: Catalog, seen: frozenset[str] = frozenset()) -> Trial:
    return Trial(catalog, Settings(prompt=PROMPT, seed=5), seen)


def test_a_text_is_cut_into_steps_with_questions_and_what_a_model_wrote_is_never_markup():
    question = "? What now,\nand why?\n- this\n- {that}\n"
    text = (
        f"## Title\n\nIt *begins*.\n\n### One\n\nWords.\n\n{question}\n### Two\n\n- a list\n- of"
        " words\n"
    )
    first, one, two = parse(text)
    assert (first.title, first.text, first.ask) == ("Title", "It *begins*.", "")
    assert (one.title, one.text, one.ask) == ("One", "Words.", "What now, and why?")
    assert one.choices == ("this", "{that}")
    assert (two.ask, "of words" in two.text) == ("", True)
    with pytest.raises(ValueError, match="must start with a line '## Title', got 'Words'"):
        parse("Words")
    words = {"guess": "<b>*x*</b>"}
    assert to_html("A **{guess}**.", words) == "<p>A <strong>&lt;b&gt;*x*&lt;/b&gt;</strong>.</p>\n"
    assert to_html("{guess}?", words, one_line=True) == "&lt;b&gt;*x*&lt;/b&gt;?"
    assert filled("{guess}", words) == "<b>*x*</b>"
    with pytest.raises(KeyError, match="unknown"):
        to_html("{unknown}", words)


@pytest.mark.parametrize("target", [None, *OF_TARGETS])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_is_short_opens_with_a_question_that_it_resolves_and_ends_with_three_exercises(
    number, target
):
    told = json.loads(learn.recording(number, target))
    steps = told["steps"]
    assert 4 <= len(steps) <= 8
    assert told["source"] == f"Recorded with {models_in_words(target)}, unless it says calculated."
    assert steps[0]["title"].endswith("?")
    assert steps[0]["question"]
    for at, (step, text) in enumerate(zip(steps, read_steps(number), strict=True)):
        asked = f"{text.ask} {' '.join(text.choices)}"
        assert 10 < len(re.findall(r"[A-Za-z']+", f"{text.text} {asked}")) < 130, step["title"]
        if step["question"]:
            assert sum(at in later["resolves"] for later in steps) == 1
            assert 0 <= step["question"]["right"] < len(step["question"]["choices"])
            assert step is not steps[-1]  # the next step shows the result
        assert set(step["view"]) - {"finished", "calculated", "at"} in (
            {"figure"},
            {"shown", "lit"},
        )
        for figure in (step["view"].get(name) for name in ("figure", "finished")):
            assert figure is None or drawn(figure).data
    assert steps[-1]["title"] == "Exercises"
    assert steps[-1]["html"].count("<li>") == 3
    # Without the drawings, which have parts of their own.
    around = re.sub(r"<template.*?</template>", "", told["markup"], flags=re.DOTALL)
    parts = set(re.findall(r'data-part="(\w+)"', around))
    shown = [step["view"] for step in steps[1:] if "shown" in step["view"]]
    assert {part for view in shown for part in (*view["shown"], *view["lit"])} <= parts
    assert {part for view in shown for part in view["shown"]} >= parts
    assert not parts or len(steps[0]["view"].get("shown", [])) < len(
        shown[-1]["shown"]
    )  # the opening hides some


@pytest.mark.parametrize("number", [6, 9])
def test_a_chart_opens_with_what_its_lesson_asks_left_open_and_has_it_in_the_end(number):
    opening, *_, last = (step["view"] for step in json.loads(learn.recording(number))["steps"])

    def bars(figure):
        return [y for y in figure["data"][0]["y"] if y is not None]

    asked = [
        mark["x"] for mark in opening["figure"]["layout"]["annotations"] if mark["text"] == "?"
    ]
    assert len(bars(opening["figure"])) == 1
    assert asked == opening["finished"]["data"][0]["x"][1 : len(bars(opening["finished"]))]
    assert bars(opening["finished"]) == bars(last["figure"])
    assert "★" not in str(opening["figure"]["data"])
    assert not last["figure"]["layout"].get("annotations")


def test_titles_differ_every_exercise_has_an_answer_and_a_lesson_that_is_not_there_is_none():
    assert len(set(titles())) == len(LESSONS)
    answers = (ROOT / "lessons" / "answers.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", answers, re.MULTILINE) == [
        f"{n}. {title}" for n, title in enumerate(titles(), start=1)
    ]
    parts = re.split(r"^## .*$", answers, flags=re.MULTILINE)[1:]
    assert [len(re.findall(r"^\d\. ", part, re.MULTILINE)) for part in parts] == [3] * len(LESSONS)
    assert "0.2 + 0.3 + 0.2" in answers
    for number in (0, len(LESSONS) + 1, "1; drop", None, [1], 1.5):
        assert learn.recording(number) == ""
    assert [learn.lesson_in({"lesson": number}) for number in ("3", "0", "99", "x", "-1", "²")] == [
        3,
        *[None] * 5,
    ]
    assert [
        *learn.go_live(Catalog({}), {"lesson": 99}, ()),
        *learn.go_live(Catalog({}), {}, ()),
    ] == []
    page = on_page_markdown("{{ lessons }}", None)  # of the documentation's site
    assert all(f"## {n}. {html.escape(title)}" in page for n, title in enumerate(titles(), start=1))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        content(replace(LESSONS[0], right=lambda _: [0, 0, 0, 0]), recorded_lesson(1), "")


@pytest.mark.parametrize("folder", [FOLDER, *(folder for folder, _ in OF_TARGETS.values())])
def test_what_was_recorded_is_at_places_that_teach_and_figures_follow_from_those_that_are_shown(
    folder,
):
    guess = recorded_lesson(3, folder)
    assert OPEN[0] <= guess["keep"] <= min(OPEN[1], guess["u"])
    assert guess["keep"] == pytest.approx(guess["p"] / guess["q"], rel=1e-3)
    said, shown = accept.words(guess), accept.markup(guess)
    assert f"{float(said['p']) / float(said['q']):.2f}" == said["ratio"]
    for name in ("p", "q"):
        assert f"{name} = {said[name]}<" in shown
    fork = recorded_lesson(4, folder)
    census = unchanged.CENSUS.validate_python(fork)
    assert ABOUT_A_THIRD[0] <= census.draft_distance <= ABOUT_A_THIRD[1]
    assert census.draws == unchanged.DRAWS
    assert census.replaced.total() / census.draws == pytest.approx(census.draft_distance, abs=0.06)
    kinds = [draft["kind"] for draft in recorded_lesson(2, folder)["rounds"][0]["drafts"]]
    assert (kinds.count("accepted") >= 2, kinds.count("rejected")) == (True, 1)
    times = slow.words(recorded_lesson(1, folder))
    one, many, singly = (
        float(times[name].removesuffix(" ms")) for name in ("one", "many", "singly")
    )
    assert singly == pytest.approx(int(times["widest"]) * one, abs=0.5)
    assert float(times["times"]) == round(many / one, 1)


def test_what_the_draft_overrates_is_said_of_its_whole_distribution():
    fork = recorded_lesson(4)
    said = unchanged.words(fork)["overrates"]
    named = {str(entry["token_id"]) for entry in fork["target"]}
    outside = sum(prob for token, prob in fork["draft"].items() if token not in named)
    assert outside > 0.2
    assert f"q = {percent(outside)}, p = 0%. Of the tokens with" in said
    assert (
        "Of the tokens with a bar of their own, the draft overrates “shore” most: q = 14%, but p ="
        " 12%." in said
    )
    inside = {
        **fork,
        "draft": {
            token: prob / (1 - outside) for token, prob in fork["draft"].items() if token in named
        },
    }
    assert unchanged.words(inside)["overrates"].startswith(
        "Of the tokens with a bar of their own, the draft overrates “"
    )


def test_the_table_of_a_rejection_sums_to_1():
    shown = accept.markup(recorded_lesson(3))
    rows = re.findall(r"<tr.*?</tr>", shown.partition("<tbody>")[2])
    assert OTHERS in rows[-1]
    for kind in ("proposed", "bonus", "resampled"):
        cells = re.findall(rf'data-kind="{kind}" style="--share:([\d.]+)"', "".join(rows))
        assert sum(map(float, cells)) == pytest.approx(1, abs=1e-3)


def test_lessons_run_with_a_pair_that_has_only_a_head(bundled_pair, monkeypatch):
    """As SmolLM2's. A pair without a distribution to draw from is refused in a line."""
    monkeypatch.setattr(accept, "TOKENS", 30)
    for head, answer in (
        (bundled_pair.head, nullcontext()),
        (None, pytest.raises(ValueError, match="a draft model or a draft")),
    ):
        pair = ModelPair(bundled_pair.target, head=head, tokenizer=bundled_pair.tokenizer)
        with closing(LocalEngine(SpeculativeDecoder(pair))) as engine, answer:
            *_, last = accept.measure(trial(Catalog({"": ServedPair(engine)})))
            assert OPEN[0] <= last.data["keep"] <= OPEN[1]


def test_another_refusal_is_another_token_and_the_place_to_draw_from_replaces_about_a_third(
    catalog, monkeypatch
):
    monkeypatch.setattr(accept, "TOKENS", 30)
    monkeypatch.setattr(unchanged, "TOKENS", 30)
    *_, first = accept.measure(trial(catalog))
    *_, second = accept.measure(trial(catalog, frozenset([first.data["key"]])))
    assert first.data["guess"] != second.data["guess"]
    for found in (first.data, second.data):
        assert OPEN[0] <= found["keep"] <= OPEN[1]
        assert sum(row["left"] for row in found["tokens"]) <= 1 + 1e-9
        own = next(row for row in found["tokens"] if row["text"] == found["guess"])
        assert own["left"] == 0  # what is refused is never drawn in its own place
    assert ABOUT_A_THIRD[0] <= unchanged.find_position(trial(catalog)).share <= ABOUT_A_THIRD[1]


def test_rounds_add_up():
    runs = [run([(4, 2), (4, 4), (4, 0)])]
    found = totals(runs)
    assert (found["rounds"], found["drafted"], found["kept"], found["judged"]) == (3, 12, 6, 8)
    assert found["kept_at"] == [2, 2, 1, 1]
    assert found["tokens_a_pass"] == 3
    assert found["speed"] == pytest.approx(3 / 0.015)
    assert totals([]) == {}
    assert totals([*runs, Trace()])["speeds"] == [found["speed"]]


def run_of(speed: float) -> dict[str, object]:
    speeds = [0.95 * speed, 1.05 * speed, speed] if speed != 195 else [200, 190, 195]
    return {
        "speed": speed,
        "speeds": speeds,
        "kept": 3,
        "judged": 4,
        "tokens_a_pass": 2.0,
        "kept_share": 0.5,
    }


def known(speeds: dict[object, float]) -> dict[str, object]:
    return {"known": {str(name): run_of(speed) for name, speed in speeds.items()}}


def test_answers_follow_what_was_measured_and_what_cannot_be_distinguished_from_the_best_is_said():
    data = known({0: 100, 1: 120, 4: 200, 6: 195, 12: 150})
    assert (window.best(data), window.alike(data), window.right(data)) == (4, [4, 6], [1, 0])
    assert window.right(known({0: 100, 1: 90, 12: 80}))[0] == 2
    assert window.right(known({0: 100, 1: 90, 12: 180}))[0] == 0
    calm, wild, many = (slower._name(*case) for case in slower.CASES)
    plain = {slower._name(0, slower.CALM): 100, slower._name(0, slower.WILD): 100}
    assert slower.right(known(plain | {calm: 200, wild: 150, many: 60})) == [1, 2, 1]
    assert slower.right(known(plain | {calm: 150, wild: 151, many: 120})) == [1, 1, 0]
    data = recorded_lesson(10)  # where every drafter was slower, plain decoding is the best
    assert set(drafters.measured(data)) >= {"model", "suffix", "prompt_lookup"}
    slow = {
        name: {**run, "speeds": [1.0] * 3 if "plain" not in name else [2.0] * 3}
        for name, run in data["known"].items()
    }
    assert drafters.words({"known": slow})["best_new"] == "plain decoding"


def test_the_70b_model_waits_for_memory_up_to_the_ridge_and_a_tie_flips_in_bfloat16_alone():
    model, gpu = slow.MODEL, batch.GPU
    assert (
        gpu.seconds(model, int(slow.RIDGE))
        == gpu.seconds(model, 1)
        == pytest.approx(0.0211, rel=1e-2)
    )
    assert gpu.seconds(model, 2 * int(slow.RIDGE)) > 1.9 * gpu.seconds(model, 1)
    told = batch.words(recorded_lesson(8))
    assert (
        batch.calculated(int(told["crossing"]) - 1) >= 1 > batch.calculated(int(told["crossing"]))
    )
    assert batch.calculated(1) > 2.5
    bars, _ = drawn(batch.views(recorded_lesson(8))[-1]["figure"]).data
    assert bars.textposition == "inside", "plain decoding's line would cross a number near 1"
    exact, exact_many, half, half_many = (
        margin["margin"] for margin in recorded_lesson(11)["margins"]
    )
    assert exact == pytest.approx(exact_many, abs=1e-3)
    assert half >= 0 >= half_many != half


def test_temperature_has_two_effects_and_alpha_is_predicted(catalog, monkeypatch):
    monkeypatch.setattr(temperature, "TOKENS", 32)
    monkeypatch.setattr(temperature, "TEMPERATURES", (0.0, 1.0, 2.0))
    monkeypatch.setattr(overlap, "TOKENS", 30)
    *_, found = temperature.measure(trial(catalog))
    agree, differ = found.data["alpha"]["agree"], found.data["alpha"]["differ"]
    assert (agree[0], differ[0]) == (1, 0)
    assert max(agree[1:]) < 1
    assert min(differ[1:]) > 0
    *_, counted = overlap.measure(trial(catalog))
    assert abs(counted.data["alpha"] - counted.data["observed"]) < 4 * counted.data["deviation"]


def test_a_long_text_keeps_its_last_words_whole_and_a_view_hides_and_dims_traces():
    assert end_of("a fox") == "a fox"
    assert end_of("once " * 40) == "… " + "once " * 13
    figure = {"data": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "layout": {"meta": "all"}}
    shown = showing(figure, "a", "b", lit=["b"], takeaway="some")["figure"]
    assert [(trace["name"], trace.get("opacity", 1) == 1) for trace in shown["data"]] == [
        ("a", False),
        ("b", True),
    ]
    assert shown["layout"]["meta"] == "some"
    assert figure["layout"]["meta"] == "all"


def test_what_lesson_6_reckons_with_alpha_is_reckoned_with_the_alpha_that_it_shows():
    data = recorded_lesson(6)
    shown = window.words(data)
    assert shown["third"] == percent(float(shown["alpha"]) ** 3)
    assert shown["last"] == percent(float(shown["alpha"]) ** int(shown["many"]))
    bars, powers = window.views(data)[1]["figure"]["data"]
    assert powers["y"] == pytest.approx(
        [float(shown["alpha"]) ** n for n in range(1, 1 + len(powers["y"]))]
    )
    below = sum(bar < power for bar, power in zip(bars["y"], powers["y"], strict=True))
    assert shown["line"].startswith(f"{below} of {len(bars['y'])} bars lie below the line. ")
    first = f"α is higher than the {percent(bars['y'][0])} of steps that accepted the first."
    assert first in shown["line"]
    widest = data["known"][shown["many"]]
    missing = int(shown["many"]) * widest["rounds"] - widest["drafted"]
    assert (
        f"{missing} of {int(shown['many']) * widest['rounds']} positions in the windows stayed"
        " empty" in shown["line"]
    )
    high = {**data["known"], shown["many"]: {**widest, "kept_at": [widest["rounds"]] * 12}}
    assert window.words({"known": high})["line"] == "0 of 12 bars lie below the line."


def test_lesson_6_draws_every_k_by_its_size_and_marks_none_as_good_that_is_slower_than_plain():
    data = recorded_lesson(6)
    views = window.views(data)
    for figure in (
        views[0]["figure"],
        views[0]["finished"],
        views[2]["figure"],
        views[3]["figure"],
    ):
        bars = drawn(figure).data[0]
        assert list(bars.x) == list(figure["layout"]["xaxis"]["tickvals"]) == list(window.KS)
    assert [mark["x"] for mark in views[0]["figure"]["layout"]["annotations"]] == list(
        window.KS[1:]
    )
    data["known"]["8"] |= {"speed": 0.9 * data["known"]["0"]["speed"], "speeds": [1.0, 900.0, 1.0]}
    bars, _ = window.views(data)[3]["figure"]["data"]
    assert bars["marker"]["color"][window.KS.index(8)] == MUTED


def test_a_lesson_says_where_it_was_measured_and_has_its_answers():
    told = json.loads(learn.recording(8))
    here = "On the recording machine, with k = 4, the speedup was 2.13× with 1 text, 1.72× with 2, "
    assert here in told["steps"][-2]["html"]
    assert (
        "On this machine, with"
        in content(batch.LESSON, recorded_lesson(8), learn.LIVE)["steps"][-2]["html"]
    )
    assert told["settings"].startswith("Temperature 0.7, k = 4, ")
    assert "up to 16 texts" in told["answers"]
    assert "cat" not in told["answers"]


@pytest.mark.parametrize(
    ("means", "said"),
    [
        (
            (0.87, 0.94, 0.57),
            (
                "Here the gain outweighs the loss from 0 to 1, and the loss outweighs the gain from"
                " 1 to 2."
            ),
        ),
        ((0.9, 0.8, 0.6), "Here the loss outweighs the gain from 0 to 2."),
        (
            (0.5, 0.51, 0.9),
            (
                "Here the two effects cancel out from 0 to 1, and the gain outweighs the loss from"
                " 1 to 2."
            ),
        ),
    ],
)
def test_lesson_7_names_the_effect_that_its_figures_show(means, said):
    data = recorded_lesson(7)
    for at, mean in zip((0.0, 1.0, 2.0), means, strict=True):
        data["mean"][temperature.TEMPERATURES.index(at)] = mean
    assert temperature.words(data)["effect"] == said


def test_what_lesson_10_recommends_is_what_its_figures_say():
    known = recorded_lesson(10)["known"]
    for text, speed in (("new", 1), ("repeating", 3)):
        for name in drafters.COPYING:
            known[f"{name}@{text}"] = {**known[f"{name}@{text}"], "speeds": [300.0 * speed] * 3}
    known |= {"head@new": {**known["head@new"], "speeds": [800.0] * 3}}
    said = drafters.words({"known": known})
    assert said["best_repeating"].startswith("suffix decoding or prompt lookup, ")
    own, of_model, copied = (
        f"{speedup({'known': known}, f'{name}@{text}', f'plain@{text}').mean:.2f}"
        for name, text in (("head", "new"), ("model", "new"), ("suffix", "repeating"))
    )
    assert (
        f"{own} times as fast as plain decoding on a new text, the draft model {of_model} times"
        in said["take_head"]
    )
    assert (
        f"{copied} times as fast as plain decoding on such text, and prompt lookup {copied} times"
        in said["take_copying"]
    )
    shown = json.loads(learn.recording(10))["steps"][-1]["html"]
    assert "suffix decoding" not in shown.partition("<tbody>")[2].partition("</tr>")[0]


@pytest.mark.parametrize("target", [None, *OF_TARGETS])
def test_right_answers_are_in_changing_places(target):
    told = (json.loads(learn.recording(number, target)) for number in NUMBERS)
    right = [step["question"]["right"] for one in told for step in one["steps"] if step["question"]]
    assert min(right.count(0), right.count(1)) >= len(right) / 4
    assert right.count(2) >= len(right) / 8


@pytest.mark.parametrize("folder", [FOLDER, *(folder for folder, _ in OF_TARGETS.values())])
def test_the_gap_of_lesson_1_lies_inside_its_chart_and_nothing_there_is_dimmed(folder):
    data = recorded_lesson(1, folder)
    gap = slow.views(data)[-1]["figure"]
    measured, singly = gap["data"]
    assert max(singly["y"]) <= gap["layout"]["yaxis"]["range"][1]
    assert {trace.get("opacity", 1) for trace in (measured, singly)} == {1}
    whole = slow.MODEL.weight_bytes + slow.KV_BYTES * max(slow.CONTEXTS)
    assert whole < 80e9, "an H100 has 80 GB"


def test_lesson_2_draws_each_column_with_the_next_token_below_the_one_that_it_reads():
    data = recorded_lesson(2)
    columns = verify._columns(data["before"], data["rounds"][0])
    drafts = [spoken(draft["text"]) for draft in data["rounds"][0]["drafts"]]
    assert [column["reads"] for column in columns[1:]] == drafts
    assert [column["judges"] for column in columns] == [*drafts, ""]
    assert data["before"].endswith(columns[0]["reads"])
    shown = verify.markup(data)
    assert shown.count('data-part="draft"') == 2 * len(drafts), (
        "the stage's drawing, wide and narrow"
    )
    seen = shown.partition('preserveAspectRatio="none"')[2].partition("</svg>")[0]
    assert seen.count("<path") == sum(range(1, len(columns) + 1)), "each sees only its left"


def measured(float_pass, int_pass, *speeds):
    passes = {
        "float32": dict(zip(map(str, rounding.COUNTS), float_pass, strict=True)),
        "int8": dict(zip(map(str, rounding.COUNTS), int_pass, strict=True)),
    }
    known = {"passes": passes, "speeds": dict(zip(rounding.LANES, speeds, strict=True))}
    return known | {"machine": "", "texts": 4, "same": 4, "kept": 2}


def test_lesson_13_says_what_its_passes_and_lanes_show():
    flat, steep = [0.030] * 9, [0.010 + 0.002 * n for n in range(9)]
    data = measured(flat, steep, 30, 60, 60, 80)
    assert rounding.right(data) == [2, 0]
    said = rounding.words(data)
    assert (said["rounded"], said["drafted"], said["product"], said["both"]) == (
        *("2.00", "2.00"),
        *("4.00", "2.67"),
    )
    assert "takes away what drafting uses" in said["why"]
    assert said["fastest"] == "8 bits with drafts"
    assert rounding.right(measured(flat, flat, 30, 60, 60, 120)) == [1, 2]
    assert rounding.right(measured(steep, flat, 30, 60, 60, 60)) == [0, 1]
    opening, *_, last = rounding.views(data)
    assert len(opening["figure"]["data"][0]["x"]) == 1
    assert last["figure"]["data"][0]["x"] == pytest.approx([100 / 30, 100 / 60, 100 / 60, 100 / 80])


def test_lesson_12_judges_by_typical_acceptance_as_its_sampler_does():
    p, q = {1: 0.6, 2: 0.3, 3: 0.1}, {1: 0.2, 2: 0.7, 4: 0.1}
    accepted, shifted = rules.typical(p, q)
    target, draft = torch.tensor([0.6, 0.3, 0.1, 0]), torch.tensor([0.2, 0.7, 0, 0.1])
    sampler = TypicalAcceptanceSampler()
    least = sampler.thresholds(target[None])
    assert accepted == pytest.approx(float(draft[target > least].sum()))
    assert shifted == pytest.approx(
        float(sampler.distance(target[None], draft[None], least)), abs=1e-6
    )


def test_lesson_12_compares_the_rules_at_the_positions_of_one_run(catalog, monkeypatch):
    monkeypatch.setattr(rules, "TOKENS", 24)
    monkeypatch.setattr(rules, "TEXTS", 2)
    *_, found = rules.measure(trial(catalog))
    shares = found.data["rules"]
    assert 0 <= shares["match"] <= shares["ratio"] <= 1
    assert 0 < found.data["one_by_one"] <= found.data["block"] <= rules.K


def test_the_short_path_is_made_of_lessons_and_marked_in_the_list():
    markup = render("learn", titles=titles(), charts={}, path=learn.PATH)
    marked = re.findall(r'data-lesson="(\d+)" data-path', markup)
    assert tuple(map(int, marked)) == learn.PATH
    assert 'href="?lesson=1&amp;path=1"' in markup
