// The button for dark and light; the choice is stored for the next visit.

import { storage } from "./dom.js";

const KEY = "naive-speculate-theme";

export function mount({ element }) {
  const button = element.querySelector(".ns-theme");
  const turn = (dark) => {
    document.body.classList.toggle("dark", dark);
    button.setAttribute("aria-pressed", String(dark));
  };
  button.addEventListener("click", () => {
    const dark = !isDark();
    turn(dark);
    storage(() => localStorage.setItem(KEY, dark ? "dark" : "light")); // without storage, it holds for this visit
  });
  const asked = new URLSearchParams(location.search).has("__theme");
  const chosen = asked ? null : storage(() => localStorage.getItem(KEY));
  turn(chosen ? chosen === "dark" : isDark());
}

const isDark = () => document.body.classList.contains("dark");
