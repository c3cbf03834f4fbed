// The lessons, one step at a time. Each step shows and highlights part of a picture. A lesson is fetched when it is opened, as
// it was recorded; a live run sends the same content with other numbers.

import { answerTo, isLost, whenBack } from "./connection.js";
import { button, change, copyBy, finder, lecturing, make, onLink, readdress } from "./dom.js";
import { sum } from "./format.js";
import { plot } from "./plot.js";
import { expectedTokens } from "./theory.js";

const WAITING = "Waiting for the machine …";
const STOPPED = "Stopped. The picture shows the results so far.";
const TYPED_INTO = "input, textarea, select, [contenteditable], [role=slider], [role=listbox], dialog[open] *, .ns-token[data-step]";

const CALCULATED = "Calculated from the data sheets.";
const EXERCISES = "Exercises";
const [LARGEST, SMALLEST] = [30, 18]; // pixels of type in lecture mode

export function mount(component) {
  new Learn(component).open();
}

class Learn {
  constructor(component) {
    Object.assign(this, component);
    this.root = this.element.querySelector(".ns-learn");
    this.find = finder(this.root);
    this.courses = [...this.root.querySelectorAll("[data-lesson]")];
    this.contents = new Map(); // each lesson's content, recorded or live
    this.answers = new Map();  // what the reader answered, by "lesson:step"
    this.seen = new Map();     // keys of the results seen, by lesson
    this.lesson = 0;
    this.step = 0;
    this.going = 0;            // the lesson whose experiment is running
    for (const button of this.courses) button.addEventListener("click", () => this.go(Number(button.dataset.lesson), 0));
    for (const button of this.root.querySelectorAll("[data-go]")) button.addEventListener("click", () => this.move(Number(button.dataset.go)));
    this.find(".ns-lesson-link").addEventListener("click", ({ currentTarget }) => this.copy(currentTarget));
    this.find(".ns-to-answers").addEventListener("toggle", () => this.fit());
    this.find("#learn-run").addEventListener("click", () => this.run());
    this.find("#learn-stop").addEventListener("click", () => this.stop(STOPPED));
    document.addEventListener("keydown", (event) => this.key(event));
    onLink(this.root, "a[href^='?lesson=']", (link) => this.go(Number(new URLSearchParams(link.search).get("lesson")), 0));
    const resized = new ResizeObserver(() => { this.address(); this.fit(); });
    for (const part of [this.root, this.find(".ns-lesson-view")]) resized.observe(part); // its tab was opened, or a chart drawn
    window.addEventListener("resize", () => this.fit());
    new MutationObserver(() => this.fit()).observe(document.body, { attributeFilter: ["class"] });
    this.watch("value", () => this.receive());
  }

  get shown() {
    return this.root.getClientRects().length > 0; // in lecture mode it is fixed, and has no offsetParent
  }

  get content() {
    return this.contents.get(this.lesson);
  }

  // Opens the linked lesson and step, or the nearest that exists.
  open() {
    const query = new URLSearchParams(location.search);
    const number = (name) => Math.max(0, Math.floor(Number(query.get(name)) || 0));
    this.go(Math.min(this.courses.length, Math.max(1, number("lesson"))), number("step"));
  }

  async go(lesson, step) {
    if (this.going && this.going !== lesson) this.stop("");
    if (lesson !== this.lesson) this.find("#learn-status").textContent = "";
    const opening = !this.lesson;
    [this.lesson, this.step] = [lesson, step];
    if (!this.contents.has(lesson)) {
      const content = await answerTo(() => this.server.recorded(lesson));
      if (content === undefined && isLost()) whenBack(() => this.lesson === lesson && this.go(lesson, step));
      if (!content) return; // opening the lesson asks again
      if (!this.contents.has(lesson)) this.learn(content);
      if (this.lesson !== lesson) return;
    }
    this.draw();
    const top = this.find(".ns-lesson");
    if (!opening && top.getBoundingClientRect().top < 0) top.scrollIntoView(); // a step begins at its first line
    this.root.querySelector("[data-chart]:not([hidden]) .ns-plot")?.classList.add("ns-late"); // until it is drawn
  }

  learn(content) {
    this.contents.set(content.lesson, content);
    if (content.key) this.seen.set(content.lesson, [...(this.seen.get(content.lesson) || []), content.key]);
  }

  // One step forward or back, also into the next or previous lesson.
  move(by) {
    if (!this.content) return;
    const step = this.step + by;
    if (step >= 0 && step < this.content.steps.length) this.go(this.lesson, step);
    else if (this.courses[this.lesson - 1 + by]) this.go(this.lesson + by, by > 0 ? 0 : Infinity);
  }

