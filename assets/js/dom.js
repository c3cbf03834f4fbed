// Text from a prompt or a model enters the page through this function only, as text, never as markup.
export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A box that shows its end while it grows, until the reader scrolls away from there.
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
