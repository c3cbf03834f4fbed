// The waterfall from tokens per target pass to the speedup, for the measured run on the stage or for the sliders' values. The
// formulas are those of naive_speculate/speculate/theory.py (see theory.js).

import { ACCEPTED, DRAFT, INK, MUTED, TARGET, figure, line, note } from "./charts.js";
import { plot } from "./plot.js";
import { two } from "./format.js";
import { costsOf, summaries } from "./summary.js";
import { breakEven, breakdown, checkOf, expectedTokens, gain, windows } from "./theory.js";

const UNMEASURED = "A run with drafts appears here once it is measured. Try the calculated machines meanwhile.";

export function mount({ element }) {
  const root = element.querySelector(".ns-waterfall");
  const machines = machinesOf(JSON.parse(root.dataset.presets));
  const sliders = [...root.querySelectorAll("[data-value]")];
  const buttons = [...root.querySelectorAll("[data-machine]")];
  let [chosen, state] = ["here", null];

  // Draws a machine, or a state that was calculated from one.
  const draw = (name, next = machines[name] ?? null) => {
    [chosen, state] = [name, next];
    for (const button of buttons) {
      button.ariaPressed = button.dataset.machine === chosen;
      button.disabled = button.dataset.machine === "here" && !machines.here;
    }
    for (const slider of sliders) {
      const value = state?.[slider.dataset.value];
      slider.disabled = !state;
      if (state && Number(slider.value) !== value) slider.value = value;
      slider.ariaValueText = state ? shown(value, slider.dataset.value) : "";
      slider.parentElement.querySelector("output").textContent = slider.ariaValueText;
    }
    root.querySelector("figcaption").firstChild.textContent = question(state);
    root.querySelector(".ns-what-if > p").textContent = state ? advice(state) : "";
    plot(root.querySelector(".ns-plot"), state ? waterfall(state) : note(UNMEASURED));
  };
  for (const button of buttons) button.addEventListener("click", () => draw(button.dataset.machine));
  for (const slider of sliders) {
    slider.addEventListener("input", () => draw("", changed(state, slider.dataset.value, Number(slider.value))));
  }
  summaries.follow((run) => {
    const here = measuredHere(run);
    if (JSON.stringify(here) === JSON.stringify(machines.here)) return;
    machines.here = here;
    draw(chosen, chosen === "here" ? here : state);
  });
}

// Formatted as elsewhere on the page; a run's mean number of draft tokens need not be whole.
function shown(value, name) {
  if (name === "alpha") return two(value);
  if (name === "draftCost") return value.toFixed(3); // as in the machines' sources
  return Number.isInteger(value) ? String(value) : `${value.toFixed(2)}${name === "k" ? " on average" : ""}`;
}

// The measurement is another run than the one on the stage, whose tokens per target pass are in its tile.
export function question(state) {
  if (!state) return "Where did the tokens of a target pass go?";
  const pace = tokensOf(state).toFixed(2);
  return state.measured
    ? `Where did the measurement's ${pace} tokens per target pass go?` : `Where did ${pace} tokens per target pass go?`;
}

// Presets as states. The `checks` are the costs of verifying 0, 1, 2 … draft tokens.
export const machinesOf = (presets) => Object.fromEntries(Object.entries(presets).map(([name, preset]) =>
  [name, { ...preset, check: preset.checks[preset.k] }]));

// The run's own numbers; null without draft tokens or a measurement.
export function measuredHere(run) {
  const costs = run.speedup && costsOf(run);
  if (!costs) return null;
  const { tokens_per_round: tokens, value: measured, tokens: timed } = run.speedup;
  return { ...costs, tokens, measured, timed };
}

// A state after moving a slider: calculated, not measured.
export function changed({ tokens, measured, ...state }, name, value) {
  const next = { ...state, [name]: value };
  if (name === "check") delete next.checks;
  if (name === "k") next.check = checkAt(state, value);
  return next;
}

