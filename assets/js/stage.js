// The stage: receives numbered events from the server, shows them as tokens and steps, and replays them.

import { answerTo, isLost, mount as watchConnection, say } from "./connection.js";
import { Tip, finder, onEscape, still } from "./dom.js";
import { Drafter, Guided } from "./drafter.js";
import { chipText, describe, ending, percent, spoken } from "./format.js";
import { inspected } from "./inspector.js";
import { Link } from "./link.js";
import { Machine } from "./machine.js";
import { STEP } from "./moves.js";
import { Controls, Player } from "./player.js";
import { raced } from "./race.js";
import { Sums, mountHeadline, summaries } from "./summary.js";
import { offerFiles } from "./downloads.js";
import { Flow, OUTPUT, PlainText, Rounds, TOKEN, VERDICT, focusToken, hush, moveByKey, repaint } from "./tokens.js";

const FRAME_MS = 8;   // of our work per frame; where the browser takes longer for the rest, half of the frame …
const SLOW_MS = 100;  // … up to this
const TELL_MS = 250;  // numbers and charts follow the cursor at most four times per second
const GONE = "The server no longer has this run, so the rest is missing. The server may have restarted.";
const LONGEST_MS = 1000; // between frames: more has passed while the page was in the background
const PLAIN_MS = 100; // between requests for the run without drafts, while it is decoded
const NO_ANSWER = "The server does not answer.";
const QUIET_MS = 1000; // after so much silence, a live run is requested

export function mount(component) {
  const machine = document.querySelector(".ns-machine");
  if (!machine) return void requestAnimationFrame(() => mount(component)); // Gradio has not drawn it yet
  new Stage(component, machine).receive();
}

class Stage {
  constructor(component, machine) {
    const { element, props, watch } = component;
    Object.assign(this, component, { find: finder(element) });
    this.root = element.querySelector(".ns-stage");
    this.flow = new Flow(this.find("#tokens"));
    this.rounds = new Rounds(this.find("#rounds"));
    this.tip = new Tip(this.find(".ns-tip"));
    this.player = new Player();
    this.run = { id: "", serial: -1, live: false };
    this.frame = 0;
    this.sums = new Sums();
    const wake = () => this.wake();
    this.machine = new Machine(machine, {
      wake,
      draw: (place, layout) => this.server.drawing([this.run.id, place, layout]),
      choose: (step, index) => this.choose(step, index),
      hold: () => { this.player.hold((this.player.step + 1) * STEP, true); wake(); },
    });
    this.controls = new Controls(component, this.player, this.machine, wake);
    this.plainText = new PlainText(this.root);
    this.drafter = new Drafter(this.find(".ns-drafter"));
    this.link = new Link(this);
    this.guided = new Guided(this);
    offerFiles(this);
    mountHeadline({ element, measure: () => this.measure(true) });
    this.drew = Infinity;      // when the last frame began, if this one follows at once
    this.told = { upto: -1, at: 0, event: -1 }; // the last summary sent, its time, and the event in the inspector
    this.timer = 0;
    for (const box of [this.flow.box, this.rounds.box]) this.listen(box);
    window.addEventListener("resize", () => this.tip.hide(), { passive: true });
    onEscape(() => this.tip.hide());
    watch("value", () => this.receive());
    watchConnection();
    window.addEventListener("pagehide", () => { if (this.run.live && !this.player.done) this.server.leave(this.run.id); });
    setInterval(() => this.check(), QUIET_MS);
  }

  receive() {
    const message = JSON.parse(this.props.value || "null");
    if (!message || message.serial < this.run.serial) return;
    if (message.lost) return this.link.tell("");
    if (message.serial > this.run.serial) this.begin(message);
    this.accept(message);
  }

  begin({ run, serial, live, title, warning, query }) {
    this.run = { id: run, serial, live, query };
    say("");
    this.unmeasured = null;    // why the run has no speedup, once known
    this.find(".ns-warning").textContent = warning;
    this.find(".ns-warning").hidden = !warning;
    this.plainText.draw("", {});
    this.drafter.clear();
    this.sums = new Sums();
    this.plain = new Sums();   // of the run without drafts
    this.reason = "";          // why there is none
    this.player.reset();
    this.machine.clear();
    this.flow.clear();
    this.rounds.clear();
    this.tip.hide();
    this.shown = [];           // the token of each shown event: {flow, chip}, and the numbers of its events: {born, now}
    this.waiting = new Map();  // draft tokens by "step:index"
    this.pinned = null;        // the token that the reader chose
    this.asked = null;         // the number of an event whose token will be chosen once shown
    this.looked = null;        // the token in the inspector
    inspected.tell(null);
    this.resyncing = false;
    this.told.upto = this.root.dataset.told = -1;
    this.find(".ns-title").textContent = title;
    this.root.dataset.run = run;
    this.state = "running";
    this.link.begin(run);
  }

