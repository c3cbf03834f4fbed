// Plays the round that the page opens with (ui/run/opening.py), again and again, until the visitor touches it, closes it or runs
// something: then it stands still, and goes once it is out of sight, so that nothing moves under the visitor's eyes. Closed, it
// stays away for this visit. All words are in the markup; a scene is a sentence there.

import { storage } from "./dom.js";

const CLOSED = "ns-opening-closed";
const SHOWN = "ns-opening-shown"; // of the body: on a phone the rest makes room
const [GUESSED, COMPARED, THROWN, JUDGED, REPLACED] = [1, 2, 3, 4, 5]; // how much of a guess is shown
const MS = { word: 380, compare: 1900, rule: 1500, fall: 650, verdict: 350, refused: 2000, replaced: 1900, end: 4500, first: 500 };

export function mount({ element }) {
  const figure = element.querySelector(".ns-opening");
  const query = new URLSearchParams(location.search);
  const elsewhere = figure.dataset.elsewhere.split(" "); // in a link that leads to something else
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
  // Another run on the stage than the recorded one.
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

// Does something above what is on the screen, which stays where it is.
function unmoved(act) {
  const page = document.scrollingElement;
  const held = document.elementFromPoint(innerWidth / 2, innerHeight / 2) ?? page;
  const before = held.getBoundingClientRect().top;
  page.style.overflowAnchor = "none"; // some browsers would do the same once more
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
    this.guesses = [...figure.querySelectorAll("li")];
    this.button = figure.querySelector(".ns-op-play");
    this.timer = 0;
    this.next = 0;
    this.script = this.write();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return; // the picture stands as it ends
    this.button.hidden = false;
    this.button.addEventListener("click", () => this.turn(!this.wanted));
    figure.querySelector(".ns-op-picture").addEventListener("pointerdown", () => this.turn(false));
    this.turn(true);
    // Nothing moves where nobody sees it.
    new IntersectionObserver(([{ isIntersecting }]) => { this.seen = isIntersecting; this.go(); }).observe(figure);
  }

  // What is done, and for how long it is looked at.
  write() {
    const shown = (guess, much) => () => { guess.dataset.shown = much; };
    const scene = (number) => () => { this.figure.dataset.scene = number; };
    const judged = this.guesses.filter(({ dataset }) => dataset.kind !== "discarded");
    const refused = judged[judged.length - 1];
    const script = [[() => { for (const guess of this.guesses) guess.dataset.shown = 0; }, 0], [scene(0), MS.first]];
    for (const guess of this.guesses) script.push([shown(guess, GUESSED), MS.word]);
    script.push([scene(1), 0], [() => { for (const guess of judged) guess.dataset.shown = COMPARED; }, MS.compare], [scene(2), MS.rule]);
    for (const guess of judged) script.push([shown(guess, THROWN), MS.fall], [shown(guess, JUDGED), guess === refused ? 0 : MS.verdict]);
    for (const guess of this.guesses) if (!judged.includes(guess)) script.push([shown(guess, JUDGED), 0]);
    script.push([scene(3), MS.refused], [scene(4), 0], [shown(refused, REPLACED), MS.replaced], [scene(5), MS.end]);
    return script;
  }

  turn(on) {
    this.wanted = on;
    this.go();
  }

  // The picture stands as it ends.
  end() {
    this.turn(false);
    this.next = 0;
    delete this.figure.dataset.scene;
    for (const guess of this.guesses) delete guess.dataset.shown;
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
