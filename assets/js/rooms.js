// Rooms below the lessons: closed at first, opened by a link, and named in the address while they are visible. Two of them are
// here: the doctor, and the room that explains why two texts differ.

import { whenLost } from "./connection.js";
import { Channel, copyBy, finder, onLink, query, readdress } from "./dom.js";
import { plot } from "./plot.js";

const PATIENCE_MS = 60000;
const COMPARING_MS = 600000; // others may measure before
export const UNLINKED = { room: null, text: null, dice: null, alpha: null }; // parameters of links to rooms
const NO_ANSWER = "No answer. Try again.";
const NO_TEXTS = "The run on the Run tab has no text without drafts yet.";

// A component's room. Its form is a question to the server: an event with the form's fields and a number. The answer with that
// number comes as the component's value, and is shown. The button is disabled meanwhile. Without an answer, the status says so.
export class Room {
  asked = 0;

  constructor({ element, trigger, props, watch }, event, { said, show, form = "form", fields, patience = PATIENCE_MS }) {
    this.box = element.querySelector(".ns-room");
    Object.assign(this, { find: finder(this.box), trigger, event, said, patience });
    this.form = this.find(form);
    this.fields = fields ?? (() => Object.fromEntries(new FormData(this.form)));
    this.button = this.form.querySelector("[type=submit]");
    this.form.addEventListener("submit", (submitted) => { submitted.preventDefault(); this.ask(); });
    watch("value", () => {
      const answer = JSON.parse(props.value || "{}");
      if (!this.button.disabled || answer.asked !== this.asked) return;
      this.end("");
      show(answer);
    });
    whenLost(() => this.giveUp());
    this.box.addEventListener("toggle", () => this.appear());
    new ResizeObserver(() => this.appear()).observe(this.box); // its tab was opened
  }

  open() {
    this.box.open = true;
    this.box.scrollIntoView();
  }

  // A link opens it once it is visible, and the address names it while it is open and visible.
  appear() {
    const { box, box: { dataset: { room } } } = this;
    const [linked, visible] = [query().get("room") === room, box.offsetParent !== null];
    if (visible && linked && !this.seen) this.open();
    this.seen ||= visible;
    const here = visible && box.open;
    if (this.seen && here !== linked) readdress(here ? { room } : UNLINKED);
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
    this.find(".ns-room-status").textContent = said;
  }

  giveUp() {
    if (this.button.disabled) this.end(NO_ANSWER);
  }

  // Shows what the server found: `words`, escaped there. Without any, old results do not belong to the new question.
  reveal(words, place = ".ns-findings") {
    this.find(place).innerHTML = words ?? "";
    if (words) lookAt(this.find(".ns-findings"));
  }
}

export function lookAt(results) {
  results.focus({ preventScroll: true });
  results.scrollIntoView({ block: "nearest" });
}

// Sends a pasted log to the server, and shows the words and charts in the answer.
export function mountDoctor(component) {
  const show = ({ words, report, charts }) => {
    room.reveal(words, ".ns-findings-words");
    if (!words) return; // a toast says why
    room.end("Done: see the results below.");
    room.find("pre").textContent = report;
    for (const [name, figure] of Object.entries(charts)) plot(room.find(`[data-chart="${name}"]`), figure);
  };
  const room = new Room(component, "examine", { said: "Reading …", show });
  for (const button of room.box.querySelectorAll("[data-example]")) {
    button.addEventListener("click", async () => {
      const log = await component.server.example(button.dataset.example);
      if (!log) return room.end(NO_ANSWER);
      room.form.elements.log.value = log;
      room.ask();
    });
  }
  const copy = room.find("[data-act='copy']");
  copy.addEventListener("click", () => copyBy(copy, room.find("pre").textContent));
}

const texts = new Channel();
export const mine = { texts: () => null }; // gives those of the run on the stage, as `explain` takes them

// Opens the room from anywhere, with texts `{ prompt, a, b, chat, greedy }`, which are compared at once, or empty.
export function explain(given = {}) {
  document.querySelector("#tabs [data-tab-id='learn']").click();
  texts.tell(given);
}

onLink(document, "a[href='?room=differ']", () => explain());

export function mountDiffer(component) {
  const said = "Loading the target in both precisions, and comparing …";
  const room = new Room(component, "compare", { said, patience: COMPARING_MS, show: ({ words }) => room.reveal(words) });
  texts.follow(({ chat, greedy, ...given }) => {
    room.open();
    if (!given.prompt) return;
    const { elements } = room.form;
    for (const [name, text] of Object.entries(given)) elements[name].value = text;
    [elements.chat.checked, elements.greedy.checked] = [chat, greedy];
    room.form.requestSubmit();
  });
  for (const button of room.form.querySelectorAll("[data-texts]")) {
    button.addEventListener("click", () => {
      const given = button.dataset.texts === "mine" ? mine.texts() : JSON.parse(button.dataset.texts);
      if (given) texts.tell(given); else room.end(NO_TEXTS);
    });
  }
}
