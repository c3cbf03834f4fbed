// The lessons, one step at a time. Each step shows and highlights part of a picture. A lesson is fetched when it is opened, as
// it was recorded; a live run sends the same content with other numbers.

import { answerTo } from "./connection.js";
import { addressWith, button, change, copyBy, finder, make, onKeys, onLink, query, readdress } from "./dom.js";
import { sum } from "./format.js";
import { Drawing } from "./moves.js";
import { plot } from "./plot.js";
import { expectedTokens } from "./theory.js";

const WAITING = "Waiting for the machine …";
const STOPPED = "Stopped. The picture shows the results so far.";
const CALCULATED = "Calculated from the data sheets.";
const EXERCISES = "Exercises";

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
    this.answers = [{}, ...this.courses.map(() => ({}))]; // what the reader answered, by lesson and step
    this.seen = [];            // keys of the results seen
    this.lesson = 0;
    this.step = 0;
    this.path = query().has("path"); // whether to skip the lessons that are not on the short path
    this.going = 0;            // the lesson whose experiment is running
    this.watch("value", () => this.receive());
    const click = (selector, act) => {
      for (const node of this.root.querySelectorAll(selector)) node.addEventListener("click", () => act(node));
    };
    click("[data-lesson]", ({ dataset }) => {
      this.path &&= "path" in dataset;
      this.go(Number(dataset.lesson), 0);
    });
    click("[data-go]", ({ dataset }) => this.move(Number(dataset.go)));
    // A link to this step of this lesson, outside lecture mode.
    click(".ns-lesson-link", (link) => copyBy(link, location.origin + addressWith({ lecture: null }), "Link copied"));
    click("#learn-run", () => this.run());
    click("#learn-stop", () => this.stop(STOPPED));
    onLink(this.root, "a[href^='?lesson=']", ({ search }) => {
      const to = new URLSearchParams(search);
      this.path ||= to.has("path");
      this.go(Number(to.get("lesson")), 0);
    });
    const [on, back] = [() => this.move(1), () => this.move(-1)];
    const passed = () => this.find(".ns-lesson-bar").getBoundingClientRect().bottom < 0; // below the lesson Page keys scroll
    const keys = { ArrowRight: on, PageDown: on, ArrowLeft: back, PageUp: back };
    onKeys(keys, ({ key }) => this.shown && !(key.startsWith("Page") && passed()));
    new ResizeObserver(() => this.address()).observe(this.root); // its tab was opened
  }

  get shown() {
    return this.root.getClientRects().length > 0; // in lecture mode it is fixed, and has no offsetParent
  }

  get content() {
    return this.contents.get(this.lesson);
  }

  // Opens the linked lesson and step, or the nearest that exists.
  open() {
    const [lesson, step] = ["lesson", "step"].map((name) => Math.floor(Number(query().get(name)) || 0));
    this.go(Math.min(this.courses.length, Math.max(1, lesson)), Math.max(0, step));
  }

  async go(lesson, step) {
    if (lesson !== this.lesson) this.stop("");
    const opening = !this.lesson;
    [this.lesson, this.step] = [lesson, step];
    if (!this.content) {
      const content = await answerTo(() => this.server.recorded(lesson));
      if (!content) return; // opening the lesson asks again
      this.learn(content);
      if (this.lesson !== lesson) return;
    }
    this.draw();
    const top = this.find(".ns-lesson");
    if (!opening && top.getBoundingClientRect().top < 0) top.scrollIntoView(); // a step begins at its first line
    this.find("[data-chart]:not([hidden]) .ns-plot")?.classList.add("ns-late"); // until it is drawn
  }

  learn(content) {
    this.contents.set(content.lesson, content);
    if (content.key) this.seen.push(content.key);
  }

  // One step forward or back, also into the next or previous lesson.
  move(by) {
    if (!this.content) return;
    const step = this.step + by;
    if (this.content.steps[step]) this.go(this.lesson, step);
    else if (this.beside(by)) this.go(this.beside(by), by > 0 ? 0 : Infinity);
  }

  // The number of the next or previous lesson, on the short path if it is followed; undefined if there is none.
  beside(by) {
    const fits = (course) => !this.path || "path" in course.dataset;
    let to = this.lesson + by;
    while (this.courses[to - 1] && !fits(this.courses[to - 1])) to += by;
    return this.courses[to - 1] && to;
  }

  draw() {
    const { steps, source, settings, answers, note, button, live } = this.content;
    this.step = Math.min(this.step, steps.length - 1);
    const { title, html, question, view } = steps[this.step];
    Object.assign(this.root.dataset, { lesson: this.lesson, step: this.step });
    this.root.toggleAttribute("data-path", this.path);
    for (const item of this.courses) item.ariaCurrent = Number(item.dataset.lesson) === this.lesson ? "page" : null;
    const here = this.courses[this.lesson - 1].parentElement;
    here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 40; // on narrow pages the list is a row
    const of = view.calculated ? [live ? source : "", CALCULATED] : [source, settings];
    const texts = {
      ".ns-where": `Lesson ${this.lesson}${this.step ? `, step ${this.step} of ${steps.length - 1}` : ""}`,
      ".ns-lesson-title": title, ".ns-source": of.join(" ").trim(), ".ns-note": note, "#learn-run": button,
    };
    for (const [selector, text] of Object.entries(texts)) this.find(selector).textContent = text;
    this.find(".ns-lesson-text").innerHTML = html; // from the lesson's file; model text in it is escaped on the server
    for (const away of this.root.querySelectorAll(".ns-lesson-text a[href^=http]")) {
      change(away, { target: "_blank", rel: "noopener" });
    }
    const solved = this.find(".ns-to-answers");
    [solved.hidden, solved.open] = [title !== EXERCISES, false];
    solved.lastElementChild.innerHTML = answers; // from the file of answers
    this.find("#learn-prompt").placeholder = document.querySelector("#prompt textarea")?.value ?? "";
    this.answer();
    this.ask(question);
    this.show(view);
    this.buttons(steps);
    this.address();
  }

  // The reader's answers to the questions that this step resolves.
  answer() {
    const [{ steps }, answered] = [this.content, this.answers[this.lesson]];
    const given = steps[this.step].resolves.filter((step) => step in answered);
    const answers = given.map((step) => {
      const [said, { choices, right }] = [answered[step], steps[step].question];
      const verdict = said === right
        ? `✓ Correct: “${choices[said]}”.` : `✗ You said “${choices[said]}”. In fact “${choices[right]}”.`;
      return make("p", { class: "ns-answer", "data-right": said === right }, `${step ? "" : "The first question. "}${verdict}`);
    });
    if (this.step === 1 && 0 in answered && !given.includes(0)) {
      const last = steps.findIndex(({ resolves }) => resolves.includes(0));
      answers.push(make("p", "ns-answer", `The answer comes in step ${last}.`));
    }
    this.find(".ns-answers").replaceChildren(...answers);
  }

  ask(question) {
    this.find(".ns-question").innerHTML = question?.ask ?? ""; // as the text above
    const choose = (number) => {
      this.answers[this.lesson][this.step] = number;
      this.move(1);
      this.find(".ns-next").focus({ preventScroll: true }); // the choice itself is gone
    };
    this.find(".ns-choices").replaceChildren(...(question?.choices ?? []).map((choice, number) =>
      button({ "aria-pressed": number === this.answers[this.lesson][this.step] }, choice, () => choose(number))));
  }

  // The opening's chart hides the answer, unless the reader has measured it.
  show({ figure, finished, shown, lit, at }) {
    const { markup, live } = this.content;
    const picture = this.find(".ns-picture");
    picture.hidden = Boolean(figure);
    this.root.classList.remove("ns-wide");
    for (const chart of this.root.querySelectorAll("[data-chart]")) chart.hidden = !figure || Number(chart.dataset.chart) !== this.lesson;
    if (figure) return void plot(this.find("[data-chart]:not([hidden]) .ns-plot"), (live && finished) || figure);
    if (picture.source !== markup) {
      picture.innerHTML = markup; // escaped on the server, as the texts are
      picture.source = markup;
      for (const overlap of picture.querySelectorAll("[data-overlap]")) mountOverlap(overlap);
      this.drawings = [...picture.querySelectorAll(".ns-drawing")].map((box) => new Drawing(box));
    }
    for (const drawing of this.drawings) drawing.show(at);
    for (const part of picture.querySelectorAll("[data-part]:not(svg *)")) {
      const name = part.dataset.part;
      part.classList.toggle("ns-unseen", !shown.includes(name));
      part.classList.toggle("ns-lit", lit.includes(name));
    }
    // Classes: a style that depends on `:has` is computed again at every change of the page.
    picture.classList.toggle("ns-undrawn", Boolean(picture.querySelector("[data-part='needle'].ns-unseen")));
    this.root.classList.toggle("ns-wide", Boolean(picture.querySelector(".ns-lp-drafters:not(.ns-unseen)")));
  }

  buttons(steps) {
    const [back, next, dots] = ["[data-go='-1']", ".ns-next", ".ns-dots"].map(this.find);
    const last = this.step === steps.length - 1;
    back.disabled = !this.step && !this.beside(-1);
    next.disabled = last && !this.beside(1);
    next.textContent = last ? (next.disabled ? "The end" : "Next lesson →") : this.step ? "Next →" : "Begin →";
    dots.replaceChildren(...steps.map(({ title }, number) => {
      const label = number ? `Step ${number}: ${title}` : `Question: ${title}`;
      const looks = { title, "aria-label": label, "aria-current": number === this.step ? "step" : undefined };
      return make("li", "", button(looks, "", () => {
        this.go(this.lesson, number);
        dots.children[number].firstChild.focus();
      }));
    }));
  }

  // While the lessons are visible, the page's address leads here.
  address() {
    if (!this.content) return;
    if (!this.shown && this.going) this.stop("");
    readdress({ path: this.shown && this.path ? 1 : null, lesson: this.shown ? this.lesson : null, step: this.shown && this.step ? this.step : null });
  }

  run() {
    this.going = this.lesson;
    this.state(WAITING);
    const prompt = this.find("#learn-prompt").value.trim() || null;
    this.trigger(this.content.timed ? "measure" : "sample", { lesson: this.lesson, seen: this.seen, prompt });
  }

  stop(said) {
    if (this.going) this.trigger("halt", {});
    this.going = 0;
    this.state(said);
  }

  state(said) {
    const [run, stop, status] = ["#learn-run", "#learn-stop", "#learn-status"].map(this.find);
    status.textContent = said;
    run.disabled = Boolean(this.going);
    if (!this.going && document.activeElement === stop) run.focus();
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

const [LEFT, STEP, BASE, TALL] = [-6, 0.05, 170, 220]; // the axis in standard deviations of p, and the drawing in its units
const XS = Array.from({ length: Math.round(-2 * LEFT / STEP) + 1 }, (_, n) => LEFT + n * STEP);
const AHEAD = 4;
const bell = (x, center, width) => Math.exp(-(((x - center) / width) ** 2) / 2) / (width * Math.sqrt(2 * Math.PI));

// Two curves over all tokens, the area below both, and sliders that move the draft's: α = Σ min(p, q).
function mountOverlap(root) {
  const find = finder(root);
  const at = (x) => 200 - (200 * x) / LEFT;
  const line = (f) => `M${XS.map((x) => `${at(x).toFixed(1)} ${(BASE - TALL * Math.min(f(x), 0.72)).toFixed(1)}`).join("L")}`;
  const draw = () => {
    const [center, width] = ["distance", "width"].map((name) => Number(find(`[name=${name}]`).value));
    const p = (x) => bell(x, 0, 1), q = (x) => bell(x, center, width), lower = (x) => Math.min(p(x), q(x));
    const alpha = Math.min(1, STEP * sum(XS.map(lower)));
    const apart = center < 0 ? -1 : 1;
    const token = center + 0.8 * apart;
    const [toRight, toLeft] = apart > 0 ? ["start", "end"] : ["end", "start"];
    const looks = {
      ".ns-ov-p": { d: line(p) },
      ".ns-ov-q": { d: line(q) },
      ".ns-ov-both": { d: `${line(lower)}V${BASE}H0Z` },
      ".ns-ov-q-name": { x: at(center + apart * 1.2), "text-anchor": toRight },
      ".ns-ov-p-name": { x: at(-apart * 1.2), "text-anchor": toLeft },
      ".ns-ov-token": { d: `M${at(token)} ${BASE}V${BASE - TALL * lower(token)}` },
      ".ns-ov-token-name": { x: at(token) },
      ".ns-ov-axis-name": { x: apart > 0 ? 0 : 400, "text-anchor": toRight }, // away from the token's label
    };
    for (const [selector, attributes] of Object.entries(looks)) change(find(selector), attributes);
    find("output").textContent = alpha.toFixed(2);
    find(".ns-ov-alpha span").textContent =
      ` → ${expectedTokens(alpha, AHEAD).toFixed(1)} tokens per target pass with ${AHEAD} draft tokens`;
  };
  root.addEventListener("input", draw);
  draw();
}
