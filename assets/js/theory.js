// The expected speedup, with the formulas of naive_speculate/speculate/theory.py. Costs are in target passes over one token.

// Expected tokens of a step with k draft tokens, including the target's: equation 1 of Leviathan et al. 2023. A mean k such as
// 4.5 counts as steps with 4 and with 5.
export function expectedTokens(alpha, k) {
  let [total, reached] = [1, 1];
  for (let left = k; left > 0; left -= 1) total += Math.min(1, left) * (reached *= alpha);
  return total;
}

const MOST_K = 16; // of the page's slider

// The values of k among which the best is searched, given a run's own.
export const windows = (k) => Array.from({ length: 1 + Math.max(MOST_K, Math.round(k) + 2) }, (_, n) => n);

// Speedup over plain decoding: tokens per step divided by its cost.
export const gain = (alpha, k, draftCost, check) => expectedTokens(alpha, k) / (k * draftCost + check);

// The cost of verifying k draft tokens, linear between plain decoding and the known cost for `drafts`.
export const checkOf = (k, check, drafts) => Math.max(1e-6, 1 + (check - 1) * k / drafts);

// What each cost takes from the tokens per step, one after the other, down to the speedup.
export function breakdown(tokens, k, draftCost, check, measured = null) {
  const checked = tokens / check;
  const drafted = tokens / (check + k * draftCost);
  const left = measured ?? drafted;
  return { tokens, check: checked - tokens, drafting: drafted - checked, other: left - drafted, speedup: left };
}

// The α from which drafting pays off; null if it never does.
export function breakEven(k, draftCost, check) {
  const cost = check + k * draftCost;
  if (k + 1 < cost) return null;
  let [low, high] = [0, 1];
  for (let n = 0; n < 50; n += 1) {
    const middle = (low + high) / 2;
    if (expectedTokens(middle, k) < cost) low = middle; else high = middle;
  }
  return high;
}
