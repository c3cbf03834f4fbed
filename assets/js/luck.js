// A run's exact α and its observed deviation, from a summary (see summary.js); the formulas are those of
// naive_speculate/events/expected.py. Each judged position is accepted with probability Σ min(p, q).

import { two } from "./format.js";

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

// The same at each position of the window: mean α over the steps that reached it, and the standard deviation of the observed rate.
export function luckByPlace(rounds) {
  const places = [];
  for (const { alphas } of rounds) {
    alphas.forEach((alpha, n) => {
      const place = places[n] ??= { count: 0, expected: 0, variance: 0 };
      place.count += 1;
      place.expected += alpha;
      place.variance += alpha * (1 - alpha);
    });
  }
  return places.map(({ count, expected, variance }, n) =>
    ({ place: n + 1, alpha: expected / count, deviation: Math.sqrt(variance) / count, count }));
}

// Whether a run's draft tokens, drawn or the most probable ones, would be accepted more often the other way, by position; null if
// unknown.
export function otherWay({ rounds, started }) {
  const places = [];
  for (const { alphas, others } of rounds) {
    others.forEach((other, n) => {
      const place = places[n] ??= { count: 0, own: 0, other: 0 };
      place.count += 1;
      place.own += alphas[n];
      place.other += other;
    });
  }
  if (!places.length) return null;
  const total = (name) => places.reduce((sum, place) => sum + place[name], 0);
  const [own, other] = [total("own") / total("count"), total("other") / total("count")];
  const name = started.settings?.draft_sampling === "argmax" ? "sampled" : "argmax";
  const verdict = Math.abs(own - other) < 0.005 ? "no difference" : other > own ? "better for this run" : "worse for this run";
  return { name, sentence: `${name === "argmax" ? "Argmax" : "Sampled"} drafts: ${two(other)}, ${verdict}`, shares: places.map((place) => place.other / place.count) };
}

function sentenceOf({ alpha, deviation, observed, whole }, variance) {
  if (whole) return `Judged one by one, this draft's α would be ${two(alpha)}; block verification judges the window as a whole`;
  if (!variance) return `This draft's exact α is ${two(alpha)}, without any chance`;
  const off = (observed - alpha) / deviation;
  const said = Math.abs(off) < 1 ? "as expected" : `${Math.abs(off) < 2 ? "a little" : "much"} ${off > 0 ? "good" : "bad"} luck`;
  return `This draft's exact α is ${spread(alpha, deviation)}; observed ${two(observed)}, ${said}`;
}

function noteOf({ alpha, deviation, whole }) {
  if (whole) return `Judged one by one it would be ${two(alpha)}.`;
  return deviation ? `Expected for this draft: ${spread(alpha, deviation)}.` : "";
}

const spread = (alpha, deviation) => `${two(alpha)} ± ${deviation < 0.005 ? Math.max(0.001, deviation).toFixed(3) : two(deviation)}`;
