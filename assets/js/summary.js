// A run's sums after each of its steps, computed while events arrive, so that the numbers at any position are ready. They are the
// metrics of naive_speculate/events/metrics.py.

import { OUTPUT } from "./tokens.js";

const MOST_DRAFTS = 64;
const MOST_SECONDS = 1e6; // no real step takes longer; a loaded trace may claim anything
const OTHER_WAY = { argmax: "sampled_accept" }; // the acceptance probability if the draft tokens had been drawn, or not
const NOTHING = {
  time: 0, tokens: 0, drafted: 0, accepted: 0, judged: 0, draft: 0, verify: 0, seconds: 0, kept: 0, discarded: 0, told: 0, expected: 0, variance: 0, forced: 0, siblings: 0,
};

// Tokens per target pass: accepted tokens plus one, as `mean_acceptance_length` in the metrics.
export const tokensPerPass = ({ sums, rounds }) => 1 + sums.accepted / rounds.length;

const bounded = (value, most) => Math.min(most, Math.max(0, value || 0));

export class Sums {
  constructor() {
    this.rounds = [];         // numbers of each step
    this.upto = [NOTHING];    // sums up to each step
    this.outputs = [0];       // number of output tokens among so many events
    this.texts = [];          // texts of the output tokens
    this.drafts = [];         // the unfinished step's acceptance probabilities, and those of the other way to draft
    this.verdicts = { accepted: 0, discarded: 0 }; // the unfinished step's events of these kinds
    this.forced = 0;          // its output tokens that a guide forces
    this.started = {};
    this.finished = null;
  }

  add(event) {
    if (OUTPUT.has(event.kind)) this.texts.push(event.text || "");
    this.outputs.push(this.outputs[this.outputs.length - 1] + OUTPUT.has(event.kind));
    if (event.kind === "proposed") this.drafts.push([event.expected_accept, event[OTHER_WAY[this.started.settings?.draft_sampling] ?? "argmax_accept"]]);
    if (OUTPUT.has(event.kind) && event.forced) this.forced += 1;
    if (event.kind in this.verdicts) this.verdicts[event.kind] += 1;
    if (event.kind === "started") this.started = event;
    if (event.kind === "finished") this.finished = event;
    if (event.kind === "step") this.finish(event);
  }

  finish(event) {
    const drafted = bounded(event.num_draft, MOST_DRAFTS);
    const accepted = bounded(event.num_accepted, drafted);
    const draft = bounded(event.draft_seconds, MOST_SECONDS);
    const verify = bounded(event.verify_seconds, MOST_SECONDS);
    const seconds = Math.max(draft + verify, bounded(event.total_seconds, MOST_SECONDS));
    // A step that did not accept every draft token rejected exactly one; later ones were not judged.
    const judged = accepted + (accepted < drafted);
    const proposed = this.drafts.splice(0).slice(0, judged);
    const [alphas, others] = [0, 1].map((n) => proposed.map((pair) => pair[n]).filter((alpha) => alpha !== undefined).map((alpha) => bounded(alpha, 1)));
    const sum = (share) => alphas.reduce((total, alpha) => total + share(alpha), 0);
    const told = { told: alphas.length, expected: sum((alpha) => alpha), variance: sum((alpha) => alpha * (1 - alpha)) };
    const { accepted: kept, discarded } = this.verdicts; // tokens after the end of the text were accepted, but are discarded
    this.verdicts = { accepted: 0, discarded: 0 };
    const round = { drafted, accepted, judged, draft, verify, seconds, kept, discarded, forced: this.forced, ...told };
    this.forced = 0;
    const sums = { ...this.upto[this.upto.length - 1], time: event.time || 0, tokens: this.outputs[this.outputs.length - 1] };
    for (const name of Object.keys(round)) sums[name] += round[name];
    if (event.tree?.length > drafted) { // the window is one path through it
      const more = bounded(event.tree.length, MOST_DRAFTS) - drafted;
      const rejected = event.tree.filter(({ kind }) => kind === "rejected").length - (accepted < drafted);
      sums.drafted += more;
      sums.siblings += rejected;
      sums.discarded += more - rejected;
    }
    this.rounds.push({ ...round, alphas, others });
    this.upto.push(sums);
  }

  // The output after so many events.
  text(events) {
    return this.texts.slice(0, this.outputs[events]).join("");
  }

  // The run up to an event: the finished `rounds` (steps), their `sums`, and the number of output `tokens`.
  at(events, rounds) {
    const atEnd = events === this.outputs.length - 1;
    return {
      started: this.started,
      finished: atEnd ? this.finished : null,
      rounds: this.rounds.slice(0, rounds),
      sums: this.upto[rounds],
      tokens: this.outputs[events],
    };
  }
}
