// The inspector of one token. Its bar is drawn at once from the stage's events. Words, numbers and distributions are requested
// when playback rests, and shown only if they still belong to the same token. The reader may move the draw u of a judged draft
// token, and redraw its position a thousand times from the recorded numbers.

import { answerTo } from "./connection.js";
import { Channel, finder, inLanguage, make, onEscape } from "./dom.js";
import { chance, edge, nameOf, number, sum, two, visible, whole } from "./format.js";

const REST_MS = 200;
const AT_ONCE = 1000; // draws
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
    this.slider = this.find(".ns-die > input");
    this.table = this.find(".ns-roll table");
    [this.verdict, this.obstacle, this.rolls] = [".ns-roll-verdict", ".ns-roll-why", ".ns-roll-said"].map(this.find);
    const [button, figure] = element.querySelectorAll(".ns-roll button");
    this.button = button;
    this.die.addEventListener("click", () => { if (!inspected.last?.pinned) inspected.last?.choose(); });
    this.slider.addEventListener("input", () => this.drag(Number(this.slider.value)));
    button.addEventListener("click", () => this.roll());
    figure.addEventListener("click", () => inspected.last.draws());
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
    const about = `${keyOf(shown)}:${shown.pinned}`; // redrawing is for a chosen token, and stays while that is shown
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
    this.offer(shown);
  }

  bar({ settings }) {
    const { die: bar, odds } = this;
    bar.hidden = !odds;
    if (!odds) return;
    drawVerdict(bar, odds);
    const name = settings.verify_strategy === "block_verification" ? "h" : "p/q";
    this.find(".ns-die-edge").textContent = odds.die === undefined ? "" : edge(odds, name);
  }

  // A chosen token's draw can be moved.
  offer({ event, pinned, settings }) {
    const { odds } = this;
    this.random = dice((event.step ?? 0) * 64 + (event.index ?? 0));
    this.find(".ns-roll").hidden = !pinned;
    const judged = ["accepted", "rejected"].includes(event.kind) && settings.verify_strategy !== "block_verification";
    this.slider.hidden = !pinned || !judged || odds?.die === undefined;
    this.slider.value = odds?.die ?? 0;
    this.obstacle.textContent = this.rolls.textContent = "";
    this.verdict.hidden = this.button.hidden = this.table.hidden = true;
    this.die.style.setProperty("--fell", odds?.die ?? 0);
    this.die.classList.remove("ns-moved");
    this.name();
  }

  async ask(about, shown) {
    const answer = await answerTo(() => shown.ask([shown.run, shown.number, shown.upto]));
    if (!answer) return; // the next look asks again
    this.answers.set(keyOf(shown), answer);
    if (about === this.about) this.tell(answer);
  }

  tell({ words, odds = "", redraw }) {
    const { classList } = this.find(".ns-why");
    if (!classList.contains("ns-stale")) return;
    classList.remove("ns-stale");
    this.find(".inspector-why").replaceChildren(...words.sentences.map((pieces) => linked("p", pieces)));
    const details = words.details.map(([name, value]) => make("div", "", linked("dt", name), make("dd", "", value)));
    this.find(".inspector-details").replaceChildren(...details);
    const likely = this.find("#distributions");
    likely.hidden = !odds; // a run saved as a file has none
    likely.innerHTML = odds; // escaped on the server
    this.deal(redraw ?? {});
  }

  // The bins of the position, or why there are none.
  deal({ bins, why = "" }) {
    this.obstacle.textContent = why;
    this.obstacle.hidden = !why;
    this.button.hidden = !bins;
    if (!bins) return;
    this.bins = bins;
    this.rolled = 0;
    this.counts = rollMany(bins, 0, this.random);
    this.table.tBodies[0].replaceChildren(...bins.map(([text, p]) => make( // the one without a text is all other tokens
      "tr", "",
      make("th", { scope: "row", class: text ? "ns-theirs" : "ns-roll-other" }, text || "other"),
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
    this.rolls.textContent = `${whole(rolled)} new draws at this position: ${whole(kept)} draft tokens accepted, ` +
      `${whole(rolled - kept)} rejected and resampled (exact α here: ${two(alpha)}). The drafter proposed “${text}” ` +
      `${whole(drafted)} times, and ${whole(own)} of these were accepted (min(1, p/q) = ${number(Math.min(1, p / q))}). ` +
      "The output follows the target's p.";
  }
}

const points = (share) => `${(100 * share).toFixed(1)}%`;

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

// Many draws over bins of [text, p, q, Σ min(p, q)], of a draft token from q, then u, then a resampled token if rejected: how
// often each bin was drafted, accepted and resampled.
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

