// Draws the figures that the server sends, each in the place that has its id, one a frame so that no frame gets long.

const SETTINGS = { displayModeBar: false, responsive: false };
const places = [...element.querySelectorAll(".ns-plot")];
const sizes = new Map();
let figures = {};
let queue = [];
let busy = false;

function draw(latest) {
  figures = latest;
  queue = places.filter((place) => figures[place.id]);
  if (!busy) next();
}

function next() {
  busy = queue.length > 0;
  if (busy) requestAnimationFrame(() => { if (window.Plotly) drawOne(); else setTimeout(next, 50); });
}

function drawOne() {
  const place = queue.shift();
  const figure = figures[place.id];
  const width = place.clientWidth;
  if (width > 0) {
    sizes.set(place, width);
    window.Plotly.react(place, figure.data, { ...withTakeaway(place, figure.layout), width, autosize: false }, SETTINGS);
  }
  next();
}

// What the chart says, in a line, is text of the page: it wraps, and screen readers find it.
function withTakeaway(place, layout) {
  const caption = place.previousElementSibling;
  const takeaway = layout.meta || "";
  caption.lastElementChild.textContent = takeaway;
  place.setAttribute("aria-label", `${caption.firstChild.textContent}. ${takeaway}`);
  return layout.title ? { ...layout, title: undefined, margin: { ...layout.margin, t: 30 } } : layout;
}

// A place changes its width with the window, and gets one when its tab is opened.
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.clientWidth && sizes.get(target) !== target.clientWidth && !queue.includes(target)) queue.push(target);
  }
  if (!busy) next();
});
for (const place of places) observer.observe(place);

document.addEventListener("ns-seek", (event) => draw(event.detail.figures));
draw(JSON.parse(props.value));
