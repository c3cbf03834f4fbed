// Two pictures of a run: the race, and one step, enlarged.

import { Channel, finder, make, still, write } from "./dom.js";
import { count, isGreedy, nameOf, visible } from "./format.js";
import { explain } from "./rooms.js";
import { OUTPUT, VERDICT } from "./tokens.js";

const FAST_SECONDS = 0.01;  // a replay with less time per token is slowed down …
const SHOWN_SECONDS = 0.04; // … to this
const DRAW = 0.05;          // less difference in speed is none
const AFTER = 4;            // compared tokens after the texts part
const MS = { draft: 220, pass: 700, verdict: 300 };

// The stage's run: its `events` and whether it is `done`, `live` and `crowded`; the `plain` run's rows of [time, token id,
// text], and whether that is `compared`, which means complete; or the `reason` why there is none.
export const raced = new Channel();
export const enlarged = new Channel(); // a step's events so far, and the token that the reader looks at
const played = new Channel(); // the serial of the run whose step is to be played once

export function mount({ element }) {
  const view = new Race(element.querySelector(".ns-race"));
  raced.follow((run) => view.take(run));
}

export function mountZoom({ element }) {
  const view = new Zoom(element.querySelector(".ns-zoom"));
  enlarged.follow((step) => view.show(step));
  played.follow((serial) => view.play(serial));
}

// The target alone and the target with drafts, on one clock. A live run is shown as it is decoded, then the same prompt without
// drafts; once both are known they are replayed together, at true speed or slower, and the result appears between them.
class Race {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
    [this.plain, this.drafts] = this.lanes = ["plain", "drafts"].map((name) => new Lane(this.find(`[data-lane="${name}"]`)));
    this.again = this.find(".ns-again");
    this.parted = this.find(".ns-parted");
    this.parted.addEventListener("click", () => this.explain());
    this.again.addEventListener("click", () => { if (this.replaying) this.end(); else this.replay(); });
  }

  take(run) {
    if (run.serial !== this.run?.serial) this.begin();
    this.run = run;
    this.root.hidden = !run.live && !run.compared;
    this.drafts.add(run.events.slice(this.drafts.events));
    if (!run.plain.length) this.plain.clear(); // it has not begun, or was interrupted
    const rows = run.plain.slice(this.plain.tokens);
    this.plain.add(rows.flatMap(([time, token_id, text]) => [{ kind: "bonus", time, token_id, text }, { kind: "step", time }]));
    if (!this.replaying) this.draw();
  }

  begin() {
    cancelAnimationFrame(this.frame);
    this.replaying = this.over = false;
    for (const lane of this.lanes) lane.clear();
  }

  replay() {
    this.replaying = true;
    this.over = false;
    const pace = this.plain.seconds / Math.max(1, this.plain.tokens);
    this.speed = pace < FAST_SECONDS ? pace / SHOWN_SECONDS : 1;
    this.began = performance.now();
    this.skipped = false;
    for (const lane of this.lanes) lane.wipe();
    if (still()) this.end(); else this.draw();
  }

  end() {
    this.skipped = true;
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    const { run, lanes } = this;
    if (run.done && run.compared && !this.replaying && !this.over) return void this.replay();
    // The bars end at the longer text, which is not known before.
    const whole = run.done ? Math.max(this.drafts.tokens, this.plain.tokens) : run.settings.max_tokens;
    this.root.style.setProperty("--tokens", Math.max(1, whole || this.drafts.tokens));
    const clock = this.replaying && !this.skipped ? (performance.now() - this.began) / 1000 * this.speed : Infinity;
    for (const lane of lanes) lane.draw(clock);
    const moving = lanes.some(({ seconds }) => clock < seconds);
    if (this.replaying && !moving) {
      this.replaying = false;
      this.over = true;
      played.tell(run.serial);
    }
    if (run.done && (run.reason || this.root.hidden)) played.tell(run.serial); // there will be no replay
    this.tell();
    if (moving) this.frame = requestAnimationFrame(() => this.draw());
  }

  tell() {
    const [result, rest] = this.over ? verdict(this.run, this.plain, this.drafts, this.speed) : [this.status(), ""];
    this.root.dataset.state = this.over ? "done" : this.replaying ? "replaying" : "live";
    write(this.find(".ns-result b"), result);
    write(this.find(".ns-result span"), rest);
    this.again.hidden = !this.over && !this.replaying;
    this.parted.hidden = !this.over || partedAt(this.run.settings, this.plain, this.drafts) < 0;
    write(this.again, this.replaying ? "Skip" : "Replay");
  }

  // Why greedy lanes parted.
  explain() {
    const { prompt, prompt_texts: read } = this.run.events[0];
    const end = partedAt(this.run.settings, this.plain, this.drafts) + AFTER;
    const [a, b] = this.lanes.map(({ texts }) => texts.slice(0, end).join(""));
    explain({ prompt, a, b, chat: read?.join("") !== prompt, greedy: true });
  }

  status() {
    const { run } = this;
    if (this.replaying) return this.speed < 1 ? `Replay, ${slower(this.speed)}` : "Replay at true speed";
    if (!run.done) return "First with drafts …";
    return run.reason || "… then the target alone";
  }
}

