// A dialog: what each strategy would have accepted of the run's draft tokens. A button below the chart of accepted lengths
// opens it.

import { modal } from "./dom.js";

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
  dialog.addEventListener("change", ({ target }) => body.classList.toggle("ns-only-parting", target.checked));
  document.addEventListener("click", ({ target }) => { if (target.closest?.("[data-others]")) open(); });
}
