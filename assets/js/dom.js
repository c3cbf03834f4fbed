// Finding, making and changing the page's elements.

export const finder = (root) => (selector) => root.querySelector(selector);

// A text in the page's language, for drawings; what enters the page as text is translated there (see language.js).
export const inLanguage = (text) => window.translated?.(text) ?? text;

export const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// An element with a class, or with attributes by their names, of which those that are undefined are left out. Text from a
// prompt or a model enters the page only through this function: as text, never as markup.
export function make(tag, attributes, ...contents) {
  const named = typeof attributes === "string" ? { class: attributes || undefined } : attributes;
  return filled(document.createElement(tag), named, contents);
}

export const svg = (tag, attributes, ...contents) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, contents);

export function button(attributes, text, act) {
  const node = make("button", attributes, text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

function filled(node, attributes = {}, contents) {
  change(node, attributes);
  node.append(...contents);
  return node;
}

export function change(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
}

// A dialog outside the page's layout, closed by a click outside it or on [data-close].
export function modal(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("click", ({ target }) => { if (target === dialog || target.closest("[data-close]")) dialog.close(); });
  return dialog;
}

// Whether the reader wants less movement.
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const lecturing = () => document.body.classList.contains("ns-lecture");

export function onEscape(act) {
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") act(); });
}

// A link that a script opens on this page, unless in another tab.
export function onLink(root, selector, open) {
  root.addEventListener("click", (event) => {
    const link = event.target.closest?.(selector);
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    open(link);
  });
}

// Uses the browser's storage; null if that is forbidden.
export function storage(use) {
  try {
    return use();
  } catch {
    return null;
  }
}

// Changes the query of the page's address.
export function readdress(change) {
  const query = new URLSearchParams(location.search);
  const before = String(query);
  change(query);
  if (String(query) !== before) history.replaceState(history.state, "", location.pathname + (query.size ? `?${query}` : "") + location.hash);
}

// A box that follows its end while it grows, until the reader scrolls away.
export class Scroll {
  constructor(box) {
    this.box = box;
    this.reset();
    box.addEventListener("scroll", () => {
      this.atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 50;
    }, { passive: true });
  }

  reset() {
    this.atEnd = true;
  }

  follow() {
    if (this.atEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}
