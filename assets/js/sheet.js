// On a narrow page this button opens the settings as a sheet.

export function mount({ element }) {
  const button = element.querySelector("button");
  const sheet = document.querySelector(".ns-settings");
  const turn = (on) => {
    sheet.classList.toggle("ns-open", on);
    button.setAttribute("aria-expanded", String(on));
    button.textContent = on ? "Close settings" : "Settings";
  };
  button.addEventListener("click", () => turn(!sheet.classList.contains("ns-open")));
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") turn(false); });
}
