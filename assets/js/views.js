// Other views of the page: lecture mode, with large type, a fixed bar and arrow keys; and a part of the page embedded in another page.

import { make, readdress } from "./dom.js";

const KEYS = { ArrowLeft: "back", ArrowRight: "forward", " ": "play", Home: "start", End: "end" };
const OWN_KEYS = "input, textarea, select, [role=tab], [role=listbox], dialog[open] *, .ns-token";
const OPEN = "dialog[open], .ns-card:popover-open, .ns-stage > .ns-tip:not([hidden]), .ns-inspector.ns-open, .ns-settings.ns-open"; // Escape closes it first
const query = new URLSearchParams(location.search);

export function mount({ element, trigger }) {
  if (query.get("embed") === "1") embed();
  // A link to a tab, lesson or room, which may not exist; once the page listens.
  if (["lesson", "room", "tab"].some((name) => query.get(name))) setTimeout(() => trigger("linked", { query: String(query) }));
  const button = element.querySelector(".ns-lecture-button");
  const turn = (on) => {
    document.body.classList.toggle("ns-lecture", on);
    button.setAttribute("aria-pressed", String(on));
    readdress((address) => { if (on) address.set("lecture", "1"); else address.delete("lecture"); });
  };
  button.addEventListener("click", () => {
    turn(button.getAttribute("aria-pressed") !== "true");
    button.blur(); // Space plays from now on
  });
  // Every entry in the browser's history has its own address; lecture mode stays as it is.
  window.addEventListener("popstate", () => turn(document.body.classList.contains("ns-lecture")));
  document.addEventListener("keydown", (event) => {
    if (!document.body.classList.contains("ns-lecture") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    const stage = document.querySelector(".ns-stage");
    const typed = event.key === " " ? `${OWN_KEYS}, button, summary, a` : OWN_KEYS;
    if (!act || event.target.closest?.(typed) || !stage?.getClientRects().length) return;
    event.preventDefault();
    stage.querySelector(`[data-act="${act}"]`).click();
  });
  // Before anything open has been closed by the same key.
  document.addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && document.body.classList.contains("ns-lecture") && !document.querySelector(OPEN)) turn(false);
  }, true);
  if (query.get("lecture") === "1") turn(true);
}

// One run, or one lesson, and a link to the whole page.
function embed() {
  document.body.classList.add("ns-embed");
  const whole = new URL(location.href);
  whole.searchParams.delete("embed");
  document.body.append(Object.assign(make("a", "ns-whole", "Open the whole page"), { href: whole.href, target: "_blank", rel: "noopener" }));
}
