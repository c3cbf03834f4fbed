// The drawing of a step (naive_speculate/tools/show/drawing.py), whose parts move in the order in which they happened. Nothing plays
// by itself: whoever has the clock sets the time.

import { everyFrame, still } from "./dom.js";

export const ENDS = [1000, 1800, 3200, 3700, 4400]; // of the five phases of a step, in milliseconds
const [DRAFTED, PASSED, JUDGED, GIVEN, WHOLE] = ENDS;
export const STEP = WHOLE;
const NARROW = 480; // pixels, of a lesson's picture
const [HIDDEN, SHOWN] = [{ opacity: 0 }, { opacity: 1 }];

// When a verdict falls: from left to right, and those of discarded tokens with the rejection.
export function verdictAt(kind, column, judged) {
  const pace = Math.min(350, (JUDGED - PASSED - 250) / Math.max(1, judged));
  return PASSED + pace * (kind === "discarded" ? judged : Math.min(judged, column));
}

// The animations of a drawing. Everything is measured first, since a measurement after a change costs a layout; and what moves
// does so by `transform` and `opacity` alone, which change no layout.
export class Moves {
  constructor(picture) {
    this.all = [];
    this.parts = (name) => [...picture.querySelectorAll(`[data-part="${name}"]`)];
    this.measure();
    this.draft();
    this.pass();
    this.judge();
    this.give();
  }

  // Everything as it is at this time of the step.
  to(at) {
    for (const move of this.all) {
      const own = Math.min(move.end, Math.max(move.begin, at));
      if (own !== move.at) move.one.currentTime = move.at = own;
    }
  }

  measure() {
    const { parts } = this;
    [this.drafter, this.target, this.before, this.after, this.count, this.source] =
      ["drafter", "target", "before", "after", "count", "source"].map((name) => parts(name)[0]);
    [this.drafts, this.gains, this.verdicts] = ["draft", "gain", "verdict"].map(parts);
    const all = [this.drafter, this.target, this.before, this.source, ...this.drafts, ...this.gains].filter(Boolean);
    this.centers = new Map(all.map((node) => [node, center(node)]));
    this.sweeps = parts("sweep").map(({ firstChild: light }) => [light, parts("pass")[0].firstChild.getBBox().width - light.getBBox().width]);
  }

  move(node, begin, end, frames, easing = "ease-out") {
    const one = node.animate(frames, { delay: begin, duration: Math.max(1, end - begin), easing, fill: "both" });
    one.pause();
    this.all.push({ one, begin, end: Math.max(begin + 1, end) });
  }

  appear(node, begin, lasts = 150) {
    this.move(node, begin, begin + lasts, [HIDDEN, SHOWN]);
  }

  from(node, place, begin, end, size = 0.3) {
    const [a, b] = [this.centers.get(node), this.centers.get(place)];
    this.move(node, begin, end, [{ opacity: 0, transform: `translate(${b.x - a.x}px, ${b.y - a.y}px) scale(${size})` },
      { opacity: 1, offset: 0.3 }, { opacity: 1, transform: "none" }]);
  }

  grow(bar, begin, end) {
    this.appear(bar, begin, Math.min(150, end - begin));
    this.move(bar.firstChild, begin, end, [{ transform: "scale(1, 0)" }, { transform: "none" }]);
  }

  // Draft tokens come out of the drafter, or copied ones out of the text.
  draft() {
    const { drafts, parts } = this;
    const each = DRAFTED / Math.max(1, drafts.length);
    drafts.forEach((chip, n) => this.from(chip, chip.dataset.kind === "copied" ? this.before : this.drafter, n * each, Math.min(DRAFTED, (n + 1) * each + 100)));
    parts("node").forEach((chip) => this.appear(chip, Math.min(800, chip.dataset.column * each + each / 2)));
    parts("q").forEach((bar, n) => this.grow(bar, n * each + each / 2, Math.min(DRAFTED, (n + 1.2) * each)));
  }

