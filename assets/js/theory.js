// What speculative decoding should gain, as naive_speculate/theory.py has it. Costs are in target passes over one token.

// Tokens that a step with k draft tokens is expected to give, the next token included: equation 1 of Leviathan et al. 2023. Of a mean k,
// such as 4.5, as of steps with 4 and with 5.
export function expectedTokens(alpha, k) {
  let [total, reached] = [1, 1];
  for (let left = k; left > 0; left -= 1) total += Math.min(1, left) * (reached *= alpha);
  return total;
}

// Up to there the page looks for the best k: what its slider has.
const MOST_K = 16;

// The numbers of draft tokens among which the best is looked for, given that of a run.
export const windows = (k) => Array.from({ length: 1 + Math.max(MOST_K, Math.round(k) + 2) }, (_, n) => n);

// Speedup over plain decoding: tokens a round over its cost.
export const gain = (alpha, k, draftCost, check) => expectedTokens(alpha, k) / (k * draftCost + check);

// The check's cost for k drafts, on a straight line from plain decoding to the one that is known for `drafts`.
export const checkOf = (k, check, drafts) => Math.max(1e-6, 1 + (check - 1) * k / drafts);

// How much of the tokens a round each thing takes, one after the other, down to the speedup that is left.
export function breakdown(tokens, k, draftCost, check, measured = null) {
  const checked = tokens / check;
  const drafted = tokens / (check + k * draftCost);
  const left = measured ?? drafted;
  return { tokens, check: checked - tokens, drafting: drafted - checked, other: left - drafted, speedup: left };
}

// The share of kept drafts from which on drafting pays; null where it never does.
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