const checkAt = ({ checks, check, k }, drafts) => checks ? checks[drafts] : checkOf(drafts, check, k);

const tokensOf = ({ tokens, alpha, k }) => tokens ?? expectedTokens(alpha, k);

export function waterfall(state) {
  const { k, draftCost, check, measured } = state;
  const drafting = (k * draftCost).toFixed(2);
  const parts = breakdown(tokensOf(state), k, draftCost, check, measured);
  const bars = [ // name, where it begins, how much it adds, colour, hover text
    ["tokens<br>per pass", 0, parts.tokens, ACCEPTED, "if a step cost no more than a plain pass"],
    ["verifying", parts.tokens, parts.check, TARGET, `verifying costs ${check.toFixed(2)} plain passes`],
    ["drafting", parts.tokens + parts.check, parts.drafting, DRAFT, `drafting costs ${drafting} plain passes`],
    ...(measured ? [["other", parts.speedup - parts.other, parts.other, MUTED, "not explained by these costs"]] : []),
    [measured ? "speedup<br>measured" : "speedup<br>calculated", 0, parts.speedup, INK, "relative to plain decoding"],
  ];
  const [names, bases, heights, colors, said] = [0, 1, 2, 3, 4].map((n) => bars.map((bar) => bar[n]));
  const last = bars.length - 1;
  const signed = (height) => `${height < 0 ? "−" : "+"}${Math.abs(height).toFixed(2)}`;
  const label = (height, n) => n === 0 ? height.toFixed(2) : n === last ? `${height.toFixed(2)}×` : signed(height);
  const top = Math.max(...bars.map(([, base, height]) => Math.max(base, base + height)), 1);
  return figure(
    sentence(state, parts),
    { type: "category", range: [-0.6, last + 0.6], fixedrange: true },
    { range: [0, 1.12 * top], title: { text: "× plain decoding" } },
    [
      {
        type: "bar", x: names, y: heights, base: bases, width: 0.62, showlegend: false,
        marker: { color: colors, pattern: { shape: bars.map((_, n) => n && n < last ? "/" : ""), size: 6, solidity: 0.25 } },
        text: heights.map(label), textposition: "outside", cliponaxis: false,
        hovertext: said, hovertemplate: "%{hovertext}<extra></extra>",
      },
      line("as fast as plain decoding", names, bars.map(() => 1), MUTED, "dot", { showlegend: true, hoverinfo: "skip" }),
    ],
    { height: 340 },
  );
}

function sentence(state, { tokens, speedup }) {
  // Divided as shown, so that a reader gets the same result.
  const [given, cost] = [tokens, state.check + state.k * state.draftCost].map((number) => number.toFixed(2));
  const sum = `a step gives ${given} tokens and takes as long as ${cost} plain passes, ${given} ÷ ${cost} = ${(given / cost).toFixed(2)}×`;
  if (!state.measured) return `Calculated: ${sum}${speedup < 1 ? ", slower than without drafts" : ""}`;
  return `Measured after the run, over ${state.timed} tokens: ${sum}. Measured: ${speedup.toFixed(2)}×`;
}

// When drafting would pay off, and the best k.
export function advice(state) {
  const { alpha, k, draftCost, check } = state;
  const need = breakEven(k, draftCost, check);
  const drafts = `${k === 1 ? "1 draft token" : `${Number.isInteger(k) ? k : k.toFixed(2)} draft tokens`} per step`;
  const pays = need === null
    ? `${drafts[0].toUpperCase()}${drafts.slice(1)} cost more than they save, even if all are accepted.`
    : `At these costs, ${drafts} pay off once α is above ${(Math.ceil(100 * need) / 100).toFixed(2)}.`;
  const every = windows(k).map((n) => gain(alpha, n, draftCost, checkAt(state, n)));
  const best = every.indexOf(Math.max(...every));
  return best ? `${pays} Best would be k = ${best}: ${every[best].toFixed(2)}×.` : `${pays} Here drafting does not pay off for any k.`;
}
