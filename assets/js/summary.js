// A run's figures after each of its steps, which the server sends with the step's event (ui/run/figures.py), so that those at any
// position are ready. The stage sends its current summary to its followers: the charts, and the headline, which is a sentence
// and four numbers.

import { Channel, make } from "./dom.js";
import { count, ending, mean, percent, two, whole } from "./format.js";
import { OUTPUT } from "./tokens.js";

// Tokens per target pass: accepted tokens plus one, as `mean_acceptance_length` in the metrics.
export const tokensPerPass = ({ sums, rounds }) => 1 + sums.accepted / rounds.length;

export class Sums {
  rounds = [];         // figures of each step
  upto = [{ time: 0, tokens: 0 }]; // of all steps up to each
  outputs = [0];       // number of output tokens among so many events
  texts = [];          // texts of the output tokens
  ids = [];            // and their ids
  started = {};
  finished = null;

  add(event) {
    if (OUTPUT.has(event.kind)) this.texts.push(event.text || ""), this.ids.push(event.token_id);
    this.outputs.push(this.texts.length);
    if (event.kind === "started") this.started = event;
    if (event.kind === "finished") this.finished = event;
    if (event.kind !== "step") return;
    this.rounds.push(event.figures.round);
    this.upto.push({ ...event.figures.sums, luck: event.figures.luck, engines: event.figures.engines });
  }

  get settings() {
    return this.started.settings || {};
  }

