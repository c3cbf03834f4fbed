// The position of playback, the replay bar, and saving or opening a trace.

import { answerTo } from "./connection.js";
import { write } from "./dom.js";
import { download } from "./downloads.js";
import { nameOf } from "./format.js";

const STEP_SECONDS = 4.4; // of a step on the machine at normal speed
const MAX_TRACE_BYTES = 32 * 1024 * 1024; // as in ui/host/limits.py

// The position of playback: `cursor` events are shown. Live, the cursor follows new events; in a replay it follows a clock;
// otherwise it stays where the reader put it. The clock is the run's time, possibly slower, or one second per step. All events
// of a step have the time of its end. Its start and drafting time come from the step event, and draft tokens are spread evenly
// over the latter.
export class Player {
  speed = 0.23;
  rounds = true; // whether the clock has one second per step

  constructor() {
    this.reset();
  }

  reset() {
    this.events = [];
    this.ends = [];   // for every finished step, the number of events up to its end
    this.times = [];  // when each event is due, in seconds: [on the run's clock, at one step per second]
    this.cursor = 0;
    this.target = Infinity; // where the cursor goes; Infinity follows new events
    this.playing = false;
    this.done = false;
  }

  add(events) {
    for (const event of events) {
      this.events.push(event);
      this.times.push([event.time || 0, this.ends.length]);
      if (event.kind === "step") this.finish(event);
      // The end of the run belongs to the last step: there is nothing to step to after it.
      if (event.kind === "finished" && this.ends.at(-1) === this.length - 1) this.ends.push(this.ends.pop() + 1);
    }
  }

