// A guided run: its guide, its acceptance, and the acceptance of the same run without the guide, which the server decodes
// afterwards while nobody else does.

import { answerTo } from "./connection.js";
import { percent, whole } from "./format.js";

const MOST_SHOWN = 60; // characters of a guide

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
    const { id, live } = this.stage.run;
    if (this.answer?.run !== id) this.answer = { run: id };
    this.summary = summary;
    const { finished } = summary;
    const measured = finished && !summary.unmeasured?.measuring; // the measurement also needs a quiet server
    if (measured && live && !this.answer.asked && ["stop", "length"].includes(finished.finish_reason)) this.ask(id);
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
