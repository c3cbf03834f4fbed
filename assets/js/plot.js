// The page's one Plotly host: draws figures in the colours of the page's theme, as wide as their places, one a frame so that
// no frame gets long. A figure names its colours as CSS variables of the palette; what all figures share is in the template.

import { offerPicture } from "./take.js";

const SETTINGS = { displayModeBar: false, responsive: false };
const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";
const COLOR = /^var\((--ns-\w+)\)$/;
const plots = new Map();   // for every place its figure, its title, and how wide it was drawn
const waiting = new Set(); // places to be drawn
let busy = false;

export function plot(place, figure) {
  if (!plots.has(place)) {
    plots.set(place, { title: place.getAttribute("aria-label"), width: 0 });
    widths.observe(place);
    offerPicture(place);
  }
  plots.get(place).figure = figure;
  enqueue(place);
}

// A component with a single figure: it is unseen until there is one.
export function mount({ element, props, watch }) {
  const show = () => {
    element.querySelector(".ns-chart").hidden = !props.value;
    if (!props.value) return;
    plot(element.querySelector(".ns-plot"), JSON.parse(props.value));
  };
  watch("value", show);
  show();
}

function enqueue(...places) {
  for (const place of places) waiting.add(place);
  if (!busy) next();
}

function next() {
  busy = waiting.size > 0;
  if (busy) requestAnimationFrame(() => {
    if (!window.Plotly) return void setTimeout(next, 50);
    const [place] = waiting;
    waiting.delete(place);
    drawOne(place);
    next();
  });
}

function drawOne(place) {
  const { figure, title } = plots.get(place);
  const width = plots.get(place).width = place.clientWidth;
  if (!width) return; // in a closed tab: it is drawn when that opens
  const { data, layout } = colored(figure);
  // What the chart says, in a line, is text of the page: it wraps, and screen readers find it.
  const takeaway = layout.meta || "";
  place.previousElementSibling.lastElementChild.textContent = takeaway;
  place.setAttribute("aria-label", `${title}. ${takeaway}`);
  window.Plotly.react(place, data, { ...layout, template: colored(TEMPLATE), width, autosize: false }, SETTINGS);
}

function colored(value) {
  if (Array.isArray(value)) return value.map(colored);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, colored(inner)]));
  }
  const variable = typeof value === "string" && COLOR.exec(value);
  return variable ? getComputedStyle(document.body).getPropertyValue(variable[1]) : value;
}

const widths = new ResizeObserver((entries) => {
  enqueue(...entries.map(({ target }) => target).filter((place) => place.clientWidth !== plots.get(place).width));
});
new MutationObserver(() => enqueue(...plots.keys())).observe(document.body, { attributes: true, attributeFilter: ["class"] });

const AXIS = {
  gridcolor: "var(--ns-rule)",
  linecolor: "var(--ns-rule)",
  zeroline: false,
  ticks: "",
  automargin: true,
  fixedrange: true,
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
    hoverlabel: { bgcolor: "var(--ns-panel)", bordercolor: "var(--ns-rule)", font: { color: "var(--ns-ink)", family: FONT } },
    legend: { orientation: "h", x: 0, xanchor: "left", y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 11 } },
    xaxis: { ...AXIS, showgrid: false },
    yaxis: { ...AXIS, rangemode: "tozero" },
    annotationdefaults: { font: { color: "var(--ns-muted)", size: 13 }, showarrow: false },
  },
};
