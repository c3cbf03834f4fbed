// Replays two recorded runs side by side, both on one clock that runs at their true speed or slower.

import { make } from "./dom.js";
import { Player } from "./player.js";
import { Flow, OUTPUT } from "./tokens.js";

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
    root.querySelector(".ns-race-again").addEventListener("click", () => this.run && this.begin());
  }

  receive(run) {
    if (this.run?.serial === run.serial) return;
    this.run = run;
    this.root.hidden = false;
    this.begin();
  }

  begin() {
    cancelAnimationFrame(this.frame);
    this.root.dataset.state = "running";
    this.root.querySelector(".ns-verdict").replaceChildren();
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.now = performance.now();
    for (const lane of this.lanes) lane.begin(this.run[lane.name], still);
    this.change();
    this.draw(this.now);
  }

  change() {
    for (const { player } of this.lanes) player.change(Number(this.speed.value), false);
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
    this.root.querySelector(".ns-verdict").replaceChildren(...this.run.verdict.map((sentence) => make("p", "", sentence)));
  }
}

class Lane {
  constructor(box, now) {
    this.box = box;
    this.name = box.dataset.lane;
    this.player = new Player(now);
    this.flow = new Flow(box.querySelector(".ns-lane-text"));
  }

  begin(events, still) {
    this.box.dataset.state = "running";
    this.flow.clear();
    this.player.reset();
    this.player.add(events);
    this.player.done = true;
    this.tokens = 0;
    this.all = events.filter(({ kind }) => OUTPUT.has(kind)).length;
    if (still) this.player.end(); else this.player.play();
  }

  // Seconds on the clock, which stops at the run's end.
  get time() {
    const { player } = this;
    return player.playing ? player.clock : player.due(player.length - 1);
  }

  draw() {
    const { player } = this;
    const target = player.aim();
    for (; player.cursor < target; player.cursor += 1) {
      const event = player.events[player.cursor];
      this.tokens += OUTPUT.has(event.kind);
      if (event.text !== undefined) this.flow.add(event);
    }
    this.flow.follow();
    if (!player.playing) this.box.dataset.state = "done";
    this.box.querySelector(".ns-track i").style.width = `${(100 * this.tokens) / Math.max(1, this.all)}%`;
    const rate = this.time > 0 ? Math.round(this.tokens / this.time) : 0;
    this.box.querySelector(".ns-lane-numbers").textContent =
      `${this.tokens} tokens · ${player.round(player.cursor)} passes · ${this.time.toFixed(2)} s · ${rate} tokens/s`;
  }
}
