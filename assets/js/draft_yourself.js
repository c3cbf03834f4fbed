// The visitor as the drafter: each word goes to the server with the text so far, which only this page stores.

import { addressWith, copyLink, make, query } from "./dom.js";
import { copyAsText } from "./tokens.js";
import { chipText, count, mean, number } from "./format.js";
import { drawVerdict } from "./inspector.js";
import { Room, lookAt } from "./rooms.js";
import { expectedTokens } from "./theory.js";

const AHEAD = 4; // window for which the expected tokens are shown
const MOST_SEED = 2 ** 31;
const shown = (value) => value?.toFixed(2) ?? "–";
const named = (token) => chipText(token).trim() || "␣";

export function mount(component) {
  new DraftYourself(component);
}

class DraftYourself {
  constructor(component) {
    const [fields, show] = [() => this.draft(), (found) => this.receive(found)];
    this.room = new Room(component, "word", { said: "The target judges …", form: ".ns-your-word", fields, show });
    Object.assign(this, { find: this.room.find, form: this.room.form });
    [this.start, this.game, this.verdict, this.rows, this.end] =
      [".ns-your-start", ".ns-your-game", ".ns-your-verdict", ".ns-your-words tbody", ".ns-your-end"].map(this.find);
    [this.said, this.judged, this.die, this.next] = this.verdict.children;
    this.row = this.rows.firstElementChild; // empty, to be copied
    this.next.addEventListener("click", () => this.take(this.against));
    this.most = Number(this.find(".ns-yourself").dataset.words);
    this.link = this.linked();
    this.start.addEventListener("submit", (event) => { event.preventDefault(); this.begin(); });
    const { sure, always } = this.form.elements;
    this.form.addEventListener("input", () => {
      sure.disabled = always.checked;
      if (always.checked) sure.value = 100;
      this.form.querySelector("output").textContent = `${sure.value}%`;
    });
    copyAsText(this.find(".ns-your-text"));
    this.find("[data-act='again']").addEventListener("click", () => this.leave());
    this.find("[data-act='share']").addEventListener("click", ({ target }) => this.share(target));
  }

  // A link contains the start of the text, the seed, and its author's α.
  linked() {
    const [asked, field, note] = [query(), this.start.elements.text, this.find(".ns-your-linked")];
    field.value = asked.get("text") || field.value;
    const text = field.value;
    const [seed, alpha] = ["dice", "alpha"].map((name) => Number(asked.get(name) ?? NaN));
    if (!(Number.isInteger(seed) && seed >= 0 && seed < MOST_SEED)) return { text };
    if (!(alpha >= 0 && alpha <= 1)) return { text, seed };
    note.textContent = `The sender of this link reached α = ${shown(alpha)}. You get the same start and draws.`;
    const same = () => { note.hidden = field.value !== text; };
    field.addEventListener("input", same);
    same();
    return { text, seed, alpha };
  }

  begin() {
    this.beginning = this.text = this.start.elements.text.value;
    const { seed, alpha } = this.link.text === this.beginning ? this.link : {}; // another start is another game
    this.seed = seed ?? Math.floor(Math.random() * MOST_SEED);
    this.other = alpha;
    [this.tokens, this.words] = [[], []];
    this.game.hidden = false;
    for (const old of [this.rows, this.said, this.end]) old.replaceChildren(); // hidden while empty
    this.find(".ns-your-text").replaceChildren(make("span", "", this.beginning));
    this.go();
  }

  leave() {
    this.room.end("");
    this.game.hidden = true;
    this.start.elements.text.focus();
  }

  // The next word.
  go() {
    this.tell();
    this.form.elements.word.value = "";
    this.form.elements.word.focus();
  }

  tell() {
    this.room.end(`Word ${this.words.length + 1} of ${this.most}.`);
  }

  draft() {
    const { word, sure } = this.form.elements;
    this.drafted = { word: word.value.trim(), sure: Number(sure.value), number: this.words.length };
    return { text: this.text, tokens: this.tokens, seed: this.seed, ...this.drafted };
  }