  key(event) {
    const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (!by || !this.shown || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const passed = this.find(".ns-lesson-bar").getBoundingClientRect().bottom < 0;
    if (passed && event.key.startsWith("Page")) return; // below the lesson they scroll
    if (event.target.closest?.(TYPED_INTO) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    this.move(by);
  }

  draw() {
    const { steps, source, settings, answers, note, button } = this.content;
    this.step = Math.min(this.step, steps.length - 1);
    const { title, html, question, view } = steps[this.step];
    Object.assign(this.root.dataset, { lesson: this.lesson, step: this.step });
    for (const item of this.courses) item.ariaCurrent = Number(item.dataset.lesson) === this.lesson ? "page" : null;
    const here = this.courses[this.lesson - 1].parentElement;
    here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 40; // on narrow pages the list is a row
    this.find(".ns-where").textContent = this.step
      ? `Lesson ${this.lesson}, step ${this.step} of ${steps.length - 1}` : `Lesson ${this.lesson}`;
    this.find(".ns-lesson-title").textContent = title;
    this.find(".ns-lesson-text").innerHTML = html; // from the lesson's file; model text in it is escaped on the server
    const solved = this.find(".ns-to-answers");
    solved.hidden = title !== EXERCISES;
    solved.open = false;
    solved.lastElementChild.innerHTML = answers; // from the file of answers
    for (const away of this.find(".ns-lesson-text").querySelectorAll("a[href^=http]")) Object.assign(away, { target: "_blank", rel: "noopener" });
    this.answer();
    this.ask(question);
    this.show(view);
    this.buttons(steps);
    this.find(".ns-source").textContent = (view.calculated ? `${this.content.live ? source : ""} ${CALCULATED}` : `${source} ${settings}`).trim();
    this.find(".ns-note").textContent = note;
    this.find("#learn-run").textContent = button;
    this.find("#learn-prompt").placeholder = document.querySelector("#prompt textarea")?.value ?? "";
    this.address();
    this.fit();
  }

  // The reader's answers to the questions that this step resolves.
  answer() {
    const { steps } = this.content;
    const given = steps[this.step].resolves.filter((step) => this.answers.has(`${this.lesson}:${step}`));
    this.find(".ns-answers").replaceChildren(...given.map((step) => {
      const { choices, right } = steps[step].question;
      const said = this.answers.get(`${this.lesson}:${step}`);
      const before = step ? "" : "The first question. ";
      const verdict = said === right
        ? `✓ Correct: “${choices[said]}”.` : `✗ You said “${choices[said]}”. In fact “${choices[right]}”.`;
      return make("p", { class: "ns-answer", "data-right": said === right }, before + verdict);
    }));
    if (this.step === 1 && this.answers.has(`${this.lesson}:0`) && !given.includes(0)) {
      const last = steps.findIndex(({ resolves }) => resolves.includes(0));
      this.find(".ns-answers").append(make("p", "ns-answer", `The answer comes in step ${last}.`));
    }
  }

  // In lecture mode a step fits the screen: the type of words and picture is as large as it can be.
  fit() {
    const box = this.find(".ns-lesson");
    const parts = [".ns-lesson-words", ".ns-lesson-view"].map(this.find);
    for (const part of parts) part.style.removeProperty("--size");
    if (!lecturing() || !this.content || !this.shown) return;
    for (const part of parts) part.style.setProperty("--size", `${SMALLEST}px`);
    for (const part of parts) {
      for (let size = LARGEST; size >= SMALLEST; size -= 1) {
        part.style.setProperty("--size", `${size}px`);
        if (box.scrollHeight <= box.clientHeight && part.scrollWidth <= part.clientWidth) break;
      }
    }
  }

  ask(question) {
    this.find(".ns-ask").hidden = !question;
    if (!question) return;
    this.find(".ns-question").innerHTML = question.ask; // as the text above
    const said = this.answers.get(`${this.lesson}:${this.step}`);
    const choose = (number) => {
      this.answers.set(`${this.lesson}:${this.step}`, number);
      this.move(1);
      this.find(".ns-next").focus({ preventScroll: true }); // the choice itself is gone
    };
    this.find(".ns-choices").replaceChildren(...question.choices.map((choice, number) =>
      button({ "aria-pressed": number === said }, choice, () => choose(number))));
  }

  // The opening's chart hides the answer, unless the reader has measured it.
  show({ figure, finished, shown, lit }) {
    const { markup } = this.content;
    const picture = this.find(".ns-picture");
    picture.hidden = Boolean(figure);
    for (const chart of this.root.querySelectorAll("[data-chart]")) chart.hidden = !figure || Number(chart.dataset.chart) !== this.lesson;
    if (figure) return void plot(this.find(`[data-chart="${this.lesson}"] .ns-plot`), (this.content.live && finished) || figure);
    if (picture.source !== markup) {
      picture.innerHTML = markup; // escaped on the server, as the texts are
      picture.source = markup;
      for (const overlap of picture.querySelectorAll("[data-overlap]")) mountOverlap(overlap);
    }
    for (const part of picture.querySelectorAll("[data-part]")) {
      const name = part.dataset.part;
      part.classList.toggle("ns-unseen", !shown.includes(name) && name !== "before");
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
      const label = number ? `Step ${number}: ${title}` : `Question: ${title}`;
      const looks = { title, "aria-label": label, "aria-current": number === this.step ? "step" : undefined };
      return make("li", "", button(looks, "", () => {
        this.go(this.lesson, number);
        this.find(".ns-dots").children[number].firstChild.focus();
      }));
    }));
  }

