// The headline: a sentence on what is seen, and four numbers.

import { follow } from "./cursor.js";
import { make } from "./dom.js";
import { count, percent } from "./format.js";
import { ending } from "./judged.js";
import { luckOf } from "./luck.js";

const GUESSERS = new Map([
  ["suffix", "A search in the text so far"],
  ["prompt_lookup", "A search in the text so far"],
  ["suffix+head", "A search in the text, or a draft head,"],
  ["head", "A draft head on the target"],
]);

export function mount({ element, measure }) {
  const sentence = element.querySelector(".ns-sentence");
  const tiles = [...element.querySelectorAll(".ns-tiles dd")];
  const again = element.querySelector("[data-measure]");
  again.addEventListener("click", measure);
  follow((run) => {
    sentence.replaceChildren(...said(run));
    numbers(run).forEach(([value, note], n) => {
      const [figure, range] = value.split(" (");
      tiles[n].querySelector("b").replaceChildren(figure, ...(range ? [" ", make("small", "", `(${range}`)] : []));
      tiles[n].querySelector("span").textContent = note;
    });
    element.querySelector("[data-rest]").hidden = !run.speedup || !run.sums.drafted;
    again.hidden = Boolean(run.speedup) || !run.unmeasured?.again;
  });
}

export function numbers({ sums, rounds, started, speedup, unmeasured }) {
  const block = isBlock(started);
  const rate = sums.time > 0 ? sums.tokens / sums.time : 0;
  return [
    sums.drafted
      ? [percent(sums.accepted / sums.drafted), `${fates(sums, block)}. Of the ${amount(sums.judged)} that were judged, ${percent(sums.accepted / sums.judged)} were kept: α. ${luckOf({ sums, started })?.note ?? ""}`.trim()]
      : ["–", rounds.length ? "nothing was drafted" : "kept drafts, of all drafts"],
    [rounds.length ? (1 + sums.accepted / rounds.length).toFixed(2) : "–", "plain decoding: 1"],
    [rate ? rate.toFixed(0) : "–", "of this run, reading the prompt included"],
    speedup ? [`${times(speedup.value)}× (${times(speedup.low)} to ${times(speedup.high)})`, measured(speedup)] : ["–", waiting(unmeasured, rounds)],
  ];
}

function measured({ plain_rate, rate, machine }) {
  return `${plain_rate.toFixed(0)} tokens a second plain, ${rate.toFixed(0)} with these drafts, reading the prompt left out. Measured on ${machine}`;
}

function waiting(unmeasured, rounds) {
  if (unmeasured?.measuring) return "being measured: the same prompt, plain and with drafts …";
  return unmeasured?.reason || (rounds.length ? "measured when the run has ended" : "against plain decoding");
}

const times = (factor) => factor.toFixed(factor < 9.95 ? 1 : 0);

// Pieces of the sentence: text, and nodes.
export function said({ sums, rounds, started, finished, live }) {
  if (!rounds.length) return finished ? ["Nothing was decoded.", cutShort(finished)] : ["The prompt is being read, and the first round drafted."];
  const [written, passes] = [count(sums.tokens, "token"), count(rounds.length, "pass", "passes")];
  const opened = (text) => live ? text : `In this recorded run, ${text[0].toLowerCase()}${text.slice(1)}`;
  const guesser = GUESSERS.get(started.settings?.drafter) || "A small draft model";
  if (!sums.drafted) {
    const plain = started.settings?.num_draft_tokens ? `${guesser} has guessed nothing` : "Plain decoding";
    return [opened(`${plain}: the target model wrote ${written} in ${passes}, one token a pass.`), cutShort(finished)];
  }
  return [
    opened(`${guesser} guessed ${count(sums.drafted, "token")} ahead; of these the target model ${fates(sums, isBlock(started))}: `),
    make("strong", "", `${written} in ${passes}`),
    ` of the target model instead of ${sums.tokens.toLocaleString("en")}.`,
    cutShort(finished),
  ];
}

// What became of the drafts: those after a refused one are never reached, but for block verification, which judges the whole window.
function fates({ drafted, accepted, judged }, block) {
  const refused = judged - accepted;
  return `kept ${amount(accepted)}, refused ${amount(refused)} and ${block ? "dropped behind them" : "never reached"} ${amount(drafted - judged)}`;
}

const isBlock = (started) => started.settings?.verify_strategy === "block_verification";
const amount = (value) => value.toLocaleString("en");
const cutShort = (finished) => (["cancelled", "error"].includes(finished?.finish_reason) ? ` ${ending(finished)}` : "");
