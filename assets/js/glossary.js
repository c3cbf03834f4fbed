// The glossary: a card with the meaning of a hovered, focused or tapped term, and a dialog with all terms, which a click opens.

import { make, placeNear } from "./dom.js";

const LINKS = "a[href^='#term-']";
const CROSSING_MS = 200; // the pointer may cross the gap between a term and its card
const entryOf = (link) => document.getElementById(link.getAttribute("href").slice(1));

export function mount({ element }) {
  const dialog = element.querySelector("dialog");
  document.body.append(dialog); // out of the page's layout
  const card = new Card();
  dialog.addEventListener("close", () => card.hide()); // the focus returns to its term
  const open = (term) => {
    if (!dialog.open) dialog.showModal();
    if (!term) return void (dialog.scrollTop = 0);
    term.scrollIntoView({ block: "center" });
    term.focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(`${LINKS}, [data-glossary]`);
    if (!card.node.contains(event.target)) card.hide();
    if (!link) return;
    event.preventDefault();
    event.stopPropagation();
    if (link.dataset.glossary !== undefined) open();
    else if (matchMedia("(hover: none)").matches) card.show(link);
    else open(entryOf(link));
  }, true);
}

class Card {
  constructor() {
    // A popover is above everything, open dialogs included.
    this.node = make("div", { class: "ns-card", id: "term-card", role: "tooltip", popover: "manual" });
    document.body.append(this.node);
    this.gone = new MutationObserver(() => this.place());
    const on = (name, act) => document.addEventListener(name, act, { capture: true, passive: name === "scroll" });
    on("pointerover", ({ target, pointerType }) => {
      if (pointerType === "touch") return; // a tap clicks
      const link = target.closest?.(LINKS);
      if (link) return this.show(link);
      clearTimeout(this.timer);
      const left = this.link && this.link !== document.activeElement && !this.node.contains(target);
      if (left) this.timer = setTimeout(() => this.hide(), CROSSING_MS);
    });
    on("focusin", ({ target }) => { if (target.matches(`:is(${LINKS}):focus-visible`)) this.show(target); else this.hide(); });
    on("focusout", ({ target }) => { if (target === this.link) this.hide(); });
    on("scroll", () => this.place());
    on("keydown", (event) => {
      if (event.key !== "Escape" || !this.link) return;
      event.preventDefault();
      event.stopImmediatePropagation(); // lecture mode and dialogs stay
      this.hide();
    });
  }

  show(link) {
    clearTimeout(this.timer);
    if (link === this.link) return;
    this.hide();
    const [name, meaning] = entryOf(link).children;
    this.node.replaceChildren(make("b", "", name.textContent), make("p", "", meaning.firstChild.textContent));
    this.link = link;
    link.setAttribute("aria-describedby", this.node.id);
    this.gone.observe(document.body, { childList: true, subtree: true });
    this.node.showPopover();
    this.place();
  }

  // Near its term, as long as that is on the screen.
  place() {
    if (!this.link) return;
    const { bottom, top } = this.link.getBoundingClientRect(); // both are 0 once it is gone
    if (bottom <= 0 || top > window.innerHeight) this.hide(); else placeNear(this.node, this.link);
  }

  hide() {
    clearTimeout(this.timer);
    this.link?.removeAttribute("aria-describedby");
    this.link = null;
    this.gone.disconnect();
    this.node.hidePopover();
  }
}
