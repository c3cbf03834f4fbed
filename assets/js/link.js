// A link that restores a view: the run, its settings to repeat it, a digest of its tokens, the position of playback, and the
// inspected token. The settings come from the server (ui/run/settings.py).

import { copyBy } from "./dom.js";
import { count } from "./format.js";
import { OUTPUT } from "./tokens.js";

const VIEW = ["run", "round", "at", "token", "digest"];

// The number of a run's tokens and a hash of their ids (FNV-1a, 32 bits), to detect a different rerun.
function digest(events, most = Infinity) {
  const ids = events.filter(({ kind }) => OUTPUT.has(kind)).slice(0, most).map(({ token_id: id }) => `${id} `);
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(ids.join(""))) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return `${ids.length}-${hash.toString(16).padStart(8, "0")}`;
}

// The view in the page's address; null if it names no run.
function asked(search) {
  const query = new URLSearchParams(search);
  if (!query.get("run")) return null;
  const whole = (name) => (/^\d{1,7}$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null);
  const digest = /^\d{1,7}-[0-9a-f]{8}$/.test(query.get("digest") ?? "") ? query.get("digest") : "";
  return { run: query.get("run"), round: whole("round"), at: whole("at"), token: whole("token"), digest };
}

export class Link {
  constructor(stage) {
    this.stage = stage;
    this.wanted = asked(location.search);
    this.note = stage.find(".ns-link-note");
    this.button = stage.find("[data-act='link']");
    this.button.addEventListener("click", () => this.copy());
    const query = location.search.slice(1);
    if (query) setTimeout(() => stage.trigger("linked", { query })); // its settings, once the page listens
  }

  // A run starts on the stage: the linked one, if there is a link and this is that run.
  begin(run) {
    const first = this.run === undefined;
    this.run = run;
    this.tell("");
    if (!this.wanted) return;
    this.here = !first || this.wanted.run === run;
    this.rerun = this.wanted.run !== run;
    if (this.here) return;
    this.tell("Opening the linked run…");
    // Once the page listens.
    setTimeout(() => this.stage.trigger("follow", { run: this.wanted.run, query: location.search.slice(1) }));
  }

  // More events arrived: go to the linked position once it exists, and check at the end whether this is the linked run.
  arrive() {
    const { wanted, stage: { player } } = this;
    if (!wanted || !this.here) return;
    const place = wanted.at ?? (wanted.round === null ? null : wanted.round === 0 ? 1 : player.ends[wanted.round - 1]);
    if (place !== null && !this.there && (place <= player.length || player.done)) {
      this.there = true;
      player.seek(place ?? player.length, true); // stay there, even if more events arrive
    }
    if (!player.done) return;
    this.wanted = null;
    const amount = parseInt(wanted.digest, 10);
    if (wanted.token !== null) this.stage.asked = wanted.token; // chosen once playback reaches it
    if (!wanted.digest) return;
    if (digest(player.events, amount) !== wanted.digest) {
      this.tell("These tokens differ from the linked run's: its models, code or machine were different.", true);
    } else if (this.rerun) {
      this.tell(`The linked run: the same ${count(amount, "token")}.`);
    }
  }

  tell(text, alarming = false) {
    this.note.textContent = text;
    this.note.hidden = !text;
    this.note.classList.toggle("ns-warning", alarming);
  }

  // The address of the current view; empty if the server has forgotten the run.
  async address() {
    const { run, player, pinned } = this.stage;
    const settings = await this.stage.server.link(run.id);
    if (!settings) return "";
    const query = new URLSearchParams(settings);
    const round = player.round(player.cursor);
    const view = {
      run: run.id, round, at: player.cursor === (round ? player.ends[round - 1] : 1) ? null : player.cursor,
      token: pinned ? pinned.now : null, digest: digest(player.events),
    };
    for (const name of VIEW) if (view[name] !== null) query.set(name, view[name]);
    for (const name of ["embed", "lecture"]) if (new URLSearchParams(location.search).has(name)) query.set(name, "1");
    return `${location.origin}${location.pathname}?${query}`;
  }

  async copy() {
    const address = await this.address();
    if (!address) return this.stage.trigger("lost", {});
    history.replaceState(null, "", address);
    copyBy(this.button, address, "Link copied", "It is in the address bar");
  }
}
