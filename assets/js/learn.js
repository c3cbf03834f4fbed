// The lessons: one at a time, a step at a time. A step's words stand beside a picture, of which it shows and lights its part.
// A lesson comes from the server when it is opened, as it was recorded; a live run sends the same again with other numbers.

import { answerTo } from "./connection.js";
import { button, finder, hold, readdress } from "./dom.js";
import { plot } from "./plot.js";

const WAITING = "Waiting for the machine …";
const STOPPED = "Stopped; the picture shows what had been found.";
const TYPED_INTO = "input, textarea, select, [contenteditable], [role=slider], [role=listbox], [role=tab], dialog[open] *, .ns-token[data-step]";

export function mount(component) {
  new Learn(component).open();
}

class Learn {
  constructor(component) {
    Object.assign(this, component);
    this.root = this.element.querySelector(".ns-learn");
    this.find = finder(this.root);
    this.courses = [...this.root.querySelectorAll("[data-lesson]")];
    this.contents = new Map(); // what is known of each lesson: as recorded, or as found live
    this.guesses = new Map();  // what the reader answered, by "lesson:step"
    this.seen = new Map();     // keys of what was found live or recorded, by lesson
    this.lesson = 0;
    this.step = 0;
    this.going = 0;            // the lesson whose experiment runs
    for (const button of this.courses) button.addEventListener("click", () => this.go(Number(button.dataset.lesson), 0));
    for (const button of this.root.querySelectorAll("[data-go]")) button.addEventListener("click", () => this.move(Number(button.dataset.go)));
    this.find("#learn-run").addEventListener("click", () => this.run());
    this.find("#learn-stop").addEventListener("click", () => this.stop(STOPPED));
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.address()).observe(this.root); // its tab was opened or left
    this.watch("value", () => this.receive());
  }

  get shown() {
    return this.root.offsetParent !== null;
  }

  get content() {
    return this.contents.get(this.lesson);
  }

  // Where the link leads to; a lesson or step that there is not leads to the nearest that there is.
  open() {
    const query = new URLSearchParams(location.search);
    const number = (name) => Math.max(0, Math.floor(Number(query.get(name)) || 0));
    this.go(Math.min(this.courses.length, Math.max(1, number("lesson"))), number("step"));
  }

  async go(lesson, step) {
    if (this.going && this.going !== lesson) this.stop("");
    if (lesson !== this.lesson) this.find("#learn-status").textContent = "";
    [this.lesson, this.step] = [lesson, step];
    if (!this.contents.has(lesson)) {
      const told = await answerTo(() => this.server.recorded(lesson));
      if (!told) return; // opening the lesson asks again
      if (!this.contents.has(lesson)) this.learn(JSON.parse(told));
      if (this.lesson !== lesson) return;
    }
    this.draw();
  }

  learn(content) {
    this.contents.set(content.lesson, content);
    if (content.key) this.seen.set(content.lesson, [...(this.seen.get(content.lesson) || []), content.key]);
  }

  // A step on or back; beyond a lesson's ends lie the others.
  move(by) {
    if (!this.content) return;
    const step = this.step + by;
    if (step >= 0 && step < this.content.steps.length) this.go(this.lesson, step);
    else if (this.courses[this.lesson - 1 + by]) this.go(this.lesson + by, by > 0 ? 0 : Infinity);
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || !this.shown || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest?.(TYPED_INTO) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    this.move(by);
  }

  draw() {
    const { steps, source, note, button } = this.content;
    this.step = Math.min(this.step, steps.length - 1);
    const { title, html, question, view } = steps[this.step];
    Object.assign(this.root.dataset, { lesson: this.lesson, step: this.step });
    for (const item of this.courses) {
      if (Number(item.dataset.lesson) === this.lesson) item.setAttribute("aria-current", "page"); else item.removeAttribute("aria-current");
    }
    const here = this.courses[this.lesson - 1].parentElement;
    here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 40; // the list is a row on narrow pages
    this.find(".ns-where").textContent = this.step ? `Lesson ${this.lesson}, step ${this.step} of ${steps.length - 1}` : `Lesson ${this.lesson}`;
    this.find(".ns-lesson-title").textContent = title;
    this.find(".ns-lesson-text").innerHTML = html; // made of the lesson's file; what a model wrote in it is escaped on the server
    this.answer();
    this.ask(question);
    this.show(view);
    this.buttons(steps);
    this.find(".ns-source").textContent = source;
    this.find(".ns-note").textContent = note;
    this.find("#learn-run").textContent = button;
    this.address();
  }

  // What the reader said to the question of the step before.
  answer() {
    const asked = this.step && this.content.steps[this.step - 1].question;
    const said = asked ? this.guesses.get(`${this.lesson}:${this.step - 1}`) : undefined;
    const line = this.find(".ns-answer");
    line.hidden = said === undefined;
    if (said === undefined) return;
    const right = said === asked.right;
    line.dataset.right = right;
    line.textContent = right ? `✓ You thought so: “${asked.choices[said]}”.` : `✗ You thought: “${asked.choices[said]}”. It is: “${asked.choices[asked.right]}”.`;
  }

  ask(question) {
    this.find(".ns-ask").hidden = !question;
    if (!question) return;
    this.find(".ns-question").innerHTML = question.ask; // as the text above
    const said = this.guesses.get(`${this.lesson}:${this.step}`);
    this.find(".ns-choices").replaceChildren(...question.choices.map((choice, number) => {
      const made = button("", choice, () => {
        this.guesses.set(`${this.lesson}:${this.step}`, number);
        this.move(1);
        this.find(".ns-next").focus({ preventScroll: true }); // the choice itself has gone
      });
      made.setAttribute("aria-pressed", String(number === said));
      return made;
    }));
  }

  // On opening a chart leaves open what the lesson asks; who has measured it sees it.
  show({ figure, finished, shown, lit }) {
    const { markup } = this.content;
    const picture = this.find(".ns-picture");
    picture.hidden = Boolean(figure);
    for (const chart of this.root.querySelectorAll("[data-chart]")) chart.hidden = Number(chart.dataset.chart) !== this.lesson;
    if (figure) return void plot(this.find(`[data-chart="${this.lesson}"] .ns-plot`), (this.content.live && finished) || figure);
    if (picture.source !== markup) {
      picture.innerHTML = markup; // escaped on the server, as the texts are
      picture.source = markup;
    }
    const whole = !this.step;
    for (const part of picture.querySelectorAll("[data-part]")) {
      const name = part.dataset.part;
      part.classList.toggle("ns-unseen", !whole && !shown.includes(name) && name !== "before");
      part.classList.toggle("ns-lit", lit.includes(name));
    }
    picture.classList.toggle("ns-some-lit", lit.length > 0);
  }

  buttons(steps) {
    const [back, next] = [this.find("[data-go='-1']"), this.find(".ns-next")];
    const last = this.step === steps.length - 1;
    back.disabled = this.lesson === 1 && !this.step;
    next.disabled = last && this.lesson === this.courses.length;
    next.textContent = last ? (next.disabled ? "The end" : "Next lesson →") : this.step ? "Next →" : "Begin →";
    this.find(".ns-dots").replaceChildren(...steps.map(({ title }, number) => {
      const dot = button("", undefined, () => {
        this.go(this.lesson, number);
        this.find(".ns-dots").children[number].firstChild.focus();
      });
      dot.title = title;
      dot.setAttribute("aria-label", number ? `Step ${number}: ${title}` : `Opening: ${title}`);
      if (number === this.step) dot.setAttribute("aria-current", "step");
      return hold("li", "", dot);
    }));
  }

  // The page's address leads here, as long as the lessons are what is seen.
  address() {
    if (!this.content) return;
    if (!this.shown && this.going) this.stop("");
    readdress((query) => {
      query.delete("lesson");
      query.delete("step");
      if (this.shown) query.set("lesson", this.lesson);
      if (this.shown && this.step) query.set("step", this.step);
    });
  }

  run() {
    this.going = this.lesson;
    this.state(WAITING);
    this.trigger(this.content.timed ? "measure" : "sample", { lesson: this.lesson, seen: this.seen.get(this.lesson) || [] });
  }

  stop(said) {
    this.going = 0;
    this.trigger("halt", {});
    this.state(said);
  }

  state(said) {
    this.find("#learn-status").textContent = said;
    this.find("#learn-run").disabled = Boolean(this.going);
    const stop = this.find("#learn-stop");
    if (!this.going && document.activeElement === stop) this.find("#learn-run").focus();
    stop.hidden = !this.going;
  }

  receive() {
    if (!this.props.value) return;
    const { lesson, said, content, done } = JSON.parse(this.props.value);
    if (lesson !== this.going) return; // it was left, or stopped
    if (content) {
      content.live = true;
      if (done) this.learn(content); else this.contents.set(lesson, content);
      this.draw();
    }
    if (done) this.going = 0;
    this.state(said);
  }
}
