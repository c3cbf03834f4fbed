// A text in the page's language, for drawings; what enters the page as text is translated there (see language.js).
export const inLanguage = (text) => window.translated?.(text) ?? text;

// Text from a prompt or a model enters the page only through this function: as text, never as markup.
export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// An element that contains other nodes or texts.
export function hold(tag, className, ...children) {
  const node = make(tag, className);
  node.append(...children);
  return node;
}

export function button(className, text, act) {
  const node = make("button", className, text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// A dialog outside the page's layout, closed by a click outside it or on [data-close].
export function modal(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("click", ({ target }) => { if (target === dialog || target.closest("[data-close]")) dialog.close(); });
  return dialog;
}

export const finder = (root) => (selector) => root.querySelector(selector);

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
