// The doctor: sends a pasted log to the server, and shows the words and charts in the answer.

import { copyBy } from "./dom.js";
import { plot } from "./plot.js";
import { NO_ANSWER, Question, reveal, room } from "./room.js";

export function mount(component) {
  const { trigger, props, server, watch } = component;
  const box = room(component);
  const [form, found, status] = ["form", ".ns-findings", ".ns-room-status"].map((selector) => box.querySelector(selector));
  const question = new Question(form.querySelector("[type=submit]"), status);

  const examine = () => {
    question.begin("Reading …");
    trigger("examine", Object.fromEntries(new FormData(form)));
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    examine();
  });
  for (const button of form.querySelectorAll("[data-example]")) {
    button.addEventListener("click", async () => {
      const log = await server.example(button.dataset.example);
      if (!log) return question.end(NO_ANSWER);
      form.elements.log.value = log;
      examine();
    });
  }
  const copy = form.querySelector("[data-act='copy']");
  copy.addEventListener("click", () => copyBy(copy, form.querySelector("pre").textContent));
  watch("value", () => {
    if (!props.value) return;
    const { words, report, charts } = JSON.parse(props.value);
    question.end(words ? "Done: see the results below." : "");
    reveal(found, words, found.querySelector(".ns-findings-words"));
    if (!words) return;
    form.querySelector("pre").textContent = report;
    for (const [name, figure] of Object.entries(charts)) plot(found.querySelector(`[data-chart="${name}"]`), figure);
  });
}
