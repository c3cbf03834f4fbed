// The inspector's chart: the most probable tokens of draft, target and residual, as a table with bars. It changes with every
// inspected token, for which Plotly is too slow.

import { make } from "./dom.js";
import { number } from "./format.js";
import { Tip } from "./tip.js";

const OTHERS = "all others"; // the rest of each distribution
const TICKS = ["0", "0.25", "0.5", "0.75", "1"];

export class Distributions {
  constructor(place) {
    this.place = place;
    [this.caption, this.table] = place.querySelectorAll("figcaption, table");
    [this.title, this.takeaway] = this.caption.childNodes;
    this.tip = new Tip(place.appendChild(make("div", "ns-tip")));
    this.tip.hide();
    this.table.setAttribute("aria-label", this.title.textContent);
    for (const name of ["pointerover", "click"]) this.table.addEventListener(name, ({ target }) => this.point(target.closest("tbody tr")));
    for (const name of ["pointerout", "pointerdown", "scroll"]) {
      document.addEventListener(name, () => this.tip.hide(), { capture: true, passive: true });
    }
  }

  // A run saved as a file has none.
  show(shown) {
    this.place.hidden = !shown;
    if (!shown) return;
    this.shown = shown;
    this.rows = shown.rest.length ? [...shown.tokens, { text: OTHERS, name: `${OTHERS}, together`, probs: shown.rest }] : shown.tokens;
    this.tip.hide();
    this.takeaway.textContent = shown.takeaway;
    this.table.hidden = !shown.tokens.length;
    const heads = shown.series.map((series) => make("th", { class: "ns-odds-key", role: "columnheader" }, bar(series), series));
    const ticks = TICKS.map((tick) => make("span", "", tick));
    this.table.replaceChildren(
      part("thead", "rowgroup", row(part("th", "columnheader", make("span", "ns-said", "token")), ...heads)),
      part("tbody", "rowgroup", ...this.rows.map((token) => this.token(token))),
      make("tfoot", { role: "rowgroup", "aria-hidden": true }, row(make("td", "", ...ticks))),
    );
  }

  token({ text, chosen, probs }) {
    const name = make(chosen ? "b" : probs === this.shown.rest ? "em" : "span", "", `${chosen ? "▸ " : ""}${text}`);
    return row(part("th", "rowheader", name), ...probs.map((prob, n) => {
      if (prob !== null) return part("td", "cell", bar(this.shown.series[n], prob), make("span", "", briefly(prob)));
      const none = make("span", { class: "ns-odds-none", "aria-hidden": true }, "–");
      return part("td", "cell", none, make("span", "ns-said", "not recorded"));
    }));
  }

  // All digits of the token under the pointer.
  point(pointed) {
    if (!pointed) return;
    const { name, probs } = this.rows[[...this.table.tBodies[0].rows].indexOf(pointed)];
    const lines = probs.map((prob, n) => [this.shown.series[n], prob === null ? "not recorded" : prob.toFixed(6)]);
    this.tip.show(pointed, [[probs === this.shown.rest ? name : `“${name}”`, ""], ...lines]);
  }
}

// With an explicit role: a table with another layout loses its own.
const part = (tag, role, ...contents) => make(tag, { role }, ...contents);

const row = (...cells) => part("tr", "row", ...cells);

// Without a probability: a sample for the legend.
function bar(series, prob) {
  const made = make("i", { class: "ns-odds-bar", "data-series": series });
  if (prob !== undefined) made.style.setProperty("--prob", Math.min(1, Math.max(0, prob)));
  return made;
}

// Nearly certain is not certain.
const briefly = (prob) => prob >= 0.9995 && prob < 1 - 1e-6 ? "over 0.999" : number(prob);
