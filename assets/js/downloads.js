// Downloads: charts as PNG and SVG, and files from the server.

import { button, hold } from "./dom.js";

const WIDTH = 720; // minimum, for a picture's legend in one row
const NAME = "naive-speculate";
const SHARP = 2;   // pixels of a picture per pixel of the page

export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The stage's menu of files.
export function offerFiles(stage) {
  const menu = stage.find(".ns-take");
  const takes = {
    round: () => drawRound(stage),
    html: () => save(stage, `${NAME}-text.html`, "text/html", "html"),
    replay: () => save(stage, `${NAME}-replay.html`, "text/html", "replay"),
  };
  for (const offer of menu.querySelectorAll("[data-take]")) {
    offer.addEventListener("click", () => { menu.open = false; takes[offer.dataset.take](); });
  }
  const round = menu.querySelector("[data-take='round']");
  menu.addEventListener("toggle", () => { round.disabled = !stage.player.round(stage.player.cursor); });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}

// A file of the run from the server; nothing if it does not answer, which the page reports. A page has the language of this one.
async function save(stage, name, type, ...what) {
  let text = await stage.server.file([stage.run.id, ...what]);
  const speaking = document.querySelector("script[data-language]");
  if (text && speaking && what[0] === "replay") {
    const script = await fetch(speaking.src).then((answer) => answer.text()).catch(() => ""); // without it the file is in English
    if (script) text = text.replace('lang="en"', `lang="${document.documentElement.lang}"`).replace("<style>", () => `<script>${script}</script><style>`);
  }
  if (text) download(name, text, type); else if (text !== undefined) stage.trigger("lost", {});
}

// The inspected token's step as a drawing for a slide, as far as playback has come.
export function drawRound(stage) {
  const { events, cursor } = stage.player;
  const round = stage.looked ? events[stage.looked.born].step : Math.max(0, stage.player.round(cursor) - 1);
  save(stage, `${NAME}-round-${round + 1}.svg`, "image/svg+xml", "round", round, cursor);
}

// Buttons below a Plotly chart that save it with its title and background; `drawn` gives Plotly once the chart is drawn.
export function offerPicture(place, drawn) {
  const offers = ["png", "svg"].map((format) => {
    const offer = button("", format.toUpperCase(), async () => savePicture(await drawn(), place, format));
    offer.title = `Save this chart as ${format.toUpperCase()}`;
    offer.setAttribute("aria-label", `${offer.title}: ${place.getAttribute("aria-label")}`);
    return offer;
  });
  place.after(hold("div", "ns-pictures", ...offers));
}

function savePicture(plotly, place, format) {
  const { data, layout } = place;
  const caption = place.previousElementSibling; // title and takeaway
  const [name, takeaway] = [caption.firstChild.textContent, caption.lastElementChild.textContent]; // the title is text or a link
  const said = takeaway.replace(/(.{80,100}) /g, "$1\n").split("\n");
  const headline = 44 + 18 * said.length;
  const [width, height] = [Math.max(WIDTH, place.clientWidth), place.clientHeight + headline];
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const words = {
    text: `<b>${plain(name)}</b><br><span style="font-size:13px">${said.map(plain).join("<br>")}</span>`,
    x: 0.02, xanchor: "left", y: 1 - 24 / height, yanchor: "top", font: { size: 16, color: color("--ns-ink") },
  };
  const picture = {
    data, layout: { ...layout, height, title: words, paper_bgcolor: color("--ns-page"), plot_bgcolor: color("--ns-page"), margin: { ...layout.margin, t: (layout.margin?.t ?? 30) + headline } },
  };
  const filename = `${NAME}-${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}`;
  plotly.downloadImage(picture, { format, filename, width, height, scale: format === "png" ? SHARP : 1 });
}

const color = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
