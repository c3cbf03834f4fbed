// A dialog: what each strategy would have accepted of the run's draft tokens. A button below the chart of accepted lengths opens it.

import { button, modal } from "./dom.js";

export function mount({ element, server, trigger }) {
  const dialog = modal(element.querySelector("dialog"));
  const [said, body] = [".ns-others-said", ".ns-others-body"].map((name) => dialog.querySelector(name));
  const open = async () => {
    const run = document.querySelector(".ns-stage").dataset.run;
    body.classList.remove("ns-only-parting"); // the checkbox is new, too
    body.replaceChildren();
    said.textContent = "Loading …";
    dialog.showModal();
    const told = await server.compare(run);
    if (told === undefined) return void (said.textContent = "The server does not answer. Try again.");
    if (!told) {
      dialog.close();
      return void trigger("lost", {});
    }
    body.innerHTML = told; // escaped on the server
    said.textContent = body.firstElementChild.textContent; // the line that screen readers announce
    body.firstElementChild.remove();
  };
  const title = "What other strategies would have accepted of the same draft tokens";
  const opener = button({ title, "aria-haspopup": "dialog" }, "Other strategies", open);
  dialog.addEventListener("change", ({ target }) => body.classList.toggle("ns-only-parting", target.checked));
  const offer = () => {
    const tools = document.querySelector("#chart-lengths + .ns-pictures");
    if (tools) tools.append(opener); else requestAnimationFrame(offer); // it appears with the chart's first figure
  };
  offer();
}
