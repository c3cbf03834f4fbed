// Rooms below the lessons: closed until they are wanted, opened by a link, and named in the address while they are seen.

// The element of a component's room, ready to be filled.
export function room({ element }) {
  const box = element.querySelector(".ns-room");
  const { room: name } = box.dataset;
  const query = () => new URLSearchParams(location.search);
  const address = () => {
    const told = query();
    const here = box.open && box.offsetParent !== null;
    if (here === (told.get("room") === name)) return;
    if (here) told.set("room", name); else told.delete("room");
    history.replaceState(history.state, "", location.pathname + (told.size ? `?${told}` : "") + location.hash);
  };
  // Its arrow keys are its own, not the lessons' above.
  box.addEventListener("keydown", (event) => { if (event.key.startsWith("Arrow")) event.stopPropagation(); });
  box.addEventListener("toggle", (event) => { if (event.target === box) address(); });
  let first = true;
  new ResizeObserver(() => {
    if (box.offsetParent !== null && first && query().get("room") === name) {
      box.open = true;
      box.scrollIntoView();
    }
    if (box.offsetParent !== null) first = false;
    if (!first) address();
  }).observe(box);
  return box;
}
