// The text by itself, without what was tried on the way: for screen readers before the tokens, for eyes when it is switched
// on, and for the clipboard.

export class Clean {
  constructor(root) {
    this.root = root;
    this.box = root.querySelector(".ns-clean");
    [this.prompt, this.text] = this.box.children;
    this.toggle = root.querySelector("[data-act='clean']");
    this.copier = root.querySelector("[data-act='copy']");
    this.toggle.addEventListener("click", () => this.turn(this.toggle.getAttribute("aria-checked") !== "true"));
    this.copier.addEventListener("click", () => this.copy());
  }

  clear() {
    this.prompt.textContent = this.text.textContent = "";
  }

  draw(text, started) {
    const prompt = started.prompt || (started.prompt_texts || []).join("");
    if (this.prompt.textContent !== prompt) this.prompt.textContent = prompt;
    if (this.text.textContent !== text) this.text.textContent = text;
  }

  turn(on) {
    this.toggle.setAttribute("aria-checked", String(on));
    this.root.classList.toggle("ns-is-clean", on);
    if (on) this.box.tabIndex = 0; else this.box.removeAttribute("tabindex");
  }

  async copy() {
    const said = (await copied(this.prompt.textContent + this.text.textContent)) ? "Copied" : "Not allowed here";
    this.copier.textContent = said;
    setTimeout(() => { this.copier.textContent = "Copy text"; }, 2000);
  }
}

// Without an encrypted connection a page has no clipboard of its own, and asks as pages did before.
export async function copied(text) {
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
