// The columns of the machine's step: their spoken names, both distributions of the one that is pointed at, and what would have
// happened with another draw u, from the step's own numbers.

import { inLanguage, make, onEscape } from "./dom.js";
import { count, rounded } from "./format.js";

const DIGITS = 3;
const BY_KEY = 0.01; // of u
const SVG_COLOR = /var\(--ns-\w+\)/;

export class Columns {
  // `choose` gets the step and index of a column, `restore` draws the step as it was, `hold` holds the run at the step's end.
  constructor(root, { choose, hold, restore, say }) {
    Object.assign(this, { root, choose, hold, restore, say, box: root.querySelector(".ns-drawing"), panel: root.querySelector(".ns-both") });
    const on = (name, act) => this.box.addEventListener(name, (event) => act(event.target.closest?.(".ns-column, .ns-u"), event));
    on("pointerover", (node) => { if (node && !this.dragged) this.open(this.columnOf(node)); });
    on("pointerout", (node, { relatedTarget: to }) => { if (!to?.closest?.(".ns-column, .ns-u")) this.open(this.focused); });
    on("focusin", (node) => this.open(node));
    on("focusout", () => { this.release(); this.open(null); });
    on("click", (node) => { if (node?.matches(".ns-column")) this.choose(Number(node.dataset.step), Number(node.dataset.index)); });
    on("keydown", (node, event) => { if (node) this.key(node, event); });
    on("pointerdown", (node, event) => { if (node?.matches(".ns-u")) this.grab(node, event); });
    onEscape(() => { this.release(); this.open(null); });
    this.clear();
  }

  clear() {
    this.all = [];    // elements
    this.facts = [];
    this.phase = -1;
    this.said = "";   // of what would have happened
    this.panel.hidden = true;
    this.opened = this.dragged = null;
  }

  // The columns of a new drawing. The one that had the focus keeps it.
  take(picture, focused) {
    const { opened, index } = this;
    this.clear();
    this.picture = picture;
    this.rule = picture.dataset.rule;
    this.all = [...picture.querySelectorAll(".ns-column")];
    this.facts = this.all.map(({ dataset }) => JSON.parse(dataset.facts));
    for (const [n, column] of this.all.entries()) {
      column.setAttribute("role", "button");
      column.setAttribute("tabindex", n ? -1 : 0);
    }
    this.look(index);
    const again = (node) => this.all.find(({ dataset }) => dataset.index === node.dataset.index) ?? this.all.at(-1);
    if (focused) this.focus(again(focused));
    else if (opened) this.open(again(opened));
  }

  get focused() {
    return this.all.find((column) => column === document.activeElement);
  }

  columnOf(node) {
    return node.matches(".ns-u") ? this.all.find(({ dataset }) => dataset.index === node.dataset.index) : node;
  }

  // Marks the column of a token.
  look(index) {
    this.index = index;
    for (const { classList, dataset } of this.all) classList.toggle("ns-looked", Number(dataset.index) === index);
  }

  // The run has come to a phase: what is not known before it is not said.
  reach(phase) {
    if (phase === this.phase) return;
    this.phase = phase;
    this.all.forEach((column, n) => column.setAttribute("aria-label", this.nameOf(this.facts[n])));
    if (this.opened) this.open(this.opened);
  }

  nameOf({ text, q, p, u, kind, new: added }) {
    const known = [
      q !== undefined && `q ${rounded(q, DIGITS)}`,
      this.phase > 0 && p !== undefined && `p ${rounded(p, DIGITS)}`,
      this.phase > 1 && u !== undefined && kind !== "discarded" && this.drawn && `u ${rounded(u, DIGITS)}`,
      this.phase > 1 && kind && inLanguage(kind),
      this.phase > 2 && added && `${kind ? `${inLanguage(added[0])} ` : ""}${added[2]}`,
    ].filter(Boolean);
    const place = this.facts.length > 1 ? "bonus" : "next token";
    return `${q === undefined && kind === undefined ? inLanguage(place) : text}: ${known.join(", ")}`;
  }

  get drawn() {
    return this.rule === "p/q" || this.rule === "h";
  }

  focus(column) {
    for (const each of this.all) each.setAttribute("tabindex", each === column ? 0 : -1);
    column.focus({ preventScroll: true });
  }

