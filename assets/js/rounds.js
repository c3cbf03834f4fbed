// One row per step: its draft tokens with verdicts, and the time of both models.

import { Scroll, hold, make } from "./dom.js";
import { milliseconds } from "./format.js";
import { chipText, mark } from "./tokens.js";

const STEP = 1.2;

export class Rounds extends Scroll {
  rows = new Map();
  seconds = []; // of the steps so far, sorted

  clear() {
    this.box.replaceChildren();
    this.rows.clear();
    this.reset();
    this.seconds = [];
  }

  row(step) {
    let row = this.rows.get(step);
    if (!row) {
      const [chips, gain, time] = [make("div", "ns-chips"), make("span", "ns-gain"), make("div", "ns-time")];
      const node = hold("div", "ns-round", make("span", "ns-round-no", String(step + 1)), chips, gain, time);
      row = { node, chips, gain, time, shown: 0 };
      node.dataset.round = step;
      node.setAttribute("role", "group");
      node.setAttribute("aria-label", `Step ${step + 1}`);
      this.rows.set(step, row);
      this.box.append(node);
    }
    return row;
  }

  add(event) {
    const row = this.row(event.step);
    const chip = make("span", "ns-token ns-chip", chipText(event));
    mark(chip, event);
    row.chips.append(chip);
    return chip;
  }

  // A row is visible while at least one of its tokens is.
  count(event, change) {
    const row = this.row(event.step);
    row.shown += change;
    row.node.hidden = row.shown === 0;
  }

  finish(event) {
    const row = this.row(event.step);
    const draft = event.draft_seconds || 0;
    const verify = event.verify_seconds || 0;
    if (!row.time.firstChild) {
      this.rescale(draft + verify, event.step);
      const bar = make("span", "ns-bar");
      const parts = [make("i", "ns-bar-draft"), make("i", "ns-bar-verify")];
      parts[0].style.setProperty("--ms", (draft * 1000).toFixed(3));
      parts[1].style.setProperty("--ms", (verify * 1000).toFixed(3));
      bar.style.setProperty("--own", ((draft + verify) * 1000).toFixed(3));
      bar.append(...parts);
      row.time.append(bar, make("span", "ns-ms", milliseconds(draft + verify)));
      row.time.title = `draft ${milliseconds(draft)}, verify ${milliseconds(verify)}`;
      const kept = event.num_accepted || 0;
      row.gain.textContent = `${kept}/${event.num_draft || 0}`;
      row.node.setAttribute("aria-label", `Step ${event.step + 1}: ${kept} of ${event.num_draft || 0} draft tokens accepted; ${row.time.title}`);
    }
    row.node.classList.add("ns-done");
  }

  // A full bar is twice the median step, so that one slow step does not flatten all others.
  // The first step may include prompt processing, so it does not count unless it is the only one.
  rescale(seconds, step) {
    if (step === 0 && this.seconds.length) return;
    if (step === 1) this.seconds = [];
    let place = this.seconds.length;
    while (place > 0 && this.seconds[place - 1] > seconds) place--;
    this.seconds.splice(place, 0, seconds);
    const usual = this.seconds[this.seconds.length >> 1];
    const full = 1000 * Math.min(this.seconds[this.seconds.length - 1], 2 * usual);
    // It changes in coarse increments, because each change lays out every bar again.
    const longest = full > 0 ? STEP ** Math.ceil(Math.log(full) / Math.log(STEP)) : 1;
    if (longest !== this.longest) this.box.style.setProperty("--longest", longest.toFixed(3));
    this.longest = longest;
  }
}
