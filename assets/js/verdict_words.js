// Names of token kinds, and the numbers of a verdict's bar, for playback. The reasons come from the server (ui/explain/why.py).

import { count, number } from "./format.js";

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
  switch (finished?.finish_reason) {
    case "stop":
      if (typeof finished.stop_reason === "string") {
        return `Ended by the stop string “${finished.stop_reason.replace(/\n/g, "⏎")}”, which is not part of the text.`;
      }
      return "The model wrote its end token.";
    case "length":
      return tokens === settings.max_tokens ? `Ended at the limit of ${count(tokens, "token")}.` : "Ended at the model's context limit.";
    case "cancelled": return "It was stopped here.";
    case "error": return `It ended in an error: ${finished.message || "no reason given"}`;
    default: return "";
  }
}