  key(node, event) {
    const at = this.all.indexOf(node);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.all.length - 1 }[event.key];
    const by = { ArrowUp: BY_KEY, ArrowDown: -BY_KEY }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (this.all[to]) this.focus(this.all[to]);
    else if (event.key === "Enter" || event.key === " ") this.choose(Number(node.dataset.step), Number(node.dataset.index));
    else if (by && this.needle(at)) this.move(at, (this.us?.[at] ?? this.facts[at].u) + by * (event.shiftKey ? 10 : 1));
    else if (to === undefined) return;
    event.preventDefault();
  }

  // Both distributions of a column, below it.
  open(column) {
    this.opened = column;
    this.panel.hidden = !column || Boolean(this.us); // it would cover what is said of another u
    if (this.panel.hidden) return;
    const facts = this.facts[this.all.indexOf(column)];
    const { likely, own, kind, new: added } = facts;
    const [judged, scored] = [this.phase > 1, this.phase > 0];
    const left = judged && kind === "rejected" && this.rule === "p/q";
    const rows = likely.map(([text, p, q, id]) => {
      const bar = (name, share, more = []) => make("i", { class: name, style: `--share: ${share ?? 0}` }, ...more);
      const over = Math.max(0, (p ?? 0) - (q ?? 0));
      const rest = left && over > 0 ? [make("b", { style: `--over: ${over / p}` })] : [];
      const mark = this.phase > 2 && id === added?.[1] ? "↻" : "";
      const numbers = [q, scored ? p : undefined].map((value) => make("span", "", value === undefined || value === null ? "–" : rounded(value, DIGITS)));
      return make("div", { class: "ns-both-row", "data-mark": id === own ? "own" : mark }, make("span", "ns-own", `${text} ${mark}`),
        make("span", "ns-both-bars", bar("ns-both-q", q), bar("ns-both-p", scored ? p : 0, rest)), ...numbers);
    });
    const head = make("div", "ns-both-row ns-both-head", make("span", "", "most likely"), make("span"), make("span", "", "q"), make("span", "", "p"));
    this.panel.replaceChildren(head, ...rows, make("p", "", this.reason(facts, left)));
    const [own_, root] = [column, this.root].map((node) => node.getBoundingClientRect());
    const wide = this.panel.offsetWidth;
    const middle = own_.left + own_.width / 2 - root.left;
    this.panel.style.left = `${Math.max(4, Math.min(root.width - wide - 4, middle - wide / 2))}px`;
    this.panel.style.top = `${own_.bottom - root.top + 2}px`;
  }

  reason({ u, accept, kind, p }, left) {
    if (this.phase < 1) return "p comes with the target’s pass.";
    if (p !== undefined && kind === undefined) return "What the target expects after the whole window.";
    if (kind === "discarded" && this.phase > 1) return "Discarded: an earlier token was rejected.";
    if (this.phase < 2 || !this.drawn || u === undefined) return "";
    const name = this.rule === "h" ? "h" : "p/q";
    const edge = `${name} ${rounded(accept, DIGITS)}`;
    return kind === "accepted" ? `u ${rounded(u, DIGITS)} is below ${edge}: accepted.`
      : `u ${rounded(u, DIGITS)} is not below ${edge}: rejected.${left ? " Shaded: max(0, p − q), the residual." : ""}`;
  }

  needle(n) {
    return this.picture.querySelector(`[data-part="verdict"][data-column="${n}"] [data-part="draw"]`);
  }

  grab(node, event) {
    const n = this.all.indexOf(this.columnOf(node));
    const { left, width } = node.getBoundingClientRect();
    const drag = ({ clientX }) => this.move(n, (clientX - left) / width);
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    node.onpointermove = drag;
    node.onpointerup = node.onpointercancel = () => this.release();
    drag(event);
  }

  // What if u had been another in this column?
  move(n, u) {
    const { facts } = this;
    this.us ??= facts.map((column) => column.u);
    this.panel.hidden = true;
    this.us[n] = Math.max(0, Math.min(0.999, u));
    this.dragged = this.all[n];
    this.hold();
    if (this.phase < 4) this.phase = 4;
    const [needle, bar] = [this.needle(n), this.picture.querySelector(`.ns-u[data-index="${this.all[n].dataset.index}"]`)];
    needle.setAttribute("x", Number(bar.getAttribute("x")) + Number(bar.getAttribute("width")) * this.us[n] - 3);
    const words = needle.parentNode.querySelector("[data-part=u]");
    words.textContent = `u = ${rounded(this.us[n], DIGITS)}`;
    const [before, now] = [facts.map((column) => column.u), this.us].map((us) => this.judge(us));
    this.said = this.tell(n, before, now);
    this.say(this.said);
    this.picture.querySelectorAll(".ns-if").forEach((node) => node.remove());
    this.picture.classList.toggle("ns-otherwise", before.accepted !== now.accepted);
    if (before.accepted !== now.accepted) this.draw(now);
  }

  // How many draft tokens are accepted, and whether that is `open`, since the next draw was not recorded.
  judge(us) {
    const drafts = this.facts.filter(({ q }) => q !== undefined);
    const passes = ({ accept }, n) => us[n] < accept;
    if (this.rule === "h") return { accepted: drafts.findLastIndex(passes) + 1, drafts: drafts.length };
    const accepted = drafts.findIndex((column, n) => !passes(column, n));
    return { accepted: accepted < 0 ? drafts.length : accepted, drafts: drafts.length, open: accepted >= 0 && us[accepted] === undefined };
  }

  // What comes after the accepted ones: the most probable token of the residual, or of p, and its chance.
  next({ accepted, drafts, open }) {
    const { likely } = this.facts[accepted] ?? {};
    if (open || !likely) return null;
    const chances = likely.map(([text, p, q]) => [text, accepted < drafts ? Math.max(0, (p ?? 0) - (q ?? 0)) : p ?? 0]);
    return chances.reduce((a, b) => (b[1] > a[1] ? b : a));
  }

  tell(n, before, now) {
    const [u, { text, accept }] = [this.us[n], this.facts[n]];
    const own = u < accept ? "would be accepted" : "would be rejected";
    const [gives, gave] = [now, before].map(({ accepted }) => accepted + 1);
    const after = this.next(now);
    const sentences = [`What if u were ${rounded(u, DIGITS)}? “${text}” ${own}.`];
    if (gives === gave) sentences.push("The step would give the same tokens.");
    else sentences.push(now.open ? "The draws after it are not recorded." : `The step would give ${count(gives, "token")} instead of ${gave}.`);
    if (gives !== gave && after) {
      sentences.push(now.accepted < now.drafts ? `The last one would be drawn from the residual, most likely “${after[0]}”.`
        : `The last one would be drawn from p, most likely “${after[0]}”.`);
    }
    return sentences.join(" ");
  }

  // Draws another outcome over the step's: chips in the columns, verdicts, and the text.
  draw(now) {
    const { facts, picture } = this;
    const part = (name) => picture.querySelector(`[data-part="${name}"]`);
    const [chip, gain] = [part("draft"), part("gain")];
    const top = (node) => Number(node.querySelector("rect").getAttribute("y"));
    const middle = (column) => Number(column.getAttribute("x")) + Number(column.getAttribute("width")) / 2;
    const [from, down] = [middle(this.all[0]), top(gain) - top(chip)];
    const place = (n, kind, text, y) => {
      const own = picture.querySelector(`[data-part="draft"][data-column="${n}"]`) ?? chip;
      const copy = document.createElementNS("http://www.w3.org/2000/svg", "g");
      copy.setAttribute("class", "ns-if");
      copy.setAttribute("transform", `translate(${own === chip ? middle(this.all[n]) - from : 0} ${y})`);
      copy.append(...[...own.children].map((node) => node.cloneNode(true)));
      for (const node of copy.children) {
        for (const name of ["fill", "stroke"]) {
          const color = node.getAttribute(name);
          if (SVG_COLOR.test(color) && color !== "var(--ns-page)") node.setAttribute(name, `var(--ns-${kind})`);
        }
      }
      if (text) copy.querySelector("text").textContent = text;
      picture.insertBefore(copy, this.all[0]);
    };
    const adds = [];
    for (let n = 0; n < now.drafts; n += 1) {
      const open = now.open && n >= now.accepted;
      const kind = n < now.accepted ? "accepted" : open ? "proposed" : n === now.accepted ? "rejected" : "discarded";
      const label = picture.querySelector(`[data-part="verdict"][data-column="${n}"] > text:last-child`);
      const marks = { accepted: "✓", rejected: "✗", discarded: "–", proposed: "?" };
      label.textContent = label.textContent.trim().length > 1 ? `${marks[kind]} ${inLanguage(open ? "unknown" : kind)}` : marks[kind];
      label.setAttribute("fill", `var(--ns-${kind})`);
      if (kind === "accepted") place(n, kind, `${facts[n].text} ✓`, down), adds.push(facts[n].adds);
      else if (!open) place(n, kind, "", 0);
    }
    const after = this.next(now);
    if (after) place(now.accepted, now.accepted < now.drafts ? "resampled" : "bonus", `${after[0]} ?`, down);
    const text = part("after").querySelector(".ns-new");
    if (text) text.textContent = `${adds.join("")}${after ? " …" : ""}`;
  }

  // u is let go: the step is again as it happened.
  release() {
    if (!this.us) return;
    this.us = null;
    this.said = "";
    this.restore();
  }
}
