// The time line of a run, in milliseconds, STEP of them for each step; the replay bar; saving and opening a trace.

import { answerTo } from "./connection.js";
import { inLanguage, lecturing, onKeys, still, write } from "./dom.js";
import { download } from "./downloads.js";
import { nameOf } from "./format.js";
import { ENDS, STEP, verdictAt } from "./moves.js";

const REST_MS = 1000; // after a step at normal speed, before the next
const USUAL = 0.23;   // steps per second
const MAX_TRACE_BYTES = 32 * 1024 * 1024; // as in ui/host/limits.py

// Where the run is held: `at` on its time line. At the end of a step it is still in that step. The stage shows `target` events:
// those until then, or all (`whole`) until the reader moves through the run. The clock has a number of steps per second, or is the
// run's own, possibly slower.
export class Player {
  speed = USUAL;
  rounds = true; // whether the clock counts steps

  constructor() {
    this.reset();
  }

  reset() {
    this.events = [];
    this.ends = [];   // for every finished step, the number of events up to its end
    this.dues = [];   // when each event is due
    this.cursor = 0;  // the number of shown events
    this.at = this.rest = 0;
    this.until = Infinity;
    this.going = this.looping = this.done = false;
    this.whole = this.sticks = true; // `sticks`: `at` stays at the end, also if more steps come
  }

  add(events) {
    for (const event of events) {
      this.events.push(event);
      this.dues.push(event.kind === "started" ? 0 : this.end + STEP);
      if (event.kind === "step") this.finish(event);
      // The end of the run belongs to the last step: there is nothing to step to after it.
      if (event.kind === "finished" && this.ends.at(-1) === this.length - 1) this.ends.push(this.ends.pop() + 1), this.dues.push(this.dues.pop() - STEP);
    }
  }

  finish({ num_draft: drafts = 0, num_accepted: accepted = 0 }) {
    const due = ({ kind, index }) => ({
      proposed: ENDS[0] * (index + 1) / drafts, resampled: ENDS[3], bonus: ENDS[3], step: STEP,
    })[kind] ?? verdictAt(kind, index, accepted + (accepted < drafts));
    for (let n = this.ends.at(-1) ?? 1; n < this.length; n += 1) {
      this.dues[n] = Math.max(this.dues[n - 1], this.end + Math.min(STEP, due(this.events[n]) || STEP));
    }
    this.ends.push(this.length);
  }

  get length() {
    return this.events.length;
  }

  // The number of steps that have ended.
  get steps() {
    return this.ends.length;
  }

  get end() {
    return this.steps * STEP;
  }

  // The step that is shown, the time in it, and its phase.
  get step() {
    return Math.max(0, Math.ceil(this.at / STEP) - 1);
  }

  get inner() {
    return this.at - this.step * STEP;
  }

  get tick() {
    return ENDS.findIndex((end) => this.inner <= end);
  }

  // The number of completely shown steps.
  round(cursor) {
    return this.ends.findLastIndex((end) => end <= cursor) + 1;
  }

  stepOf(n) {
    const round = this.round(n);
    return [this.ends[round - 1] ?? 0, Math.min(this.cursor, this.ends[round] ?? this.cursor)];
  }

  // The number of events to be shown.
  get target() {
    if (this.whole) return this.length;
    const next = this.dues.findIndex((due) => due > this.at);
    return Math.max(Math.min(1, this.length), next < 0 ? this.length : next);
  }

  // More events came.
  arrive() {
    if (this.sticks && !this.looping) this.at = this.end;
  }

  // Goes on from here; at the end, from the start.
  play(until = Infinity) {
    if (this.at >= this.end && this.done) this.at = 0;
    Object.assign(this, { until, going: true, looping: false, whole: false, sticks: false, rest: 0 });
  }

  loop() {
    Object.assign(this, { at: 0, going: true, looping: true });
  }

  // Stays here. Of a run that is not over, the end moves on, unless it is to stay.
  hold(at = this.at, stay = false) {
    this.at = Math.max(0, Math.min(at, this.end));
    this.whole = this.sticks = this.at === this.end && !this.done && !stay;
    this.going = this.looping = false;
  }

  get following() {
    return this.whole && !this.looping;
  }

  get moving() {
    return this.going || (this.sticks && !this.done);
  }

  get busy() {
    return (this.going && !this.looping) || this.target !== this.cursor;
  }

