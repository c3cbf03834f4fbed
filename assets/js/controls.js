// Replay bar, and saving or opening a trace.

import { answerTo } from "./connection.js";
import { finder, write } from "./dom.js";
import { nameOf } from "./verdict_words.js";
import { download } from "./downloads.js";

const MAX_TRACE_BYTES = 32 * 1024 * 1024; // as in ui/host/limits.py

export class Controls {
  constructor({ element, trigger, server }, player, wake) {
    Object.assign(this, { element, trigger, server, player, wake, find: finder(element) });
    this.root = element.querySelector(".ns-stage");
    this.slider = this.find(".ns-slider");
    this.clock = this.find(".ns-clock");
    this.toggle = this.find("[data-act='play']");
    for (const button of this.element.querySelectorAll("[data-act]")) {
      button.addEventListener("click", () => this.act(button.dataset.act));
    }
    this.slider.addEventListener("input", () => { player.seek(Number(this.slider.value)); wake(); });
    const speed = this.find(".ns-speed");
    speed.addEventListener("change", () => {
      const [first, second] = speed.value.split(":");
      player.change(Number(second || first), first === "rounds");
      wake();
    });
    this.files();
  }

  act(name) {
    const { player } = this;
    const acts = {
      play: () => (player.going ? player.pause() : player.play()),
      back: () => player.step(-1),
      forward: () => player.step(1),
      start: () => player.seek(1),
      end: () => player.end(),
      save: () => this.save(),
      open: () => this.find(".ns-file").click(),
    };
    acts[name]?.();
    this.wake();
  }

  // The target's own tokens are called by the run's kind.
  name({ num_draft_tokens: k }) {
    this.find(".ns-legend [data-kind='bonus'] span").textContent = nameOf({ kind: "bonus", index: k === 0 ? 0 : 1 });
  }

  draw(live) {
    const { player } = this;
    const label = player.going ? "Pause" : "Play";
    if (this.toggle.title !== label) {
      this.toggle.title = this.toggle.ariaLabel = label;
      this.toggle.dataset.going = String(player.going);
    }
    const { time = 0 } = player.events[player.cursor - 1] ?? {};
    const text = `step ${player.round(player.cursor)} of ${player.ends.length} · ${time.toFixed(2)} s`;
    this.root.dataset.cursor = player.cursor;
    write(this.clock, text);
    if (this.slider.ariaValueText !== text) this.slider.ariaValueText = text;
    this.slider.max = player.length;
    this.slider.value = player.cursor;
    this.find(".ns-badge").textContent = live && !player.done ? "live" : live ? "your run" : "recorded";
  }

  async save() {
    const id = this.root.dataset.run;
    const text = await this.server.trace(id);
    if (!text) return this.trigger("lost", {});
    download("naive-speculate-trace.jsonl", text, "application/jsonl");
  }

  files() {
    const input = this.find(".ns-file");
    input.addEventListener("change", () => { this.open(input.files[0]); input.value = ""; });
    this.root.addEventListener("dragover", (e) => { e.preventDefault(); this.root.classList.add("ns-drop"); });
    this.root.addEventListener("dragleave", (e) => { if (!this.root.contains(e.relatedTarget)) this.root.classList.remove("ns-drop"); });
    this.root.addEventListener("drop", (e) => {
      e.preventDefault();
      this.root.classList.remove("ns-drop");
      if (e.dataTransfer.files.length) this.open(e.dataTransfer.files[0]);
    });
  }

  async open(file) {
    if (!file) return;
    if (file.size > MAX_TRACE_BYTES) return this.trigger("open", {});
    const address = new URL(`./trace?${new URLSearchParams({ name: file.name })}`, document.baseURI);
    const answer = await answerTo(async () => {
      const said = await fetch(address, { method: "POST", body: file });
      return said.ok ? said.json() : { problem: (await said.json()).detail };
    });
    this.trigger("open", answer ?? { problem: "The server does not answer." });
  }
}
