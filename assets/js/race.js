// Replays two recorded runs side by side on one clock, at true speed or slower. Rejected tokens are omitted, so that both texts align.

import { make } from "./dom.js";
import { Player } from "./player.js";
import { Flow, OUTPUT } from "./tokens.js";

const STRETCHED = 8; // a faster race is stretched to so many seconds

export function mount({ element, props, watch }) {
  const race = new Race(element.querySelector(".ns-race"));
  const receive = () => props.value && race.receive(JSON.parse(props.value));
  watch("value", receive);
  receive();
}

class Race {
  constructor(root) {
    this.root = root;
    this.now = 0;
    this.lanes = [...root.querySelectorAll(".ns-lane")].map((box) => new Lane(box, () => this.now));
    this.speed = root.querySelector(".ns-race-speed");
    this.speed.addEventListener("change", () => this.change());
    this.again = root.querySelector(".ns-race-again");
    this.again.addEventListener("click", () => {
      if (!this.run) return;
      if (this.root.dataset.state === "running") this.end(); else this.begin();
    });
  }

  receive(run) {
    if (this.run?.serial === run.serial) return;
    this.run = run;
    this.root.hidden = false;
    this.root.dataset.serial = run.serial;
    this.root.querySelector(".ns-race-source").hidden = !run.recorded;
    for (const lane of this.lanes) lane.name(run[lane.side]);
    this.judge(run.recorded); // a visitor's own race shows its verdict at the end
    this.begin();
  }

  begin() {
    cancelAnimationFrame(this.frame);
    this.root.dataset.state = "running";
    this.again.textContent = "Skip to the end";
    this.now = performance.now();
    for (const lane of this.lanes) lane.begin(this.run[lane.side].events, this.run.shared);
    this.change();
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) this.end(); else this.draw(this.now);
  }

  end() {
    cancelAnimationFrame(this.frame);
    for (const { player } of this.lanes) player.end();
    this.draw(this.now);
  }

  change() {
    const longest = Math.max(...this.lanes.map(({ seconds }) => seconds));
    const speed = this.speed.value === "stretched" ? Math.min(1, longest / STRETCHED) : Number(this.speed.value);
    for (const { player } of this.lanes) player.change(speed, false);
    const slower = (1 / speed).toFixed(speed > 0.1 ? 1 : 0);
    this.root.querySelector(".ns-race-pace").textContent = speed < 0.99 ? `slow motion: ${slower} times slower` : "";
  }

  draw(now) {
    this.now = Math.max(this.now, now);
    for (const lane of this.lanes) lane.draw();
    this.root.querySelector(".ns-race-clock").textContent = `${Math.max(...this.lanes.map(({ time }) => time)).toFixed(2)} s`;
    if (this.lanes.some(({ player }) => player.playing)) {
      this.frame = requestAnimationFrame((next) => this.draw(next));
      return;
    }
    this.root.dataset.state = "done";
    this.again.textContent = "Replay";
    this.judge(true);
  }

  judge(shown) {
    const [winner, ...reasons] = shown ? this.run.verdict : [""];
    this.root.querySelector(".ns-verdict").textContent = winner;
    this.root.querySelector(".ns-reasons").replaceChildren(...reasons.map((sentence) => make("p", "", sentence)));
  }
}

class Lane {
  constructor(box, now) {
    this.box = box;
    this.side = box.dataset.lane;
    this.player = new Player(now);
    this.flow = new Flow(box.querySelector(".ns-lane-text"));
  }

  name({ title, note, drafts }) {
    this.box.toggleAttribute("data-drafts", drafts);
    this.box.querySelector("h2 span").textContent = title;
    this.box.querySelector("h2 small").textContent = note;
  }

  begin(events, shared) {
    this.box.dataset.state = "running";
    this.flow.clear();
    this.player.reset();
    this.player.add(events);
    this.player.done = true;
    this.tokens = 0;
    this.shared = shared;
    this.all = events.filter(({ kind }) => OUTPUT.has(kind)).length;
    this.player.play();
  }

  // Duration of the run in seconds.
  get seconds() {
    return this.player.due(this.player.length - 1);
  }

  // Seconds on the clock, which stops at the end of the run.
  get time() {
    return this.player.playing ? this.player.clock : this.seconds;
  }

  draw() {
    const { player } = this;
    const target = player.aim();
    for (; player.cursor < target; player.cursor += 1) {
      const event = player.events[player.cursor];
      if (!OUTPUT.has(event.kind)) continue;
      const node = this.flow.add(event);
      if (this.tokens === this.shared) {
        node.dataset.parts = "";
        node.title = "The two texts differ from here on.";
      }
      this.tokens += 1;
    }
    this.flow.follow();
    if (!player.playing) this.box.dataset.state = "done";
    this.box.querySelector(".ns-track i").style.width = `${(100 * this.tokens) / Math.max(1, this.all)}%`;
    const rate = this.time > 0 ? Math.round(this.tokens / this.time) : 0;
    this.box.querySelector(".ns-lane-numbers").textContent =
      `${this.tokens} tokens · ${player.round(player.cursor)} passes · ${this.time.toFixed(2)} s · ${rate} tokens/s`;
  }
}
