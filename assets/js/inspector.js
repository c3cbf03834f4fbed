// The inspector of one token. Its bar is drawn at once from the stage's events. Words, numbers and distributions are requested
// when playback rests, and shown only if they still belong to the same token.

import { answerTo } from "./connection.js";
import { Channel, finder, inLanguage, make, onEscape } from "./dom.js";
import { chance, edge, nameOf, number, sum, two, visible, whole } from "./format.js";

const REST_MS = 200;
export const inspected = new Channel(); // a token of the stage, or null

export function mount({ element }) {
  const panel = new Inspector(element);
  inspected.follow((shown) => panel.show(shown));
}

class Inspector {
  constructor(element) {
    this.find = finder(element);
    this.sheet = element.closest(".ns-inspector");
    this.marks = JSON.parse(this.find(".ns-why").dataset.marks);
    this.answers = new Map();
    this.die = this.find(".ns-die");
    this.die.addEventListener("click", () => { if (!inspected.last?.pinned) inspected.last?.choose(); });
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
    const about = keyOf(shown);
    if (about !== this.about) this.draw(shown);
    this.about = about;
    const answer = this.answers.get(keyOf(shown));
    if (answer) this.tell(answer);
    else if (shown.resting) this.timer = setTimeout(() => this.ask(about, shown), shown.chosen ? 0 : REST_MS);
  }

  draw(shown) {
    const { run, number: n, event } = shown;
    const box = this.find(".ns-why");
    Object.assign(box.dataset, { run, event: n });
    const head = this.find(".inspector-headline");
    head.dataset.kind = event.kind;
    head.textContent = `${this.marks[event.kind]} “${visible(event)}” ${nameOf(event)}`;
    box.classList.add("ns-stale");
    this.odds = chance(event);
    this.bar(shown);
  }

  bar({ settings }) {
    const { die: bar, odds } = this;
    bar.hidden = !odds;
    if (!odds) return;
    drawVerdict(bar, odds);
    const name = settings.verify_strategy === "block_verification" ? "h" : "p/q";
    this.find(".ns-die-edge").textContent = odds.die === undefined ? "" : edge(odds, name);
  }

  async ask(about, shown) {
    const answer = await answerTo(() => shown.ask([shown.run, shown.number, shown.upto]));
    if (!answer) return; // the next look asks again
    this.answers.set(keyOf(shown), answer);
    if (about === this.about) this.tell(answer);
  }

  tell({ words, odds = "" }) {
    const { classList } = this.find(".ns-why");
    if (!classList.contains("ns-stale")) return;
    classList.remove("ns-stale");
    this.find(".inspector-why").replaceChildren(...words.sentences.map((pieces) => linked("p", pieces)));
    const details = words.details.map(([name, value]) => make("div", "", linked("dt", name), make("dd", "", value)));
    this.find(".inspector-details").replaceChildren(...details);
    const likely = this.find("#distributions");
    likely.hidden = !odds; // a run saved as a file has none
    likely.innerHTML = odds; // escaped on the server
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

// A verdict's bar: green up to the acceptance probability, and a needle at the draw, unless there was none.
export function drawVerdict(bar, { keep, name, die }) {
  const looks = {
    "ns-no-die": die === undefined, "ns-die-early": die < (die < keep ? keep : 1 + keep) / 2,
    "ns-most-red": keep < 0.3, "ns-most-green": keep > 0.7, "ns-no-red": keep > 0.92, "ns-no-green": keep < 0.08,
  };
  for (const [look, on] of Object.entries(looks)) bar.classList.toggle(look, on);
  bar.style.setProperty("--keep", keep);
  if (die !== undefined) point(bar, die);
  const draw = die === undefined ? "No draw." : `The draw u was ${number(die)}.`;
  bar.querySelector("[role=img]").ariaLabel = `Accepted with probability ${name}. ${draw}`;
}

// Points the needle at the draw.
function point(bar, u) {
  bar.style.setProperty("--die", u);
  bar.classList.toggle("ns-die-right", u > 0.5);
  bar.querySelector(".ns-die-u").textContent = `u = ${number(u)}`;
}

