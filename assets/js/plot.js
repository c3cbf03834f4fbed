// Draws all Plotly figures, in the theme's colours and as wide as their containers. A chart is drawn in idle time when it is on
// or near the screen, one after the other, and using at most a quarter of the time. Figures name colours as CSS variables of
// the palette; their common layout is in the template.

import { missed } from "./connection.js";
import { inLanguage, lecturing, make, write } from "./dom.js";
import { savePicture } from "./downloads.js";

const SETTINGS = { displayModeBar: false, responsive: false };
const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";
const COLOR = /^var\((--ns-\w+)\)$/;
const NEAR = "300px";      // charts are drawn this far outside the screen
const REST = 3;            // after drawing a chart again, the page rests so many times as long
const IDLE_MS = 1000;      // draw after this time even if the page is never idle
const plots = new Map();   // by container: figure, title, drawn width, and whether it is near
const waiting = new Set(); // containers to draw, once they are near
const idle = window.requestIdleCallback ?? ((act) => setTimeout(act, 1));
const whenIdle = (act) => idle(act, { timeout: IDLE_MS });
const plotlyFile = () => new URL("./plotly-cartesian.min.js", import.meta.url); // a run saved as a file has none
const EXTRA = "<extra></extra>"; // the end of a hover text without the trace's name
const LECTURE = { type: 18, taller: 1.1, legend: 16 }; // in pixels, but for the height's factor
let busy = false;

export function plot(place, figure) {
  if (!plots.has(place)) {
    plots.set(place, { title: place.getAttribute("aria-label"), width: 0, near: false });
    widths.observe(place);
    nearness.observe(place);
  }
  const state = plots.get(place);
  state.figure = figure;
  place.style.minHeight = `${heightOf(figure)}px`; // before it is drawn
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

function enqueue(...places) {
  for (const place of places) waiting.add(place);
  next();
}

// Plotly is larger than the rest of the page. An empty figure first does its one-time work.
async function loadPlotly() {
  if (window.Plotly) return;
  await import(plotlyFile());
  await new Promise(whenIdle);
  await window.Plotly.newPlot(make("div"), []);
}

// The next chart to draw; those in a closed tab have no width.
const due = () => [...waiting].find((place) => plots.get(place).near && place.clientWidth);

async function next() {
  if (busy || !due()) return;
  busy = true;
  try {
    await loadPlotly();
  } catch {
    busy = false;
    return void missed(plotlyFile(), next);
  }
  await new Promise(whenIdle);
  const [place, began] = [due(), performance.now()];
  const rest = place?.layout ? REST : 0;
  if (place) draw(place);
  setTimeout(() => { busy = false; next(); }, rest * (performance.now() - began));
}

function draw(place) {
  waiting.delete(place);
  place.classList.remove("ns-late");
  const state = plots.get(place);
  const width = state.width = place.clientWidth;
  const { data, layout } = drawn(state.figure);
  const template = drawn(TEMPLATE);
  const height = heightOf(state.figure);
  const larger = lecturing() && layout.margin && { margin: { ...layout.margin, t: layout.margin.t + LECTURE.legend } };
  place.style.minHeight = `${height}px`;
  window.Plotly.react(place, data, { ...layout, ...larger, template, width, height, autosize: false }, SETTINGS);
}

const heightOf = ({ layout: { height = 260 } }) => (lecturing() ? Math.round(height * LECTURE.taller) : height);

document.addEventListener("click", async ({ target }) => {
  const { picture } = target.dataset ?? {};
  if (!picture) return;
  const place = target.parentElement.previousElementSibling;
  await loadPlotly();
  if (waiting.has(place)) draw(place);
  savePicture(window.Plotly, place, picture);
});

// A copy of a figure with its words in the page's language, with the theme's colours, and in lecture mode with larger type.
function drawn(figure) {
  const theme = getComputedStyle(document.body);
  return JSON.parse(JSON.stringify(figure), (name, value) => {
    if (typeof value === "string") {
      return value.split(EXTRA).map(inLanguage).join(EXTRA).replace(COLOR, (_, color) => theme.getPropertyValue(color));
    }
    return lecturing() && /font$/.test(name) && value.size ? { ...value, size: Math.max(value.size, LECTURE.type) } : value;
  });
}

const widths = new ResizeObserver((entries) => {
  enqueue(...entries.map(({ target }) => target).filter((place) => place.clientWidth !== plots.get(place).width));
});
const nearness = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) plots.get(target).near = isIntersecting;
  next();
}, { rootMargin: NEAR });
new MutationObserver(() => enqueue(...plots.keys())).observe(document.body, { attributeFilter: ["class"] });

const AXIS = {
  gridcolor: "var(--ns-rule)", linecolor: "var(--ns-rule)", zeroline: false, ticks: "", automargin: true, fixedrange: true,
  title: { font: { color: "var(--ns-muted)", size: 12 }, standoff: 6 },
  tickfont: { color: "var(--ns-muted)", size: 11 },
};
const TEMPLATE = {
  layout: {
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
