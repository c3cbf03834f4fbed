// Downloads: charts as PNG and SVG, the coloured text as SVG, and files from the server.

import { make, svg } from "./dom.js";

const WIDTH = 720; // minimum, for a picture's legend in one row
const NAME = "naive-speculate";
const CITE = "Cite as: Naive Speculate, a lossless speculative decoder that one can watch (CITATION.cff),";
const SHARP = 2;   // pixels of a picture per pixel of the page
const DASHES = { dotted: "1.5 2.5", dashed: "5 3" };

// Files of markup begin with how to cite them.
export function download(name, content, type) {
  if (/html|svg/.test(type)) content = `<!-- ${CITE} ${location.href.replace(/--/g, "%2D%2D")} -->\n${content}`;
  const href = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

// The stage's menu of files.
export function offerFiles(stage) {
  const menu = stage.find(".ns-take");
  const takes = {
    svg: () => download(`${NAME}-text.svg`, asSvg(stage.flow.box), "image/svg+xml"),
    round: () => drawRound(stage),
    html: () => save(stage, `${NAME}-text.html`, "text/html", "html"),
    replay: () => save(stage, `${NAME}-replay.html`, "text/html", "replay"),
  };
  const round = menu.querySelector("[data-take='round']");
  menu.addEventListener("toggle", () => { round.disabled = !stage.player.round(stage.player.cursor); });
  document.addEventListener("click", ({ target }) => {
    const take = menu.contains(target) && target.dataset.take;
    if (take) takes[take]();
    if (take || !menu.contains(target)) menu.open = false;
  });
}

// A file of the run from the server; nothing if it does not answer, which the page reports. A page has the language of this
// one.
async function save(stage, name, type, ...what) {
  let text = await stage.server.file([stage.run.id, ...what]);
  const speaking = document.querySelector("script[data-language]");
  if (text && speaking && what[0] === "replay") {
    const script = await fetch(speaking.src).then((answer) => answer.text()).catch(() => ""); // without it the file is in English
    if (script) text = text.replace('lang="en"', `lang="${document.documentElement.lang}"`).replace("<style>", () => `<script>${script}</script><style>`);
  }
  if (text) download(name, text, type); else if (text !== undefined) stage.trigger("lost", {});
}

// The machine's step as a drawing for a slide, as far as playback has come.
export function drawRound(stage) {
  const { step, cursor } = stage.player;
  save(stage, `${NAME}-step-${step + 1}.svg`, "image/svg+xml", "round", step, cursor);
}

// A Plotly chart with its title and background.
export function savePicture(plotly, place, format) {
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

// The coloured text of the page, including the scrolled part: background, text and lines for each piece of a token on one line.
function asSvg(box) {
  const frame = box.getBoundingClientRect();
  const [dx, dy] = [frame.left + box.clientLeft - box.scrollLeft, frame.top + box.clientTop - box.scrollTop];
  const [width, height] = [box.clientWidth, box.scrollHeight];
  const looks = { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "system-ui, sans-serif" };
  const picture = svg("svg", looks, svg("rect", { width, height, fill: color("--ns-page") }));
  for (const token of box.querySelectorAll(".ns-token")) {
    if (token.hidden || !token.firstChild || getComputedStyle(token).display === "none") continue;
    const style = getComputedStyle(token);
    for (const { text, rect } of lines(token.firstChild)) picture.append(...piece(text, rect, style, dx, dy));
  }
  return new XMLSerializer().serializeToString(picture);
}

function piece(text, rect, looks, dx, dy) {
  const [x, y] = [rect.left - dx, rect.top - dy];
  const size = parseFloat(looks.fontSize);
  const base = y + rect.height * 0.78;
  const clear = /^rgba\(.*, 0\)$|^transparent$/.test(looks.backgroundColor);
  const ground = { x, y, width: rect.width, height: rect.height, rx: 3, fill: looks.backgroundColor };
  const words = {
    x, y: base, "font-size": size, "font-weight": looks.fontWeight, fill: looks.color,
    textLength: rect.width, lengthAdjust: "spacingAndGlyphs", "xml:space": "preserve",
  };
  const [line, style] = [looks.textDecorationLine, looks.textDecorationStyle];
  const through = line.includes("line-through");
  const rows = line === "none" ? [] : style === "double" ? [base + 4, base + 7] : [through ? base - size * 0.28 : base + 5];
  const drawn = rows.map((row) => svg("line", {
    x1: x, y1: row, x2: x + rect.width, y2: row,
    stroke: looks.color, "stroke-width": through ? 1.2 : 1.8, "stroke-dasharray": DASHES[style],
  }));
  return [...(clear ? [] : [svg("rect", ground)]), svg("text", words, text), ...drawn];
}

// The pieces of a text that lie on one line each, with their rectangles; line breaks and empty pieces are omitted.
function lines(text) {
  const [range, found] = [document.createRange(), new Map()];
  let end = 0;
  for (const letter of text.data) {
    range.setStart(text, end);
    range.setEnd(text, end += letter.length);
    const { left, right, top, width, height } = range.getClientRects()[0] ?? {};
    if (!width || letter === "\n") continue;
    const line = found.get(Math.round(top)) ?? { text: "", rect: { left, top, height } };
    line.text += letter;
    line.rect.width = right - line.rect.left;
    found.set(Math.round(top), line);
  }
  return [...found.values()];
}
