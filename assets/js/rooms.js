// Rooms below the lessons: closed at first, opened by a link, and named in the address while they are visible. Two of them are
// here: the doctor, and the room that explains why two texts differ.

import { whenLost } from "./connection.js";
import { Channel, copyBy, onLink, readdress } from "./dom.js";
import { plot } from "./plot.js";

const PATIENCE_MS = 60000;
const COMPARING_MS = 600000; // others may measure before
export const LINKED = ["room", "text", "dice", "alpha"]; // parameters of links to rooms
export const NO_ANSWER = "No answer. Try again.";

// A form's question to the server: an event of the component with the form's fields and a number. The answer with that number
// comes as the component's value, and is shown. The button is disabled meanwhile. Without an answer, the status says so.
export class Question {
  constructor({ trigger, props, watch }, event, form, { said, patience = PATIENCE_MS, fields = () => fieldsOf(form), show }) {
    Object.assign(this, { trigger, event, said, patience, fields, asked: 0 });
    this.button = form.querySelector("[type=submit]");
    this.status = form.closest(".ns-room").querySelector(".ns-room-status");
    form.addEventListener("submit", (submitted) => { submitted.preventDefault(); this.ask(); });
    watch("value", () => {
      const answer = JSON.parse(props.value || "{}");
      if (!this.button.disabled || answer.asked !== this.asked) return;
      this.end("");
      show(answer);
    });
    whenLost(() => this.giveUp());
  }

  ask() {
    this.end(this.said);
    this.button.disabled = true;
    this.timer = setTimeout(() => this.giveUp(), this.patience);
    this.trigger(this.event, { ...this.fields(), asked: this.asked += 1 });
  }

  end(said) {
    clearTimeout(this.timer);
    this.button.disabled = false;
    this.status.textContent = said;
  }

  giveUp() {
    if (this.button.disabled) this.end(NO_ANSWER);
  }
}

const fieldsOf = (form) => Object.fromEntries(new FormData(form));

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

// Sends a pasted log to the server, and shows the words and charts in the answer.
export function mountDoctor(component) {
  const box = room(component);
  const [form, found] = ["form", ".ns-findings"].map((selector) => box.querySelector(selector));
  const report = form.querySelector("pre");
  const show = ({ words, report: text, charts }) => {
    if (words) question.end("Done: see the results below.");
    reveal(found, words, found.querySelector(".ns-findings-words"));
    if (!words) return;
    report.textContent = text;
    for (const [name, figure] of Object.entries(charts)) plot(found.querySelector(`[data-chart="${name}"]`), figure);
  };
  const question = new Question(component, "examine", form, { said: "Reading …", show });
  for (const button of form.querySelectorAll("[data-example]")) {
    button.addEventListener("click", async () => {
      const log = await component.server.example(button.dataset.example);
      if (!log) return question.end(NO_ANSWER);
      form.elements.log.value = log;
      question.ask();
    });
  }
  const copy = form.querySelector("[data-act='copy']");
  copy.addEventListener("click", () => copyBy(copy, report.textContent));
}

const texts = new Channel();

// Opens the room from anywhere, with texts `{ prompt, a, b, chat, greedy }`, which are compared at once, or empty.
export function explain(given = {}) {
  document.querySelector("#tabs [data-tab-id='learn']").click();
  texts.tell(given);
}

onLink(document, "a[href='?room=differ']", () => explain());

export function mountDiffer(component) {
  const box = room(component);
  const [form, found] = ["form", ".ns-findings"].map((selector) => box.querySelector(selector));
  const said = "Loading the target in both precisions, and comparing …";
  const show = ({ words }) => reveal(found, words); // without words, a toast says why
  new Question(component, "compare", form, { said, patience: COMPARING_MS, show });
  texts.follow(({ chat, greedy, ...given }) => {
    box.open = true;
    box.scrollIntoView();
    if (!given.prompt) return;
    const { elements } = form;
    for (const [name, text] of Object.entries(given)) elements[name].value = text;
    [elements.chat.checked, elements.greedy.checked] = [chat, greedy];
    form.requestSubmit();
  });
}
