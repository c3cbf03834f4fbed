"""Why two texts differ: the room, from Explore and from a race whose greedy lanes parted."""

from playwright.sync_api import expect

from tests.browser.steps import toast
from ui.assets import folder

FOUND = "#differ .ns-findings"
PARTED = """async (module) => {
    const started = { kind: "started", time: 0, prompt: "Once upon a time", prompt_texts: ["Once upon a time"] };
    const word = (token_id, text) => [{ kind: "bonus", time: 0.01, token_id, text }, { kind: "step", time: 0.01 }];
    const { show } = await import(new URL(module, document.baseURI));
    show({
        serial: "parted", done: true, live: true, compared: true, settings: { temperature: 0, verify_strategy: "greedy_match" },
        events: [
            started, ...word(5, " there was"), ...word(6, " a fox"),
            ...[" who", "\\n", " had", " two"].flatMap((text, n) => word(9 + n, text)),
        ],
        plain: [[0.01, 5, " there was"], [0.02, 7, " a king"]],
    });
}"""


def test_a_race_whose_lanes_parted_asks_why_and_bad_texts_are_refused(open_page):
    page = open_page(reduced_motion="reduce")
    page.evaluate(PARTED, f".{folder()}/race.js")
    page.locator(".ns-result").get_by_role("button", name="Why?").click()
    expect(page.locator(f"{FOUND} h3")).to_have_text("Unexplained")
    expect(page.locator(FOUND)).to_contain_text("After the same 3 tokens")
    expect(page.locator("#differ [name=b]")).to_have_value(
        " there was a fox who\n had"
    )  # four tokens from where they part, as decoded
    expect(page.locator("#differ [name=chat]")).not_to_be_checked()

    page.get_by_role("tab", name="Explore").click()
    page.get_by_role("link", name="Find out why").click()
    page.locator("#differ [name=a]").fill("🦊" * 600)
    page.locator("#differ [type=submit]").click()
    toast(page, "at most 160 tokens")
    expect(page.locator(FOUND)).to_be_hidden()
    expect(page.locator("#differ [type=submit]")).to_be_enabled()
