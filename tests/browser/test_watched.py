"""A trace of transformers' own assisted generation, opened on the page: tokens, draws and probabilities, and whole charts."""

import pytest
from playwright.sync_api import expect
from transformers import AutoModelForCausalLM, AutoTokenizer

from naive_speculate import Trace, watch
from naive_speculate.models import BUNDLED_PAIR
from tests.browser.steps import open_trace, see_chart, text

CHARTS = ("chart-acceptance", "chart-positions", "chart-lengths", "chart-timing")
VALUES = "(place) => place.data.flatMap((trace) => [...(trace.x || []), ...(trace.y || [])])"


@pytest.fixture(scope="module")
def models():
    target, draft = (AutoModelForCausalLM.from_pretrained(BUNDLED_PAIR / name) for name in ("target", "draft"))
    draft.generation_config.num_assistant_tokens = 4
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    return target, draft, AutoTokenizer.from_pretrained(BUNDLED_PAIR / "target")


def watched(models, **options) -> Trace:
    target, draft, tokenizer = models
    return watch(target, draft, "Once upon a time", tokenizer=tokenizer, seed=3, max_new_tokens=24, **options)


def look_at(page, trace: Trace, number_of_event: int) -> None:
    event = trace[number_of_event]
    page.locator(f"#tokens [data-step='{event.step}'][data-index='{event.index}'][data-kind={event.kind}]").click()
    expect(page.locator(".ns-why")).to_have_attribute("data-event", str(number_of_event))


def test_a_run_of_transformers_shows_its_draws_and_probabilities_and_a_greedy_one_opens_too(page, models, tmp_path):
    trace = watched(models, do_sample=True, temperature=1.0, top_k=0)
    open_trace(page, trace, tmp_path / "transformers.jsonl")
    assert text(page) == trace.text
    expect(page.locator(".ns-title")).to_contain_text(trace.started.settings["engine"])
    for kind in ("accepted", "rejected"):
        place = next(n for n, event in enumerate(trace) if event.kind == kind)
        look_at(page, trace, place)
        details = page.locator("#why .inspector-details")
        for value in (trace[place].target_prob, trace[place].draft_prob):
            expect(details).to_contain_text(f"{value:.6g}")
        expect(details).to_contain_text(f"{trace[place].uniform:.6g}")
        expect(page.locator("#distributions tbody tr").first).to_be_visible()
    for chart in CHARTS:
        see_chart(page, chart)
        values = page.locator(f"#{chart}").evaluate(VALUES)
        assert values, chart
        assert all(isinstance(value, (int, float)) for value in values), (chart, values)
    words = page.locator("body").inner_text()
    for missing in ("NaN", "undefined", "Infinity"):
        assert missing not in words

    trace = watched(models, do_sample=False)
    open_trace(page, trace, tmp_path / "transformers.jsonl")
    assert text(page) == trace.text
    look_at(page, trace, next(n for n, event in enumerate(trace) if event.kind == "accepted"))
    words = page.locator("body").inner_text()
    assert "NaN" not in words
    assert "undefined" not in words
