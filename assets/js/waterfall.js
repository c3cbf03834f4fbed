// The waterfall from tokens per target pass to the speedup, for the measured run on the stage or for the sliders' values. The formulas
// are those of naive_speculate/theory.py (see theory.js).

import { ACCEPTED, DRAFT, INK, MUTED, TARGET, figure, line, note } from "./charts.js";
import { follow } from "./cursor.js";
import { luckOf } from "./luck.js";
import { plot } from "./plot.js";
import { two } from "./format.js";
import { breakEven, breakdown, checkOf, expectedTokens, gain, windows } from "./theory.js";

const UNMEASURED = "A run with drafts appears here once it is measured. Try the calculated machines meanwhile.";

export function mount({ element }) {
  const root = element.querySelector(".ns-waterfall");
  const machines = machinesOf(JSON.parse(root.dataset.presets));
  const chart = root.querySelector(".ns-plot");
  const sliders = [...root.querySelectorAll("[data-value]")];
  const buttons = [...root.querySelectorAll("[data-machine]")];
  const caption = root.querySelector("figcaption").firstChild;
  let [chosen, state] = ["here", null];

  const draw = () => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.machine === chosen));
      button.disabled = button.dataset.machine === "here" && !machines.here;
    }
    for (const slider of sliders) {
      const value = state?.[slider.dataset.value];
      slider.disabled = !state;
      if (state && Number(slider.value) !== value) slider.value = value;
      const text = state ? shown(value, slider.dataset.value) : "";
      slider.parentElement.querySelector("output").textContent = text;
      slider.setAttribute("aria-valuetext", text);
    }
    caption.textContent = question(state);
    root.querySelector(".ns-what-if > p").textContent = state ? advice(state) : "";
    plot(chart, state ? waterfall(state) : note(UNMEASURED));
  };
  const choose = (name) => {
    chosen = name;
    state = machines[name] ?? null;
    draw();
  };
  for (const button of buttons) button.addEventListener("click", () => choose(button.dataset.machine));
  for (const slider of sliders) {
    slider.addEventListener("input", () => {
      state = changed(state, slider.dataset.value, Number(slider.value));
      chosen = "";
      draw();
    });
  }
  let known;
  follow((run) => {
    const here = measuredHere(run);
    if (JSON.stringify(here) === known) return;
    known = JSON.stringify(here);
    machines.here = here;
    if (chosen === "here") choose("here"); else draw();
  });
}

// Formatted as elsewhere on the page; a run's mean number of draft tokens need not be whole.
function shown(value, name) {
  if (name === "alpha") return two(value);
  return Number.isInteger(value) ? String(value) : `${value.toFixed(2)}${name === "k" ? " on average" : ""}`;
}

// The measurement is another run than the one on the stage, whose tokens per target pass are in its tile.
export function question(state) {
  if (!state) return "Where did the tokens of a target pass go?";
  const pace = tokensOf(state).toFixed(2);
  return state.measured === null ? `Where did ${pace} tokens per target pass go?` : `Where did the measurement's ${pace} tokens per target pass go?`;
}

// Presets as states; verifying costs more once arithmetic takes longer than reading the weights.
export function machinesOf(presets) {
  return Object.fromEntries(Object.entries(presets).map(([name, { alpha, k, draftCost, computeShare }]) => {
    const checks = (drafts) => Math.max(1, (drafts + 1) * computeShare) / Math.max(1, computeShare);
    return [name, { alpha, k, draftCost, check: checks(k), checks, measured: null, tokens: null }];
  }));
}

// The run's own numbers; null without draft tokens or a measurement.
export function measuredHere({ sums, started, speedup }) {
  if (!speedup || !(speedup.draft_cost >= 0) || !sums.judged) return null;
  const { num_draft_tokens: k, draft_cost: draftCost, verify_cost: check, tokens_per_round: tokens, value: measured, tokens: timed } = speedup;
  const luck = luckOf({ sums, started });
  return { alpha: luck && !luck.whole ? luck.alpha : sums.accepted / sums.judged, k, draftCost, check, tokens, measured, timed, checks: null };
}

