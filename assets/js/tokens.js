// The text as it grows: one element a token, appended once and never drawn again.

import { Scroll, make } from "./dom.js";

export const OUTPUT = new Set(["accepted", "resampled", "bonus"]);
export const VERDICT = new Set(["accepted", "rejected", "discarded"]);
export const TOKEN = new Set(["proposed", ...VERDICT, ...OUTPUT]);

export class Flow extends Scroll {
  clear() {
    this.box.replaceChildren();
    this.reset();
  }

  prompt(event) {
    const ids = event.prompt_token_ids || [];
    const texts = event.prompt_texts || [];
    const pieces = document.createDocumentFragment();
    ids.forEach((id, i) => {
      const node = make("span", "ns-token", texts[i] || "");
      node.dataset.kind = "prompt";
      node.dataset.tokenId = id;
      pieces.append(node);
    });
    if (!ids.length && event.prompt) pieces.append(make("span", "ns-token ns-prompt", event.prompt));
    this.box.append(pieces);
  }

  // A new element for the token of this event.
  add(event) {
    const node = make("span", "ns-token", event.text || "");
    mark(node, event);
    this.box.append(node);
    return node;
  }
}

// What tests, style sheets and the keyboard know a token by.
export function mark(node, event) {
  node.dataset.kind = event.kind;
  node.dataset.step = event.step;
  node.dataset.index = event.index;
  node.dataset.tokenId = event.token_id;
  node.tabIndex = -1;
  if (event.text && event.text.includes("\n")) node.dataset.break = "";
  if (event.text && /[ \t]{2}|\t/.test(event.text)) node.dataset.wide = "";
}

// A token as one can point at it in a sentence: spaces and line breaks made visible.
export function visible(event) {
  const text = event.text || event.token || "";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "␣") || "∅";
}