  set state(state) {
    this.root.dataset.state = state;
    document.body.classList.toggle("ns-running", state === "running");
  }

  // Messages may be lost (updates coalesce, a hidden panel gets none): then request the rest.
  accept(message) {
    const have = this.player.length;
    this.heard = performance.now();
    if (message.first > have) return void this.resync();
    const fresh = message.events.slice(have - message.first);
    const first = !this.player.steps;
    this.player.add(fresh);
    for (const event of fresh) this.sums.add(event);
    this.run.crowded = message.crowded;
    if (message.plain?.length && !this.plain.finished) this.addPlain(message.plain, true);
    if (message.done && !this.player.done) {
      this.player.done = true;
      this.state = "done";
      const { rounds, sums, tokens } = this.summary(this.player.length);
      const end = this.sums.finished?.finish_reason === "cancelled" ? "stopped" : "finished";
      this.find(".ns-said").textContent = `Run ${end}: ${tokens} tokens in ${rounds.length} steps` +
        (sums.drafted ? `, ${percent(sums.accepted / sums.drafted)} of the draft tokens accepted.` : ".");
      if (!this.sums.finished?.speedup) this.measure(false);
    }
    if (message.over && this.player.length < message.total) this.resync(); // no more messages come
    this.player.arrive();
    if (first && this.player.steps && !still()) this.player.loop();
    this.link.arrive();
    this.race();
    this.wake();
  }

  race() {
    const { run, sums: drafts, plain, reason, unmeasured, player: { done } } = this;
    raced.tell({ ...run, drafts, plain, reason, done, measuring: unmeasured?.measuring });
  }

  // Adds to the run without drafts, or completes it: rows of [time, token id, text], one for each of its passes.
  addPlain(rows, finished) {
    const passes = rows.flatMap(([time, token_id, text], n) => [{ kind: "bonus", token_id, text },
      { kind: "step", figures: { sums: { time, tokens: this.plain.ids.length + n + 1 } } }]);
    for (const event of [...passes, ...(finished ? [{ kind: "finished" }] : [])]) this.plain.add(event);
  }

  // The server measures the speedup after the run, while nobody decodes. First it decodes the run without drafts, which is
  // followed meanwhile; with the measurement's answer that is complete, unless it was interrupted: then the server has none.
  async measure(asked) {
    const { id, serial, live } = this.run;
    const unanswered = { reason: NO_ANSWER, again: true };
    const measuring = answerTo(() => this.server.speedup([id, asked])).then((answer) => answer ?? unanswered);
    this.know({ measuring: live });
    let answer;
    while (live && !this.plain.finished && !answer) {
      answer = await Promise.race([measuring, new Promise((done) => { setTimeout(done, PLAIN_MS); })]);
      const rows = await answerTo(() => this.server.plain([id, answer ? 0 : this.plain.ids.length])) ?? [];
      if (serial !== this.run.serial) return;
      if (answer) this.plain = new Sums();
      this.addPlain(rows, answer && rows.length);
      if (answer && !rows.length) this.reason = answer.reason ?? NO_ANSWER;
      this.race();
    }
    answer ??= await measuring;
    if (serial !== this.run.serial) return;
    if (answer.speedup) this.sums.finished.speedup = answer.speedup;
    this.know(answer);
  }

  know(unmeasured) {
    this.unmeasured = unmeasured;
    this.race();
    this.tell();
  }

  // Each answer has a limited number of events.
  async resync() {
    if (this.resyncing) return;
    this.resyncing = true;
    const { id, serial } = this.run;
    const answer = await answerTo(() => this.server.resync([id, this.player.length]));
    if (serial !== this.run.serial) return;
    this.resyncing = false;
    if (answer === null) this.lose();
    if (answer) this.accept(answer);
  }

