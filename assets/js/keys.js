// Keyboard navigation between tokens: one token of a box is in the tab order, and arrow keys move from there.

export function focusToken(box, node) {
  for (const other of box.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
  node.tabIndex = 0;
  node.focus({ preventScroll: false });
}

export function moveByKey(box, event, choose) {
  const current = document.activeElement;
  if (!current || !current.token || !box.contains(current)) return;
  if (event.key === "Enter" || event.key === " ") {
    choose(current);
  } else {
    const next = neighbour(box, current, event.key);
    if (next === undefined) return;
    if (next) focusToken(box, next);
  }
  event.preventDefault();
}

// The token that a key leads to; null at an end, undefined for other keys.
function neighbour(box, current, key) {
  const all = [...box.querySelectorAll(".ns-token")].filter((node) => node.token && node.offsetParent !== null);
  const at = all.indexOf(current);
  const step = Number(current.dataset.step);
  switch (key) {
    case "ArrowRight": return all[at + 1] || null;
    case "ArrowLeft": return all[at - 1] || null;
    case "Home": return all[0] || null;
    case "End": return all[all.length - 1] || null;
    case "ArrowDown": return all.find((node) => Number(node.dataset.step) > step) || null;
    case "ArrowUp": {
      const before = all.filter((node) => Number(node.dataset.step) < step);
      return before.find((node) => node.dataset.step === before.at(-1).dataset.step) || null;
    }
    default: return undefined;
  }
}
