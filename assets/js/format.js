// Number formats, the same as in ui/labels.py.

// A share as whole percents; 0% and 100% only if it is exactly that.
export function percent(share) {
  if (share > 0 && share < 0.005) return "under 1%";
  if (share >= 0.995 && share < 1) return "over 99%";
  return `${Math.floor(share * 100 + 0.5)}%`;
}

// α and its deviation: two digits, rounded as in `percent`.
export const two = (share) => (Math.floor(share * 100 + 0.5) / 100).toFixed(2);

// Two shares to compare: with as many decimals as needed to distinguish them, up to two.
export function percents(a, b) {
  const written = (decimals) => [a, b].map((share) => `${(100 * share).toFixed(share === 0 || share === 1 ? 0 : decimals)}%`);
  const tells = ([first, second], decimals) => (first !== second || a === b) &&
    [[a, first], [b, second]].every(([share, text]) => (share === 0 || Number.parseFloat(text) > 0) && (share >= 1 || Number.parseFloat(text) < 100));
  const enough = [0, 1, 2].find((decimals) => tells(written(decimals), decimals));
  if (enough !== undefined) return written(enough);
  const edges = (share, text) => share > 0 && share < 5e-5 ? "under 0.01%" : share < 1 && share >= 0.99995 ? "over 99.99%" : text;
  return written(2).map((text, n) => edges(n ? b : a, text));
}

// A probability: significant digits, no powers of ten, 0 and 1 only if it is exactly that.
export function number(value) {
  if (value === 0 || Math.abs(value - 1) < 1e-6) return value ? "1" : "0";
  if (value > 0 && value < 1e-4) return "under 0.0001";
  const shown = Number(value.toPrecision(3));
  return String(value < 1 && shown === 1 ? Number(value.toFixed(6)) : shown);
}

export function milliseconds(seconds) {
  if (seconds >= 10) return `${seconds.toFixed(1)} s`;
  const value = seconds * 1000;
  return `${value.toFixed(value >= 100 ? 0 : value >= 1 ? 1 : 2)} ms`;
}

export const count = (amount, noun, plural = `${noun}s`) => `${amount.toLocaleString("en")} ${amount === 1 ? noun : plural}`;