  // Milliseconds on the time line in one of the clock, in a step.
  rate(step) {
    if (this.rounds) return this.speed * STEP / 1000;
    const time = (n) => this.events[(this.ends[n] ?? 1) - 1]?.time ?? 0;
    return this.speed * STEP / 1000 / Math.max(1e-3, time(step) - time(step - 1));
  }

  // Lets time pass. A step begins only once `ready` says that it can be drawn; after it the clock rests.
  advance(ms, ready) {
    while (ms > 0 && this.going) {
      if (this.at >= this.until) return void (this.going = false);
      const step = Math.floor(this.at / STEP);
      if (this.rest > 0) {
        const rest = Math.min(ms, this.rest);
        this.rest -= rest;
        ms -= rest;
        continue;
      }
      const over = step >= this.steps;
      if (over && this.done && !this.looping) return void (this.going = false);
      if (over && !this.done) return;
      if (this.at % STEP === 0 && !ready(over ? 0 : step)) return;
      if (over) this.at = 0;
      if (over) continue;
      const [rate, left] = [this.rate(step), (step + 1) * STEP - this.at];
      if (ms * rate < left) return void (this.at += ms * rate);
      ms -= left / rate;
      this.at = (step + 1) * STEP;
      this.rest = this.rounds && this.speed < 1 ? REST_MS * Math.min(1, USUAL / this.speed) : 0;
    }
  }
}

