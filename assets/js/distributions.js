// The inspector's chart: the most probable tokens of draft, target and residual, as a table with bars. It changes with every
// inspected token, for which Plotly is too slow.

import { make } from "./dom.js";
import { number } from "./format.js";
import { Tip } from "./tip.js";

const OTHERS = "all others"; // the rest of each distribution

export class Distributions {
  constructor(place) {
    this.place = place;
    this.table = place.querySelector("table");
    this.tip = new Tip(place.querySelector(".ns-tip"));
    for (const name of ["pointerover", "click"]) this.table.addEventListener(name, ({ target }) => this.point(target.closest("tbody tr")));
    for (const name of ["pointerout", "pointerdown", "scroll"]) {
      document.addEventListener(name, () => this.tip.hide(), { capture: true, passive: true });
    }
  }

  // A run saved as a file has none.
  show(shown) {
    this.place.hidden = !shown;
    if (!shown) return;
    const { tokens, series, rest, takeaway } = shown;
    const others = { text: OTHERS, name: `${OTHERS}, together`, probs: rest, others: true };
    this.series = series;
    this.rows = rest.length ? [...tokens, others] : tokens;
    this.tip.hide();
    this.place.querySelector("figcaption span").textContent = takeaway;
    this.table.hidden = !tokens.length;
    const heads = series.map((name) => make("th", { class: "ns-odds-key", role: "columnheader" }, bar(name), name));
    this.table.tHead.rows[0].replaceChildren(part("th", "columnheader", make("span", "ns-said", "token")), ...heads);
    this.table.tBodies[0].replaceChildren(...this.rows.map((token) => this.row(token)));
  }

  row({ text, chosen, others, probs }) {
    const name = make(chosen ? "b" : others ? "em" : "span", "", `${chosen ? "▸ " : ""}${text}`);
    return part("tr", "row", part("th", "rowheader", name), ...probs.map((prob, n) => {
      if (prob !== null) return part("td", "cell", bar(this.series[n], prob), make("span", "", briefly(prob)));
      const none = make("span", { class: "ns-odds-none", "aria-hidden": true }, "–");
      return part("td", "cell", none, make("span", "ns-said", "not recorded"));
    }));
  }

  // All digits of the token under the pointer.
  point(pointed) {
    if (!pointed) return;
    const { name, others, probs } = this.rows[pointed.sectionRowIndex];
    const lines = probs.map((prob, n) => [this.series[n], prob === null ? "not recorded" : prob.toFixed(6)]);
    this.tip.show(pointed, [[others ? name : `“${name}”`, ""], ...lines]);
  }
}

// With an explicit role: a table with another layout loses its own.
const part = (tag, role, ...contents) => make(tag, { role }, ...contents);

// Without a probability: a sample for the legend.
function bar(series, prob) {
  const made = make("i", { class: "ns-odds-bar", "data-series": series });
  if (prob !== undefined) made.style.setProperty("--prob", Math.min(1, Math.max(0, prob)));
  return made;
}

// Nearly certain is not certain.
const briefly = (prob) => prob >= 0.9995 && prob < 1 - 1e-6 ? "over 0.999" : number(prob);
