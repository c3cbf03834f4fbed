// The five charts of a run, live, finished or loaded: functions from a summary (see summary.js) to a Plotly figure. For a run
// without draft tokens or finished steps, each chart is a sentence.

import { inLanguage, write } from "./dom.js";
import { count, mean, milliseconds, percent, sum, two, whole } from "./format.js";
import { plot } from "./plot.js";
import { byPlace, costsOf, otherWay, summaries, tokensPerPass } from "./summary.js";
import { checkOf, gain, windows } from "./theory.js";

const WAITING = "No step is finished yet.";
const NO_DRAFTS = "Nothing was drafted in this run: plain decoding, one token per step.";
const NO_TIMES = "This run has no recorded times.";
const MANY = 64; // steps: more are drawn as one outline, because browsers are slow with many bars
const SHARES = { range: [0, 1.08], tickformat: ".0%", tickvals: [0, 0.25, 0.5, 0.75, 1] };
export const [ACCEPTED, REJECTED, RESAMPLED, DRAFT, TARGET, INK, MUTED, PAGE] =
  ["accepted", "rejected", "resampled", "proposed", "bonus", "ink", "muted", "page"].map((name) => `var(--ns-${name})`);
const SPREAD = { type: "data", color: INK, thickness: 1.5 };

export function mount({ element }) {
  const engines = element.querySelector(".ns-engines");
  summaries.follow((run) => {
    compare(engines, run.sums.engines);
    for (const place of element.querySelectorAll(".ns-plot")) plot(place, CHARTS[place.id](run));
  });
}

// The rules of other engines (ui/run/engines.py).
function compare(place, { rows = {}, own, sentence = WAITING } = {}) {
  write(place.querySelector("span"), sentence);
  place.querySelector("table").hidden = !Object.keys(rows).length;
  for (const row of place.querySelectorAll("tbody tr")) {
    const { alpha, pace } = rows[row.dataset.rule] ?? {};
    row.toggleAttribute("data-own", row.dataset.rule === own);
    write(row.cells[1], alpha == null ? "–" : percent(alpha));
    write(row.cells[2], pace?.toFixed(2) ?? "–");
  }
}

// These figures are redrawn often. With automatic margins, Plotly would draw each of them twice.
const MARGIN = { l: 52, r: 12, t: 30, b: 42 };

export function figure(takeaway, xaxis, yaxis, data, layout) {
  const fixed = (axis) => ({ automargin: false, ...axis });
  return { data, layout: { meta: takeaway, margin: MARGIN, xaxis: fixed(xaxis), yaxis: fixed(yaxis), ...layout } };
}

// A bar per step, or their outline.
function perRound(rounds, trace, { color, opacity = 1, shape = "", stacked = false }) {
  const pattern = { shape, size: 5, solidity: 0.35 };
  if (rounds <= MANY) return { ...trace, type: "bar", marker: { color, opacity, line: { width: 0 }, pattern } };
  return {
    ...trace, type: "scatter", mode: "lines", line: { shape: "hvh", width: 0, color }, opacity, fillcolor: color,
    fillpattern: { ...pattern, bgcolor: color, fgcolor: PAGE }, ...(stacked ? { stackgroup: "rounds" } : { fill: "tozeroy" }),
  };
}

// A trace of a line.
export const line = (name, x, y, color, dash, more) =>
  ({ type: "scatter", mode: "lines", name, x, y, line: { color, width: 2, dash }, ...more });

const markers = (name, x, y, more) => ({ type: "scatter", mode: "markers", name, x, y, ...more });

export function note(text) {
  const hidden = { visible: false, range: [0, 1] };
  const lines = inLanguage(text).replace(/(.{30,44}) |(.{16,24}[，。：；])(?=.)/g, "$1$2<br>");
  return figure(text, hidden, hidden, [], { annotations: [{ text: lines, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }] });
}

const upTo = (most) => Array.from({ length: most + 1 }, (_, n) => n);