export class Controls {
  constructor({ element, trigger, server }, player, machine, wake) {
    const find = (selector) => machine.find(selector) ?? element.querySelector(selector);
    Object.assign(this, { element, trigger, server, player, machine, wake, find });
    this.root = element.querySelector(".ns-stage");
    this.slider = this.find(".ns-slider");
    this.clock = this.find(".ns-clock");
    this.toggle = this.find("[data-act='play']");
    this.ticks = [...machine.root.querySelectorAll("[data-phase]")];
    const [speed, file] = [".ns-speed", ".ns-file"].map(this.find);
    const acts = {
      play: () => (player.moving ? player.hold(player.at, true) : player.play()),
      back: () => this.step(-1),
      forward: () => this.step(1),
      start: () => player.hold(0),
      end: () => player.hold(player.end),
      save: () => this.save(),
      open: () => file.click(),
    };
    for (const [name, act] of Object.entries(acts)) {
      this.find(`[data-act='${name}']`).addEventListener("click", () => { act(); wake(); });
    }
    this.ticks.forEach((tick, n) => tick.addEventListener("click", () => this.visit(n)));
    this.slider.addEventListener("input", () => { player.hold(Number(this.slider.value)); wake(); });
    this.slider.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -200, ArrowDown: -200, ArrowRight: 200, ArrowUp: 200 }[event.key];
      if (by) event.preventDefault(), player.hold(player.at + by), wake();
    });
    speed.addEventListener("change", () => {
      const [first, second] = speed.value.split(":");
      Object.assign(player, { speed: Number(second || first), rounds: first === "rounds", rest: 0 });
    });
    this.keys();
    file.addEventListener("change", () => { this.open(file.files[0]); file.value = ""; });
    const dropping = (name, act) => this.root.addEventListener(name, (event) => { event.preventDefault(); act(event); });
    dropping("dragover", () => this.root.classList.add("ns-drop"));
    dropping("dragleave", ({ relatedTarget: to }) => { if (!this.root.contains(to)) this.root.classList.remove("ns-drop"); });
    dropping("drop", ({ dataTransfer }) => { this.root.classList.remove("ns-drop"); this.open(dataTransfer.files[0]); });
  }

  // Page keys walk through the moments of all steps, in lecture mode from anywhere, and so does a remote control.
  keys() {
    const press = (name) => () => this.find(`[data-act="${name}"]`).click();
    const own = ({ target }) => this.machine.root.contains(target);
    const shown = () => lecturing() && this.root.checkVisibility();
    onKeys({ PageDown: () => this.walk(1), PageUp: () => this.walk(-1) }, (event) => own(event) || (shown() && !event.target.closest?.("[role=tab]")));
    this.slider.addEventListener("keydown", (event) => {
      const by = { PageDown: 1, PageUp: -1 }[event.key];
      if (by) event.preventDefault(), this.walk(by);
    });
    const acts = { ArrowLeft: "back", ArrowRight: "forward", Home: "start", End: "end", " ": "play" };
    onKeys(Object.fromEntries(Object.entries(acts).map(([key, act]) => [key, press(act)])), ({ key, target }) =>
      (shown() || (own({ target }) && key === " ")) && !target.closest?.(key === " " ? "[role=tab], button, summary, a" : "[role=tab]"));
  }

  // To event number n.
  seek(n, stay) {
    this.player.hold(n >= this.player.length ? this.player.end : this.player.dues[n - 1] ?? 0, stay);
    this.wake();
  }

  // A step is played, whichever way it was reached.
  step(direction) {
    const { player } = this;
    const step = Math.min(player.at === 0 ? 0 : player.step + direction, player.steps - 1);
    if (step < 0) return player.hold(0);
    if (still() || step === player.step && player.at === player.end) return player.hold((step + 1) * STEP, true);
    player.hold(step * STEP + 1, true);
    player.play((step + 1) * STEP);
  }

  // To the end of a phase; the one after the last is the race.
  visit(phase) {
    const { player } = this;
    this.raced = phase === ENDS.length;
    this.go(this.raced ? player.end : player.step * STEP + ENDS[phase]);
  }

  go(at) {
    this.player.hold(at, true);
    if (lecturing() && this.raced) document.querySelector(".ns-race").scrollIntoView({ block: "center" });
    else if (lecturing()) this.machine.root.scrollIntoView();
    this.wake();
  }

  // To the next or previous moment: the end of a phase, in the next step too, and in lecture mode the race at the end.
  walk(direction) {
    const { player } = this;
    if (this.raced && direction < 0) return this.visit(ENDS.length - 1);
    if (direction > 0 && player.at === player.end) return lecturing() ? this.visit(ENDS.length) : undefined;
    const base = direction > 0 && player.inner === STEP ? player.step + 1 : player.step;
    const inner = player.at - base * STEP;
    const to = direction > 0 ? ENDS.find((end) => end > inner) : ENDS.findLast((end) => end < inner) ?? 0;
    this.go(base * STEP + to);
  }

  draw(live, { num_draft_tokens: k }) {
    const { player, toggle } = this;
    const going = String(player.moving);
    const phase = Math.max(0, player.tick);
    const shown = [going, player.step, player.steps, phase, this.raced, player.at === 0].join();
    this.slider.max = player.end;
    this.slider.value = player.at;
    if (player.at < player.end) this.raced = false;
    Object.assign(this.root.dataset, { cursor: player.cursor, length: player.length });
    this.ticks.forEach((tick, n) => this.fill(tick, n, phase));
    write(this.find(".ns-badge"), !live ? "recorded" : player.done ? "your run" : "live");
    if (shown === this.shown) return;
    this.shown = shown;
    const text = `${inLanguage(`step ${player.steps ? player.step + 1 : 0} of ${player.steps}`)} · ${this.ticks[phase].textContent}`;
    write(this.clock, text);
    this.slider.ariaValueText = text;
    toggle.dataset.going = going;
    toggle.title = inLanguage(player.moving ? "Pause" : "Play");
    toggle.ariaLabel = `${toggle.title}, ${text}`;
    for (const [n, tick] of this.ticks.entries()) tick.ariaPressed = this.raced ? n === ENDS.length : n === phase && player.at > 0;
    // The target's own tokens are called by the run's kind.
    write(this.find(".ns-legend [data-kind='bonus'] span"), nameOf({ kind: "bonus", index: k === 0 ? 0 : 1 }));
  }

  // How much of a phase has passed.
  fill(tick, n, phase) {
    const [begin, end] = [ENDS[n - 1] ?? 0, ENDS[n] ?? STEP];
    const share = n < phase ? 1 : n > phase ? 0 : (this.player.inner - begin) / (end - begin);
    const shown = Math.max(0, share).toFixed(3);
    if (tick.share !== shown) tick.style.setProperty("--share", tick.share = shown);
  }

  async save() {
    const text = await this.server.trace(this.root.dataset.run);
    if (!text) return this.trigger("lost", {});
    download("naive-speculate-trace.jsonl", text, "application/jsonl");
  }

  async open(file) {
    if (!file) return;
    if (file.size > MAX_TRACE_BYTES) return this.trigger("open", {});
    const address = new URL(`./trace?${new URLSearchParams({ name: file.name })}`, document.baseURI);
    const answer = await answerTo(async () => {
      const said = await fetch(address, { method: "POST", body: file });
      return said.ok ? said.json() : { problem: (await said.json()).detail };
    });
    this.trigger("open", answer ?? { problem: "The server does not answer." });
  }
}
