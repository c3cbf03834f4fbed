// Lets the reader move a judged draft token's draw u, and redraws its position a thousand times from the recorded numbers: a
// draft token from q, then u, then a resampled token if rejected. The output follows p.

import { finder, make } from "./dom.js";
import { edge, number, sum, two, whole } from "./format.js";

const AT_ONCE = 1000;

// Random numbers from [0, 1), the same for the same seed (mulberry32).
export function dice(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function drawFrom(weights, random) {
  let left = random() * sum(weights);
  const found = weights.findIndex((weight) => (left -= weight) < 0);
  return found < 0 ? weights.findLastIndex((weight) => weight > 0) : found; // rounding
}

// Many draws over bins of [text, p, q, Σ min(p, q)]: how often each bin was drafted, accepted and resampled.
export function rollMany(bins, times, random, counts = bins.map(() => ({ drafted: 0, kept: 0, replaced: 0 }))) {
  const drafts = bins.map(([, , q]) => q);
  const residual = bins.map(([, p, , shared]) => Math.max(0, p - shared));
  for (let n = 0; n < times; n += 1) {
    const draft = drawFrom(drafts, random);
    const [, , q, shared] = bins[draft];
    counts[draft].drafted += 1;
    if (random() < shared / q) counts[draft].kept += 1; else counts[drawFrom(residual, random)].replaced += 1;
  }
  return counts;
}

// Points the needle of a verdict's bar at the draw.
export function point(bar, u) {
  bar.style.setProperty("--die", u);
  bar.classList.toggle("ns-die-right", u > 0.5);
  bar.querySelector(".ns-die-u").textContent = `u = ${number(u)}`;
}

// The inspector's part for a token that the reader has chosen.
export class Redraw {
  constructor(element) {
    this.find = finder(element);
    this.die = this.find(".ns-die");
    this.slider = this.find(".ns-die > input");
    this.table = this.find(".ns-roll table");
    [this.verdict, this.why, this.said] = [".ns-roll-verdict", ".ns-roll-why", ".ns-roll-said"].map(this.find);
    [this.button, this.figure] = element.querySelectorAll(".ns-roll button");
    this.slider.addEventListener("input", () => this.drag(Number(this.slider.value)));
    this.button.addEventListener("click", () => this.roll());
    this.figure.addEventListener("click", () => this.draws());
  }

  // A token of the stage; `odds` is its bar (see `chance`), or null.
  begin({ event, pinned, settings, draws }, odds) {
    Object.assign(this, { odds, draws, bins: null });
    this.random = dice((event.step ?? 0) * 64 + (event.index ?? 0));
    this.find(".ns-roll").hidden = !pinned;
    const judged = ["accepted", "rejected"].includes(event.kind) && settings.verify_strategy !== "block_verification";
    this.slider.hidden = !pinned || !judged || odds?.die === undefined;
    this.slider.value = odds?.die ?? 0;
    this.why.textContent = this.said.textContent = "";
    this.verdict.hidden = this.button.hidden = this.table.hidden = true;
    this.die.style.setProperty("--fell", odds?.die ?? 0);
    this.die.classList.remove("ns-moved");
    this.name();
  }

  // The server's answer: bins, or why there are none.
  tell(answer) {
    this.bins = answer?.bins ?? null;
    this.why.textContent = answer?.why ?? "";
    this.why.hidden = !answer?.why;
    this.button.hidden = !this.bins;
    if (!this.bins) return;
    this.rolled = 0;
    this.counts = rollMany(this.bins, 0, this.random);
    this.table.tBodies[0].replaceChildren(...this.bins.map(([text, p]) => make( // the one without a text is all other tokens
      "tr", "",
      make("th", { scope: "row", class: text ? undefined : "ns-roll-other" }, text || "other"),
      make("td", "", make("div", "ns-roll-bar", make("i", "ns-roll-kept"), make("i", "ns-roll-replaced"), make("b"))),
      make("td"), make("td", "", points(p)),
    )));
  }

  drag(u) {
    point(this.die, u);
    this.die.classList.add("ns-moved");
    const kept = u < this.odds.keep;
    this.verdict.hidden = false;
    this.verdict.dataset.kind = kept ? "accepted" : "rejected";
    this.verdict.textContent = `u = ${number(u)} ${kept ? "is below" : "is not below"} the edge, ${edge(this.odds)}: ` +
      `${kept ? "✓ accepted" : "✗ rejected"}. The recorded u is ${number(this.odds.die)}.`;
    this.name();
  }

  name() {
    const u = Number(this.slider.value);
    this.slider.ariaValueText = `u = ${number(u)}: ${u < (this.odds?.keep ?? 0) ? "accepted" : "rejected"}`;
  }

  roll() {
    const { bins, counts } = this;
    rollMany(bins, AT_ONCE, this.random, counts);
    const rolled = this.rolled += AT_ONCE;
    const widest = Math.max(...bins.map(([, p], n) => Math.max(p, (counts[n].kept + counts[n].replaced) / rolled)));
    const wide = (share) => `${100 * share / widest}%`;
    this.table.hidden = false;
    for (const [n, row] of [...this.table.tBodies[0].rows].entries()) {
      const [[text, p], { kept, replaced }] = [bins[n], counts[n]];
      row.hidden = !text && p <= 1e-6 && !(kept + replaced);
      Object.assign(row.dataset, { kept, replaced });
      const [accepted, resampled, exact] = row.querySelector(".ns-roll-bar").children;
      accepted.style.width = wide(kept / rolled);
      resampled.style.width = wide(replaced / rolled);
      exact.style.left = wide(p);
      row.cells[2].title = `${kept} accepted, ${replaced} resampled`;
      row.cells[2].textContent = points((kept + replaced) / rolled);
    }
    const kept = sum(counts.map((count) => count.kept));
    const alpha = sum(bins.map(([, , , shared]) => shared));
    const [[text, p, q], { drafted, kept: own }] = [bins[0], counts[0]];
    this.said.textContent = `${whole(rolled)} new draws at this position: ${whole(kept)} draft tokens accepted, ` +
      `${whole(rolled - kept)} rejected and resampled (exact α here: ${two(alpha)}). The drafter proposed “${text}” ` +
      `${whole(drafted)} times, and ${whole(own)} of these were accepted (min(1, p/q) = ${number(Math.min(1, p / q))}). ` +
      "The output follows the target's p.";
  }
}

const points = (share) => `${(100 * share).toFixed(1)}%`;
