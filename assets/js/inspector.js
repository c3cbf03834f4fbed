// The inspector of one token. Its bar is drawn at once from the stage's events. Words, numbers and distributions are requested
// when playback rests, and shown only if they still belong to the same token.

import { answerTo } from "./connection.js";
import { Channel, finder, inLanguage, make, onEscape } from "./dom.js";
import { chance, edge, nameOf, number, visible } from "./format.js";
import { Redraw, point } from "./redraw.js";

const REST_MS = 200;
export const inspected = new Channel(); // a token of the stage, or null

export function mount({ element, props }) {
  const panel = new Inspector(element, JSON.parse(props.value));
  inspected.follow((shown) => panel.show(shown));
}

class Inspector {
  constructor(element, first) {
    this.find = finder(element);
    this.sheet = element.closest(".ns-inspector");
    this.marks = JSON.parse(this.find(".ns-why").dataset.marks);
    this.answers = new Map([[keyOf(first), first]]);
    this.redraw = new Redraw(element);
    this.find(".ns-die").addEventListener("click", () => { if (!inspected.last?.pinned) inspected.last?.choose(); });
    this.find(".ns-sheet-close").addEventListener("click", () => this.open(false));
    onEscape(() => this.open(false));
  }

  // On a narrow page it is a sheet that opens when the reader chooses a token.
  open(on) {
    this.sheet.classList.toggle("ns-open", on);
  }

  show(shown) {
    clearTimeout(this.timer);
    this.find(".ns-why").hidden = !shown;
    this.find(".inspector-hint").hidden = Boolean(shown);
    if (!shown) return;
    if (shown.chosen) this.open(true);
    const about = `${keyOf(shown)}:${shown.pinned}`; // redrawing is for a chosen token, and its results stay while that is shown
    if (about !== this.about) this.draw(shown);
    this.about = about;
    const answer = this.answers.get(keyOf(shown));
    if (answer) this.tell(answer);
    else if (shown.resting) this.timer = setTimeout(() => this.ask(about, shown), shown.chosen ? 0 : REST_MS);
  }

  draw(shown) {
    const { run, number: n, event, settings } = shown;
    const box = this.find(".ns-why");
    Object.assign(box.dataset, { run, event: n });
    const head = this.find(".inspector-headline");
    head.dataset.kind = event.kind;
    head.textContent = `${this.marks[event.kind]} “${visible(event)}” ${nameOf(event)}`;
    box.classList.add("ns-stale");
    this.bar(chance(event), settings);
    this.redraw.begin(shown, chance(event));
  }

  bar(odds, settings) {
    const bar = this.find(".ns-die");
    bar.hidden = !odds;
    if (!odds) return;
    const name = settings.verify_strategy === "block_verification" ? "h" : "p/q";
    const certain = odds.die === undefined;
    bar.style.setProperty("--keep", odds.keep);
    bar.classList.toggle("ns-no-die", certain);
    bar.classList.toggle("ns-most-red", odds.keep < 0.3);
    bar.classList.toggle("ns-most-green", odds.keep > 0.7);
    bar.classList.toggle("ns-no-red", odds.keep > 0.92);
    bar.classList.toggle("ns-no-green", odds.keep < 0.08);
    bar.classList.toggle("ns-die-early", odds.die < (odds.die < odds.keep ? odds.keep : 1 + odds.keep) / 2);
    if (!certain) point(bar, odds.die);
    this.find(".ns-die-edge").textContent = certain ? "" : edge(odds, name);
    const draw = certain ? "No draw." : `The draw u was ${number(odds.die)}.`;
    bar.querySelector("[role=img]").setAttribute("aria-label", `Accepted with probability ${odds.name}. ${draw}`);
  }

  async ask(about, shown) {
    const answer = await answerTo(() => shown.ask([shown.run, shown.number, shown.upto]));
    if (!answer) return; // the next look asks again
    this.answers.set(keyOf(shown), answer);
    if (about === this.about) this.tell(answer);
  }

  tell({ words, distributions, redraw }) {
    const { classList } = this.find(".ns-why");
    if (!classList.contains("ns-stale")) return;
    classList.remove("ns-stale");
    this.redraw.tell(redraw);
    this.find(".inspector-why").replaceChildren(...words.sentences.map((pieces) => linked("p", pieces)));
    const details = words.details.map(([name, value]) => make("div", "", linked("dt", name), make("dd", "", value)));
    this.find(".inspector-details").replaceChildren(...details);
    drawDistributions(this.find("#distributions"), distributions);
  }
}

// Pieces of text, some of them with their glossary term. A translated sentence links the translations of its terms.
function linked(tag, pieces) {
  const sentence = pieces.map(([text]) => text).join("");
  const said = inLanguage(sentence);
  if (said !== sentence) {
    const terms = new Map(pieces.filter(([, term]) => term).map(([text, term]) => [inLanguage(text), term]));
    const forms = [...terms.keys()].sort((a, b) => b.length - a.length).map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    pieces = (forms.length ? said.split(new RegExp(`(“[^”]*”|${forms.join("|")})`, "u")) : [said]).map((text) => [text, terms.get(text)]).filter(([text]) => text);
  }
  return make(tag, "", ...pieces.map(([text, term]) =>
    (term ? make("a", { class: "ns-term", href: `#term-${term}` }, text) : make("span", "", text))));
}

// Identifies an explanation: the run, the event, and the number of shown events.
const keyOf = ({ run, number: n, upto }) => `${run}:${n}:${upto}`;

const OTHERS = "all others"; // the rest of each distribution

// The most probable tokens of draft, target and residual, as a table with bars; a run saved as a file has none. It changes with
// every inspected token, for which Plotly is too slow. Its roles are explicit: a table with another layout loses its own.
function drawDistributions(place, shown) {
  place.hidden = !shown;
  if (!shown) return;
  const { tokens, series, rest, takeaway } = shown;
  const others = { text: OTHERS, name: `${OTHERS}, together`, probs: rest, others: true };
  const table = place.querySelector("table");
  table.hidden = !tokens.length;
  place.querySelector("figcaption span").textContent = takeaway;
  table.tHead.rows[0].replaceChildren(
    make("th", { role: "columnheader" }, make("span", "ns-said", "token")),
    ...series.map((name) => make("th", { class: "ns-odds-key", role: "columnheader" }, bar(name), name)),
  );
  table.tBodies[0].replaceChildren(...[...tokens, ...(rest.length ? [others] : [])].map((token) => row(token, series)));
}

// All digits and the whole token are in the tooltips.
function row({ text, name, chosen, others, probs }, series) {
  const token = make(chosen ? "b" : others ? "em" : "span", "", `${chosen ? "▸ " : ""}${text}`);
  return make("tr", { role: "row" }, make("th", { role: "rowheader", title: name }, token), ...probs.map((prob, n) => {
    if (prob !== null) return make("td", { role: "cell", title: prob.toFixed(6) }, bar(series[n], prob), make("span", "", briefly(prob)));
    const none = make("span", { class: "ns-odds-none", "aria-hidden": true }, "–");
    return make("td", { role: "cell" }, none, make("span", "ns-said", "not recorded"));
  }));
}

// Without a probability: a sample for the legend.
function bar(series, prob) {
  const made = make("i", { class: "ns-odds-bar", "data-series": series });
  if (prob !== undefined) made.style.setProperty("--prob", Math.min(1, Math.max(0, prob)));
  return made;
}

// Nearly certain is not certain.
const briefly = (prob) => prob >= 0.9995 && prob < 1 - 1e-6 ? "over 0.999" : number(prob);
