// The room that explains why two texts differ. `explain` opens it from anywhere, with texts or empty.

import { onLink } from "./dom.js";
import { Question, reveal, room } from "./room.js";

const PATIENCE_MS = 600000; // others may measure before
let view = null;
let given = null;

// Texts are `{ prompt, a, b, chat, greedy }`, which are compared at once.
export function explain(texts = {}) {
  given = texts;
  document.querySelector("#tabs [data-tab-id='learn']").click();
  view?.take(); // if the tab was never open, once it is mounted
}

onLink(document, "a[href='?room=differ']", () => explain());

export function mount(component) {
  view = new Comparison(component);
  view.take();
}

class Comparison {
  constructor(component) {
    this.box = room(component);
    [this.form, this.found] = ["form", ".ns-findings"].map((selector) => this.box.querySelector(selector));
    this.question = new Question(this.form.querySelector("[type=submit]"), this.form.querySelector("[role=status]"));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.question.begin("Loading the target in both precisions, and comparing …", PATIENCE_MS);
      component.trigger("compare", Object.fromEntries(new FormData(this.form)));
    });
    component.watch("value", () => this.show(component.props.value));
  }

  take() {
    if (!given) return;
    const { chat, greedy, ...texts } = given;
    given = null;
    this.box.open = true;
    this.box.scrollIntoView();
    if (!texts.prompt) return;
    const { elements } = this.form;
    for (const [name, text] of Object.entries(texts)) elements[name].value = text;
    [elements.chat.checked, elements.greedy.checked] = [chat, greedy];
    this.form.requestSubmit();
  }

  show(value) {
    if (!value) return;
    const { words } = JSON.parse(value);
    this.question.end("");
    reveal(this.found, words); // without words, a toast says why
  }
}