// The result in large type, and what stands next to it. A lane has `tokens`, their `ids`, `seconds` and `passes`, and the first
// two of its `first` pass.
export function verdict({ settings, crowded }, plain, drafts, speed) {
  const passes = `${count(drafts.passes, "target pass", "target passes")} instead of ${drafts.tokens}`;
  const parts = [passes, sameness(settings, plain, drafts), ...(speed < 1 ? [slower(speed)] : [])];
  return [crowded ? "Others were decoding: the times say little, and windows may be shorter" : faster(plain, drafts), parts.join(" · ")];
}

const slower = (speed) => `slowed down ${(1 / speed).toFixed(0)}×`;

// Texts of different lengths are compared per token after the first pass, which also processes the prompt. No speedup exceeds
// the tokens per target pass.
function faster(plain, drafts) {
  const same = plain.tokens === drafts.tokens;
  const pace = ({ tokens, seconds, first }) =>
    same ? seconds / Math.max(1, tokens) : (seconds - first?.seconds) / (tokens - first?.tokens);
  const times = pace(plain) / pace(drafts);
  if (!(times > 0)) return "The text is too short to be timed.";
  const most = same ? drafts.tokens / drafts.passes : (drafts.tokens - drafts.first.tokens) / (drafts.passes - 1);
  if (times > (1 + DRAW) * most) return "Other programs were busy, so the times say little";
  if (Math.abs(times - 1) < DRAW) return "As fast as without drafts";
  const each = same ? "" : " per token after the first pass";
  return times > 1 ? `${times.toFixed(1)}× faster${each}` : `Slower: ${times.toFixed(2)}×${each}`;
}

function sameness(settings, plain, drafts) {
  if (settings.lossy) return "not the target's distribution";
  if (!isGreedy(settings) && plain.tokens === drafts.tokens) return "same distribution";
  if (!isGreedy(settings)) return `same distribution; the target alone wrote ${count(plain.tokens, "token")}`;
  const parts = partedAt(settings, plain, drafts);
  if (parts >= 0) return `same text up to token ${parts}`;
  return plain.tokens < drafts.tokens ? `same text up to token ${plain.tokens}, where the target alone was stopped` : "same text";
}

// The first token at which greedy lanes differ; -1 if there is none.
function partedAt(settings, plain, drafts) {
  if (settings.lossy || !isGreedy(settings)) return -1;
  const both = Math.min(plain.ids.length, drafts.ids.length);
  return plain.ids.findIndex((id, n) => n < both && id !== drafts.ids[n]);
}

class Lane {
  constructor(box) {
    this.track = box.querySelector(".ns-track");
    this.text = box.querySelector(".ns-lane-text");
    this.numbers = box.querySelector(".ns-lane-head span");
    new ResizeObserver(() => this.end()).observe(this.text); // lecture mode has another type
    this.clear();
  }

  // The last whole lines are in sight.
  end() {
    this.text.scrollTop = this.text.scrollHeight;
  }

  clear() {
    this.events = 0;   // their number
    this.ids = [];
    this.texts = [];
    this.ends = [];    // for every pass, its time and the number of tokens up to it
    this.seconds = 0;  // the whole time
    this.wipe();
  }

  wipe() {
    this.passes = 0;   // the number of shown ones
    this.track.replaceChildren();
    this.text.replaceChildren();
  }

  add(events) {
    this.events += events.length;
    for (const { kind, token_id, text, time } of events) {
      if (OUTPUT.has(kind)) this.ids.push(token_id), this.texts.push(text || "");
      this.seconds = time || this.seconds;
      if (kind === "step") this.ends.push({ seconds: this.seconds, tokens: this.tokens });
    }
  }

