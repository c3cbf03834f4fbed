// The race: the target alone and the target with drafts, on one clock, which is the x axis.

import { Channel, finder, still, svg, write } from "./dom.js";
import { count, isGreedy } from "./format.js";
import { explain, mine } from "./rooms.js";

const FAST_SECONDS = 0.01;  // a replay with less time per token is slowed down …
const SHOWN_SECONDS = 0.04; // … to this
const DRAW = 0.05;          // less difference in speed is none
const AFTER = 4;            // compared tokens after the texts part
const SCALES = 1.5;         // between two lengths of the axis, while a run's time is unknown

// The stage's run: whether it is `done`, `live`, `crowded` and being measured; the `Sums` of its `drafts` and of the `plain` run so
// far, or the `reason` why there is none.
export const raced = new Channel();

export function mount({ element }) {
  const view = new Race(element.querySelector(".ns-race"));
  raced.follow((run) => view.take(run));
}

// A live run is shown as it is decoded, then the same prompt without drafts; once both are known they are replayed together, at
// true speed or slower, and the result appears at the end of the shorter bar.
class Race {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
    [this.plain, this.drafts] = ["plain", "drafts"].map((name) => new Lane(this.find(`[data-lane="${name}"]`)));
    [this.again, this.parted, this.result] = [".ns-again", ".ns-parted", ".ns-result"].map(this.find);
    this.parted.addEventListener("click", () => explain(this.texts()));
    mine.texts = () => this.texts();
    this.again.addEventListener("click", () => { if (this.state === "replaying") this.draw(); else this.replay(); });
    this.won = document.querySelector(".ns-won"); // in sight while the race is not; none in a saved run
    new ResizeObserver(() => this.place()).observe(root);
  }

  take(run) {
    if (run.serial !== this.run?.serial) [this.state, this.scale] = ["live", 0]; // or "replaying", or "done"
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
    const longest = Math.max(run.plain.whole.time, run.drafts.whole.time);
    this.stretch(longest);
    this.plain.draw(run.plain, clock);
    this.drafts.draw(run.drafts, clock);
    const moving = clock < longest;
    if (this.state === "replaying" && !moving) this.state = "done";
    this.tell();
    if (moving) this.frame = requestAnimationFrame(() => this.draw((performance.now() - this.began) / 1000 * this.speed));
  }

  // Once both times are known the axis ends at the longer one. Until then it grows in coarse increments, and never shrinks.
  stretch(longest) {
    const known = this.state !== "live";
    const scale = known ? longest : Math.max(this.scale, SCALES ** Math.ceil(Math.log(Math.max(0.1, 1.2 * longest)) / Math.log(SCALES)));
    if (scale === this.scale) return;
    this.scale = scale;
    this.root.style.setProperty("--seconds", scale.toFixed(3));
    write(this.find(".ns-clocks span:last-child"), `${scale.toFixed(2)} s`);
  }

  tell() {
    const { run, state } = this;
    const [result, rest] = state === "done" ? verdict(run) : [this.status(), ""];
    this.root.dataset.state = state;
    this.root.toggleAttribute("data-faster", state === "done" && result.includes("× faster"));
    write(this.find(".ns-result b"), result);
    write(this.find(".ns-result span"), run.measuring && run.done && state === "done" ? `${rest} · measuring it again …` : rest);
    if (this.won) write(this.won, state === "done" && !run.crowded ? [result, rest].map((text) => text.split(" · ").at(-1)).join(", ") : "");
    this.again.hidden = state === "live";
    this.parted.hidden = state !== "done" || partedAt(run) < 0;
    write(this.again, state === "replaying" ? "Skip" : "Replay");
    this.place();
  }

  // The result stands after the bar with drafts, or below it if there is no room.
  place() {
    if (!this.run) return;
    if (this.won) this.won.hidden = !this.root.clientWidth; // another tab is open
    const share = this.state === "done" ? this.run.drafts.whole.time / this.scale : 0;
    this.result.style.setProperty("--end", share);
    this.result.classList.toggle("ns-below", this.state !== "done" || (1 - share) * this.drafts.track.getBoundingClientRect().width < this.result.scrollWidth + 20);
  }

  // The lanes' texts up to where they part and a little further; null while there is none without drafts.
  texts() {
    const { plain, drafts } = this.run ?? {};
    if (!plain?.texts.length) return null;
    const { prompt, prompt_texts: read } = drafts.started;
    const parts = plain.ids.findIndex((id, n) => id !== drafts.ids[n]);
    const [a, b] = [plain, drafts].map(({ texts }) => texts.slice(0, parts < 0 ? undefined : parts + AFTER).join(""));
    return { prompt, a, b, chat: read?.join("") !== prompt, greedy: isGreedy(drafts.settings) };
  }

  status() {
    const { run } = this;
    if (this.state === "replaying") return this.speed < 1 ? `Replay, slowed down ${(1 / this.speed).toFixed(0)}×` : "Replay at true speed";
    if (!run.done) return "First with drafts …";
    return run.reason || "… then the target alone";
  }
}

// The result in large type, and what stands next to it.
export function verdict(run) {
  const { plain, drafts } = run;
  const passes = `${count(drafts.rounds.length, "target pass", "target passes")} instead of ${drafts.whole.tokens}`;
  const crowded = "Others were decoding: the times say little, and windows may be shorter";
  return [run.crowded ? crowded : `${drafts.whole.time.toFixed(2)} s · ${faster(plain, drafts)}`, `${passes} · ${sameness(run)}`];
}

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
    this.numbers = box.querySelector(".ns-lane-head span");
  }

  wipe() {
    this.passes = 0;   // the number of shown ones
    this.track.replaceChildren();
  }

  // Draws the passes of a run up to a time.
  draw(run, clock) {
    if (run !== this.run) this.wipe();
    this.run = run;
    for (; run.upto[this.passes + 1]?.time <= clock; this.passes += 1) {
      const [{ time: from }, { time: to }] = run.upto.slice(this.passes);
      this.track.append(svg("rect", { style: `--from: ${from}; --to: ${to}` }));
    }
    const time = Math.min(clock, run.whole.time);
    write(this.numbers, run.outputs.length > 1 ? `${count(this.passes, "pass", "passes")} · ${time.toFixed(2)} s` : "");
  }
}
