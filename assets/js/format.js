// Numbers in words and figures, as ui/labels.py writes them, so that browser and server say the same.

// A share as whole percents; never 0% or 100% for a share that is not.
export function percent(share) {
  if (share > 0 && share < 0.005) return "under 1%";
  if (share >= 0.995 && share < 1) return "over 99%";
  return `${Math.floor(share * 100 + 0.5)}%`;
}

// A probability or the like: significant digits, no powers of ten, no false zero or one.
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

export function count(amount, noun, plural = `${noun}s`) {
  return `${amount.toLocaleString("en")} ${amount === 1 ? noun : plural}`;
}