  pass() {
    const begun = this.drafts.length ? DRAFTED : 100; // without drafts the pass comes first
    for (const frame of this.parts("pass")) this.appear(frame, begun, 120);
    for (const [light, way] of this.sweeps) {
      this.move(light, begun + 50, PASSED - 80, [{ opacity: 0 }, { opacity: 0.3, offset: 0.15 }, { opacity: 0.3, offset: 0.8 },
        { opacity: 0, transform: `translateX(${way}px)` }], "ease-in-out");
    }
    for (const bar of this.parts("p")) this.grow(bar, begun + 50, PASSED - 100);
  }

  when({ dataset: { kind, column } }) {
    return verdictAt(kind, column, this.verdicts.filter(({ dataset }) => dataset.kind !== "discarded").length);
  }

  judge() {
    for (const words of this.parts("legend")) this.appear(words, PASSED);
    for (const verdict of this.verdicts) this.appear(verdict, this.when(verdict));
    for (const fate of this.parts("fate")) {
      const begin = this.when(fate) + 100;
      this.appear(fate, begin);
      if (fate.dataset.kind !== "rejected") continue;
      const falling = fate.cloneNode(true);
      falling.dataset.part = "falling";
      fate.after(falling);
      this.move(falling, begin, begin + 600, [{ opacity: 0 }, { opacity: 1, offset: 0.02 },
        { opacity: 0, transform: "translateY(50px) rotate(7deg)" }], "ease-in");
    }
  }

  // Accepted tokens go down in their column; the target's own rises out of the residual, or comes down from its bar.
  give() {
    for (const part of [...this.parts("residual"), ...this.parts("source")]) this.appear(part, JUDGED);
    for (const chip of this.gains) {
      const { kind } = chip.dataset;
      if (kind === "accepted") this.move(chip, this.when(chip) + 120, this.when(chip) + 400, [{ opacity: 0, transform: "translateY(-26px)" }, { opacity: 1, transform: "none" }]);
      else if (kind === "resampled" && this.source) this.from(chip, this.source, JUDGED + 100, GIVEN, 0.7);
      else this.move(chip, JUDGED, GIVEN, [{ opacity: 0, transform: "translateY(-120px)" }, { opacity: 1, offset: 0.3 }, { opacity: 1, transform: "none" }]);
    }
    const { before, after, count } = this;
    before.setAttribute("opacity", 1);
    this.move(before, GIVEN + 150, GIVEN + 350, [SHOWN, HIDDEN]);
    this.move(after, GIVEN + 150, GIVEN + 350, [HIDDEN, SHOWN]);
    this.move(count, GIVEN + 150, GIVEN + 600, [{ opacity: 0, transform: "scale(0.7)" }, { opacity: 1, transform: "scale(1.08)", offset: 0.6 }, { opacity: 1, transform: "none" }]);
  }
}

function center(node) {
  const { x, y, width, height } = node.getBBox();
  return { x: x + width / 2, y: y + height / 2 };
}

// The drawing of a step in a lesson, which shows it as it is at certain times: it moves on to later ones. It has a template for
// wide and one for narrow places.
export class Drawing {
  at = 0;

  constructor(box) {
    this.box = box;
    new ResizeObserver(() => this.fit()).observe(box); // it may be hidden, and then has no sizes
  }

  fit() {
    const { clientWidth: width } = this.box;
    const layout = width > NARROW ? "wide" : "narrow";
    if (!width || layout === this.box.dataset.drawn) return;
    this.box.dataset.drawn = layout;
    this.box.querySelector("svg")?.remove();
    this.box.append(this.box.querySelector(`[data-layout=${layout}]`).content.cloneNode(true));
    this.moves = new Moves(this.box.querySelector("svg"));
    this.moves.to(this.at);
  }

  show(until) {
    if (until < this.at || still()) this.at = until;
    this.moves?.to(this.at);
    this.until = until;
    everyFrame((ms) => {
      if (this.until !== until) return false; // another time is asked for
      this.at = Math.min(until, this.at + ms);
      this.moves?.to(this.at);
      return this.at < until;
    });
  }
}
