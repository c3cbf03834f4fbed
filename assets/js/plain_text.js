// The text without rejected and discarded tokens: for screen readers, for the "Clean text" switch, and for the clipboard.

import { write } from "./dom.js";

export class PlainText {
  constructor(root) {
    this.box = root.querySelector(".ns-clean");
    [this.prompt, this.text] = this.box.children;
    const toggle = root.querySelector("[data-act='clean']");
    toggle.addEventListener("click", () => {
      const on = root.classList.toggle("ns-is-clean");
      toggle.ariaChecked = on;
      if (on) this.box.tabIndex = 0; else this.box.removeAttribute("tabindex");
    });
    const copier = root.querySelector("[data-act='copy']");
    copier.addEventListener("click", () => copyBy(copier, this.prompt.textContent + this.text.textContent));
  }

  clear() {
    this.prompt.textContent = this.text.textContent = "";
  }

  // After a chat template the answer starts on a new line.
  draw(text, { prompt, prompt_texts: texts = [] }) {
    const whole = texts.join(""), end = whole.lastIndexOf(prompt) + (prompt?.length ?? 0);
    const templated = whole.includes(prompt) && end < whole.length;
    write(this.prompt, !prompt ? whole : templated ? `${prompt}\n` : prompt);
    write(this.text, text);
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
