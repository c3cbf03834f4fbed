// The menu of languages; the choice is stored for the next visit.

import { readdress, storage } from "./dom.js";

export function mount({ element }) {
  const menu = element.querySelector("select");
  menu.value = document.documentElement.lang;
  menu.addEventListener("change", () => {
    const stored = storage(() => (localStorage.setItem("naive-speculate-language", menu.value), true));
    readdress((query) => { if (stored) query.delete("lang"); else query.set("lang", menu.value); });
    location.reload(); // translations replace the English texts
  });
}
