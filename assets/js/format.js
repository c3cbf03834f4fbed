// Number formats, the same as in ui/labels.py, and sums.

// A share as whole percents; 0% and 100% only if it is exactly that.
export function percent(share) {
  if (share > 0 && share < 0.005) return "under 1%";
  if (share >= 0.995 && share < 1) return "over 99%";
  return `${Math.floor(share * 100 + 0.5)}%`;
}

// α and its deviation: two digits, rounded as in `percent`.
export const two = (share) => (Math.floor(share * 100 + 0.5) / 100).toFixed(2);

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

// A whole number, with a comma between thousands.
export const whole = (amount) => amount.toLocaleString("en");

export const count = (amount, noun, plural = `${noun}s`) => `${whole(amount)} ${amount === 1 ? noun : plural}`;

export const sum = (values) => values.reduce((total, value) => total + value, 0);

export const mean = (values) => sum(values) / values.length;
