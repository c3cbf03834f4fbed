// One step, enlarged: the draft tokens, the target pass over them, the verdicts, and the target's own token. It plays once per
// run, then shows the step of whichever token the reader selects.

import { Channel, finder, make, still } from "./dom.js";
import { count, nameOf, visible } from "./format.js";
import { OUTPUT, VERDICT } from "./tokens.js";

const MS = { draft: 220, pass: 700, verdict: 300 };

export const enlarged = new Channel(); // a step's events so far, and the token that the reader looks at
export const played = new Channel();   // the serial of the run whose step is to be played once

export function mount({ element }) {
  const view = new Zoom(element.querySelector(".ns-zoom"));
  enlarged.follow((step) => view.show(step));
  played.follow((serial) => view.play(serial));
}

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