// Acceptance rate of each step, and the mean so far.
export function acceptance({ rounds, sums }) {
  if (!sums.drafted) return note(rounds.length ? NO_DRAFTS : WAITING);
  const all = rounds.map((round, n) => ({ ...round, number: n + 1 }));
  const judged = all.filter(({ drafted }) => drafted);
  const shown = rounds.length > MANY ? all : judged; // an outline must drop to 0 at steps without draft tokens
  const none = judged.filter(({ accepted }) => !accepted);
  const x = shown.map(({ number }) => number);
  let [accepted, drafted] = [0, 0];
  const means = judged.map((round) => (accepted += round.accepted) / (drafted += round.drafted));
  return figure(
    `${whole(accepted)} of ${count(drafted, "draft token")} accepted: ${percent(accepted / drafted)}`,
    { title: { text: "step" }, range: [0.4, roundsShown(rounds.length) + 0.6] },
    { title: { text: "accepted ÷ drafted" }, range: [0, 1.02], tickformat: ".0%" },
    [
      perRound(rounds.length, {
        name: "this step", x, y: shown.map((round) => round.drafted && round.accepted / round.drafted),
        customdata: shown.map((round) => [round.accepted, round.drafted]),
        hovertemplate: "step %{x}: %{customdata[0]} of %{customdata[1]} accepted<extra></extra>",
      }, { color: ACCEPTED, opacity: 0.45 }),
      line("mean so far", judged.map(({ number }) => number), means, INK, "solid", {
        text: means.map(percent), hovertemplate: "up to step %{x}: %{text}<extra></extra>",
      }),
      rounds.length > MANY
        ? perRound(rounds.length, {
          showlegend: false, x, y: shown.map((round) => round.drafted && !round.accepted ? 0.025 : 0), hoverinfo: "skip",
        }, { color: REJECTED })
        : markers("", none.map(({ number }) => number), none.map(() => 0.025), {
          showlegend: false, hovertemplate: "step %{x}: none accepted<extra></extra>",
          marker: { color: REJECTED, symbol: "x-thin-open", size: rounds.length <= 50 ? 6 : 3, line: { width: 1.5 } },
        }),
    ],
  );
}

// Acceptance at each position of the window: conditional (of the steps that reached it) and unconditional (of all windows).
// Both are metrics of naive_speculate/events/metrics.py.
export function positions({ rounds, sums, started }) {
  if (!sums.drafted) return note(rounds.length ? NO_DRAFTS : WAITING);
  const places = Math.max(...rounds.map(({ drafted }) => drafted));
  const reached = (place) => rounds.filter(({ drafted, accepted }) => drafted >= place && accepted >= place - 1).length;
  const x = upTo(places).filter((place) => place && reached(place));
  const windows = rounds.filter(({ drafted }) => drafted).length;
  const shares = x.map((place) => {
    const kept = rounds.filter(({ accepted }) => accepted >= place).length;
    return [kept, reached(place), percent(kept / reached(place)), percent(kept / windows)];
  });
  const alpha = sums.accepted / sums.judged;
  const { luck } = sums;
  const other = otherWay({ rounds, started });
  const said = luck?.sentence ?? `Accepted when reached: α = ${two(alpha)} over all positions`;
  return figure(
    `${said}. ${other ? `${other.sentence}. ` : ""}Position ${x.at(-1)} is accepted in ${shares.at(-1)[3]} of all windows`,
    { title: { text: "position in the window" }, range: [0.4, places + 0.6], dtick: 1 + Math.floor((places - 1) / 10) },
    { ...SHARES, title: { text: "accepted" } },
    [
      {
        type: "bar", name: "when reached", x, y: shares.map(([kept, all]) => kept / all), customdata: shares,
        texttemplate: places <= 10 ? "%{customdata[0]}/%{customdata[1]}" : undefined, insidetextanchor: "start", textangle: 0,
        hovertemplate: "position %{x}, when reached (conditional): %{customdata[0]} of %{customdata[1]} accepted, %{customdata[2]}<extra></extra>",
        marker: { color: ACCEPTED }, insidetextfont: { color: PAGE },
      },
      line("of all windows (as vLLM counts)", x, shares.map(([kept]) => kept / windows), RESAMPLED, "dot", {
        mode: "lines+markers", marker: { symbol: "diamond", size: 8 }, customdata: shares,
        hovertemplate: `position %{x}, of all ${windows} windows (unconditional, as vLLM): %{customdata[0]} accepted, %{customdata[3]}<extra></extra>`,
      }),
      line("all together, α", [0.5, places + 0.5], [alpha, alpha], INK, "dash", { hovertemplate: "α = %{y:.3f}<extra></extra>", showlegend: !luck }),
      ...(other ? [markers(`exact α of ${other.name} drafts`, other.shares.map((_, n) => n + 1), other.shares, {
        customdata: other.shares.map((share) => share.toFixed(3)),
        hovertemplate: `position %{x}, exact α of ${other.name} drafts: %{customdata}<extra></extra>`,
        marker: { color: DRAFT, size: 9, symbol: "x-thin-open", line: { width: 2 } },
      })] : []),
      ...(luck ? [exactly(byPlace(rounds, "alphas"), luck.whole)] : []),
    ],
  );
}

