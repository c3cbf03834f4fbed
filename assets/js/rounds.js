// One row per step: its draft tokens with verdicts, and the time of both models.

import { Scroll, make } from "./dom.js";
import { milliseconds } from "./format.js";
import { chip } from "./tokens.js";

const STEP = 1.2;

export class Rounds extends Scroll {
  rows = new Map();
  seconds = []; // of the steps so far

  clear() {
    this.box.replaceChildren();
    this.rows.clear();
    this.seconds = [];
    this.reset();
  }

  row(step) {
    if (!this.rows.has(step)) {
      const [chips, gain, time] = [make("div", "ns-chips"), make("span", "ns-gain"), make("div", "ns-time")];
      const looks = { class: "ns-round", "data-round": step, role: "group", "aria-label": `Step ${step + 1}` };
      const node = make("div", looks, make("span", "ns-round-no", step + 1), chips, gain, time);
      this.rows.set(step, { node, chips, gain, time, shown: 0 });
      this.box.append(node);
    }
    return this.rows.get(step);
  }

  add(event) {
    const node = chip(event);
    this.row(event.step).chips.append(node);
    return node;
  }

  // A row is visible while at least one of its tokens is.
  count(event, change) {
    const row = this.row(event.step);
    row.shown += change;
    row.node.hidden = row.shown === 0;
  }

  finish({ step, num_draft: drafted = 0, num_accepted: accepted = 0, draft_seconds: draft = 0, verify_seconds: verify = 0 }) {
    const { node, gain, time } = this.row(step);
    if (!time.firstChild) {
      this.rescale(draft + verify);
      const bar = make("span", "ns-bar", make("i", "ns-bar-draft"), make("i", "ns-bar-verify"));
      const parts = [[bar, "--own", draft + verify], [bar.firstChild, "--ms", draft], [bar.lastChild, "--ms", verify]];
      for (const [part, name, seconds] of parts) part.style.setProperty(name, (seconds * 1000).toFixed(3));
      time.append(bar, make("span", "ns-ms", milliseconds(draft + verify)));
      time.title = `draft ${milliseconds(draft)}, verify ${milliseconds(verify)}`;
      gain.textContent = `${accepted}/${drafted}`;
      node.setAttribute("aria-label", `Step ${step + 1}: ${accepted} of ${drafted} draft tokens accepted; ${time.title}`);
    }
    node.classList.add("ns-done");
  }

  // A full bar is twice the median step, so that one slow step does not flatten all others.
  // The first step may include prompt processing, so it does not count unless it is the only one.
  rescale(seconds) {
    this.seconds.push(seconds);
    const counted = this.seconds.slice(this.seconds.length > 1 ? 1 : 0).sort((a, b) => a - b);
    const full = 1000 * Math.min(counted.at(-1), 2 * counted[counted.length >> 1]);
    // It changes in coarse increments, because each change lays out every bar again.
    const longest = full > 0 ? STEP ** Math.ceil(Math.log(full) / Math.log(STEP)) : 1;
    if (longest !== this.longest) this.box.style.setProperty("--longest", longest.toFixed(3));
    this.longest = longest;
  }
}
