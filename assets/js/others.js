// A dialog about the run on the stage: what each strategy would have accepted of the same draft tokens. A button at the chart of kept
// lengths opens it.

import { button } from "./dom.js";

export function mount({ element, server, trigger }) {
  const dialog = element.querySelector("dialog");
  document.body.append(dialog); // nothing of the page's layout may hold it
  const [said, body] = [".ns-others-said", ".ns-others-body"].map((name) => dialog.querySelector(name));
  const open = async () => {
    const run = document.querySelector(".ns-stage").dataset.run;
    body.classList.remove("ns-only-parting"); // the box comes anew, too
    body.replaceChildren();
    said.textContent = "Asking …";
    dialog.showModal();
    const told = await server.others(run);
    if (told === undefined) return void (said.textContent = "The server does not answer; try again.");
    if (!told) {
      dialog.close();
      return void trigger("lost", {});
    }
    body.innerHTML = told; // made and escaped on the server
    said.textContent = body.firstElementChild.textContent; // the one line that is read out
    body.firstElementChild.remove();
  };
  const opener = button("", "Other strategies", open);
  opener.title = "What other strategies would have accepted of the same draft tokens";
  opener.setAttribute("aria-haspopup", "dialog");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("change", ({ target }) => body.classList.toggle("ns-only-parting", target.checked));
  const offer = () => {
    const tools = document.querySelector("#chart-lengths + .ns-pictures");
    if (tools) tools.append(opener); else requestAnimationFrame(offer); // they come with the chart's first figure
  };
  offer();
}