  // The last messages may be lost, so that nothing reveals a gap; and none come after a broken connection.
  check() {
    const { run, player, heard } = this;
    if (run.id && !player.done && !isLost() && performance.now() - heard >= QUIET_MS) this.resync();
  }

  // The server has forgotten the run: no more events will come.
  lose() {
    this.player.done = true;
    this.state = "lost";
    this.wake();
    if (!this.run.query) return this.trigger("lost", {});
    const query = new URLSearchParams(this.run.query); // the same prompt, settings and seed
    const { seed } = this.sums.started;
    if (Number.isInteger(seed)) query.set("seed", seed);
    say(GONE, "Run it again", () => this.trigger("follow", { run: "", query: String(query) }));
  }

  wake() {
    if (!this.frame) this.frame = requestAnimationFrame(this.draw);
  }

  draw = () => {
    this.frame = 0;
    if (!this.run.id) return;
    const { player, machine } = this;
    const started = performance.now();
    if (machine.visible && started - this.drew < LONGEST_MS) player.advance(started - this.drew, (step) => machine.ready(step));
    const { target } = player;
    const turned = player.cursor !== target;
    const most = Math.max(FRAME_MS, Math.min(SLOW_MS, (started - this.drew) / 2));
    while (player.cursor !== target && performance.now() - started < most) {
      const on = player.cursor < target;
      this.turn(on ? player.cursor++ : --player.cursor, on);
    }
    if (this.asked < player.cursor && this.shown[this.asked]?.flow) this.pin(this.shown[this.asked]), (this.asked = null);
    machine.show(player);
    this.controls.draw(this.run.live, this.sums.settings);
    if (this.looked && this.told.event >= player.cursor) this.look(); // at once: it is no longer reached
    if (turned && (player.going || (player.following && this.run.live))) { // last, because they force a layout
      this.flow.follow();
      this.rounds.follow();
    }
    if (player.cursor !== this.told.upto && !this.timer) {
      this.timer = setTimeout(() => this.tell(), Math.max(0, this.told.at + TELL_MS - performance.now()));
    }
    this.drew = player.going || player.busy ? started : Infinity;
    if (player.going || player.busy) this.wake();
  };

  tell() {
    this.timer = 0;
    Object.assign(this.told, { upto: this.player.cursor, at: performance.now() });
    const summary = this.summary(this.player.cursor);
    summaries.tell(summary);
    this.plainText.draw(this.sums.texts.slice(0, summary.tokens).join(""), summary.started);
    this.guided.draw(summary);
    this.find(".ns-ending").textContent = ending(summary.finished, this.sums.settings, summary.tokens);
    this.look();
    this.root.dataset.told = this.told.upto;
  }

  summary(events) {
    const speedup = this.sums.finished?.speedup ?? null;
    return { ...this.sums.at(events, this.player.round(events)), live: this.run.live, speedup, unmeasured: this.unmeasured };
  }

  // Shows what event number n changes, or takes it back.
  turn(n, on) {
    const event = this.player.events[n];
    const { flow, rounds, shown } = this;
    if (event.kind === "started") this.drafter.begin(event, this.flow.prompt(event));
    if (event.kind === "step") rounds.finish(event, on);
    if (!TOKEN.has(event.kind)) return;
    const token = shown[n] ??= this.tokenOf(event, n);
    if (token.born === n) {
      token.flow.hidden = !on;
      rounds.show(token.chip, on);
    } else {
      token.now = on ? n : token.born;
      const now = this.player.events[token.now];
      token.flow = repaint(token.flow, now, now.text || "");
      token.chip = repaint(token.chip, now, chipText(now));
    }
    if (on && OUTPUT.has(event.kind)) flow.split(token.flow), this.drafter.addOutput(event, token);
  }

  // The draft token that the event judges, or a new one.
  tokenOf(event, n) {
    const { flow, rounds, waiting } = this;
    const key = `${event.step}:${event.index}`;
    const drafted = VERDICT.has(event.kind) ? waiting.get(key) : undefined;
    waiting.delete(key);
    if (drafted) return drafted;
    const token = { flow: flow.add(event), chip: rounds.add(event), born: n, now: n };
    token.flow.token = token.chip.token = token;
    if (!flow.box.querySelector("[tabindex='0']")) token.flow.tabIndex = token.chip.tabIndex = 0;
    if (event.kind === "proposed") waiting.set(key, token);
    return token;
  }

