// A problem with a setting, which the server shows as a toast: its field is marked, gets the focus, and says what is wrong
// until it is changed. Then the toast vanishes too.

import { make } from "./dom.js";

const MARK = ".ns-problem";
const TYPED = ":is(input,textarea)";
const FRAMES = 60; // until what was opened is there

export function markProblems() {
  new MutationObserver((records) => {
    for (const { addedNodes } of records) {
      for (const node of addedNodes) {
        const found = node.nodeType === Node.ELEMENT_NODE && (node.matches(MARK) ? node : node.querySelector(MARK));
        if (found) mark(found);
      }
    }
  }).observe(document.body, { subtree: true, childList: true });
}

function mark(said, frames = FRAMES) {
  const [, field] = /ns-problem-(\w+)/.exec(said.className);
  const block = document.querySelector(field === "prompt" ? "#prompt" : `.ns-field-${CSS.escape(field)}`);
  if (!block) { // the drawer has no fields before it is opened for the first time
    document.querySelector("#more > button:not(.open)")?.click();
    if (frames) requestAnimationFrame(() => mark(said, frames - 1));
    return;
  }
  show(block);
  const input = block.querySelector(TYPED);
  block.querySelector(".ns-field-problem")?.remove();
  const words = make("p", { class: "ns-field-problem", id: `problem-${field}` }, said.textContent);
  block.append(words);
  for (const one of block.querySelectorAll(TYPED)) {
    one.setAttribute("aria-invalid", "true");
    one.setAttribute("aria-describedby", words.id);
  }
  focused(input);
  const clear = () => {
    words.remove();
    for (const one of block.querySelectorAll("[aria-invalid]")) for (const name of ["aria-invalid", "aria-describedby"]) one.removeAttribute(name);
    for (const name of ["input", "change"]) block.removeEventListener(name, clear);
    said.closest("[data-testid=toast-body]")?.querySelector("[data-testid=toast-close]")?.click();
  };
  for (const name of ["input", "change"]) block.addEventListener(name, clear);
}

// Gives a field the focus, once the drawer that holds it is open.
function focused(input, frames = FRAMES) {
  input?.focus();
  if (input && document.activeElement !== input && frames) requestAnimationFrame(() => focused(input, frames - 1));
}

// Opens the drawer, and on a phone the sheet, that hold the field.
function show(block) {
  const settings = block.closest(".ns-settings");
  const opener = document.querySelector(".ns-settings-open");
  if (settings && opener?.checkVisibility() && opener.ariaExpanded === "false") opener.click();
  const drawer = block.closest("#more");
  if (drawer && !block.checkVisibility()) drawer.querySelector("button").click();
}
