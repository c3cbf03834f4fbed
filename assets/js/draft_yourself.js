// The visitor as the drafter: each word goes to the server with the text so far, which only this page stores.

import { copyBy, finder, make } from "./dom.js";
import { chipText, count, mean, number } from "./format.js";
import { point } from "./inspector.js";
import { Question, room } from "./rooms.js";
import { expectedTokens } from "./theory.js";

const AHEAD = 4; // window for which the expected tokens are shown
const shown = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
const named = (token) => chipText(token).trim() || "␣";
const whole = (text, most) => (/^\d{1,10}$/.test(text ?? "") && Number(text) < most ? Number(text) : null);

export function mount(component) {
  new DraftYourself(component);
}

class DraftYourself {
  constructor(component) {
    this.find = finder(room(component));
    [this.start, this.game, this.form, this.rows, this.end] =
      [".ns-your-start", ".ns-your-game", ".ns-your-word", ".ns-your-words tbody", ".ns-your-end"].map((name) => this.find(name));
    [this.verdict, this.die, this.next] = ["", " .ns-die", " button"].map((part) => this.find(`.ns-your-verdict${part}`));
    this.row = this.rows.firstElementChild; // empty, to be copied
    this.row.hidden = false;
    this.next.addEventListener("click", () => this.take(this.against));
    const [fields, show] = [() => this.draft(), (found) => this.receive(found)];
    this.question = new Question(component, "word", this.form, { said: "The target judges …", fields, show });
    this.most = Number(this.find(".ns-yourself").dataset.words);
    this.link = this.linked();
    this.start.addEventListener("submit", (event) => { event.preventDefault(); this.begin(); });
    const { sure, always } = this.form.elements;
    this.form.addEventListener("input", () => {
      sure.disabled = always.checked;
      this.form.querySelector("output").textContent = `${this.sure}%`;
    });
    this.find("[data-act='again']").addEventListener("click", () => this.leave());
    this.find("[data-act='share']").addEventListener("click", ({ target }) => this.share(target));
  }

  // A link contains the start of the text, the seed, and its author's α.
  linked() {
    const query = new URLSearchParams(location.search);
    if (query.get("room") !== "yourself") return null;
    const field = this.start.elements.text;
    const text = query.get("text")?.slice(0, 600);
    if (text?.trim()) field.value = text;
    const [seed, alpha] = [whole(query.get("dice"), 2 ** 31), Number(query.get("alpha") ?? NaN)];
    const link = { text: field.value, seed, alpha: seed !== null && alpha >= 0 && alpha <= 1 ? alpha : null };
    const note = this.find(".ns-your-linked");
    if (link.alpha !== null) note.textContent = `The sender of this link reached α = ${shown(alpha)}. You get the same start and draws.`;
    const same = () => { note.hidden = link.alpha === null || field.value !== link.text; };
    field.addEventListener("input", same);
    same();
    return link;
  }

  begin() {
    this.beginning = this.start.elements.text.value;
    const link = this.link?.text === this.beginning ? this.link : null; // another start is another game
    this.seed = link?.seed ?? Math.floor(Math.random() * 2 ** 31);
    this.other = link?.alpha ?? null;
    [this.text, this.tokens, this.words] = [this.beginning, [], []];
    this.start.hidden = this.end.hidden = this.find(".ns-your-words").hidden = this.verdict.hidden = true;
    this.game.hidden = this.form.hidden = false;
    this.rows.replaceChildren();
    this.tell();
    this.find(".ns-your-text").replaceChildren(make("span", "", this.beginning));
    this.form.elements.word.focus();
  }

  leave() {
    this.question.end("");
    this.game.hidden = true;
    this.start.hidden = false;
    this.start.elements.text.focus();
  }

  get sure() {
    const { sure, always } = this.form.elements;
    return always.checked ? 100 : Number(sure.value);
  }

  tell() {
    this.question.end(`Word ${this.words.length + 1} of ${this.most}.`);
  }

  draft() {
    this.drafted = { word: this.form.elements.word.value.trim(), sure: this.sure, number: this.words.length };
    return { text: this.text, tokens: this.tokens, seed: this.seed, ...this.drafted };
  }

  receive(found) {
    if (!found.tokens) return void this.tell(); // a toast shows the error
    const word = { ...this.drafted, ...found };
    if (word.sure && word.drafted.trim() !== word.word) this.announce(word); else this.take(word);
  }

  // The draw went against the visitor's word: they read that before they see another one.
  announce(word) {
    this.against = word;
    this.form.hidden = true;
    this.question.end("");
    this.judge(`The draw went against your word “${word.word}”, which had a ${word.sure}% chance. ` +
      "So it is not drafted: the draft model draws another word.");
    this.next.focus();
  }

  // The verdict's words. Without a judgement, a button continues; with one, its `odds` are drawn.
  judge(said, judged = "", odds = null) {
    [this.verdict.children[0].textContent, this.verdict.children[1].textContent] = [said, judged];
    this.verdict.hidden = false;
    this.next.hidden = Boolean(odds);
    this.die.hidden = !odds;
    if (odds) drawDie(this.die, odds);
  }

