// Draws one Plotly figure, in the colours of the page's theme, as wide as its place.

const box = element.querySelector(".ns-chart");
const place = element.querySelector(".ns-plot");
const title = place.getAttribute("aria-label");
let themes = null;
let drawn = "";

function receive() {
  try {
    themes = JSON.parse(props.value);
  } catch {
    return;
  }
  drawn = "";
  box.hidden = false;
  draw();
}

function draw() {
  if (!themes) return;
  if (!window.Plotly) return void setTimeout(draw, 50);
  const theme = document.body.classList.contains("dark") ? "dark" : "light";
  const width = place.clientWidth;
  if (!width || drawn === `${theme} ${width}`) return;
  drawn = `${theme} ${width}`;
  const { data, layout } = themes[theme];
  place.setAttribute("aria-label", `${title}. ${layout.meta || ""}`);
  window.Plotly.react(place, data, { ...layout, width, autosize: false }, { displayModeBar: false, responsive: false });
}

new ResizeObserver(draw).observe(place);
new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
watch("value", receive);
receive();
