// Plays the recorded step that the page opens with (ui/run/opening.py) in a loop, until the visitor touches it, closes it or runs
// something. Then it stops, and disappears once it is out of sight, so that nothing visible moves. Closed, it stays away for this
// visit. All words are in the markup; each scene is a sentence there.

import { storage } from "./dom.js";

const CLOSED = "ns-opening-closed";
const SHOWN = "ns-opening-shown"; // class of the body: on a phone the rest makes room
const [DRAFTED, COMPARED, DRAWN, JUDGED, RESAMPLED] = [1, 2, 3, 4, 5]; // how much of a draft token is shown
const MS = { word: 380, compare: 1900, rule: 1500, fall: 650, verdict: 350, rejected: 2000, resampled: 1900, end: 4500, first: 500 };

export function mount({ element }) {
  const figure = element.querySelector(".ns-opening");
  const query = new URLSearchParams(location.search);
  const elsewhere = figure.dataset.elsewhere.split(" "); // parameters of links that lead to something else
  if (remembered() || elsewhere.some((name) => query.get(name))) return void (figure.hidden = true);
  document.body.classList.add(SHOWN);
  const opening = new Opening(figure);
  const close = () => {
    opening.end();
    if (figure.querySelector(":focus-visible")) document.querySelector("#tokens [tabindex='0']")?.focus({ preventScroll: true });
    figure.hidden = true;
    document.body.classList.remove(SHOWN);
    runs.disconnect();
    remember();
  };
  figure.querySelector(".ns-op-close").addEventListener("click", close);
  // The stage shows another run than the recorded one.
  const runs = new MutationObserver((changes) => {
    if (!changes.some(({ target }) => own(target.dataset.run))) return;
    runs.disconnect();
    remember();
    opening.end();
    new IntersectionObserver(([{ isIntersecting }], gone) => {
      if (isIntersecting) return;
      gone.disconnect();
      if (!figure.hidden) unmoved(close);
    }).observe(figure);
  });
  runs.observe(document.body, { subtree: true, attributes: true, attributeFilter: ["data-run"] });
}

// Changes something above the visible part, which stays in place.
function unmoved(act) {
  const page = document.scrollingElement;
  const held = document.elementFromPoint(innerWidth / 2, innerHeight / 2) ?? page;
  const before = held.getBoundingClientRect().top;
  page.style.overflowAnchor = "none"; // some browsers would correct the position again
  act();
  page.scrollBy({ top: held.getBoundingClientRect().top - before, behavior: "instant" });
  requestAnimationFrame(() => page.style.removeProperty("overflow-anchor"));
}

const remembered = () => storage(() => sessionStorage.getItem(CLOSED)) !== null;
const remember = () => storage(() => sessionStorage.setItem(CLOSED, "1"));
const own = (run) => run && run !== "recorded";

class Opening {
  constructor(figure) {
    this.figure = figure;
    this.drafts = [...figure.querySelectorAll("li")];
    this.button = figure.querySelector(".ns-op-play");
    this.timer = 0;
    this.next = 0;
    this.script = this.write();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return; // the picture shows its end
    this.button.hidden = false;
    this.button.addEventListener("click", () => this.turn(!this.wanted));
    figure.querySelector(".ns-op-picture").addEventListener("pointerdown", () => this.turn(false));
    this.turn(true);
    // Pause while it is out of sight.
    new IntersectionObserver(([{ isIntersecting }]) => { this.seen = isIntersecting; this.go(); }).observe(figure);
  }

  // Actions, each with its duration.
  write() {
    const shown = (draft, much) => () => { draft.dataset.shown = much; };
    const scene = (number) => () => { this.figure.dataset.scene = number; };
    const judged = this.drafts.filter(({ dataset }) => dataset.kind !== "discarded");
    const rejected = judged[judged.length - 1];
    const script = [[() => { for (const draft of this.drafts) draft.dataset.shown = 0; }, 0], [scene(0), MS.first]];
    for (const draft of this.drafts) script.push([shown(draft, DRAFTED), MS.word]);
    script.push([scene(1), 0], [() => { for (const draft of judged) draft.dataset.shown = COMPARED; }, MS.compare], [scene(2), MS.rule]);
    for (const draft of judged) script.push([shown(draft, DRAWN), MS.fall], [shown(draft, JUDGED), draft === rejected ? 0 : MS.verdict]);
    for (const draft of this.drafts) if (!judged.includes(draft)) script.push([shown(draft, JUDGED), 0]);
    script.push([scene(3), MS.rejected], [scene(4), 0], [shown(rejected, RESAMPLED), MS.resampled], [scene(5), MS.end]);
    return script;
  }

  turn(on) {
    this.wanted = on;
    this.go();
  }

  // Stop, and show the end.
  end() {
    this.turn(false);
    this.next = 0;
    delete this.figure.dataset.scene;
    for (const draft of this.drafts) delete draft.dataset.shown;
  }

  go() {
    clearTimeout(this.timer);
    this.button.dataset.going = this.wanted;
    this.button.title = this.wanted ? "Pause" : "Play";
    this.button.setAttribute("aria-label", this.button.title);
    if (this.wanted && this.seen) this.step();
  }

  step() {
    const [act, ms] = this.script[this.next];
    this.next = (this.next + 1) % this.script.length;
    act();
    if (ms) this.timer = setTimeout(() => this.step(), ms); else this.step();
  }
}
