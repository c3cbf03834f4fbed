// The machine on the stage: the drawing of one step (naive_speculate/tools/show/drawing.py), whose parts move in the order in which
// they happened. It loops over the run's steps until the reader touches something.

import { Channel, finder, lecturing, still } from "./dom.js";

const ENDS = [1000, 1800, 3200, 3700, 4400]; // of the five phases at normal speed, in milliseconds
const [DRAFTED, PASSED, JUDGED, GIVEN, WHOLE] = ENDS;
const REST_MS = 1400; // after a step, before the next
const LARGER = 1.4;   // in lecture mode
const NARROW = 480;   // pixels, of a lesson's picture
const LAYOUTS = { large: 1384, medium: 990, small: 700, narrow: 366 }; // as in drawing.py
const [HIDDEN, SHOWN] = [{ opacity: 0 }, { opacity: 1 }];

export const played = new Channel(); // the number of the step that the machine shows

export class Machine {
  // `draw` gives the drawing of the step after so many others, in a layout; `choose` gets the step and index of a column.
  constructor(root, draw, choose) {
    Object.assign(this, { root, draw, find: finder(root) });
    this.box = this.find(".ns-drawing");
    this.clear();
    this.box.addEventListener("click", ({ target }) => {
      const { step, index } = target.closest(".ns-column")?.dataset ?? {};
      if (step) choose(Number(step), Number(index));
    });
    for (const phase of root.querySelectorAll("[data-phase]")) {
      phase.addEventListener("click", () => { this.touch(); this.stay(ENDS[phase.dataset.phase]); });
    }
    new ResizeObserver(() => {
      if (!this.box.clientWidth || this.layout() === this.drawn) return; // another tab is open
      if (this.looping) this.play(this.step); else this.show(this.step, this.at);
    }).observe(this.box);
  }

  clear() {
    clearTimeout(this.timer);
    this.drawings = new Map(); // of the run, by step and layout
    this.moves = [];           // animations
    this.box.replaceChildren();
    this.step = 0;
    this.steps = 0;
    this.looping = this.touched = false;
    this.drawn = "";
    this.at = WHOLE;
  }

  // More steps have ended, or the run has. The first one begins the loop; without movement the newest one is shown at its end.
  arrive(steps, done) {
    const first = !this.steps && steps;
    this.steps = steps;
    if (first && !still()) {
      this.looping = true;
      this.play(0);
    } else if (first || (done && !this.looping && !this.touched)) this.show(steps - 1);
  }

  // The reader touched something: from now on the machine shows what is asked for.
  touch() {
    clearTimeout(this.timer);
    this.touched = true;
    this.looping = false;
    for (const move of this.moves.filter(({ playState }) => playState === "running")) {
      move.pause();
      this.at = move.currentTime;
    }
    this.tell();
  }

  // Plays a step; at speeds that are too fast to follow, or without movement, it shows the end.
  async play(step, speed = 1) {
    if (speed > 5 || still()) return this.show(step);
    if (!await this.show(step, 0)) return;
    for (const move of this.moves) {
      move.playbackRate = speed;
      move.play();
    }
    this.follow(step + 1);
  }

  // Shows a step as it is at a time of its animation.
  async show(step, at = WHOLE) {
    clearTimeout(this.timer);
    [this.step, this.at] = [step, at];
    if (step < 0 || step >= this.steps) return false;
    const layout = this.layout();
    const drawing = await this.drawing(step, layout);
    if (!drawing || step !== this.step || at !== this.at) return false;
    this.put(drawing, layout);
    this.stay(at);
    this.tell();
    return true;
  }

  // Whether a step has stopped in its middle.
  get midway() {
    return this.at < WHOLE;
  }

  stay(at) {
    this.at = at;
    hold(this.moves, at);
    for (const phase of this.root.querySelectorAll("[data-phase]")) phase.ariaPressed = ENDS[phase.dataset.phase] === at;
  }

