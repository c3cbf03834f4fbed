// One step, enlarged: the draft tokens, the target pass over them, the verdicts, and the target's own token. It plays once per run, then
// shows the step of whichever token the reader selects.

import { finder, hold, make } from "./dom.js";
import { count } from "./format.js";
import { OUTPUT, VERDICT, visible } from "./tokens.js";
import { nameOf } from "./verdict_words.js";

const MS = { draft: 220, pass: 700, verdict: 300 };
let view = null;
let last = null;
let wanted = null; // the serial of a run whose step is to be played

// A step's events so far, and the token that the reader looks at.
export function show(step) {
  last = step;
  view?.show(step);
}

// Plays the step once for the run with this serial.
export function play(serial) {
  wanted = serial;
  view?.play();
}

export function mount({ element }) {
  view = new Zoom(element.querySelector(".ns-zoom"));
  view.show(last);
  view.play();
}

class Zoom {
  constructor(root) {
    this.root = root;
    this.find = finder(root);
    this.list = root.querySelector("ol");
    this.tree = root.querySelector(".ns-tree");
    this.played = null;
  }

  show(step) {
    this.root.hidden = !step?.events.length;
    if (this.root.hidden) return;
    const { events, looked } = step;
    const drafts = events.filter(({ kind }) => kind === "proposed");
    const verdicts = new Map(events.filter(({ kind }) => VERDICT.has(kind)).map((event) => [event.index, event]));
    const own = events.filter(({ kind }) => kind === "resampled" || kind === "bonus");
    const shown = [...drafts.map((draft) => verdicts.get(draft.index) ?? draft), ...own];
    const tree = events.find(({ kind }) => kind === "step")?.tree ?? [];
    const key = JSON.stringify([tree.length, ...shown.map(({ step: number, index, kind }) => [number, index, kind])]);
    if (key !== this.key) {
      clearTimeout(this.timer); // the reader went on to another step
      delete this.root.dataset.scene;
      this.list.replaceChildren(...shown.map(card));
      this.tree.replaceChildren(...branches(tree));
    }
    this.key = key;
    for (const [n, node] of [...this.list.children].entries()) node.classList.toggle("ns-looked", shown[n].kind === looked?.kind && shown[n].index === looked.index);
    this.find(".ns-zoom-drafted").textContent = drafts.length ? `One step: ${count(tree.length || drafts.length, "draft token")}, then` : "One step: no draft tokens";
    const tokens = events.filter(({ kind }) => OUTPUT.has(kind)).length;
    this.find("figcaption").textContent = events.some(({ kind }) => kind === "step") ? `gives ${count(tokens, "token")}` : "";
  }

  play() {
    if (wanted === null || this.played === wanted || this.root.hidden) return;
    this.played = wanted;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const cards = [...this.list.children];
    const scenes = [];
    const scene = (name, ms) => scenes.push([() => { this.root.dataset.scene = name; }, ms]);
    const mark = (node, stage, ms) => scenes.push([() => { node.dataset.shown = stage; }, ms]);
    for (const node of cards) node.dataset.shown = "";
    scene("draft", MS.draft);
    for (const node of cards) if ("drafted" in node.dataset) mark(node, "drafted", MS.draft);
    scene("pass", MS.pass);
    for (const node of cards) mark(node, "judged", MS.verdict);
    scenes.push([() => { delete this.root.dataset.scene; }, 0]);
    const next = () => {
      const [act, ms] = scenes.shift();
      act();
      if (scenes.length) this.timer = setTimeout(next, ms);
    };
    clearTimeout(this.timer);
    next();
  }
}

// All nodes of a step's tree, each with its children to the right. A node's parent comes before it.
function branches(tree) {
  const roots = [];
  const below = [];
  for (const [n, node] of tree.entries()) {
    const branch = hold("div", "ns-branch", make("span", "ns-zoom-word", visible(node)), below[n] = make("div", ""));
    branch.dataset.kind = node.kind;
    if (node.parent < 0) roots.push(branch); else below[node.parent]?.append(branch);
  }
  return roots;
}

function card(event) {
  const node = hold("li", "", make("span", "ns-zoom-word", visible(event)), make("span", "ns-zoom-fate", nameOf(event)));
  node.dataset.kind = event.kind;
  if (event.kind === "proposed" || VERDICT.has(event.kind)) node.dataset.drafted = "";
  return node;
}
