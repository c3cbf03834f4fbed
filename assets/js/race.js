// Two pictures of a run: the race, and one step, enlarged.

import { Channel, finder, make, still, write } from "./dom.js";
import { count, isGreedy, nameOf, visible } from "./format.js";
import { inspected } from "./inspector.js";
import { explain } from "./rooms.js";
import { OUTPUT, VERDICT } from "./tokens.js";

const FAST_SECONDS = 0.01;  // a replay with less time per token is slowed down …
const SHOWN_SECONDS = 0.04; // … to this
const DRAW = 0.05;          // less difference in speed is none
const AFTER = 4;            // compared tokens after the texts part
const MS = { draft: 220, pass: 700, verdict: 300 };

// The stage's run: whether it is `done`, `live` and `crowded`; the `Sums` of its `drafts` and of the `plain` run so far, or the
// `reason` why there is none.
export const raced = new Channel();
const played = new Channel(); // the serial of the run whose step is to be played once

export function mount({ element }) {
  const view = new Race(element.querySelector(".ns-race"));
  raced.follow((run) => view.take(run));
}

export function mountZoom({ element }) {
  const view = new Zoom(element.querySelector(".ns-zoom"));
  inspected.follow((shown) => view.show(shown));
  played.follow((serial) => view.play(serial));
}

// The target alone and the target with drafts, on one clock. A live run is shown as it is decoded, then the same prompt without
// drafts; once both are known they are replayed together, at true speed or slower, and the result appears between them.
class Race {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
    [this.plain, this.drafts] = ["plain", "drafts"].map((name) => new Lane(this.find(`[data-lane="${name}"]`)));
    this.again = this.find(".ns-again");
    this.parted = this.find(".ns-parted");
    this.parted.addEventListener("click", () => this.explain());
    this.again.addEventListener("click", () => { if (this.state === "replaying") this.draw(); else this.replay(); });
  }

  take(run) {
    if (run.serial !== this.run?.serial) this.state = "live"; // or "replaying", or "done"
    this.run = run;
    this.root.hidden = !run.live && !run.plain.finished;
    if (this.state === "live" && run.done && run.plain.finished) this.replay();
    else if (this.state !== "replaying") this.draw();
  }

  replay() {
    this.state = "replaying";
    const { time, tokens } = this.run.plain.whole;
    const pace = time / Math.max(1, tokens);
    this.speed = pace < FAST_SECONDS ? pace / SHOWN_SECONDS : 1;
    this.began = performance.now();
    for (const lane of [this.plain, this.drafts]) lane.wipe();
    this.draw(still() ? Infinity : 0);
  }

  // Draws what was decoded up to a time: all, or as much as was replayed.
  draw(clock = Infinity) {
    cancelAnimationFrame(this.frame);
    const { run } = this;
    // The bars end at the longer text, which is not known before.
    const longest = run.done ? Math.max(run.plain.whole.tokens, run.drafts.whole.tokens) : run.drafts.settings.max_tokens;
    this.root.style.setProperty("--tokens", Math.max(1, longest || run.drafts.whole.tokens));
    this.plain.draw(run.plain, clock);
    this.drafts.draw(run.drafts, clock);
    const moving = clock < Math.max(run.plain.whole.time, run.drafts.whole.time);
    if (this.state === "replaying" && !moving) this.state = "done";
    const unraced = run.done && (run.reason || this.root.hidden); // there will be no replay
    if (this.state === "done" || unraced) played.tell(run.serial);
    this.tell();
    if (moving) this.frame = requestAnimationFrame(() => this.draw((performance.now() - this.began) / 1000 * this.speed));
  }

  tell() {
    const { run, state, speed } = this;
    const [result, rest] = state === "done" ? verdict(run, speed) : [this.status(), ""];
    this.root.dataset.state = state;
    write(this.find(".ns-result b"), result);
    write(this.find(".ns-result span"), rest);
    this.again.hidden = state === "live";
    this.parted.hidden = state !== "done" || partedAt(run) < 0;
    write(this.again, state === "replaying" ? "Skip" : "Replay");
  }

  // Why greedy lanes parted.
  explain() {
    const { plain, drafts } = this.run;
    const { prompt, prompt_texts: read } = drafts.started;
    const [a, b] = [plain, drafts].map(({ texts }) => texts.slice(0, partedAt(this.run) + AFTER).join(""));
    explain({ prompt, a, b, chat: read?.join("") !== prompt, greedy: true });
  }

  status() {
    const { run } = this;
    if (this.state === "replaying") return this.speed < 1 ? `Replay, ${slower(this.speed)}` : "Replay at true speed";
    if (!run.done) return "First with drafts …";
    return run.reason || "… then the target alone";
  }
}

// The result in large type, and what stands next to it.
export function verdict(run, speed) {
  const { plain, drafts } = run;
  const passes = `${count(drafts.rounds.length, "target pass", "target passes")} instead of ${drafts.whole.tokens}`;
  const parts = [passes, sameness(run), ...(speed < 1 ? [slower(speed)] : [])];
  const crowded = "Others were decoding: the times say little, and windows may be shorter";
  return [run.crowded ? crowded : faster(plain, drafts), parts.join(" · ")];
}

const slower = (speed) => `slowed down ${(1 / speed).toFixed(0)}×`;