// The exact α at each position, over the steps that reached it, with one standard deviation of the observed rate.
function exactly(places, byWindow) {
  const means = places.map(mean);
  const deviations = places.map((alphas) => Math.sqrt(sum(alphas.map((alpha) => alpha * (1 - alpha)))) / alphas.length);
  const name = byWindow ? "α, judged one by one" : deviations.some(Boolean) ? "exact α ± luck" : "exact α";
  return markers(name, places.map((_, n) => n + 1), means, {
    error_y: byWindow ? undefined : { ...SPREAD, array: deviations, width: 5 },
    customdata: places.map(({ length }, n) => [means[n].toFixed(3), deviations[n].toFixed(3), length]),
    hovertemplate: "position %{x}, exact α of the %{customdata[2]} draft tokens: %{customdata[0]}" +
      `${byWindow ? "" : " ± %{customdata[1]}"}<extra></extra>`,
    marker: { color: PAGE, size: 8, symbol: "circle", line: { color: INK, width: 2 } },
  });
}

// Accepted draft tokens per step: the share of steps with none, one, two …
export function lengths({ rounds, sums }) {
  if (!sums.drafted) return note(rounds.length ? NO_DRAFTS : WAITING);
  const x = upTo(Math.max(...rounds.map(({ drafted }) => drafted)));
  const amounts = x.map((length) => rounds.filter(({ accepted }) => accepted === length).length);
  const longest = x.at(-1);
  return figure(
    `${tokensPerPass({ sums, rounds }).toFixed(2)} tokens per target pass: the accepted draft tokens and one more`,
    { title: { text: "accepted draft tokens" }, range: [-0.6, longest + 0.6], dtick: 1 + Math.floor(longest / 11) },
    { ...SHARES, title: { text: "share of the steps" } },
    [{
      type: "bar", x, y: amounts.map((amount) => amount / rounds.length), customdata: amounts,
      hovertext: amounts.map((amount) => percent(amount / rounds.length)),
      texttemplate: longest <= 10 ? "%{customdata}" : undefined, textposition: "outside", cliponaxis: false, showlegend: false,
      hovertemplate: "%{x} accepted: %{customdata} steps, %{hovertext}<extra></extra>",
      marker: { color: x.map((length) => length ? ACCEPTED : REJECTED) },
    }],
  );
}

// Time of each step: drafting, verifying, and the rest.
export function timing({ rounds, sums }) {
  if (!rounds.length) return note(WAITING);
  if (!sums.seconds) return note(NO_TIMES);
  const bars = (name, color, shape, seconds) => perRound(rounds.length, {
    name, x: rounds.map((_, n) => n + 1), y: rounds.map((round) => 1000 * seconds(round)),
    hovertemplate: `step %{x}, ${name}: %{y:.2f} ms<extra></extra>`,
  }, { color, shape, stacked: true });
  const share = sums.drafted ? `${percent(sums.draft / sums.seconds)} of it drafting` : "and nothing spent on drafts";
  // One slow step, such as the first, exceeds the axis instead of flattening all others.
  const times = rounds.map(({ seconds }) => seconds).sort((a, b) => a - b);
  const [usual, longest] = [times[Math.floor((times.length - 1) * 0.95)], times.at(-1)];
  return figure(
    `${milliseconds(sums.seconds / rounds.length)} per step, ${share}`,
    { title: { text: "step" }, range: [0.4, roundsShown(rounds.length) + 0.6] },
    { title: { text: "ms" }, range: [0, niceCeiling(1000 * (longest <= 3 * usual ? longest : 1.25 * usual))] },
    [
      bars("draft", DRAFT, "/", ({ draft }) => draft),
      bars("verify", TARGET, "", ({ verify }) => verify),
      bars("the rest", MUTED, ".", ({ draft, verify, seconds }) => seconds - draft - verify),
    ],
    { barmode: "stack", bargap: 0.15 },
  );
}

