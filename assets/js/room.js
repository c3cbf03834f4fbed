// Rooms below the lessons: closed at first, opened by a link, and named in the address while they are visible.

import { whenLost } from "./connection.js";
import { readdress } from "./dom.js";

const PATIENCE_MS = 60000;
export const LINKED = ["room", "text", "dice", "alpha"]; // parameters of links to rooms
export const NO_ANSWER = "No answer. Try again.";

// A form's question to the server. Its button is disabled meanwhile. Without an answer, the status says so, and `given` is
// called.
export class Question {
  constructor(button, status, given = () => {}) {
    Object.assign(this, { button, status, given, timer: 0 });
    whenLost(() => this.giveUp());
  }

  begin(said, patience = PATIENCE_MS) {
    this.end(said);
    this.button.disabled = true;
    this.timer = setTimeout(() => this.giveUp(), patience);
  }

  end(said) {
    clearTimeout(this.timer);
    this.button.disabled = false;
    this.status.textContent = said;
  }

  giveUp() {
    if (!this.button.disabled) return;
    this.end(NO_ANSWER);
    this.given();
  }
}

// Shows what the server found: `words`, escaped there, in a `place` within `found`, which is hidden without words.
export function reveal(found, words, place = found) {
  found.hidden = !words; // old results do not belong to a new question
  place.innerHTML = words ?? "";
  if (!words) return;
  found.focus({ preventScroll: true });
  found.scrollIntoView({ block: "nearest" });
}

// The element of a component's room, with its event handlers.
export function room({ element }) {
  const box = element.querySelector(".ns-room");
  const { room: name } = box.dataset;
  const linked = (query) => query.get("room") === name;
  const address = () => readdress((query) => {
    const here = box.open && box.offsetParent !== null;
    if (here === linked(query)) return;
    if (here) query.set("room", name); else for (const own of LINKED) query.delete(own);
  });
  // Its arrow and Page keys do not move the lessons above.
  box.addEventListener("keydown", (event) => { if (/^(Arrow|Page)/.test(event.key)) event.stopPropagation(); });
  box.addEventListener("toggle", (event) => { if (event.target === box) address(); });
  let first = true;
  new ResizeObserver(() => {
    if (box.offsetParent !== null && first && linked(new URLSearchParams(location.search))) {
      box.open = true;
      box.scrollIntoView();
    }
    if (box.offsetParent !== null) first = false;
    if (!first) address();
  }).observe(box);
  return box;
}