  // Marks the column of a token.
  look(index) {
    this.index = index;
    for (const column of this.box.querySelectorAll(".ns-column")) {
      column.classList.toggle("ns-looked", Number(column.dataset.index) === index);
    }
  }

  tell() {
    played.tell({ step: this.step, looping: this.looping });
  }

  layout() {
    const width = this.box.clientWidth;
    const room = width / (lecturing() ? LARGER : 1);
    return room > 1190 ? "large" : room > 840 ? "medium" : width > 560 ? "small" : "narrow";
  }

  drawing(step, layout) {
    const key = `${step}:${layout}`;
    if (!this.drawings.has(key)) this.drawings.set(key, this.draw(step, layout));
    return this.drawings.get(key);
  }

  // The next step of the loop is fetched while this one plays.
  follow(next) {
    const loops = () => this.looping && this.steps;
    if (loops()) this.drawing(next % this.steps, this.layout());
    const rest = () => {
      this.timer = setTimeout(() => {
        if (!loops()) return;
        if (this.root.checkVisibility()) this.play(next % this.steps); else rest(); // another tab is open
      }, REST_MS);
    };
    this.moves.at(-1).onfinish = () => { this.at = WHOLE; rest(); };
  }

  put(drawing, layout) {
    this.drawn = layout;
    this.box.innerHTML = drawing; // its texts are escaped on the server
    const picture = this.box.firstChild;
    const [, , width, height] = picture.getAttribute("viewBox").split(" ");
    const usual = LAYOUTS[picture.dataset.layout];
    picture.style.width = `${100 * width / usual}%`;
    picture.style.aspectRatio = `${width} / ${height}`;
    this.box.style.aspectRatio = `${usual} / ${height}`;
    this.moves = movesOf(picture);
    this.look(this.index);
  }
}

// The drawing of a step in a lesson, which shows it as it is at certain times: it moves on to later ones. It has a template for
// wide and one for narrow places.
export class Drawing {
  moves = [];
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
    this.moves = movesOf(this.box.querySelector("svg"));
    hold(this.moves, this.at);
  }

  show(at) {
    clearTimeout(this.timer);
    const before = this.at;
    this.at = at;
    if (at <= before || still()) return hold(this.moves, at);
    for (const move of this.moves) move.play();
    this.timer = setTimeout(() => hold(this.moves, at), at - before);
  }
}

function hold(moves, at) {
  for (const move of moves) {
    move.pause();
    move.currentTime = at;
  }
}

