// The tooltip of a hovered or focused token: its numbers.

import { make } from "./dom.js";
import { number } from "./format.js";
import { nameOf } from "./verdict_words.js";
import { visible } from "./tokens.js";

export class Tip {
  constructor(node) {
    this.node = node;
  }

  // Names and values; the first is the heading, in the colour of a token kind.
  show(anchor, lines, kind) {
    this.node.replaceChildren(...lines.map(([name, value], n) => {
      const looks = n ? { class: "ns-tip-row" } : { class: "ns-tip-head", "data-kind": kind };
      return make("div", looks, make("span", "", name), make("b", "", value));
    }));
    this.node.hidden = false;
    placeNear(this.node, anchor);
  }

  hide() {
    this.node.hidden = true;
  }
}

// Places a box below an element's first line, or above it, within the window.
export function placeNear(node, anchor) {
  const spot = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
  const own = node.getBoundingClientRect();
  const left = Math.max(8, Math.min(spot.left, window.innerWidth - own.width - 8));
  const below = spot.bottom + 8 + own.height < window.innerHeight;
  node.style.left = `${left}px`;
  node.style.top = `${below ? spot.bottom + 8 : Math.max(8, spot.top - own.height - 8)}px`;
}

export function describe(event, proposed) {
  const lines = [[visible(event), nameOf(event)]];
  const draft = event.draft_prob ?? proposed.draft_prob;
  if (draft !== undefined) lines.push(["draft probability", number(draft)]);
  if (event.target_prob !== undefined && event.kind !== "proposed") lines.push(["target probability", number(event.target_prob)]);
  if (event.threshold !== undefined) lines.push(["threshold", number(event.threshold)]);
  if (event.accept_prob !== undefined) lines.push(["acceptance probability", number(event.accept_prob)]);
  if (event.uniform !== undefined) lines.push(["the draw, u", number(event.uniform)]);
  if (proposed.copied_from !== undefined) lines.push(["copied from", `token ${proposed.copied_from + 1} of the text`]);
  const forced = event.forced ?? proposed.forced;
  if (forced) lines.push(["forced", FORCED[forced]]);
  if (event.unknown_to_draft) lines.push(["∉", "unknown to the draft"]);
  if (event.reason) lines.push(["because", REASONS[event.reason] || event.reason]);
  lines.push(["token", `#${event.token_id}`]);
  return lines;
}

const FORCED = { token: "the guide allows no other token", text: "the guide requires this text" };
const REASONS = { rejected: "an earlier token was rejected", stop: "the text ended", length: "the token limit" };

export const spoken = (event, proposed) => describe(event, proposed).map(([name, value]) => `${name}: ${value}`).join(", ");
