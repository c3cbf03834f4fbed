// The page as a whole: dark or light; the tab and the other views that its address names; lecture mode, with large type, a
// fixed bar and arrow keys; a part of the page embedded in another page; its language, and its settings on a phone.

import { answerTo } from "./connection.js";
import { addressWith, lecturing, make, onEscape, query, readdress, storage } from "./dom.js";
import { markProblems } from "./problems.js";
import { UNLINKED } from "./rooms.js";

const THEME = "naive-speculate-theme";
const LANGUAGE = "naive-speculate-language";
const EVERY_MS = 1000; // between requests whether a pair is still loading
const USUAL = "run";
const STILL_FRAMES = 10;
const LONGEST_MS = 10_000; // that the first view stays
const CAPTION = "One step of speculative decoding: the drafter proposes, one pass of the target judges.";
// What Escape closes first.
const OPEN = "dialog[open], .ns-card:popover-open, .ns-stage > .ns-tip:not([hidden]), .ns-both:not([hidden]), :is(.ns-inspector, .ns-settings).ns-open";

export function mount({ element, trigger }) {
  themed(element.querySelector(".ns-theme"));
  tabs();
  markProblems();
  if (query().get("embed") === "1") embed();
  // A link to a tab, lesson or room, which may not exist; once the page listens.
  const linked = String(query());
  if (["lesson", "room", "tab"].some((name) => query().get(name))) setTimeout(() => trigger("linked", { query: linked }));
  lectures(element.querySelector(".ns-lecture-button"));
  reveal();
}

// Removes the first view (ui/first_view.py) once what it stands for is there, and stands still; or after a while, if an answer is lost.
function reveal(frames = STILL_FRAMES, before = "") {
  const early = document.getElementById("ns-early");
  const place = early && document.querySelector("gradio-app").querySelector(early.dataset.shown);
  if (place && query().has("room")) place.scrollIntoView(); // what is above it may have come later
  if (!early || !frames || performance.now() > LONGEST_MS) return early?.remove();
  const { x, y, width, height } = place?.getBoundingClientRect() ?? {};
  const now = height ? [x, y, width, height, document.body.scrollHeight].join() : "";
  requestAnimationFrame(() => reveal(now && now === before ? frames - 1 : STILL_FRAMES, now));
}

// The button for dark and light; the choice is stored for the next visit.
function themed(button) {
  const { classList } = document.body;
  const chosen = query().has("__theme") ? null : storage(() => localStorage.getItem(THEME));
  button.ariaPressed = classList.toggle("dark", chosen ? chosen === "dark" : classList.contains("dark"));
  button.addEventListener("click", () => {
    const dark = button.ariaPressed = classList.toggle("dark");
    storage(() => localStorage.setItem(THEME, dark ? "dark" : "light")); // without storage, it holds for this visit
  });
}

// The address names the visible tab, and the browser's "back" returns to the previous one. Lessons and rooms name themselves.
function tabs() {
  const bar = document.querySelector("#tabs [role='tablist']");
  if (!bar) return void requestAnimationFrame(tabs); // Gradio has not drawn it yet
  let seen = USUAL;
  const selected = () => bar.querySelector("[role='tab'][aria-selected='true']")?.dataset.tabId;
  const named = () => query().get("tab") || (query().has("lesson") || query().has("room") ? "learn" : USUAL);
  const open = () => {
    if (named() !== selected()) bar.querySelector(`[data-tab-id="${CSS.escape(named())}"]`)?.click();
  };
  new MutationObserver(() => {
    const tab = selected();
    if (!tab || tab === seen) return;
    seen = tab;
    if (tab === named()) return;
    const own = tab === USUAL || tab === "learn" ? null : tab; // the lesson adds itself
    history.pushState(null, "", addressWith({ ...UNLINKED, tab: own, lesson: null, step: null }));
  }).observe(bar, { subtree: true, attributeFilter: ["aria-selected"] });
  window.addEventListener("popstate", open);
  open();
}

function lectures(button) {
  const turn = (on) => {
    document.body.classList.toggle("ns-lecture", on);
    button.ariaPressed = on;
    readdress({ lecture: on ? "1" : null });
  };
  button.addEventListener("click", () => {
    turn(!lecturing());
    button.blur(); // Space plays from now on
  });
  // Every entry in the browser's history has its own address; lecture mode stays as it is.
  window.addEventListener("popstate", () => turn(lecturing()));
  // Before anything open has been closed by the same key.
  document.addEventListener("keydown", ({ key, ctrlKey, metaKey, altKey }) => {
    if (lecturing() && key === "Escape" && !ctrlKey && !metaKey && !altKey && !document.querySelector(OPEN)) turn(false);
  }, true);
  if (query().get("lecture") === "1") turn(true);
}

// One run, its stage alone or one lesson, and a link to the whole page; the stage alone is a figure with a number and a caption.
function embed() {
  const [alone, number] = [query().get("stage") === "1", query().get("figure")];
  document.body.classList.add("ns-embed");
  document.body.classList.toggle("ns-machine-only", alone);
  const looks = { href: addressWith({ embed: null, stage: null, figure: null }), target: "_blank", rel: "noopener" };
  const said = alone ? [make("b", "", `Figure ${/^\d{1,3}$/.test(number) ? number : 1}.`), " ", make("span", "", CAPTION), " "] : [];
  document.body.append(make("p", "ns-whole", ...said, make("a", looks, "Open the whole page")));
}

// Polls until all pairs are loaded, then triggers an update of the page.
export function mountNotice({ element, server, trigger }) {
  const look = async () => {
    if (!element.querySelector("[data-loading]")) return;
    if (await answerTo(() => server.loading()) === false) return void trigger("settled", {});
    setTimeout(look, EVERY_MS);
  };
  look();
}

// On a phone this button opens the settings as a sheet. Run folds them away, and brings the run to the top.
export function mountSettings({ element }) {
  const button = element.querySelector("button");
  const sheet = document.querySelector(".ns-settings");
  const turn = (on) => {
    const open = sheet.classList.toggle("ns-open", on);
    button.ariaExpanded = open;
    button.textContent = open ? "Close settings" : "Settings";
  };
  button.addEventListener("click", () => turn());
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#run, .ns-example")) return;
    turn(false);
    if (button.checkVisibility()) document.querySelector(".ns-show").scrollIntoView();
  });
  onEscape(() => turn(false));
}

// The menu of languages; the choice is stored for the next visit.
export function mountLanguages({ element }) {
  const menu = element.querySelector("select");
  menu.value = document.documentElement.lang;
  menu.addEventListener("change", () => {
    const stored = storage(() => (localStorage.setItem(LANGUAGE, menu.value), true));
    readdress({ lang: stored ? null : menu.value });
    location.reload(); // translations replace the English texts
  });
}