  // The sums up to the last finished step.
  get whole() {
    return this.upto.at(-1);
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

// What the speedup depends on: α, k, and the costs of drafting a token and of verifying k, in target passes over one token.
// Before the measurement, a verification pass stands for such a pass. Null without draft tokens, verdicts or times.
export function costsOf(run) {
  const { rounds, sums, sums: { luck }, speedup } = run;
  const exact = Boolean(luck && !luck.whole);
  const average = (name) => mean(rounds.filter(({ drafted }) => drafted).map((round) => round[name]));
  const draftCost = speedup?.draft_cost ?? average("draft") / average("drafted") / average("verify");
  if (!sums.judged || !(draftCost >= 0 && draftCost < Infinity)) return null;
  return {
    exact, alpha: exact ? luck.alpha : sums.accepted / sums.judged, draftCost: Math.max(1e-6, draftCost), // must be positive
    check: Math.max(1e-6, speedup?.verify_cost ?? 1), k: speedup?.num_draft_tokens || average("drafted"),
  };
}

// The steps' values of this name, by position in the window.
export function byPlace(rounds, name) {
  const places = [];
  for (const round of rounds) round[name].forEach((value, n) => (places[n] ??= []).push(value));
  return places;
}

// Whether a run's draft tokens, drawn or the most probable ones, would be accepted more often the other way, by position; null
// if unknown.
export function otherWay({ rounds, started }) {
  const places = byPlace(rounds, "others");
  const alphas = rounds.flatMap(({ alphas: own, others }) => own.slice(0, others.length));
  if (!places.length || !alphas.length) return null;
  const own = mean(alphas);
  const other = mean(places.flat());
  const name = started.settings?.draft_sampling === "argmax" ? "sampled" : "argmax";
  const verdict = Math.abs(own - other) < 0.005 ? "no difference" : other > own ? "better for this run" : "worse for this run";
  return { name, sentence: `${name === "argmax" ? "Argmax" : "Sampled"} drafts: ${two(other)}, ${verdict}`, shares: places.map(mean) };
}

export const summaries = new Channel();

const DISTURBED = "Other programs disturbed the measurement: it gave more than the tokens per target pass allow.";
const OF_TREE = "Each node of a tree counts as one draft token: a step accepts at most one path, rejects the candidates compared on the way, and discards the rest.";

export function mountHeadline({ element, measure }) {
  const sentence = element.querySelector(".ns-sentence");
  const tiles = [...element.querySelectorAll(".ns-tiles dd")];
  const again = element.querySelector("[data-measure]");
  const drafters = JSON.parse(element.querySelector(".ns-drafter").dataset.drafters);
  again.addEventListener("click", measure);
  summaries.follow((run) => {
    sentence.replaceChildren(...said(run, drafters));
    numbers(run).forEach(([value, note], n) => {
      const [figure, range] = value.split(" (");
      tiles[n].querySelector("b").replaceChildren(figure, ...(range ? [" ", make("small", "", `(${range}`)] : []));
      tiles[n].querySelector("span").textContent = note;
    });
    element.querySelector("[data-rest]").hidden = !run.speedup || !run.sums.drafted;
    again.hidden = Boolean(run.speedup) || !run.unmeasured?.again;
  });
}

export function numbers({ sums, rounds, speedup, unmeasured }) {
  const rate = sums.time > 0 ? sums.tokens / sums.time : 0;
  return [
    sums.drafted
      ? [percent(sums.accepted / sums.drafted), `${fates(sums)}. α = ${two(sums.accepted / sums.judged)} of ` +
        `${count(sums.judged, "judged position")}. ${sums.luck?.note ?? ""}`.trim()]
      : ["–", rounds.length ? "nothing was drafted" : "accepted ÷ drafted"],
    [rounds.length ? tokensPerPass({ sums, rounds }).toFixed(2) : "–", `${rounds.length ? after(sums, rounds) : ""}plain decoding: 1`],
    [rate ? perSecond(rate) : "–", "this run, including prompt processing"],
    !speedup ? ["–", waiting(unmeasured, rounds)]
      : speedup.num_draft_tokens && speedup.low > speedup.tokens_per_round ? ["–", DISTURBED]
        : [`${speedup.value.toFixed(2)}× (${speedup.low.toFixed(2)} to ${speedup.high.toFixed(2)})`, measured(speedup)],
  ];
}

// The measurement is another run than the one on the stage, so its numbers differ.
function measured({ plain_rate, rate, tokens_per_round: pace, machine }) {
  return `Measured again, without the prompt: ${perSecond(plain_rate)} tokens per second plain, ` +
    `${perSecond(rate)} with drafts (${pace.toFixed(2)} tokens per target pass). ${machine}`;
}

function waiting(unmeasured, rounds) {
  if (unmeasured?.measuring) return "being measured: the same prompt, plain and with drafts …";
  return unmeasured?.reason || (rounds.length ? "measured after the run" : "against plain decoding");
}

// Pieces of the sentence: text, and nodes.
export function said({ sums, rounds, started, finished, live }, drafters = {}) {
  if (!rounds.length) return finished ? ["Nothing was decoded.", cutShort(finished)] : ["Processing the prompt and drafting the first step."];
  const [written, passes] = [count(sums.tokens, "token"), count(rounds.length, "pass", "passes")];
  const opened = (text) => live ? `${text[0].toUpperCase()}${text.slice(1)}` : `In this recorded run, ${text}`;
  const name = started.settings?.drafter;
  const drafter = Object.hasOwn(drafters, name) ? drafters[name].phrase : "the draft model";
  if (!sums.drafted) {
    const plain = started.settings?.num_draft_tokens ? `${drafter} proposed nothing` : "plain decoding";
    return [opened(`${plain}: the target model wrote ${written} in ${passes}, one token per pass.`), cutShort(finished)];
  }
  return [
    opened(`${drafter} proposed ${count(sums.drafted, "draft token")}; the target model ${fates(sums)}: `),
    make("strong", "", `${written} in ${passes}`),
    ` of the target model instead of ${whole(sums.tokens)}.`,
    started.settings?.tree ? ` ${OF_TREE}` : "",
    cutShort(finished),
  ];
}

// The draft tokens' verdicts, as in the legend. Tokens after the end of the text are discarded whatever their verdict; so is
// the target's own token there.
function fates({ drafted, judged, accepted, kept, discarded, siblings }) {
  const rejected = judged - accepted + siblings; // siblings: other rejected candidates at the positions of a tree
  const [cut, own] = [accepted - kept, kept + discarded + rejected - drafted];
  const what = own > 0 ? `the target's own token${cut > 0 ? ` and ${count(cut, "accepted one")},` : ""}` : cut > 0 ? whole(cut) : "";
  return `accepted ${whole(kept)}, rejected ${whole(rejected)} and discarded ${whole(discarded)}` +
    (what ? ` (with ${what} after the end of the text)` : "");
}

// The verifier's tokens that are not part of the text.
function after({ accepted, tokens }, rounds) {
  const more = accepted + rounds.length - tokens;
  return more > 0 ? `with ${count(more, "token")} after the end of the text; ` : "";
}

const perSecond = (rate) => rate.toFixed(rate < 10 ? 1 : 0);
const cutShort = (finished) => (["cancelled", "error"].includes(finished?.finish_reason) ? ` ${ending(finished)}` : "");
