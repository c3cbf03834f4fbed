(buttons) => {
    const all = [...document.querySelectorAll(buttons)].filter((button) =>
      button.checkVisibility());
    const looks = (button) =>
      [button, button.parentElement].map(({ tagName, id, className }) => [tagName, id, className]) +
        ["pressed", "checked", "selected", "expanded", "current"].map((state) =>
          button.getAttribute(`aria-${state}`));
    for (const button of document.querySelectorAll("[data-judged=now]")) {
      button.dataset.judged = "before";
    }
    window.judged ??= new Set(); // one button of each look
    for (const button of all) {
      if (judged.size < judged.add(looks(button)).size) button.dataset.judged = "now";
    }
}