// Speedup against k: Theorem 3.8 of Leviathan et al. 2023 (arXiv 2211.17192) and this run.
//
// The theorem needs α, from the run's events, and c, the cost of a draft token in target passes. It assumes that verifying k
// tokens costs as much as one token: nearly true on a GPU, less so on a CPU. After the measurement (see stage.js), c, the cost
// of verifying and the run's own point are measured; before that, c is estimated. Both curves assume independent acceptances;
// the run's own point does not, so it need not lie on either.
export function speedup(run) {
  const { rounds, sums, speedup: found } = run;
  const costs = costsOf(run);
  if (!costs) return note(!rounds.length ? WAITING : sums.drafted ? NO_TIMES : NO_DRAFTS);
  const { exact, alpha, draftCost, check, k } = costs;
  const ks = windows(k);
  const theorem = ks.map((n) => gain(alpha, n, draftCost, 1));
  const curves = [curve("Theorem 3.8, Leviathan et al. 2023", ks, theorem, TARGET, found ? "dash" : "solid")];
  // Measured for the run's own k, linear in between.
  const here = found ? ks.map((n) => gain(alpha, n, draftCost, checkOf(n, check, k))) : theorem;
  if (found) curves.push(curve("costs as measured here", ks, here, ACCEPTED, "solid"), ownPoint(k, found));
  const best = Math.max(...here);
  const words = `${exact ? "Exact" : "Observed"} α = ${two(alpha)}; draft cost c = ${draftCost.toFixed(2)}. Best would be k = ${here.indexOf(best)}: ${best.toFixed(2)}×`;
  return figure(
    found ? words : `${words}, if verifying costs nothing extra`,
    { title: { text: "draft tokens per step, k" }, range: [-0.4, ks.length - 0.6], dtick: 2 },
    { range: [0, Math.max(2, Math.ceil(1.05 * Math.max(...theorem, best, found?.high ?? 0)))], ticksuffix: "×" },
    [...curves, line("", [0, ks.length - 1], [1, 1], MUTED, "dot", { showlegend: false, hoverinfo: "skip" })],
  );
}

const ownPoint = (drafts, { value, low, high }) => markers("this run, measured", [drafts], [value], {
  error_y: { ...SPREAD, symmetric: false, array: [high - value], arrayminus: [value - low] },
  hovertemplate: `this run: ${value.toFixed(2)} × (${low.toFixed(2)} to ${high.toFixed(2)})<extra></extra>`,
  marker: { color: INK, size: 12, symbol: "diamond" },
});

function curve(name, x, y, color, dash) {
  const best = y.indexOf(Math.max(...y));
  return line(name, x, y, color, dash, {
    mode: "lines+markers", hovertemplate: "k = %{x}: %{y:.2f} ×<extra></extra>", marker: { size: x.map((k) => k === best ? 10 : 4), symbol: "circle" },
  });
}

// Axes rarely change during a run: they grow to powers of two, and to 1, 2 or 5 times a power of ten.
const roundsShown = (amount) => Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(1, amount))));

function niceCeiling(value) {
  if (!Number.isFinite(value) || value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((ceiling) => ceiling >= value * (1 - 1e-9));
}

export const CHARTS = {
  "chart-acceptance": acceptance,
  "chart-positions": positions,
  "chart-lengths": lengths,
  "chart-timing": timing,
  "chart-speedup": speedup,
};
