// A run's drafter and its guide.

import { answerTo } from "./connection.js";
import { make, svg } from "./dom.js";
import { percent, whole } from "./format.js";

const COPIED = "Choose a draft token: a bar marks the text from which its step was copied.";
const COPYING = new Set(["suffix", "suffix+head", "prompt_lookup"]);
const MOST_LAYERS = 512; // a loaded trace may claim what it likes
const LIST = new Intl.ListFormat("en-GB"); // a, b and c
const MOST_SHOWN = 60; // characters of a guide

// A description of the drafter, a picture of the layers that a head reads, the overlap of two vocabularies, and, if it copies,
// the source of each copied token.
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
    const { drafter, num_draft_tokens: k } = started.settings || {};
    const [title, about] = Object.hasOwn(this.names, drafter) ? this.names[drafter] : [];
    const more = [
      ...(COPYING.has(drafter) ? [make("p", "", COPIED)] : []),
      ...(started.head_layers?.length ? layersRead(started) : []),
      ...(started.vocabularies ? [shared(started.vocabularies)] : []),
    ];
    this.place.replaceChildren(make("p", "", ...(title ? [make("b", "", title), `: ${about}`] : [])), ...more);
    this.place.hidden = !more.length || k === 0;
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
  picture.append(svg("text", { x: all / 2, y: 58, class: "ns-layer-name" }, settings?.drafter === "block" ? "block" : "head"));
  return [picture, make("p", "", `It reads the target after ${LIST.format(layers.map(String))} of its ${depth} layers.`)];
}

function shared({ shared: both, target }) {
  const said = `Draft and target have different tokenizers: the draft knows ${percent(both / target)} of the target's ` +
    `${whole(Number(target))} tokens. The others are marked `;
  return make("p", "", said, make("b", "ns-unknown-key", "∉"), ".");
}

// A guided run: its guide, its acceptance, and the acceptance of the same run without the guide, which the server decodes
// afterwards while nobody else does.
export class Guided {
  constructor(stage) {
    this.stage = stage;
    this.box = stage.find(".ns-guided");
    [this.words, this.again] = this.box.children;
    this.again.addEventListener("click", () => this.ask(this.stage.run.id));
    this.answer = null; // for the run it belongs to
  }

  draw(summary) {
    const guide = summary.started.settings?.guided_decoding;
    this.box.hidden = !guide;
    if (!guide) return;
    const { run: { id, live }, player } = this.stage;
    if (this.answer?.run !== id) this.answer = { run: id };
    this.summary = summary;
    const measured = player.done && !summary.unmeasured?.measuring; // the measurement also needs a quiet server
    if (measured && live && !this.answer.asked && ["stop", "length"].includes(summary.finished?.finish_reason)) this.ask(id);
    this.tell();
  }

  tell() {
    const { started, finished, sums } = this.summary;
    const said = [`Guided by ${named(started.settings.guided_decoding)}.`];
    if (finished?.finish_reason === "length") said.push("It reached the token limit, perhaps before the guide was complete.");
    if (sums.forced) said.push(`${of(sums.forced, sums.tokens)} tokens were forced: the guide allowed no other, or required the text that they spell.`);
    if (finished && sums.judged) said.push(`${percent(sums.accepted / sums.judged)} of the judged draft tokens were accepted (${of(sums.accepted, sums.judged)})${this.compared()}.`);
    this.words.textContent = said.join(" ");
    this.again.hidden = !this.answer.again;
  }

  compared() {
    const { accepted, judged, cut, reason } = this.answer;
    if (judged) return `; without the guide${cut ? ", in the first seconds" : ""} ${percent(accepted / judged)} (${of(accepted, judged)}). One run each, indicative only`;
    return reason ? `. Without the guide: unknown. ${reason.replace(/\.$/, "")}` : "";
  }

  async ask(run) {
    this.answer = { run, asked: true, reason: "Decoding it now" };
    this.tell();
    const answer = await answerTo(() => this.stage.server.unguided(run));
    if (this.answer.run !== run) return;
    this.answer = { run, asked: true, ...(answer ?? { reason: "The server does not answer.", again: true }) };
    this.tell();
  }
}

const of = (accepted, judged) => `${whole(accepted)} of ${whole(judged)}`;

function named({ choice, regex, json, grammar }) {
  if (Array.isArray(choice)) return `${choice.length} allowed ${choice.length === 1 ? "text" : "texts"}`;
  if (typeof regex === "string") return `the regular expression “${regex.length > MOST_SHOWN ? `${regex.slice(0, MOST_SHOWN)}…` : regex}”`;
  if (json) return "a JSON schema";
  return grammar ? "a grammar" : "JSON";
}
