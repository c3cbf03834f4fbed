// The three views of a run's tokens: the growing text, the steps, and the plain text. Of the tokens of a box, one is in the tab
// order, and arrow keys move from there.

import { Scroll, copyBy, make, write } from "./dom.js";
import { chipText, milliseconds } from "./format.js";

export const OUTPUT = new Set(["accepted", "resampled", "bonus"]);
export const VERDICT = new Set(["accepted", "rejected", "discarded"]);
const GONE = new Set(["rejected", "discarded"]);
const SCALES = 1.2; // between two scales of the steps' times
export const TOKEN = new Set(["proposed", ...VERDICT, ...OUTPUT]);

// The text of some tokens' elements as it was generated, without tokens that are not part of it; with marks by kind, each token
// comes after its mark, and none is left out.
function textOf(nodes, marks) {
  let [text, between] = ["", false];
  for (const node of nodes) {
    const { kind, template } = node.dataset, outside = GONE.has(kind) || kind === "proposed";
    if (template !== undefined) { between = true; continue; } // after a chat template the answer starts on a new line
    if (node.hidden || (outside && !marks)) continue;
    text += (between && text ? "\n" : "") + (marks?.[kind] ?? "") + (outside ? node.textContent.replaceAll("\n", "⏎") : node.textContent);
    between = false;
  }
  return text;
}

// What is selected in a box of coloured text is copied as the text. Where the selection goes beyond, the style sheet leaves out
// the same tokens.
export function copyAsText(box) {
  box.addEventListener("copy", (event) => {
    const range = document.getSelection().rangeCount && document.getSelection().getRangeAt(0);
    if (!range || !box.contains(range.commonAncestorContainer)) return;
    const piece = range.cloneContents(), parts = [...piece.querySelectorAll("*")].filter((node) => !node.childElementCount);
    event.clipboardData.setData("text/plain", parts.length ? textOf(parts) : piece.textContent);
    event.preventDefault();
  });
}

// The growing text: one element per token, appended once, in one block per paragraph, so that a new token lays out only its own
// paragraph.
export class Flow extends Scroll {
  constructor(box) {
    super(box);
    this.clear();
    copyAsText(box);
  }

  clear() {
    this.box.replaceChildren(make("div", "ns-paragraph"));
    this.reset();
  }

  // The elements of the prompt's tokens. Those that a chat template puts around the words of the prompt are marked.
  prompt({ prompt_token_ids: ids = [], prompt_texts: texts = [], prompt_words: words, prompt = "" }) {
    const nodes = ids.map((id, n) => {
      const around = words && !words.some(([start, end]) => start <= n && n < end);
      const looks = { class: "ns-token", "data-kind": "prompt", "data-token-id": id, "data-template": around ? "" : undefined };
      return make("span", looks, texts[n] || "");
    });
    const shown = ids.length || !prompt ? nodes : [make("span", "ns-token ns-prompt", prompt)];
    this.box.lastElementChild.append(...shown);
    for (const node of shown) this.split(node);
    return nodes;
  }

  // A new element for the token of this event.
  add(event) {
    const node = element(event, "ns-token", event.text || "");
    if (/[ \t]{2}|\t/.test(event.text) || (/^ /.test(event.text) && this.atLineStart())) node.dataset.wide = "";
    this.box.lastElementChild.append(node);
    return node;
  }

  // A paragraph starts after a token that ends in a line break.
  split(node) {
    if (!node.textContent.endsWith("\n") || (!node.nextSibling && node.parentElement.nextSibling)) return;
    const next = make("div", "ns-paragraph");
    while (node.nextSibling) next.append(node.nextSibling);
    node.parentElement.after(next);
  }

  // Whether only spaces come before the next token on its line.
  atLineStart() {
    const paragraph = this.box.lastElementChild;
    let last = paragraph.lastElementChild;
    while (last && (!last.textContent || GONE.has(last.dataset.kind))) last = last.previousElementSibling;
    if (!last) return paragraph !== this.box.firstElementChild;
    return last.textContent.endsWith("\n") || ("wide" in last.dataset && !last.textContent.trim());
  }
}

// A new element, with the attributes by which tests, style sheets and the keyboard find a token.
function element(event, className, text) {
  return make(event.kind === "rejected" ? "del" : "span", {
    class: className, tabindex: -1, "data-kind": event.kind, "data-step": event.step, "data-index": event.index,
    "data-token-id": event.token_id, "data-unknown": event.unknown_to_draft ? "" : undefined,
    "data-break": event.text?.includes("\n") ? "" : undefined, "aria-hidden": event.kind === "discarded" || undefined,
  }, text);
}

// Updates a token's element for another of its events: its kind, and its text, whose end a stop string may have cut off. A
// rejected token is a <del>; a discarded one is hidden from screen readers.
export function repaint(node, event, text) {
  const tag = event.kind === "rejected" ? "del" : "span";
  if (node.localName !== tag) {
    const fresh = make(tag, Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value])));
    fresh.token = node.token;
    const focused = document.activeElement === node;
    node.replaceWith(fresh);
    if (focused) fresh.focus({ preventScroll: true });
    node = fresh;
  }
  node.dataset.kind = event.kind;
  write(node, text);
  hush(node);
  return node;
}

export const hush = (node) => { node.ariaHidden = node.dataset.kind === "discarded" ? "true" : null; };

