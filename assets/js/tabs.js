// The address names the visible tab, and the browser's "back" returns to the previous one. Lessons and rooms name themselves.

import { LINKED } from "./room.js";

const USUAL = "run";
const OF_LESSONS = ["lesson", "step", ...LINKED];

export function mount() {
  const bar = document.querySelector("#tabs [role='tablist']");
  if (!bar) return void requestAnimationFrame(mount); // Gradio has not drawn it yet
  let seen = USUAL;
  const selected = () => bar.querySelector("[role='tab'][aria-selected='true']")?.dataset.tabId;
  const open = () => {
    const tab = bar.querySelector(`[data-tab-id="${CSS.escape(named())}"]`);
    if (named() !== selected()) tab?.click();
  };
  new MutationObserver(() => {
    const tab = selected();
    if (!tab || tab === seen) return;
    seen = tab;
    if (tab !== named()) history.pushState(null, "", addressOf(tab));
  }).observe(bar, { subtree: true, attributeFilter: ["aria-selected"] });
  window.addEventListener("popstate", open);
  open();
}

// The tab that the address leads to.
function named() {
  const query = new URLSearchParams(location.search);
  return query.get("tab") || (query.has("lesson") || query.has("room") ? "learn" : USUAL);
}

// The page's address with another tab; the lesson adds itself.
function addressOf(tab) {
  const query = new URLSearchParams(location.search);
  for (const name of ["tab", ...OF_LESSONS]) query.delete(name);
  if (tab !== USUAL && tab !== "learn") query.set("tab", tab);
  return location.pathname + (query.size ? `?${query}` : "");
}
