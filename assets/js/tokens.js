// The text as it grows: one element a token, appended once and never drawn again. `show` and `unshow` are each other's
// opposites, so that replay moves both ways over the same elements.

class Flow {
  constructor(box) {
    this.box = box;
    this.pinnedToEnd = true;
    box.addEventListener("scroll", () => {
      this.pinnedToEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    }, { passive: true });
  }

  clear() {
    this.box.replaceChildren();
    this.pinnedToEnd = true;
  }

  prompt(event) {
    const ids = event.prompt_token_ids || [];
    const texts = event.prompt_texts || [];
    const pieces = document.createDocumentFragment();
    ids.forEach((id, i) => {
      const node = make("span", "ns-token", texts[i] || "");
      node.dataset.kind = "prompt";
      node.dataset.tokenId = id;
      pieces.append(node);
    });
    if (!ids.length && event.prompt) pieces.append(make("span", "ns-token ns-prompt", event.prompt));
    this.box.append(pieces);
  }

  // A new element for the token of this event.
  add(event) {
    const node = make("span", "ns-token", event.text || "");
    mark(node, event);
    this.box.append(node);
    return node;
  }

  follow() {
    if (this.pinnedToEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}

// What tests, style sheets and the keyboard know a token by.
function mark(node, event) {
  node.dataset.kind = event.kind;
  node.dataset.step = event.step;
  node.dataset.index = event.index;
  node.dataset.tokenId = event.token_id;
  node.tabIndex = -1;
  if (event.text && event.text.includes("\n")) node.dataset.break = "";
  if (event.text && /[ \t]{2}|\t/.test(event.text)) node.dataset.wide = "";
}
