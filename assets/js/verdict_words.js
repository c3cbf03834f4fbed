// What became of a token, in few words: names of kinds, and one sentence a way of judging. The server tells the whole of it
// (ui/explain/why.py), but for one token at a time; this is for every token that playback comes by.

import { count, number, percent, percents } from "./format.js";
import { visible } from "./tokens.js";

const LABELS = { proposed: "drafted", resampled: "resampled" };

// Under temperature 0 every rule is greedy: nothing is drawn, so nothing is resampled.
export const isGreedy = (settings) => settings.verify_strategy === "greedy_match" || settings.temperature === 0;

// A replacement that no die had a part in is not "resampled", and a token of plain decoding is no "bonus".
export function nameOf(event, settings) {
  if (event.kind === "resampled" && isGreedy(settings)) return "replacement";
  if (event.kind === "bonus" && event.index === 0) return "from the target";
  return LABELS[event.kind] || event.kind;
}

// The bar of width 1: how much of it keeps the token, and where the die fell. Null where no chance was involved or known.
export function chance(event) {
  if (event.kind === "proposed" || event.accept_prob === undefined) return null;
  const keep = Math.min(1, Math.max(0, event.accept_prob));
  return { keep, die: event.uniform, name: keep >= 1 ? "1" : number(keep) };
}

// The bar's edge in words, for a rule that keeps by this.
export function edge({ keep, name }, rule = "p/q") {
  if (keep >= 1 && rule === "p/q") return "p ≥ q";
  return name.startsWith("under") ? `${rule} ${name}` : `${rule} = ${name}`;
}

export function inShort(event, drafted, settings) {
  const guess = `“${visible(drafted)}”`;
  switch (event.kind) {
    case "proposed":
      if (event.copied_from !== undefined) return "A guess without a model: copied from earlier in the text, where it is underlined.";
      return `The draft ${settings.drafter === "head" ? "head" : "model"}'s guess${gave(event)}. The target has not looked at it yet.`;
    case "resampled":
      if (isGreedy(settings)) return "The target's likeliest token, in the place of the refused guess.";
      if (settings.verify_strategy === "typical_acceptance") return "The target's own choice, in the place of the refused guess.";
      return "Drawn in the place of the refused guess, among the tokens to which the target gives more than the draft did (the residual).";
    case "bonus":
      if (event.index === 0) return "Nothing was drafted in this round: one pass of the target, one token.";
      return `${event.index === 1 ? "The one guess was" : `All ${event.index} guesses were`} kept, and the same pass of the target gives one token more: free.`;
    case "discarded": return discarded(event);
  }
  const kept = event.kind === "accepted";
  if (event.accept_prob === undefined) return `The target ${kept ? "kept" : "refused"} the guess ${guess}.`;
  if (event.threshold !== undefined) {
    return `The target gives it ${percent(event.target_prob ?? 0)}, ${kept ? "more than" : "not more than"} the ${percent(event.threshold)} ` +
      `asked for here: ${kept ? "kept" : "refused"}. This rule changes what the target would write.`;
  }
  if (event.uniform === undefined) {
    return `No die here: a guess is kept if it is the target's likeliest token. ${kept ? "It is: kept." : "It is not: refused."}`;
  }
  if (settings.verify_strategy === "block_verification") {
    return `The window is judged as a whole: its drafts stand up to the last place whose die falls in the green. ${kept ? "Kept." : "Refused."}`;
  }
  if (event.target_prob === undefined || event.draft_prob === undefined) return `The target ${kept ? "kept" : "refused"} the guess.`;
  const [p, q] = percents(event.target_prob, event.draft_prob);
  const fell = `The die fell in the ${kept ? "green: kept." : "red: refused."}`;
  if (drafted.copied_from !== undefined) {
    return `Copied from where it is underlined, as if certain; the target gives it ${p}: kept in ${percent(event.accept_prob)} of such cases. ${fell}`;
  }
  if (event.accept_prob >= 1) return `The draft gave it ${q}, the target ${p}: no less, so it is kept wherever the die falls.`;
  return `The draft gave it ${q}, the target ${p.startsWith("under") ? "" : "only "}${p}: kept in ${percent(event.accept_prob)} of such cases. ${fell}`;
}

const gave = (event) => event.draft_prob === undefined ? "" : `, to which it gave ${percent(event.draft_prob)}`;

function discarded(event) {
  if (event.reason === "stop") return "Not part of the output: the text ended before it.";
  if (event.reason === "length") return "Not part of the output: the limit of tokens was reached before it.";
  if (event.uniform !== undefined) return "Thrown away with the whole window from the refused guess on.";
  return "Never reached: it continues a guess that was refused, so the target's verdict on it would mean nothing.";
}

// Why a run ended, in a sentence; empty while it goes on.
export function ending(finished, settings, tokens) {
  switch (finished?.finish_reason) {
    case "stop":
      if (typeof finished.stop_reason === "string") {
        return `Ended by the stop string “${finished.stop_reason.replace(/\n/g, "⏎")}”: it came next, and is not part of the text.`;
      }
      return "Ended by the model: it wrote its end token.";
    case "length":
      return tokens === settings.max_tokens ? `Ended at the limit of ${count(tokens, "token")}.` : "Ended where the model has no room for more tokens.";
    case "cancelled": return "It was stopped there.";
    case "error": return `It ended in an error: ${finished.message || "no reason is given"}`;
    default: return "";
  }
}