  finish(step) {
    const { time: end = 0, num_draft: drafts = 0, draft_seconds: seconds = 0, total_seconds: total = 0 } = step;
    const begin = this.ends.at(-1) ?? 1;
    for (let n = begin; n < this.length; n += 1) {
      const place = n - begin + 1; // the draft tokens come first
      const time = place <= drafts ? end - total + seconds * place / drafts : end;
      const share = place <= drafts ? 0.22 * place / drafts // as in machine.js
        : place < this.length - begin - 1 ? 0.41 + 0.32 * (place - drafts) / drafts : 0.9;
      this.times[n] = [time, this.ends.length + share];
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

  // The number of completely shown steps.
  round(cursor) {
    return this.ends.findLastIndex((end) => end <= cursor) + 1;
  }

  // The shown events of the step of event number n: from one number up to another.
  stepOf(n) {
    const round = this.round(n);
    return [this.ends[round - 1] ?? 0, Math.min(this.cursor, this.ends[round] ?? this.cursor)];
  }

  // When event number n is due, in seconds on the clock.
  due(n) {
    return this.times[n][this.rounds ? 1 : 0];
  }

  // Plays from event number n; at the end, from the start.
  play(n) {
    this.target = n >= this.length && this.done ? Math.min(1, this.length) : n;
    this.playing = true;
    this.last = performance.now();
    this.clock = this.target < this.length ? this.due(this.target) : 0;
  }

  pause() {
    this.playing = false;
    this.target = this.cursor;
  }

  // To event number n; at the end of an unfinished run, it follows new events unless it is to stay.
  seek(n, stay = false) {
    this.playing = false;
    this.target = Math.max(Math.min(1, this.length), Math.min(n, this.length));
    if (this.target === this.length && !this.done && !stay) this.target = Infinity;
  }

  // To the end of the next or previous step, relative to the cursor's target, which it may not have reached yet.
  step(direction) {
    const from = Math.min(this.target, this.length);
    if (direction > 0) return this.seek(this.ends.find((end) => end > from) ?? this.length);
    return this.seek(this.ends.findLast((end) => end < from) ?? 1);
  }

  change(speed, rounds) {
    Object.assign(this, { speed, rounds });
    if (this.playing) this.play(this.cursor);
  }

  // The number of events to be shown now.
  aim() {
    if (this.playing) {
      const now = performance.now();
      this.clock += (now - this.last) / 1000 * this.speed;
      this.last = now;
      while (this.target < this.length && this.due(this.target) <= this.clock) this.target += 1;
      if (this.target >= this.length) this.seek(this.length);
    }
    return Math.min(this.target, this.length);
  }

  get following() {
    return this.target === Infinity;
  }

  // Whether events are shown as they come, or as time passes.
  get going() {
    return this.playing || (this.following && !this.done);
  }

  get busy() {
    return this.playing || this.aim() !== this.cursor;
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
    const [speed, file] = [".ns-speed", ".ns-file"].map(this.find);
    const acts = {
      play: () => this.play(),
      back: () => this.step(-1),
      forward: () => this.step(1),
      start: () => { machine.touch(); player.seek(1); machine.show(0, 0); },
      end: () => this.seek(player.length),
      save: () => this.save(),
      open: () => file.click(),
    };
    for (const [name, act] of Object.entries(acts)) {
      this.find(`[data-act='${name}']`).addEventListener("click", () => { act(); wake(); });
    }
    this.slider.addEventListener("input", () => { this.seek(Number(this.slider.value)); wake(); });
    speed.addEventListener("change", () => {
      const [first, second] = speed.value.split(":");
      player.change(Number(second || first), first === "rounds");
      wake();
    });
    file.addEventListener("change", () => { this.open(file.files[0]); file.value = ""; });
    const dropping = (name, act) => this.root.addEventListener(name, (event) => { event.preventDefault(); act(event); });
    dropping("dragover", () => this.root.classList.add("ns-drop"));
    dropping("dragleave", ({ relatedTarget: to }) => { if (!this.root.contains(to)) this.root.classList.remove("ns-drop"); });
    dropping("drop", ({ dataTransfer }) => { this.root.classList.remove("ns-drop"); this.open(dataTransfer.files[0]); });
  }

  // To event number n, whose step the machine shows at its end.
  seek(n, stay) {
    const { player, machine } = this;
    machine.touch();
    player.seek(n, stay);
    machine.show(Math.max(0, player.round(player.aim()) - 1));
  }

  // The loop stops, and so does the run at its step. Whether there was a loop.
  halt() {
    const { player, machine } = this;
    const { looping, step } = machine;
    machine.touch();
    if (looping) player.seek(player.ends[step], true);
    return looping;
  }

  play() {
    const { player, machine } = this;
    if (this.halt()) return;
    if (player.going) return player.pause();
    const { step, midway } = machine;
    const again = midway && step === player.round(player.cursor) - 1; // the rest of the step
    player.play(again ? player.ends[step - 1] ?? 1 : player.cursor);
    machine.step = -1; // so that it follows
  }

  // A step is played, whichever way it was reached.
  step(direction) {
    const { player, machine } = this;
    this.halt();
    player.step(direction);
    const step = player.round(player.aim()) - 1;
    if (step < 0) machine.show(0, 0); else machine.play(step);
  }

  // During playback the machine plays the step at the cursor, in the same time. Fast playback may skip steps, but not the last.
  follow() {
    const { player, machine } = this;
    const over = this.followed && !player.busy && player.cursor === player.length;
    this.followed = player.busy && (player.playing || this.followed);
    const step = over ? player.steps - 1 : player.round(player.cursor);
    if (!(player.playing || over) || step === machine.step || step >= player.steps) return;
    machine.play(step, player.rounds ? STEP_SECONDS * player.speed : Infinity);
  }

  draw(live, { num_draft_tokens: k }) {
    const { player, machine } = this;
    this.follow();
    const label = player.going || machine.looping ? "Pause" : "Play";
    if (this.toggle.title !== label) {
      this.toggle.title = this.toggle.ariaLabel = label;
      this.toggle.dataset.going = String(label === "Pause");
    }
    const at = machine.looping ? player.ends[machine.step] : player.cursor;
    const { time = 0 } = player.events[at - 1] ?? {};
    const ended = player.round(at);
    const number = at > (player.ends[ended - 1] ?? 1) ? ended + 1 : ended; // of the step at the cursor, which may be in its middle
    const text = `step ${number} of ${player.ends.length} · ${time.toFixed(2)} s`;
    this.root.dataset.cursor = player.cursor;
    write(this.clock, text);
    if (this.slider.ariaValueText !== text) this.slider.ariaValueText = text;
    this.slider.max = player.length;
    this.slider.value = at;
    // The target's own tokens are called by the run's kind.
    write(this.find(".ns-legend [data-kind='bonus'] span"), nameOf({ kind: "bonus", index: k === 0 ? 0 : 1 }));
    write(this.find(".ns-badge"), !live ? "recorded" : player.done ? "your run" : "live");
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
