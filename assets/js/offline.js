// A run saved as a file (ui/run/stage.py): the page's stage, fed from the file; it plays by itself.

import { mount as mountGlossary } from "./glossary.js";
import { mount as mountInspector } from "./inspector.js";
import { mount as mountRace } from "./race.js";
import { mount as mountStage } from "./stage.js";

export function begin() {
  document.body.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const { message, words, drawings } = JSON.parse(document.getElementById("run").textContent);
  const nothing = async () => "";
  const server = {
    resync: nothing, trace: nothing, link: nothing,
    speedup: async () => JSON.stringify({ reason: "This run was saved without a measured speedup." }),
    drawing: async ([, step, layout]) => drawings[step]?.[layout === "narrow" ? 1 : 0] ?? "",
    explain: async ([, number]) => (words[number] ? JSON.stringify({ words: words[number] }) : ""),
  };
  const find = (id) => document.getElementById(id);
  mountGlossary({ element: find("glossary") });
  mountInspector({ element: find("why") });
  mountRace({ element: find("stage") });
  mountStage({ element: find("stage"), props: { value: message }, watch() {}, trigger() {}, server });
}