  // While the lessons are visible, the page's address leads here.
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

  // A link to this step of this lesson, outside lecture mode.
  copy(button) {
    const link = new URL(location.href);
    link.searchParams.delete("lecture");
    copyBy(button, link.href, "Link copied");
  }

  run() {
    this.going = this.lesson;
    this.state(WAITING);
    const prompt = this.find("#learn-prompt").value.trim() || null;
    const asked = { lesson: this.lesson, seen: this.seen.get(this.lesson) || [], prompt };
    this.trigger(this.content.timed ? "measure" : "sample", asked);
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
    if (lesson !== this.going) return; // it was left or stopped
    if (content) {
      content.live = true;
      if (done) this.learn(content); else this.contents.set(lesson, content);
      this.draw();
    }
    if (done) this.going = 0;
    this.state(said);
  }
}

const [LEFT, RIGHT, STEP, BASE, TALL] = [-6, 6, 0.05, 170, 220]; // the axis in standard deviations of p, and the drawing in its units
const AHEAD = 4;
const bell = (x, center, width) => Math.exp(-(((x - center) / width) ** 2) / 2) / (width * Math.sqrt(2 * Math.PI));

// Two curves over all tokens, the area below both, and sliders that move the draft's: α = Σ min(p, q).
function mountOverlap(root) {
  const find = finder(root);
  const [distance, width] = ["distance", "width"].map((name) => find(`[name=${name}]`));
  const at = (x) => ((x - LEFT) / (RIGHT - LEFT)) * 400;
  const draw = () => {
    const [center, wide] = [Number(distance.value), Number(width.value)];
    const p = (x) => bell(x, 0, 1), q = (x) => bell(x, center, wide);
    const xs = Array.from({ length: Math.round((RIGHT - LEFT) / STEP) + 1 }, (_, n) => LEFT + n * STEP);
    const line = (f) => `M${xs.map((x) => `${at(x).toFixed(1)} ${(BASE - TALL * Math.min(f(x), 0.72)).toFixed(1)}`).join("L")}`;
    const lower = (x) => Math.min(p(x), q(x));
    const alpha = Math.min(1, STEP * sum(xs.map(lower)));
    const apart = center < 0 ? -1 : 1;
    const token = center + 0.8 * apart;
    const [toRight, toLeft] = apart > 0 ? ["start", "end"] : ["end", "start"];
    change(find(".ns-ov-p"), { d: line(p) });
    change(find(".ns-ov-q"), { d: line(q) });
    change(find(".ns-ov-both"), { d: `${line(lower)}V${BASE}H0Z` });
    change(find(".ns-ov-q-name"), { x: at(center + apart * 1.2), "text-anchor": toRight });
    change(find(".ns-ov-p-name"), { x: at(-apart * 1.2), "text-anchor": toLeft });
    change(find(".ns-ov-token"), { d: `M${at(token)} ${BASE}V${BASE - TALL * lower(token)}` });
    change(find(".ns-ov-token-name"), { x: at(token) });
    change(find(".ns-ov-axis-name"), { x: apart > 0 ? 0 : 400, "text-anchor": toRight }); // away from the token's label
    find("output").textContent = alpha.toFixed(2);
    find(".ns-ov-alpha span").textContent =
      ` → ${expectedTokens(alpha, AHEAD).toFixed(1)} tokens per target pass with ${AHEAD} draft tokens`;
  };
  root.addEventListener("input", draw);
  draw();
}
