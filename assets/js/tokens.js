// The growing text: one element per token, appended once, in one block per paragraph, so that a new token lays out only its own
// paragraph.

import { Scroll, make } from "./dom.js";

export const OUTPUT = new Set(["accepted", "resampled", "bonus"]);
export const VERDICT = new Set(["accepted", "rejected", "discarded"]);
const GONE = new Set(["rejected", "discarded"]);
export const TOKEN = new Set(["proposed", ...VERDICT, ...OUTPUT]);

export class Flow extends Scroll {
  constructor(box) {
    super(box);
    this.clear();
  }

  clear() {
    this.box.replaceChildren(make("div", "ns-paragraph"));
    this.reset();
  }

  // The elements of the prompt's tokens. Those that a chat template puts around the words of the prompt are marked.
  prompt(event) {
    const ids = event.prompt_token_ids || [];
    const texts = event.prompt_texts || [];
    const pieces = document.createDocumentFragment();
    const start = event.prompt ? texts.join("").indexOf(event.prompt) : -1;
    let at = 0;
    ids.forEach((id, i) => {
      const node = make("span", "ns-token", texts[i] || "");
      node.dataset.kind = "prompt";
      node.dataset.tokenId = id;
      const end = at + node.textContent.length;
      if (start >= 0 && (end <= start || at >= start + event.prompt.length)) node.dataset.template = "";
      at = end;
      pieces.append(node);
    });
    if (!ids.length && event.prompt) pieces.append(make("span", "ns-token ns-prompt", event.prompt));
    const nodes = [...pieces.children];
    this.box.lastElementChild.append(pieces);
    for (const node of nodes) this.split(node);
    return ids.length ? nodes : [];
  }

  // A new element for the token of this event.
  add(event) {
    const node = make(event.kind === "rejected" ? "del" : "span", "ns-token", event.text || "");
    mark(node, event);
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

// Updates a token's element for another of its events: its kind, and its text, whose end a stop string may have cut off. A rejected
// token is a <del>; a discarded one is hidden from screen readers.
export function repaint(node, event, chip) {
  const text = chip ? chipText(event) : event.text || "";
  const tag = event.kind === "rejected" ? "DEL" : "SPAN";
  if (node.tagName !== tag) {
    const fresh = make(tag.toLowerCase(), node.className);
    for (const { name, value } of node.attributes) fresh.setAttribute(name, value);
    fresh.token = node.token;
    const focused = document.activeElement === node;
    node.replaceWith(fresh);
    if (focused) fresh.focus({ preventScroll: true });
    node = fresh;
  }
  node.dataset.kind = event.kind;
  if (node.textContent !== text) node.textContent = text;
  hush(node, event.kind === "discarded");
  return node;
}

export function hush(node, silent) {
  if (silent) node.setAttribute("aria-hidden", "true"); else node.removeAttribute("aria-hidden");
}

export const chipText = (event) => event.text === "\n" ? "⏎" : (event.text || event.token || "").replace(/\n/g, "⏎");

// The attributes by which tests, style sheets and the keyboard find a token.
export function mark(node, event) {
  node.dataset.kind = event.kind;
  node.dataset.step = event.step;
  node.dataset.index = event.index;
  node.dataset.tokenId = event.token_id;
  if (event.unknown_to_draft) node.dataset.unknown = "";
  node.tabIndex = -1;
  hush(node, event.kind === "discarded");
  if (event.text && event.text.includes("\n")) node.dataset.break = "";
}

// A token's text with visible spaces and line breaks.
export function visible(event) {
  const text = event.text || event.token || "";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "␣") || "∅";
}