  take(word) {
    this.form.hidden = false;
    this.words.push(word);
    this.text += word.text;
    this.tokens = word.tokens;
    this.show(word);
    if (this.words.length === this.most) return void this.finish();
    this.tell();
    this.form.elements.word.value = "";
    this.form.elements.word.focus();
  }

  show(word) {
    const story = this.find(".ns-your-text");
    for (const { kind, text } of [...word.drafts, word.next]) {
      const looks = { class: "ns-token", "data-kind": kind, "data-step": this.words.length };
      story.append(make(kind === "rejected" ? "del" : "span", looks, text));
    }
    story.scrollTop = story.scrollHeight;
    const last = word.drafts.at(-1);
    const drafted = word.drafted.trim();
    const yours = drafted === word.word ? `Your word was used (${word.sure}% chance), or the draft model had the same: “${drafted}”.`
      : `Your word was not used: the draft model drew “${drafted}”.`;
    const judged = `“${named(last)}” is ${last.kind}`;
    const sum = `p/q = ${number(last.p)} ÷ ${number(last.q)}${last.p > last.q ? ", more than 1" : ` = ${number(last.keep)}`}`;
    const after = `${word.next.kind === "resampled" ? "Resampled" : "The target adds"}: “${named(word.next)}”.`;
    this.judge(yours, `${judged}: ${sum}, and the draw was ${number(last.u)}. ${after}`, last);
    const fate = word.drafts.map((draft) => `${named(draft)} ${draft.kind}`).join(", ");
    const cells = [word.word, `${word.sure}%`, drafted, fate, shown(word.alpha), shown(word.draft_alpha)];
    const row = this.row.cloneNode(true);
    cells.forEach((cell, n) => { row.cells[n].textContent = cell; });
    this.rows.append(row);
    this.find(".ns-your-words").hidden = false;
  }

  finish() {
    this.form.hidden = true;
    this.question.end(`All ${this.most} words are judged.`);
    const known = this.words.filter(({ alpha, draft_alpha }) => alpha != null && draft_alpha != null);
    const [alpha, theirs] = [mean(known.map((word) => word.alpha)), mean(known.map((word) => word.draft_alpha))];
    const kept = this.words.filter(({ drafts }) => drafts[0].kind === "accepted").length;
    this.alpha = alpha;
    const bars = [["You", alpha], ["The draft model, at the same positions", theirs], ["The sender of the link", this.other]];
    const list = make("dl", "ns-your-bars", ...bars.filter(([, value]) => value !== null).flatMap(([name, value]) =>
      [make("dt", "", name), make("dd", { style: `--share: ${value.toFixed(4)}` }, shown(value))]));
    const luck = `Of your ${count(this.words.length, "first draft token")}, ${kept} were accepted; α predicts ${(alpha * this.words.length).toFixed(1)}.`;
    const verdict = Math.abs(alpha - theirs) < 0.005 ? "You drafted as well as the draft model."
      : alpha > theirs ? "You drafted better than the draft model." : "The draft model drafted better than you.";
    const batch = `With ${AHEAD} draft tokens per step, your α would give ${expectedTokens(alpha, AHEAD).toFixed(2)} tokens per target pass, ` +
      `the draft model's ${expectedTokens(theirs, AHEAD).toFixed(2)}, and plain decoding 1, if you wrote as fast as the draft model.`;
    const doubt = this.words.some(({ sure }) => sure === 0) ? "" : " If you are unsure, say so: at 0% the draft model drafts alone.";
    const meaning = `α is Σ min(p, q) at the first token of each word, over the whole vocabulary.${doubt}`;
    this.end.replaceChildren(make("h3", "", verdict), list, make("p", "", `${luck} ${batch}`), make("p", "", meaning));
    this.end.hidden = false;
    this.end.focus({ preventScroll: true });
    this.end.scrollIntoView({ block: "nearest" });
  }

  async share(button) {
    const query = new URLSearchParams({ room: "yourself", text: this.beginning, dice: this.seed });
    if (this.words.length === this.most) query.set("alpha", shown(this.alpha));
    const address = `${location.origin}${location.pathname}?${query}`;
    const done = await copyBy(button, address, "Link copied", "It is in the address bar");
    if (!done) history.replaceState(history.state, "", address);
    button.dataset.link = address;
  }
}

// The inspector's bar: green up to the acceptance probability, the draw as a needle.
function drawDie(bar, { keep, u }) {
  const part = finder(bar);
  bar.style.setProperty("--keep", keep);
  point(bar, u);
  part(".ns-die-keep").textContent = keep > 0.12 ? "✓ accept" : "";
  part(".ns-die-refuse").textContent = keep < 0.88 ? "✗ reject" : "";
  part(".ns-die-bar").ariaLabel = `Accepted with probability ${number(keep)}. The draw u was ${number(u)}.`;
}
