// A run's drafter: a description, a picture of the layers that a head reads, the overlap of two vocabularies, and, if it copies, the
// source of each copied token.

import { hold, make, svg } from "./dom.js";
import { percent } from "./format.js";

export const COPYING = new Set(["suffix", "suffix+head", "prompt_lookup"]);
const MOST_LAYERS = 512; // a loaded trace may claim what it likes

export class Drafter {
  constructor(place) {
    this.place = place;
    this.names = JSON.parse(place.dataset.drafters);
    this.clear();
  }

  clear() {
    this.prompt = [];  // elements of the prompt's tokens
    this.output = [];  // tokens of the output, by position
    this.marked = [];
    this.place.hidden = true;
  }

  // Reads the run's first event; `prompt` are the elements of the prompt's tokens.
  begin(started, prompt) {
    this.prompt = prompt;
    const settings = started.settings || {};
    const [title, about] = Object.hasOwn(this.names, settings.drafter) ? this.names[settings.drafter] : ["", ""];
    const more = [];
    if (COPYING.has(settings.drafter)) more.push(make("p", "", "Choose a draft token: a bar marks the text from which its step was copied."));
    if (started.head_layers?.length) more.push(...layersRead(started));
    if (started.vocabularies) more.push(shared(started.vocabularies));
    const line = make("p");
    if (title) line.append(make("b", "", title), `: ${about}`);
    this.place.replaceChildren(line, ...more);
    this.place.hidden = !more.length || settings.num_draft_tokens === 0;
  }

  addOutput(event, token) {
    if (Number.isInteger(event.position)) this.output[event.position] = token;
  }

  // Underline the sources of these events' draft tokens.
  mark(events) {
    for (const node of this.marked) node.classList.remove("ns-source");
    this.marked = events.map((event) => this.source(event)).filter(Boolean);
    for (const node of this.marked) node.classList.add("ns-source");
  }

  // The element that a draft token was copied from; null if the token there is a different one.
  source({ copied_from: place, token_id: token }) {
    if (!Number.isInteger(place)) return null;
    const node = place < this.prompt.length ? this.prompt[place] : this.output[place - this.prompt.length]?.flow;
    return node && node.dataset.tokenId === String(token) ? node : null;
  }
}

// The target's layers from left to right, embeddings first; the head reads the filled ones.
function layersRead({ head_layers: layers, target_layers: known, settings }) {
  const block = settings?.drafter === "block";
  const depth = Math.min(MOST_LAYERS, Math.max(known || 0, ...layers));
  const [width, gap] = [Math.max(3, Math.min(16, 300 / (depth + 1) - 2)), 2];
  const at = (layer) => layer * (width + gap);
  const all = at(depth) + width;
  const picture = svg("svg", { viewBox: `0 0 ${all} 66`, width: all, height: 66, class: "ns-layers", "aria-hidden": "true" });
  for (let layer = 0; layer <= depth; layer += 1) {
    const read = layers.includes(layer);
    if (read) picture.append(svg("path", { d: `M${at(layer) + width / 2} 24V34L${all / 2} 44`, class: "ns-layer-line" }));
    picture.append(svg("rect", { x: at(layer), y: 2, width, height: 22, rx: 2, class: read ? "ns-layer-read" : "ns-layer" }));
  }
  const box = Math.min(all, 60);
  picture.append(svg("rect", { x: (all - box) / 2, y: 44, width: box, height: 20, rx: 4, class: "ns-layer-head" }));
  picture.append(svg("text", { x: all / 2, y: 58, class: "ns-layer-name" }, block ? "block" : "head"));
  return [picture, make("p", "", `It reads the target after ${listed(layers)} of its ${depth} layers.`)];
}

function listed(numbers) {
  const last = numbers[numbers.length - 1];
  return numbers.length > 1 ? `${numbers.slice(0, -1).join(", ")} and ${last}` : `${last}`;
}

function shared({ shared: both, target }) {
  return hold("p", "", `Draft and target have different tokenizers: the draft knows ${percent(both / target)} of the target's ` +
    `${Number(target).toLocaleString("en")} tokens. The others are marked `, make("b", "ns-unknown-key", "∉"), ".");
}