// Texts of different lengths are compared per token after the first pass, which also processes the prompt. No speedup exceeds
// the tokens per target pass.
function faster(plain, drafts) {
  const same = plain.whole.tokens === drafts.whole.tokens;
  const timed = ({ upto, whole, rounds }) => {
    const before = upto[same ? 0 : 1] ?? whole;
    return { time: whole.time - before.time, tokens: whole.tokens - before.tokens, passes: rounds.length - !same };
  };
  const [alone, drafted] = [plain, drafts].map(timed);
  const times = alone.time / alone.tokens / (drafted.time / drafted.tokens);
  if (!(times > 0)) return "The text is too short to be timed.";
  if (times > (1 + DRAW) * drafted.tokens / drafted.passes) return "Other programs were busy, so the times say little";
  if (Math.abs(times - 1) < DRAW) return "As fast as without drafts";
  const each = same ? "" : " per token after the first pass";
  return times > 1 ? `${times.toFixed(1)}× faster${each}` : `Slower: ${times.toFixed(2)}×${each}`;
}

function sameness(run) {
  const { settings } = run.drafts;
  const [alone, drafted] = [run.plain.whole.tokens, run.drafts.whole.tokens];
  if (settings.lossy) return "not the target's distribution";
  if (!isGreedy(settings) && alone === drafted) return "same distribution";
  if (!isGreedy(settings)) return `same distribution; the target alone wrote ${count(alone, "token")}`;
  const parts = partedAt(run);
  if (parts >= 0) return `same text up to token ${parts}`;
  return alone < drafted ? `same text up to token ${alone}, where the target alone was stopped` : "same text";
}

// The first token at which greedy lanes differ; -1 if there is none.
function partedAt(run) {
  const { plain: { ids: alone }, drafts: { ids: drafted, settings } } = run;
  if (settings.lossy || !isGreedy(settings)) return -1;
  return alone.findIndex((id, n) => n < drafted.length && id !== drafted[n]);
}

class Lane {
  constructor(box) {
    this.track = box.querySelector(".ns-track");
    this.text = box.querySelector(".ns-lane-text span");
    this.numbers = box.querySelector(".ns-lane-head span");
  }

  wipe() {
    this.passes = 0;   // the number of shown ones
    this.track.replaceChildren();
    this.text.replaceChildren();
  }

  // Draws the passes of a run up to a time.
  draw(run, clock) {
    if (run !== this.run) this.wipe();
    this.run = run;
    for (; run.upto[this.passes + 1]?.time <= clock; this.passes += 1) {
      const [{ tokens: from }, { tokens: to }] = run.upto.slice(this.passes);
      this.text.append(run.texts.slice(from, to).join("").replaceAll("\n", " "));
      this.track.append(make("i", { style: `--n: ${to - from}` }));
    }
    const time = Math.min(clock, run.whole.time);
    write(this.numbers, run.outputs.length > 1 ? `${count(this.passes, "pass", "passes")} · ${time.toFixed(2)} s` : "");
  }
}

// One step: the draft tokens, the target pass over them, the verdicts, and the target's own token. It plays once per run, then
// shows the step of whichever token the reader selects.
class Zoom {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
  }

  show(shown) {
    this.root.hidden = !shown?.events.length;
    const key = JSON.stringify(shown && [shown.run, shown.number, ...shown.events.map(({ step, index, kind }) => [step, index, kind])]);
    if (this.root.hidden || key === this.key) return;
    this.key = key;
    this.stop(); // the reader went on
    this.shown = shown;
    const drafts = shown.events.filter(({ kind }) => kind === "proposed").length;
    const nodes = shown.events.at(-1).tree?.length;
    this.find(".ns-zoom-drafted").textContent = drafts
      ? `One step: ${count(nodes || drafts, "draft token")}, then` : "One step: no draft tokens";
    this.draw(shown.events);
  }

  // Draws the step up to one of its events.
  draw(events) {
    const drafts = events.filter(({ kind }) => kind === "proposed");
    const judged = ({ index }) => events.findLast((event) => VERDICT.has(event.kind) && event.index === index);
    const own = events.filter(({ kind }) => kind === "resampled" || kind === "bonus");
    const cards = [...drafts.map((draft) => judged(draft) ?? draft), ...own];
    const end = events.find(({ kind }) => kind === "step");
    this.find("ol").replaceChildren(...cards.map((event) => card(event, event === this.shown.event)));
    this.find(".ns-tree").replaceChildren(...branches(end?.tree ?? []));
    const tokens = events.filter(({ kind }) => OUTPUT.has(kind)).length;
    this.find("figcaption").textContent = end ? `gives ${count(tokens, "token")}` : "";
  }

  async play(serial) {
    if (this.played === serial || this.root.hidden) return;
    this.played = serial;
    if (still()) return;
    this.stop();
    const { events } = this.shown;
    const drafts = events.filter(({ kind }) => kind === "proposed").length;
    const part = async (scene, first, last, ms) => {
      this.root.dataset.scene = scene;
      for (let n = first; n <= last; n += 1) {
        this.draw(events.slice(0, n));
        await new Promise((done) => { this.timer = setTimeout(done, ms); });
      }
    };
    this.root.style.minHeight = `${this.root.offsetHeight}px`; // what is below does not move
    await part("draft", 0, drafts, MS.draft);
    await part("pass", drafts, drafts, MS.pass);
    await part("verdict", drafts + 1, events.length, MS.verdict);
    this.stop();
  }

  stop() {
    clearTimeout(this.timer);
    delete this.root.dataset.scene;
    this.root.style.minHeight = "";
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

function card(event, looked) {
  const contents = [make("span", "ns-zoom-word", visible(event)), make("span", "ns-zoom-fate", nameOf(event))];
  return make("li", { "data-kind": event.kind, class: looked ? "ns-looked" : undefined }, ...contents);
}
