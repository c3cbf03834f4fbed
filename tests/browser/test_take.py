"""Pictures and data to take away."""

import re
from xml.etree import ElementTree

from playwright.sync_api import expect

from naive_speculate import Trace
from tests.browser.steps import save_as, saved, text
from ui.run.recorded import SPECULATIVE

ROUNDS_SHOWN = """
    window.rounds = [];
    new MutationObserver(() => {
        const shown = document.querySelector(".ns-clock")?.textContent.match(/step (\\d+) of/);
        if (shown) window.rounds.push(Number(shown[1]));
    }).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Before any script of the page: the rounds that its clock has shown so far. None of them waits for a test."""


def test_charts_and_coloured_text_can_be_saved_and_a_run_replays_in_a_file_of_its_own_without_any_network(
    page, chromium, tmp_path
):
    charts = page.locator("#charts .ns-chart")
    count = charts.count()
    assert count >= 5
    assert page.locator(".ns-pictures button").count() >= 2 * count
    chart = charts.filter(has=page.locator("#chart-positions"))
    chart.hover()
    png = saved(page, chart.get_by_role("button", name=re.compile("^Save this chart as PNG")), tmp_path / "chart.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    svg = saved(page, chart.get_by_role("button", name=re.compile("^Save this chart as SVG")), tmp_path / "chart.svg")
    words = "".join(ElementTree.parse(svg).getroot().itertext())
    title = chart.locator("figcaption").evaluate("(node) => node.firstElementChild.textContent")
    assert title in words
    assert "var(--" not in svg.read_text()

    page.get_by_role("button", name="To the start").click()
    page.locator(".ns-take summary").click()
    expect(page.get_by_role("button", name="This step, for a slide (SVG)")).to_be_disabled()  # there is none yet
    page.get_by_role("button", name="To the end", exact=True).click()
    recorded = Trace.load(SPECULATIVE)
    drawing = ElementTree.parse(save_as(page, "Coloured text (SVG)", tmp_path / "text.svg")).getroot()
    drawn = "".join(node.text or "" for node in drawing.iter("{http://www.w3.org/2000/svg}text"))
    shown = page.evaluate("[...document.querySelectorAll('#tokens .ns-token')].map(n => n.textContent).join('')")
    assert re.sub(r"\s", "", drawn) == re.sub(r"\s", "", shown)
    assert recorded._repr_html_() in save_as(page, "Coloured text (HTML)", tmp_path / "text.html").read_text()

    passes = recorded.metrics.num_spec_steps
    file = save_as(page, "A page that replays by itself (HTML)", tmp_path / "replay.html")
    context = chromium.new_context(offline=True, reduced_motion="no-preference")
    alone, asked, problems = context.new_page(), list[str](), list[str]()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("pageerror", lambda error: problems.append(str(error)))
    alone.add_init_script(ROUNDS_SHOWN)
    alone.goto(file.as_uri())
    alone.wait_for_function("() => rounds[0] < 2 && rounds.at(-1) >= 2")  # it plays by itself
    alone.get_by_role("button", name="To the end", exact=True).click()
    expect(alone.locator(".ns-clock")).to_contain_text(f"step {passes} of {passes}")
    assert text(alone) == recorded.text
    expect(alone.locator("#stats")).to_contain_text(f"{len(recorded.token_ids)} tokens in {passes} passes")
    alone.locator("#tokens [data-kind=rejected]").first.click()
    expect(alone.locator(".inspector-why")).to_contain_text("draft gave")
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert problems == []
    context.close()