  // A column of the machine explains its token.
  choose(step, index) {
    const token = this.shown.findLast((one) => one?.flow && this.player.events[one.now].step === step && this.player.events[one.now].index === index);
    if (token) this.pin(token);
  }

  pin(token, node) {
    this.pinned = token;
    const [step, { index }] = [this.player.round(token.born), this.player.events[token.born]];
    const { player } = this;
    if (player.step !== step) Object.assign(player, { at: Math.min(player.end, (step + 1) * STEP), sticks: false });
    player.going = player.looping = false;
    this.machine.look(index);
    this.wake();
    this.look(true);
    if (!node) return;
    document.querySelector(".inspector-why").scrollIntoView({ block: "nearest" });
    node.scrollIntoView({ block: "nearest" }); // the explanation may cover it, or move it
  }

  // The inspector shows the chosen token, or the one at the cursor, as far as playback has come.
  look(chosen = false) {
    const { events, cursor, busy, following, done } = this.player;
    if (this.pinned && this.pinned.born >= cursor) this.pinned = null;
    const token = this.pinned || this.here();
    if (this.looked && this.looked !== token) mark(this.looked, "ns-pinned", false);
    this.looked = token;
    this.sources();
    if (!token) return inspected.tell(null);
    mark(token, "ns-pinned", true);
    const number = this.told.event = token.now;
    const [, upto] = this.player.stepOf(number); // later events add nothing about it
    inspected.tell({
      run: this.run.id, number, upto, event: events[number], settings: this.sums.settings, chosen, pinned: Boolean(this.pinned),
      resting: chosen || (!busy && (done || !following)), choose: () => this.pin(token),
      ask: async (question) => (isLost() ? "" : this.server.explain(question)),
    });
  }

  // The newest token, or the rejected one of its step; for a finished run, the closest rejection after some accepted tokens.
  here() {
    const { events, cursor, length, done } = this.player;
    const rejections = [...events.keys()].filter((n) => n < cursor && events[n].kind === "rejected");
    if (done && cursor === length && rejections.length) {
      const doubt = (n) => Math.abs((events[n].accept_prob ?? 0) - 0.5);
      const late = Math.min(2, Math.max(...rejections.map((n) => events[n].index)));
      return this.shown[rejections.filter((n) => events[n].index >= late).sort((a, b) => doubt(a) - doubt(b))[0]];
    }
    const newest = events.findLastIndex(({ kind }, n) => n < cursor && TOKEN.has(kind));
    const rejected = rejections.at(-1);
    return this.shown[events[rejected]?.step === events[newest]?.step ? rejected : newest] ?? null;
  }

  // For a drafter that copies: underlines the source of the inspected token's step, or of the token under the pointer.
  sources(pointed) {
    const { events } = this.player;
    if (pointed) this.drafter.mark([events[pointed.born]]);
    else this.drafter.mark(this.looked ? events.slice(...this.player.stepOf(this.looked.born)) : []);
  }

  // Pointing at a token highlights it in both views.
  point(token, at) {
    const { events } = this.player;
    const event = events[token.now];
    this.tip.show(at, describe(event, events[token.born]), event.kind);
    if (events[token.born].copied_from !== undefined) this.sources(token);
    mark(token, "ns-linked", true);
  }

  unpoint(token) {
    this.tip.hide();
    this.sources();
    mark(token, "ns-linked", false);
  }

  listen(box) {
    const on = (name, handle) => box.addEventListener(name, (event) => {
      const node = event.target.closest?.(".ns-token");
      if (node?.token) handle(node.token, node);
    });
    on("pointerover", (token, node) => this.point(token, node));
    on("pointerout", (token) => this.unpoint(token));
    on("focusout", (token, node) => { this.unpoint(token); hush(node); });
    on("click", (token, node) => { focusToken(box, node); this.pin(token, node); this.tip.hide(); }); // it would cover the explanation
    on("focusin", (token, node) => {
      const { events } = this.player;
      node.ariaHidden = null; // screen readers read a focused token
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", spoken(events[token.now], events[token.born]));
      this.point(token, node);
    });
    box.addEventListener("keydown", (event) => moveByKey(box, event, (node) => this.pin(node.token, node)));
  }
}

function mark(token, name, on) {
  for (const node of [token.flow, token.chip]) node.classList.toggle(name, on);
}