// A state after moving a slider: calculated, not measured.
export function changed(state, name, value) {
  const next = { ...state, [name]: value, measured: null, tokens: null };
  if (name === "check") next.checks = null;
  if (name === "k") next.check = state.checks ? state.checks(value) : checkOf(value, state.check, state.k);
  return next;
}

export const tokensOf = ({ tokens, alpha, k }) => tokens ?? expectedTokens(alpha, k);

export function waterfall(state) {
  const { k, draftCost, check, measured } = state;
  const parts = breakdown(tokensOf(state), k, draftCost, check, measured);
  const bars = [
    { name: "tokens<br>per pass", base: 0, height: parts.tokens, color: ACCEPTED, said: "if a step cost no more than a plain pass" },
    { name: "verifying", base: parts.tokens, height: parts.check, color: TARGET, said: `verifying costs ${check.toFixed(2)} plain passes` },
    { name: "drafting", base: parts.tokens + parts.check, height: parts.drafting, color: DRAFT, said: `drafting costs ${(k * draftCost).toFixed(2)} plain passes` },
    ...(measured === null ? [] : [{ name: "other", base: parts.speedup - parts.other, height: parts.other, color: MUTED, said: "not explained by these costs" }]),
    { name: measured === null ? "speedup<br>calculated" : "speedup<br>measured", base: 0, height: parts.speedup, color: INK, said: "relative to plain decoding" },
  ];
  const last = bars.length - 1;
  const label = ({ height }, n) => n === 0 ? height.toFixed(2) : n === last ? `${height.toFixed(2)}×` : `${height < 0 ? "−" : "+"}${Math.abs(height).toFixed(2)}`;
  const top = Math.max(...bars.map(({ base, height }) => Math.max(base, base + height)), 1);
  return figure(
    sentence(state, parts),
    { type: "category", range: [-0.6, last + 0.6], fixedrange: true },
    { range: [0, 1.12 * top], title: { text: "× plain decoding" } },
    [
      {
        type: "bar", x: bars.map(({ name }) => name), y: bars.map(({ height }) => height), base: bars.map(({ base }) => base),
        marker: { color: bars.map(({ color }) => color), pattern: { shape: bars.map((_, n) => n && n < last ? "/" : ""), size: 6, solidity: 0.25 } },
        text: bars.map(label), textposition: "outside", cliponaxis: false, showlegend: false, width: 0.62,
        hovertext: bars.map(({ said }) => said), hovertemplate: "%{hovertext}<extra></extra>",
      },
      line("as fast as plain decoding", bars.map(({ name }) => name), bars.map(() => 1), MUTED, "dot", { showlegend: true, hoverinfo: "skip" }),
    ],
    { height: 340 },
  );
}

function sentence(state, { tokens, speedup }) {
  // Divided as shown, so that a reader gets the same result.
  const [given, cost] = [tokens, state.check + state.k * state.draftCost].map((number) => number.toFixed(2));
  const sum = `a step gives ${given} tokens and takes as long as ${cost} plain passes, ${given} ÷ ${cost} = ${(given / cost).toFixed(2)}×`;
  if (state.measured === null) return `Calculated: ${sum}${speedup < 1 ? ", slower than without drafts" : ""}`;
  return `Measured after the run, over ${state.timed} tokens: ${sum}. Measured: ${speedup.toFixed(2)}×`;
}

// When drafting would pay off, and the best k.
export function advice({ alpha, k, draftCost, check, checks }) {
  const [need, drafts] = [breakEven(k, draftCost, check), `${k === 1 ? "1 draft token" : `${Number.isInteger(k) ? k : k.toFixed(2)} draft tokens`} per step`];
  const pays = need === null
    ? `${drafts[0].toUpperCase()}${drafts.slice(1)} cost more than they save, even if all are accepted.`
    : `At these costs, ${drafts} pay off once α is above ${(Math.ceil(100 * need) / 100).toFixed(2)}.`;
  const every = windows(k).map((n) => gain(alpha, n, draftCost, !n ? 1 : checks ? checks(n) : checkOf(n, check, k)));
  const best = every.indexOf(Math.max(...every));
  return best ? `${pays} Best would be k = ${best}: ${every[best].toFixed(2)}×.` : `${pays} Here drafting does not pay off for any k.`;
}
