// The button that turns the page dark or light; the choice is remembered for the next visit.

const KEY = "naive-speculate-theme";
const button = element.querySelector(".ns-theme");

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden
  }
}

function turn(dark) {
  document.body.classList.toggle("dark", dark);
  button.setAttribute("aria-pressed", String(dark));
}

button.addEventListener("click", () => {
  const dark = !document.body.classList.contains("dark");
  turn(dark);
  try {
    localStorage.setItem(KEY, dark ? "dark" : "light");
  } catch {
    // then it holds for this visit
  }
});

const asked = new URLSearchParams(location.search).has("__theme");
const chosen = asked ? null : remembered();
turn(chosen ? chosen === "dark" : document.body.classList.contains("dark"));
