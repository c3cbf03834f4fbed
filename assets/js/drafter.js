// A run's drafter and its guide.

import { answerTo } from "./connection.js";
import { make } from "./dom.js";
import { percent, whole } from "./format.js";

const COPIED = "Choose a draft token: a bar marks the text from which its step was copied.";
const MOST_LAYERS = 160; // a loaded trace may claim what it likes
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
    this.tokens = []; // of prompt and output
    this.place.hidden = true;
  }

  // Reads the run's first event; `prompt` are the elements of the prompt's tokens.
  begin(started, prompt) {
    this.tokens = prompt.map((flow) => ({ flow }));
    this.before = prompt.length;
    const { drafter, num_draft_tokens: k } = started.settings || {};
    const { title, about, copies } = Object.hasOwn(this.names, drafter) ? this.names[drafter] : {};
    const more = [
      ...(copies ? [make("p", "", COPIED)] : []),
      ...(started.head_layers?.length ? layersRead(started) : []),
      ...(started.vocabularies ? [shared(started.vocabularies)] : []),
    ];
    this.place.replaceChildren(make("p", "", ...(title ? [make("b", "", title), `: ${about}`] : [])), ...more);
    this.place.hidden = !more.length || k === 0;
  }

  addOutput({ position }, token) {
    this.tokens[this.before + position] = token;
  }

  // Underline the sources of these events' draft tokens, unless the token there is a different one.
  mark(events) {
    for (const node of document.querySelectorAll("#tokens .ns-source")) node.classList.remove("ns-source");
    for (const { copied_from: place, token_id: id } of events) {
      const node = this.tokens[place]?.flow;
      if (node?.dataset.tokenId === String(id)) node.classList.add("ns-source");
    }
  }
}

// The target's layers from left to right, embeddings first; the head reads the filled ones.
function layersRead({ head_layers: layers, target_layers: known, settings }) {
  const depth = Math.min(MOST_LAYERS, Math.max(known || 0, ...layers));
  const all = Array.from({ length: depth + 1 }, (_, layer) => make("i", layers.includes(layer) ? "ns-layer-read" : "ns-layer"));
  const head = make("b", "", ["block", "assistant"].includes(settings?.drafter) ? settings.drafter : "head");
  return [
    make("div", { class: "ns-layers", "aria-hidden": true }, make("div", "", ...all), head),
    make("p", "", `It reads the target after ${LIST.format(layers.map(String))} of its ${depth} layers.`),
  ];
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
    this.answer = {}; // for the run it belongs to
  }

  draw(summary = this.summary) {
    const { started: { settings }, unmeasured, finished, sums } = this.summary = summary;
    this.box.hidden = !settings?.guided_decoding;
    if (this.box.hidden) return;
    const { run: { id, live }, player } = this.stage;
    if (this.answer.run !== id) this.answer = { run: id };
    const measured = player.done && !unmeasured?.measuring; // the measurement also needs a quiet server
    if (measured && live && !this.answer.asked && ["stop", "length"].includes(finished?.finish_reason)) return void this.ask(id);
    const said = [`Guided by ${named(settings.guided_decoding)}.`];
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
    this.draw();
    const answer = await answerTo(() => this.stage.server.unguided(run)) ?? { reason: "The server does not answer.", again: true };
    if (this.answer.run !== run) return;
    this.answer = { run, asked: true, ...answer };
    this.draw();
  }
}

const of = (accepted, judged) => `${whole(accepted)} of ${whole(judged)}`;

function named({ choice, regex, json, grammar }) {
  if (Array.isArray(choice)) return `${choice.length} allowed ${choice.length === 1 ? "text" : "texts"}`;
  if (typeof regex === "string") return `the regular expression “${regex.length > MOST_SHOWN ? `${regex.slice(0, MOST_SHOWN)}…` : regex}”`;
  if (json) return "a JSON schema";
  return grammar ? "a grammar" : "JSON";
}