  receive(found) {
    if (!found.tokens) return void this.tell(); // a toast shows the error
    const word = { ...this.drafted, ...found };
    if (!word.sure || word.drafted.trim() === word.word) return this.take(word);
    // The draw went against the visitor's word: they read that before they see another one.
    this.against = word;
    this.judge(`The draw went against your word “${word.word}”, which had a ${word.sure}% chance. ` +
      "So it is not drafted: the draft model draws another word.");
    this.next.focus();
  }

  // The verdict's words. Without a judgement, a button continues; with one, its `odds` are drawn.
  judge(said, judged = "", odds = null) {
    [this.said.textContent, this.judged.textContent] = [said, judged];
    if (odds) drawVerdict(this.die, { keep: odds.keep, name: number(odds.keep), die: odds.u });
  }

  take(word) {
    this.words.push(word);
    this.text += word.text;
    this.tokens = word.tokens;
    this.show(word);
    if (this.words.length === this.most) this.finish(); else this.go();
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
    const yours = drafted === word.word
      ? `Your word was used (${word.sure}% chance), or the draft model had the same: “${drafted}”.`
      : `Your word was not used: the draft model drew “${drafted}”.`;
    const parts = `p/q = ${number(last.p)} ÷ ${number(last.q)}`, more = last.p > last.q;
    let ratio = more ? `${parts}, more than 1` : `${parts} = ${number(last.keep)}`;
    if (parts.includes("under")) ratio = more ? "p/q is more than 1" : `p/q = ${number(last.keep)}`; // no numbers to divide
    const after = `${word.next.kind === "resampled" ? "Resampled" : "The target adds"}: “${named(word.next)}”.`;
    this.judge(yours, `“${named(last)}” is ${last.kind}: ${ratio}, and the draw was ${number(last.u)}. ${after}`, last);
    const fate = word.drafts.map((draft) => `${named(draft)} ${draft.kind}`).join(", ");
    const row = this.row.cloneNode(true);
    const cells = [word.word, `${word.sure}%`, drafted, fate, shown(word.alpha), shown(word.draft_alpha)];
    for (const [n, cell] of cells.entries()) row.cells[n].textContent = cell;
    this.rows.append(row);
  }

  finish() {
    this.room.end(`All ${this.most} words are judged.`);
    const known = this.words.filter(({ alpha, draft_alpha }) => alpha != null && draft_alpha != null);
    const [alpha, theirs] = ["alpha", "draft_alpha"].map((name) => mean(known.map((word) => word[name])));
    const kept = this.words.filter(({ drafts }) => drafts[0].kind === "accepted").length;
    this.alpha = alpha;
    const bars = [["You", alpha], ["The draft model, at the same positions", theirs], ["The sender of the link", this.other]];
    const list = make("dl", "ns-your-bars", ...bars.filter(([, value]) => value !== undefined).flatMap(([name, value]) =>
      [make("dt", "", name), make("dd", { style: `--share: ${value.toFixed(4)}` }, shown(value))]));
    const luck = `Of your ${count(this.words.length, "first draft token")}, ${kept} were accepted; ` +
      `α predicts ${(alpha * this.words.length).toFixed(1)}.`;
    const verdict = Math.abs(alpha - theirs) < 0.005 ? "You drafted as well as the draft model."
      : alpha > theirs ? "You drafted better than the draft model." : "The draft model drafted better than you.";
    const [pace, theirPace] = [alpha, theirs].map((share) => expectedTokens(share, AHEAD).toFixed(2));
    const batch = `With ${AHEAD} draft tokens per step, your α would give ${pace} tokens per target pass, ` +
      `the draft model's ${theirPace}, and plain decoding 1, if you wrote as fast as the draft model.`;
    const unsure = this.words.some(({ sure }) => sure === 0) ? "" : " If you are unsure, say so: at 0% the draft model drafts alone.";
    const meaning = `α is Σ min(p, q) at the first token of each word, over the whole vocabulary.${unsure}`;
    this.end.replaceChildren(make("h3", "", verdict), list, make("p", "", `${luck} ${batch}`), make("p", "", meaning));
    lookAt(this.end);
  }

  share(button) {
    const alpha = this.words.length === this.most ? shown(this.alpha) : null;
    copyLink(button, addressWith({ room: "yourself", text: this.beginning, dice: this.seed, alpha }, ""));
  }
}