export function focusToken(box, node) {
  for (const other of box.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
  node.tabIndex = 0;
  node.focus();
}

// Arrow keys, Home and End move from token to token, up and down from step to step; Enter and Space choose the token.
export function moveByKey(box, event, choose) {
  const current = document.activeElement;
  if (!current?.token || !box.contains(current)) return;
  const all = [...box.querySelectorAll(".ns-token")].filter((node) => node.token && node.offsetParent !== null);
  const at = all.indexOf(current);
  const step = (node) => Number(node.dataset.step);
  const before = all.findLast((node) => step(node) < step(current));
  const places = {
    ArrowLeft: all[at - 1], ArrowRight: all[at + 1], Home: all[0], End: all.at(-1),
    ArrowUp: before && all.find((node) => step(node) === step(before)),
    ArrowDown: all.find((node) => step(node) > step(current)),
  };
  if (event.key === "Enter" || event.key === " ") choose(current);
  else if (!(event.key in places)) return;
  else if (places[event.key]) focusToken(box, places[event.key]);
  event.preventDefault();
}

// One row per step: its draft tokens with verdicts, and the time of both models.
export class Rounds extends Scroll {
  rows = new Map();
  seconds = []; // of the steps so far

  clear() {
    this.box.replaceChildren();
    this.rows.clear();
    this.seconds = [];
    this.reset();
  }

  row(step) {
    if (!this.rows.has(step)) {
      const looks = { class: "ns-round", "data-round": step, role: "group", "aria-label": `Step ${step + 1}` };
      const [chips, gain, time] = [make("div", "ns-chips"), make("span", "ns-gain"), make("div", "ns-time")];
      const node = make("div", looks, make("span", "ns-round-no", step + 1), chips, gain, time);
      this.rows.set(step, { node, chips, gain, time });
      this.box.append(node);
    }
    return this.rows.get(step);
  }

  add(event) {
    const node = element(event, "ns-token ns-chip", chipText(event));
    this.row(event.step).chips.append(node);
    return node;
  }

  // A row is visible while its first token is.
  show(chip, on) {
    chip.hidden = !on;
    if (chip === chip.parentElement.firstChild) chip.closest(".ns-round").hidden = !on;
  }

  // Shows what a step's event says about the step, or removes it.
  finish(event, on) {
    const { step, num_draft: drafted = 0, num_accepted: accepted = 0, draft_seconds: draft = 0, verify_seconds: verify = 0 } = event;
    const { node, gain, time } = this.row(step);
    if (!time.firstChild) {
      this.rescale(draft + verify);
      const part = (name, seconds) => make("i", { class: name, style: `--ms: ${1000 * seconds}` });
      const looks = { class: "ns-bar", style: `--own: ${1000 * (draft + verify)}` };
      const bar = make("span", looks, part("ns-bar-draft", draft), part("ns-bar-verify", verify));
      time.append(bar, make("span", "ns-ms", milliseconds(draft + verify)));
      time.title = `draft ${milliseconds(draft)}, verify ${milliseconds(verify)}`;
      gain.textContent = `${accepted}/${drafted}`;
      node.setAttribute("aria-label", `Step ${step + 1}: ${accepted} of ${drafted} draft tokens accepted; ${time.title}`);
    }
    node.classList.toggle("ns-done", on);
  }

  // A full bar is twice the median step, so that one slow step does not flatten all others.
  rescale(seconds) {
    this.seconds.push(seconds);
    const sorted = this.seconds.toSorted((a, b) => a - b);
    const full = 1000 * Math.min(sorted.at(-1), 2 * sorted[sorted.length >> 1]);
    // It changes in coarse increments, because each change lays out every bar again.
    const longest = SCALES ** Math.ceil(Math.log(full) / Math.log(SCALES));
    this.box.style.setProperty("--longest", (longest || 1).toFixed(3));
  }
}

// The text without rejected and discarded tokens: for screen readers, for the "Clean text" switch, and for the clipboard. The
// clipboard also takes all tokens with their marks, which are those of the legend.
export class PlainText {
  constructor(root) {
    this.box = root.querySelector(".ns-clean");
    [this.prompt, this.text] = this.box.children;
    const toggle = root.querySelector("[data-act='clean']");
    toggle.addEventListener("click", () => {
      const on = root.classList.toggle("ns-is-clean");
      toggle.ariaChecked = on;
      if (on) this.box.tabIndex = 0; else this.box.removeAttribute("tabindex");
    });
    const copier = root.querySelector("[data-act='copy']");
    copier.addEventListener("click", () => copyBy(copier, this.prompt.textContent + this.text.textContent));
    const marker = root.querySelector("[data-act='copy-marks']");
    marker.addEventListener("click", () => copyBy(marker, withMarks(root)));
  }

  // After a chat template the answer starts on a new line.
  draw(text, { prompt, prompt_texts: texts = [], prompt_words: words }) {
    const templated = words?.length && words.at(-1)[1] < texts.length;
    write(this.prompt, !prompt ? texts.join("") : templated ? `${prompt}\n` : prompt);
    write(this.text, text);
  }
}

function withMarks(root) {
  const tokens = root.querySelectorAll("#tokens .ns-token"), kinds = new Set([...tokens].map((node) => node.dataset.kind));
  const keys = [...root.querySelectorAll(".ns-key")].filter(({ dataset }) => dataset.kind !== "prompt" && kinds.has(dataset.kind));
  const marks = Object.fromEntries(keys.map((key) => [key.dataset.kind, key.querySelector("i").textContent]));
  const legend = keys.map((key) => `${marks[key.dataset.kind]} ${key.querySelector("span").textContent}`).join("  ");
  return `${textOf(tokens, marks)}\n\n${legend}\n`;
}
