// Other ways to look at the page: lecture mode, with large type, a fixed bar and arrow keys, and a part of the page embedded
// in a page of somebody else's.

const KEYS = { ArrowLeft: "back", ArrowRight: "forward", " ": "play", Home: "start", End: "end" };
const OWN_KEYS = "input, textarea, select, [role=tab], [role=listbox], dialog[open] *, .ns-token";
const query = new URLSearchParams(location.search);

export function mount({ element, trigger }) {
  if (query.get("embed") === "1") embed();
  // A link into the Learn tab; not before the page listens.
  if (query.get("lesson") || query.get("room")) setTimeout(() => trigger("learn", { query: String(query) }));
  const button = element.querySelector(".ns-lecture-button");
  const turn = (on) => {
    document.body.classList.toggle("ns-lecture", on);
    button.setAttribute("aria-pressed", String(on));
    const address = new URL(location.href);
    if (on) address.searchParams.set("lecture", "1"); else address.searchParams.delete("lecture");
    if (address.href !== location.href) history.replaceState(null, "", address);
  };
  button.addEventListener("click", () => turn(button.getAttribute("aria-pressed") !== "true"));
  document.addEventListener("keydown", (event) => {
    if (!document.body.classList.contains("ns-lecture") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return turn(false);
    const act = KEYS[event.key];
    const stage = document.querySelector(".ns-stage");
    const typed = event.key === " " ? `${OWN_KEYS}, button, summary, a` : OWN_KEYS;
    if (!act || event.target.closest?.(typed) || !stage?.getClientRects().length) return;
    event.preventDefault();
    stage.querySelector(`[data-act="${act}"]`).click();
  });
  if (query.get("lecture") === "1") turn(true);
}

// One run, or one lesson, and a link to the whole page.
function embed() {
  document.body.classList.add("ns-embed");
  const whole = new URL(location.href);
  whole.searchParams.delete("embed");
  const link = document.createElement("a");
  Object.assign(link, { className: "ns-whole", href: whole.href, target: "_blank", rel: "noopener", textContent: "Open the whole page" });
  document.body.append(link);
}
