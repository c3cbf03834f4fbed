// A link that restores a view: the run, its settings to repeat it, a digest of its tokens, the position of playback, and the
// inspected token. The settings come from the server (ui/run/settings.py).

import { addressWith, copyLink, query } from "./dom.js";
import { count } from "./format.js";
import { OUTPUT } from "./tokens.js";

// The number of a run's tokens and a hash of their ids (FNV-1a, 32 bits), to detect a different rerun.
function digest(events, most = Infinity) {
  const ids = events.filter(({ kind }) => OUTPUT.has(kind)).slice(0, most).map(({ token_id: id }) => `${id} `);
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(ids.join(""))) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return `${ids.length}-${hash.toString(16).padStart(8, "0")}`;
}

// The view in the page's address; null if it names no run.
function asked() {
  const [run, round, at, token, digest] = ["run", "round", "at", "token", "digest"].map((name) => query().get(name));
  const whole = (text) => (/^\d{1,7}$/.test(text) ? Number(text) : null);
  const known = /^\d{1,7}-[0-9a-f]{8}$/.test(digest) ? digest : "";
  return run && { run, round: whole(round), at: whole(at), token: whole(token), digest: known };
}

export class Link {
  constructor(stage) {
    this.stage = stage;
    this.wanted = asked();
    this.note = stage.find(".ns-link-note");
    this.button = stage.find("[data-act='link']");
    this.button.addEventListener("click", () => this.copy());
    if (query().size) this.follow("linked"); // for its settings
  }

  // Once the page listens.
  follow(event, more) {
    const asked = { query: location.search.slice(1), ...more };
    setTimeout(() => this.stage.trigger(event, asked));
  }

  // A run starts on the stage: the linked one, if there is a link and this is that run.
  begin(run) {
    const first = this.run === undefined;
    this.run = run;
    this.tell("");
    if (!this.wanted) return;
    this.rerun = this.wanted.run !== run;
    this.here = !first || !this.rerun;
    if (this.here) return;
    this.tell("Opening the linked run…");
    this.follow("follow", { run: this.wanted.run });
  }

  // More events arrived: go to the linked position once it exists, and check at the end whether this is the linked run.
  arrive() {
    const { wanted, stage: { controls, player } } = this;
    if (!wanted || !this.here) return;
    const place = wanted.at ?? (wanted.round === null ? null : wanted.round === 0 ? 1 : player.ends[wanted.round - 1]);
    if (place !== null && !this.there && (place <= player.length || player.done)) {
      this.there = true;
      controls.seek(place ?? player.length, true); // stay there, even if more events arrive
    }
    if (!player.done) return;
    this.wanted = null;
    if (wanted.token !== null) this.stage.asked = wanted.token; // chosen once playback reaches it
    if (!wanted.digest) return;
    const amount = parseInt(wanted.digest, 10);
    const same = digest(player.events, amount) === wanted.digest;
    if (!same) this.tell("These tokens differ from the linked run's: its models, code or machine were different.", true);
    else if (this.rerun) this.tell(`The linked run: the same ${count(amount, "token")}.`);
  }

  tell(text, alarming = false) {
    this.note.textContent = text;
    this.note.classList.toggle("ns-warning", alarming);
  }

  // Copies the address of the current view, unless the server has forgotten the run.
  async copy() {
    const { run, player, pinned } = this.stage;
    const settings = await this.stage.server.link(run.id);
    if (!settings) return this.stage.trigger("lost", {});
    const round = player.round(player.cursor);
    const view = {
      run: run.id, round, at: player.cursor === (round ? player.ends[round - 1] : 1) ? null : player.cursor,
      token: pinned && pinned.now, digest: digest(player.events),
      embed: query().get("embed"), lecture: query().get("lecture"),
    };
    copyLink(this.button, addressWith(view, settings));
  }
}