  get tokens() {
    return this.ids.length;
  }

  get first() {
    return this.ends[0];
  }

  // Draws the passes up to a time.
  draw(clock) {
    for (; this.ends[this.passes]?.seconds <= clock; this.passes += 1) {
      const [from, { tokens }] = [this.ends[this.passes - 1]?.tokens ?? 0, this.ends[this.passes]];
      this.text.append(this.texts.slice(from, tokens).join("").replaceAll("\n", " "));
      this.track.append(make("i", { style: `--n: ${tokens - from}` }));
    }
    this.end();
    const time = Math.min(clock, this.seconds);
    write(this.numbers, this.events ? `${count(this.passes, "pass", "passes")} · ${time.toFixed(2)} s` : "");
  }
}

// One step: the draft tokens, the target pass over them, the verdicts, and the target's own token. It plays once per run, then
// shows the step of whichever token the reader selects.
class Zoom {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
    this.list = root.querySelector("ol");
    this.tree = root.querySelector(".ns-tree");
  }

  show(step) {
    this.root.hidden = !step?.events.length;
    if (this.root.hidden) return;
    const { events, looked } = step;
    const drafts = events.filter(({ kind }) => kind === "proposed");
    const judged = ({ index }) => events.findLast((event) => VERDICT.has(event.kind) && event.index === index);
    const own = events.filter(({ kind }) => kind === "resampled" || kind === "bonus");
    const shown = [...drafts.map((draft) => judged(draft) ?? draft), ...own];
    const end = events.find(({ kind }) => kind === "step");
    const tree = end?.tree ?? [];
    const key = JSON.stringify([tree.length, ...shown.map(({ step: number, index, kind }) => [number, index, kind])]);
    if (key !== this.key) {
      clearTimeout(this.timer); // the reader went on to another step
      delete this.root.dataset.scene;
      this.list.replaceChildren(...shown.map(card));
      this.tree.replaceChildren(...branches(tree));
    }
    this.key = key;
    const isLooked = ({ kind, index }) => kind === looked?.kind && index === looked.index;
    for (const [n, node] of [...this.list.children].entries()) node.classList.toggle("ns-looked", isLooked(shown[n]));
    this.find(".ns-zoom-drafted").textContent = drafts.length
      ? `One step: ${count(tree.length || drafts.length, "draft token")}, then` : "One step: no draft tokens";
    const tokens = events.filter(({ kind }) => OUTPUT.has(kind)).length;
    this.find("figcaption").textContent = end ? `gives ${count(tokens, "token")}` : "";
  }

  async play(serial) {
    if (this.played === serial || this.root.hidden) return;
    this.played = serial;
    if (still()) return;
    clearTimeout(this.timer);
    const pause = (ms) => new Promise((done) => { this.timer = setTimeout(done, ms); });
    const cards = [...this.list.children];
    const shown = async (nodes, stage, ms) => {
      for (const node of nodes) {
        node.dataset.shown = stage;
        await pause(ms);
      }
    };
    for (const node of cards) node.dataset.shown = "";
    this.root.dataset.scene = "draft";
    await pause(MS.draft);
    await shown(cards.filter((node) => "drafted" in node.dataset), "drafted", MS.draft);
    this.root.dataset.scene = "pass";
    await pause(MS.pass);
    await shown(cards, "judged", MS.verdict);
    delete this.root.dataset.scene;
  }
}

// All nodes of a step's tree, each with its children to the right. A node's parent comes before it.
function branches(tree) {
  const roots = [];
  const below = [];
  for (const [n, node] of tree.entries()) {
    below[n] = make("div");
    const looks = { class: "ns-branch", "data-kind": node.kind };
    const branch = make("div", looks, make("span", "ns-zoom-word", visible(node)), below[n]);
    if (node.parent < 0) roots.push(branch); else below[node.parent]?.append(branch);
  }
  return roots;
}

function card(event) {
  const drafted = event.kind === "proposed" || VERDICT.has(event.kind) ? "" : undefined;
  const contents = [make("span", "ns-zoom-word", visible(event)), make("span", "ns-zoom-fate", nameOf(event))];
  return make("li", { "data-kind": event.kind, "data-drafted": drafted }, ...contents);
}