// The animations of a drawing, paused. The last one ends last. Everything is measured first, since a measurement after a change
// costs a layout; and what moves does so by `transform` and `opacity` alone, which change no layout.
function movesOf(picture) {
  const parts = (name) => [...picture.querySelectorAll(`[data-part="${name}"]`)];
  const [drafter, target] = ["drafter", "target"].map((name) => parts(name)[0]);
  const [drafts, gains] = ["draft", "gain"].map(parts);
  const [[before], [after], [count]] = ["before", "after", "count"].map(parts);
  const centers = new Map([drafter, target, ...drafts, ...gains].map((node) => [node, center(node)]));
  const cursor = before.getBBox();
  const sweeps = parts("sweep").map(({ firstChild: light }) => [light, parts("pass")[0].firstChild.getBBox().width - light.getBBox().width]);
  const moves = [];
  const move = (node, begin, end, frames, easing = "ease-out") => {
    const one = node.animate(frames, { delay: begin, duration: Math.max(1, end - begin), easing, fill: "both" });
    one.pause();
    moves.push(one);
  };
  const appear = (node, begin, lasts = 150) => move(node, begin, begin + lasts, [HIDDEN, SHOWN]);
  const from = (node, place, begin, end, size = 0.3) => {
    const [a, b] = [centers.get(node), centers.get(place)];
    move(node, begin, end, [{ opacity: 0, transform: `translate(${b.x - a.x}px, ${b.y - a.y}px) scale(${size})` },
      { opacity: 1, offset: 0.3 }, { opacity: 1, transform: "none" }]);
  };
  const grow = (bar, begin, end) => {
    appear(bar, begin, Math.min(150, end - begin));
    move(bar.firstChild, begin, end, [{ transform: "scale(1, 0)" }, { transform: "none" }]);
  };

  const each = DRAFTED / Math.max(1, drafts.length);
  drafts.forEach((chip, n) => from(chip, drafter, n * each, Math.min(DRAFTED, (n + 1) * each + 100)));
  parts("node").forEach((chip) => appear(chip, Math.min(800, chip.dataset.column * each + each / 2)));
  parts("q").forEach((bar, n) => grow(bar, n * each + each / 2, Math.min(DRAFTED, (n + 1.2) * each)));

  const begun = drafts.length ? DRAFTED : 100; // without drafts the pass comes first
  for (const frame of parts("pass")) appear(frame, begun, 120);
  for (const [light, way] of sweeps) {
    move(light, begun + 50, PASSED - 80, [{ opacity: 0 }, { opacity: 0.3, offset: 0.15 }, { opacity: 0.3, offset: 0.8 },
      { opacity: 0, transform: `translateX(${way}px)` }], "ease-in-out");
  }
  for (const bar of parts("p")) grow(bar, begun + 50, PASSED - 100);

  const verdicts = parts("verdict");
  const judged = verdicts.filter(({ dataset }) => dataset.kind !== "discarded").length;
  const pace = Math.min(350, (JUDGED - PASSED - 250) / Math.max(1, judged));
  const when = ({ dataset: { kind, column } }) => PASSED + pace * (kind === "discarded" ? judged : Math.min(judged, column));
  for (const words of parts("legend")) appear(words, PASSED);
  for (const verdict of verdicts) appear(verdict, when(verdict));
  for (const fate of parts("fate")) {
    appear(fate, when(fate) + 100);
    if (fate.dataset.kind !== "rejected") continue;
    const falling = fate.cloneNode(true);
    falling.dataset.part = "falling";
    fate.after(falling);
    move(falling, when(fate) + 100, when(fate) + 700, [{ opacity: 0 }, { opacity: 1, offset: 0.02 },
      { opacity: 0, transform: "translateY(110px) rotate(9deg)" }], "ease-in");
  }
  for (const chip of gains) {
    const draft = chip.dataset.kind === "accepted" && drafts.find(({ dataset }) => dataset.column === chip.dataset.column);
    if (draft) from(chip, draft, when(chip) + 120, when(chip) + 120 + Math.max(250, pace), 1);
    else from(chip, target, JUDGED, GIVEN, 1.6);
  }

  // What is kept flies to the cursor.
  const { x, y, width, height } = cursor;
  gains.forEach((chip, n) => {
    const flying = chip.cloneNode(true);
    flying.dataset.part = "flying";
    flying.querySelectorAll("text ~ text").forEach((caption) => caption.remove());
    picture.append(flying);
    const { x: left, y: top } = centers.get(chip);
    const arrives = `translate(${x + width - left}px, ${y + height / 2 - top}px) scale(0.4)`;
    move(flying, GIVEN + 40 * n, GIVEN + 450 + 40 * n, [{ opacity: 0 }, { opacity: 0.9, offset: 0.05 }, { opacity: 0.2, transform: arrives, offset: 0.98 }, HIDDEN], "ease-in-out");
  });
  before.setAttribute("opacity", 1);
  move(before, GIVEN + 350, GIVEN + 450, [SHOWN, HIDDEN]);
  move(after, GIVEN + 350, GIVEN + 450, [HIDDEN, SHOWN]);
  move(count, GIVEN + 350, WHOLE, [{ opacity: 0, transform: "scale(0.7)" }, { opacity: 1, transform: "scale(1.08)", offset: 0.6 }, { opacity: 1, transform: "none" }]);
  return moves;
}

function center(node) {
  const { x, y, width, height } = node.getBBox();
  return { x: x + width / 2, y: y + height / 2 };
}
