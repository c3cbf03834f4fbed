// A run's exact α and its observed deviation, from a summary (see summary.js); the formulas are those of
// naive_speculate/events/expected.py. Each judged position is accepted with probability Σ min(p, q).

import { mean, sum, two } from "./format.js";

// Null if nothing was judged, or the run's events lack the numbers.
export function luckOf({ sums, started }) {
  if (!sums.judged || sums.told !== sums.judged) return null;
  const { verify_strategy: rule, temperature } = started.settings || {};
  const found = {
    alpha: sums.expected / sums.judged,
    deviation: Math.sqrt(sums.variance) / sums.judged,
    observed: sums.accepted / sums.judged,
    whole: rule === "block_verification" && temperature !== 0, // windows, not positions, are judged
  };
  return { ...found, sentence: sentenceOf(found, sums.variance), note: noteOf(found) };
}

// The steps' values of this name, by position in the window.
function byPlace(rounds, name) {
  const places = [];
  for (const round of rounds) round[name].forEach((value, n) => (places[n] ??= []).push(value));
  return places;
}

// The same at each position of the window: mean α over the steps that reached it, and the standard deviation of the observed rate.
export const luckByPlace = (rounds) => byPlace(rounds, "alphas").map((alphas) => ({
  alpha: mean(alphas), deviation: Math.sqrt(sum(alphas.map((alpha) => alpha * (1 - alpha)))) / alphas.length, count: alphas.length,
}));

// Whether a run's draft tokens, drawn or the most probable ones, would be accepted more often the other way, by position; null if
// unknown.
export function otherWay({ rounds, started }) {
  const places = byPlace(rounds, "others");
  if (!places.length) return null;
  const own = mean(rounds.flatMap(({ alphas, others }) => alphas.slice(0, others.length)));
  const other = mean(places.flat());
  const name = started.settings?.draft_sampling === "argmax" ? "sampled" : "argmax";
  const verdict = Math.abs(own - other) < 0.005 ? "no difference" : other > own ? "better for this run" : "worse for this run";
  return { name, sentence: `${name === "argmax" ? "Argmax" : "Sampled"} drafts: ${two(other)}, ${verdict}`, shares: places.map(mean) };
}

function sentenceOf({ alpha, deviation, observed, whole }, variance) {
  if (whole) return `Judged one by one, this draft's α would be ${two(alpha)}; block verification judges the window as a whole`;
  if (!variance) return `This draft's exact α is ${two(alpha)}; at temperature 0 there is no luck`;
  const off = (observed - alpha) / deviation;
  const said = Math.abs(off) < 1 ? "as expected" : `${Math.abs(off) < 2 ? "a little" : "much"} ${off > 0 ? "good" : "bad"} luck`;
  return `This draft's exact α is ${spread(alpha, deviation)}; observed ${two(observed)}, ${said}`;
}

function noteOf({ alpha, deviation, whole }) {
  if (whole) return `Judged one by one it would be ${two(alpha)}.`;
  return deviation ? `Expected for this draft: ${spread(alpha, deviation)}.` : "";
}

const spread = (alpha, deviation) => `${two(alpha)} ± ${deviation < 0.005 ? Math.max(0.001, deviation).toFixed(3) : two(deviation)}`;
