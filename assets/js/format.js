// How the page writes numbers (the same as ui/labels.py), tokens and verdicts; and sums. The reasons of verdicts come from the
// server (ui/explain/why.py).

// A share as whole percents; 0% and 100% only if it is exactly that.
export function percent(share) {
  if (share > 0 && share < 0.005) return "under 1%";
  if (share >= 0.995 && share < 1) return "over 99%";
  return `${Math.floor(share * 100 + 0.5)}%`;
}

// A probability with so many decimals, rounded half up, as `rounded` in drawing.py.
export function rounded(value, digits) {
  const least = 10 ** -digits;
  return value > 0 && value < least / 2 ? `<${least.toFixed(digits)}` : (Math.floor(value / least + 0.5 + 1e-9) * least).toFixed(digits);
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

// At temperature 0 every rule is greedy: nothing is drawn.
export const isGreedy = (settings) => settings.verify_strategy === "greedy_match" || settings.temperature === 0;

// A token of plain decoding is not a "bonus".
export const nameOf = ({ kind, index }) => kind === "bonus" && index === 0 ? "from the target" : kind === "proposed" ? "drafted" : kind;

// The bar of width 1: its green part, and the draw. Null if there was no draw, or it is unknown.
export function chance(event) {
  if (event.kind === "proposed" || event.accept_prob === undefined) return null;
  const keep = Math.min(1, Math.max(0, event.accept_prob));
  return { keep, die: event.uniform, name: keep >= 1 ? "1" : number(keep) };
}

// The edge of the bar's green part in words.
export function edge({ keep, name }, rule = "p/q") {
  if (keep >= 1 && rule === "p/q") return "p ≥ q";
  return name.startsWith("under") ? `${rule} ${name}` : `${rule} = ${name}`;
}

// Why a run ended, in a sentence; empty while it continues.
export function ending(finished, settings, tokens) {
  const { finish_reason: reason, stop_reason: stop, message } = finished ?? {};
  const sentences = {
    stop: typeof stop === "string"
      ? `Ended by the stop string “${stop.replace(/\n/g, "⏎")}”, which is not part of the text.` : "The model wrote its end token.",
    length: settings && tokens === settings.max_tokens ? `Ended at the limit of ${count(tokens, "token")}.` : "Ended at the model's context limit.",
    cancelled: "It was stopped here.",
    error: `It ended in an error: ${message || "no reason given"}`,
  };
  return sentences[reason] ?? "";
}

export const chipText = (event) => (event.text || event.token || "").replace(/\n/g, "⏎");

// A token's text with visible spaces and line breaks.
export const visible = (event) => chipText(event).replace(/\t/g, "⇥").replace(/^ /, "␣") || "∅";

export function describe(event, proposed) {
  const lines = [[visible(event), nameOf(event)]];
  const draft = event.draft_prob ?? proposed.draft_prob;
  if (draft !== undefined) lines.push(["draft probability", number(draft)]);
  if (event.target_prob !== undefined && event.kind !== "proposed") lines.push(["target probability", number(event.target_prob)]);
  if (event.threshold !== undefined) lines.push(["threshold", number(event.threshold)]);
  if (event.accept_prob !== undefined) lines.push(["acceptance probability", number(event.accept_prob)]);
  if (event.uniform !== undefined) lines.push(["the draw, u", number(event.uniform)]);
  if (proposed.copied_from !== undefined) lines.push(["copied from", `token ${proposed.copied_from + 1} of the text`]);
  const forced = event.forced ?? proposed.forced;
  if (forced) lines.push(["forced", FORCED[forced]]);
  if (event.unknown_to_draft) lines.push(["∉", "unknown to the draft"]);
  if (event.reason) lines.push(["because", REASONS[event.reason] || event.reason]);
  lines.push(["token", `#${event.token_id}`]);
  return lines;
}

const FORCED = { token: "the guide allows no other token", text: "the guide requires this text" };
const REASONS = { rejected: "an earlier token was rejected", stop: "the text ended", length: "the token limit" };

export const spoken = (event, proposed) => describe(event, proposed).map(([name, value]) => `${name}: ${value}`).join(", ");
