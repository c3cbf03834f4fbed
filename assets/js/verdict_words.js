// A token's verdict in few words: names of kinds, and one sentence per rule. The server has the long version for one token
// (ui/explain/why.py); this is for every token during playback.

import { count, number, percent, percents } from "./format.js";
import { visible } from "./tokens.js";

const PROPOSERS = { head: "draft head", "suffix+head": "draft head", block: "block drafter", mtp: "MTP layer" };
const LABELS = { proposed: "drafted", resampled: "resampled" };

// At temperature 0 every rule is greedy: nothing is drawn, so nothing is resampled.
export const isGreedy = (settings) => settings.verify_strategy === "greedy_match" || settings.temperature === 0;

// A greedy replacement is not "resampled", and a token of plain decoding is not a "bonus".
export function nameOf(event, settings) {
  if (event.kind === "resampled" && isGreedy(settings)) return "replacement";
  if (event.kind === "bonus" && event.index === 0) return "from the target";
  return LABELS[event.kind] || event.kind;
}

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

export function inShort(event, drafted, settings) {
  const verdict = event.kind === "accepted" ? "accepted" : "rejected";
  switch (event.kind) {
    case "proposed":
      if (event.copied_from !== undefined) return "Copied without a model from the underlined text.";
      if (event.forced === "text") return "Forced: drafted without a model, because the guide requires this text.";
      return `Proposed by the ${PROPOSERS[settings.drafter] ?? "draft model"}${gave(event)}. The target has not judged it yet.`;
    case "resampled":
      if (isGreedy(settings)) return "The target's most probable token, instead of the rejected one.";
      if (settings.verify_strategy === "typical_acceptance") return "The target's own choice, instead of the rejected token.";
      if (settings.tree) return "Drawn from what the rejected candidates left of the target's distribution.";
      return "Drawn from the residual, instead of the rejected token: among the tokens whose p is larger than their q.";
    case "bonus":
      if (event.index === 0) return "Nothing was drafted in this step: one target pass, one token.";
      if (settings.tree) return `${event.index === 1 ? "A candidate was" : `A path of ${event.index} candidates was`} accepted, and the same target pass gives one more token for free.`;
      return `${event.index === 1 ? "The one draft token was" : `All ${event.index} draft tokens were`} accepted, and the same target pass gives one more token for free.`;
    case "discarded": return discarded(event);
  }
  if (event.accept_prob === undefined) return `The target ${verdict} the draft token “${visible(drafted)}”.`;
  if (event.threshold !== undefined) {
    return `Target ${percent(event.target_prob ?? 0)}, ${verdict === "accepted" ? "above" : "not above"} the threshold ${percent(event.threshold)}: ${verdict}. ` +
      "This rule changes the distribution.";
  }
  if (event.uniform === undefined) {
    return `No draw: a draft token is accepted if it is the target's most probable token. ${verdict === "accepted" ? "It is: accepted." : "It is not: rejected."}`;
  }
  if (settings.verify_strategy === "block_verification") {
    return `The window is judged as a whole: it is accepted up to the last position whose draw falls in the green. This token was ${verdict}.`;
  }
  if (event.target_prob === undefined || event.draft_prob === undefined) return `The target ${verdict} the draft token.`;
  const [p, q] = percents(event.target_prob, event.draft_prob);
  const share = percent(event.accept_prob);
  const draw = `The draw (${number(event.uniform)}) ${verdict === "accepted" ? "hit, so it was accepted" : "missed, so it was rejected"}.`;
  const chances = `${share.startsWith("under") || share.startsWith("over") ? "" : "a "}${share} chance to accept it`;
  if (drafted.copied_from !== undefined) return `Copied from the underlined text, as if certain; target ${p}: ${chances}. ${draw}`;
  if (drafted.forced === "text") return `Forced: the guide requires this text; the target writes it with this token with probability ${p}: ${chances}. ${draw}`;
  if (settings.tree && Math.abs(event.accept_prob - Math.min(1, event.target_prob / event.draft_prob)) > 1e-3) return `Judged after other candidates were rejected: ${chances}. ${draw}`;
  if (event.accept_prob >= 1) return `Draft ${q}, target ${p}: no less, so it is always accepted.`;
  return `Draft ${q}, target ${p}: ${chances}. ${draw}`;
}

const gave = (event) => event.draft_prob === undefined ? "" : ` with ${percent(event.draft_prob)}`;

function discarded(event) {
  if (event.reason === "stop") return "Not part of the output: the text ended before it.";
  if (event.reason === "length") return "Not part of the output: the token limit was reached before it.";
  if (event.uniform !== undefined) return "Discarded with the rest of the window after the rejected token.";
  return "Discarded: it continues a rejected token, so its verdict would mean nothing.";
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
