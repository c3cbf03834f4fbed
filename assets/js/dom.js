// Finding, making and changing the page's elements.

export const finder = (root) => (selector) => root.querySelector(selector);

// A text in the page's language, for drawings; what enters the page as text is translated there (see language.js).
export const inLanguage = (text) => window.translated?.(text) ?? text;

export const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// An element with a class, or with attributes by their names, of which those that are undefined are left out. Text from a
// prompt or a model enters the page only through this function: as text, never as markup.
export const make = (tag, attributes, ...contents) => filled(document.createElement(tag), attributes, contents);

export const svg = (tag, attributes, ...contents) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, contents);

export function button(attributes, text, act) {
  const node = make("button", attributes, text);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

function filled(node, attributes = {}, contents) {
  change(node, typeof attributes === "string" ? { class: attributes || undefined } : attributes);
  node.append(...contents);
  return node;
}

export function change(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(name, value);
}

// Whether the reader wants less movement.
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Calls `act` in each frame with the milliseconds since the last one, as long as it returns true.
export function everyFrame(act, last = performance.now()) {
  requestAnimationFrame(() => {
    const now = performance.now();
    if (act(now - last)) everyFrame(act, now);
  });
}

export const lecturing = () => document.body.classList.contains("ns-lecture");

export function onEscape(act) {
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") act(); });
}

const TYPED_INTO = "input, textarea, select, [contenteditable], [role=slider], [role=listbox], .ns-token, .ns-room";

// Keys of the whole page, for elements that do not use them: `acts` by key, as long as `holds`, which is given the event.
export function onKeys(acts, holds) {
  document.addEventListener("keydown", (event) => {
    const { key, target, defaultPrevented, altKey, ctrlKey, metaKey, shiftKey } = event;
    if (!acts[key] || defaultPrevented || altKey || ctrlKey || metaKey || shiftKey || !holds(event)) return;
    if (target.closest?.(TYPED_INTO) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    acts[key]();
  });
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

export const query = () => new URLSearchParams(location.search);

// The page's address with other values in its query; null removes a name.
export function addressWith(values, before = location.search) {
  const changed = new URLSearchParams(before);
  for (const [name, value] of Object.entries(values)) if (value === null) changed.delete(name); else changed.set(name, value);
  return location.pathname + (changed.size ? `?${changed}` : "") + location.hash;
}

export function readdress(values) {
  const address = new URL(addressWith(values), location.href).href;
  if (address !== location.href) history.replaceState(history.state, "", address);
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
  atEnd = true;

  constructor(box) {
    this.box = box;
    box.addEventListener("scroll", () => { this.atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 50; });
  }

  reset() {
    this.atEnd = true;
  }

  follow() {
    if (this.atEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}

// Copies the text, and shows the outcome on the button for a while.
export async function copyBy(button, text, done = "Copied", failed = "Not allowed here") {
  button.dataset.usual ??= button.textContent;
  button.textContent = await copied(text) ? done : failed;
  setTimeout(() => { button.textContent = button.dataset.usual; }, 2000);
}

// Puts a link in the address bar, and copies it.
export function copyLink(button, address) {
  history.replaceState(history.state, "", address);
  copyBy(button, location.href, "Link copied", "It is in the address bar");
}

// Without HTTPS there is no clipboard API; the old command works.
async function copied(text) {
  const written = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (written) return true;
  const box = make("textarea", "", text);
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  return done;
}

// The tooltip of a hovered or focused element: its numbers.
export class Tip {
  constructor(node) {
    this.node = node;
  }

  // Names and values; the first is the heading, in the colour of a token kind.
  show(anchor, lines, kind) {
    this.node.replaceChildren(...lines.map(([name, value], n) => {
      const looks = n ? "ns-tip-row" : { class: "ns-tip-head", "data-kind": kind };
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
