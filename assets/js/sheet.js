// On a phone this button opens the settings as a sheet. Run folds them away, and brings the run to the top.

import { onEscape } from "./dom.js";

export function mount({ element }) {
  const button = element.querySelector("button");
  const sheet = document.querySelector(".ns-settings");
  const turn = (on) => {
    sheet.classList.toggle("ns-open", on);
    button.ariaExpanded = on;
    button.textContent = on ? "Close settings" : "Settings";
  };
  button.addEventListener("click", () => turn(!sheet.classList.contains("ns-open")));
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#run, .ns-example")) return;
    turn(false);
    if (button.checkVisibility()) document.querySelector(".ns-show").scrollIntoView();
  });
  onEscape(() => turn(false));
}
