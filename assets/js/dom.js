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

// Passes values from one component to others. Those that are mounted later get the last value.
export class Channel {
  followers = [];

  tell(value) {
    this.last = value;
    for (const follower of this.followers) follower(value);
  }

  follow(follower) {
    this.followers.push(follower);
    if (this.last !== undefined) follower(this.last);
  }
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

const usual = new WeakMap(); // labels of the copy buttons

// Copies the text, and shows the outcome on the button for a while.
export async function copyBy(button, text, done = "Copied", failed = "Not allowed here") {
  if (!usual.has(button)) usual.set(button, button.textContent);
  const could = await copied(text);
  button.textContent = could ? done : failed;
  setTimeout(() => { button.textContent = usual.get(button); }, 2000);
  return could;
}

// Without HTTPS there is no clipboard API; the old command works.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = document.createElement("textarea");
    box.value = text;
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}

// The tooltip of a hovered or focused element: its numbers.
export class Tip {
  constructor(node) {
    this.node = node;
  }

  // Names and values; the first is the heading, in the colour of a token kind.
  show(anchor, lines, kind) {
    this.node.replaceChildren(...lines.map(([name, value], n) => {
      const looks = n ? { class: "ns-tip-row" } : { class: "ns-tip-head", "data-kind": kind };
      return make("div", looks, make("span", "", name), make("b", "", value));
    }));
    this.node.hidden = false;
    placeNear(this.node, anchor);
  }

  hide() {
    this.node.hidden = true;
  }
}

// Places a box below an element's first line, or above it, within the window.
export function placeNear(node, anchor) {
  const spot = anchor.getClientRects()[0] || anchor.getBoundingClientRect();
  const own = node.getBoundingClientRect();
  const left = Math.max(8, Math.min(spot.left, window.innerWidth - own.width - 8));
  const below = spot.bottom + 8 + own.height < window.innerHeight;
  node.style.left = `${left}px`;
  node.style.top = `${below ? spot.bottom + 8 : Math.max(8, spot.top - own.height - 8)}px`;
}
