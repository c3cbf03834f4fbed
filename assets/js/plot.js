// Draws all Plotly figures, in the theme's colours and as wide as their containers. A chart is drawn in idle time when it is on
// or near the screen, one at a time, and using at most a tenth of the time. Figures name colours as CSS variables of the
// palette; their common layout is in the template.

import { missed } from "./connection.js";
import { inLanguage, lecturing, make, write } from "./dom.js";
import { savePicture } from "./downloads.js";

const SETTINGS = { displayModeBar: false, responsive: false };
const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";
const COLOR = /^var\((--ns-\w+)\)$/;
const NEAR = "300px";      // charts are drawn this far outside the screen
const REST = 9;            // after drawing, a chart rests so many times as long
const LOOK_MS = 50;        // between checks whether a chart is due
const IDLE_MS = 1000;      // draw after this time even if the page is never idle
const plots = new Map();   // by container: figure, title, drawn width, whether it is near and stale, and until when it rests
const waiting = new Set(); // containers to draw
const idle = window.requestIdleCallback ?? ((act) => setTimeout(act, 1));
const whenIdle = (act) => idle(act, { timeout: IDLE_MS });
const plotlyFile = () => new URL("./plotly-cartesian.min.js", import.meta.url);
const EXTRA = "<extra></extra>"; // the end of a hover text without the trace's name
const LECTURE = { type: 18, taller: 1.1, legend: 16 }; // in pixels, but for the height's factor
let busy = false, loading = null;

export function plot(place, figure) {
  if (!plots.has(place)) {
    plots.set(place, { title: place.getAttribute("aria-label"), width: 0, near: false, stale: true, until: 0 });
    widths.observe(place);
    nearness.observe(place);
  }
  const state = plots.get(place);
  state.figure = translated(figure);
  // The takeaway is text of the page: it wraps, and screen readers find it.
  const takeaway = figure.layout.meta || "";
  write(place.previousElementSibling.lastElementChild, takeaway);
  place.setAttribute("aria-label", `${state.title}. ${inLanguage(takeaway)}`);
  enqueue(place);
}

// A component with a single figure; hidden until there is one.
export function mount({ element, props, watch }) {
  const show = () => {
    element.querySelector(".ns-chart").hidden = !props.value;
    if (props.value) plot(element.querySelector(".ns-plot"), JSON.parse(props.value));
  };
  watch("value", show);
  show();
}

// Charts far from the screen are drawn later.
function enqueue(...places) {
  for (const place of places) {
    const state = plots.get(place);
    state.stale = true;
    if (state.near) waiting.add(place);
  }
  if (!busy) next();
}

// Loads Plotly, which is larger than the rest of the page. After a failure, the next call tries again. An empty figure first
// does Plotly's one-time work.
function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = make("script", { src: plotlyFile() });
    script.onload = () => whenIdle(() => window.Plotly.newPlot(make("div"), []).then(resolve, reject));
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("Plotly could not be loaded"));
    };
    document.head.append(script);
  });
  return loading;
}

async function next() {
  busy = waiting.size > 0;
  if (!busy) return;
  try {
    await loadPlotly();
    whenIdle(turn);
  } catch {
    missed(plotlyFile(), next);
  }
}

function turn() {
  const due = [...waiting].find((place) => plots.get(place).until <= performance.now());
  if (!due) return void setTimeout(next, LOOK_MS);
  waiting.delete(due);
  draw(due);
  next();
}

function draw(place) {
  const state = plots.get(place);
  const width = state.width = place.clientWidth;
  if (!width) return; // in a closed tab: drawn when that opens
  state.stale = false;
  place.classList.remove("ns-late");
  const began = performance.now();
  const { data, layout } = themed(state.figure);
  const template = themed(TEMPLATE);
  const larger = lecturing() && {
    height: Math.round((layout.height ?? template.layout.height) * LECTURE.taller),
    ...(layout.margin && { margin: { ...layout.margin, t: layout.margin.t + LECTURE.legend } }),
  };
  window.Plotly.react(place, data, { ...layout, ...larger, template, width, autosize: false }, SETTINGS);
  const ended = performance.now();
  state.until = ended + REST * (ended - began);
}

document.addEventListener("click", async ({ target }) => {
  const { picture } = target.dataset ?? {};
  if (!picture) return;
  const place = target.parentElement.previousElementSibling;
  await loadPlotly();
  if (waiting.delete(place) || !place.layout) draw(place);
  savePicture(window.Plotly, place, picture);
});

// A copy of a figure in which `change` replaces each value, given its name; inner values first.
const copied = (figure, change) => JSON.parse(JSON.stringify(figure), (name, value) => change(value, name));

// A figure with all its words in the page's language.
const translated = (figure) =>
  copied(figure, (value) => typeof value === "string" ? value.split(EXTRA).map(inLanguage).join(EXTRA) : value);

// A figure with the theme's colours, and in lecture mode with larger type.
function themed(figure) {
  const theme = getComputedStyle(document.body);
  return copied(figure, (value, name) => {
    if (typeof value === "string") return value.replace(COLOR, (_, color) => theme.getPropertyValue(color));
    return lecturing() && /font$/.test(name) && value.size ? { ...value, size: Math.max(value.size, LECTURE.type) } : value;
  });
}

const widths = new ResizeObserver((entries) => {
  enqueue(...entries.map(({ target }) => target).filter((place) => place.clientWidth !== plots.get(place).width));
});
const nearness = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const state = plots.get(target);
    state.near = isIntersecting;
    if (!isIntersecting) waiting.delete(target);
    else if (state.stale) enqueue(target);
  }
}, { rootMargin: NEAR });
new MutationObserver(() => enqueue(...plots.keys())).observe(document.body, { attributeFilter: ["class"] });

const AXIS = {
  gridcolor: "var(--ns-rule)", linecolor: "var(--ns-rule)", zeroline: false, ticks: "", automargin: true, fixedrange: true,
  title: { font: { color: "var(--ns-muted)", size: 12 }, standoff: 6 },
  tickfont: { color: "var(--ns-muted)", size: 11 },
};
const TEMPLATE = {
  layout: {
    height: 260,
    margin: { l: 8, r: 12, t: 30, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, color: "var(--ns-ink)", size: 12 },
    hoverlabel: { bgcolor: "var(--ns-panel)", bordercolor: "var(--ns-rule)", font: { color: "var(--ns-ink)", family: FONT, size: 13 } },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 11 } },
    xaxis: { ...AXIS, showgrid: false },
    yaxis: { ...AXIS, rangemode: "tozero" },
    annotationdefaults: { font: { color: "var(--ns-muted)", size: 13 }, showarrow: false },
  },
};
