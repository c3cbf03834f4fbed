// The glossary: a dialog that opens at the term of a clicked link.

export function mount({ element }) {
  const dialog = element.querySelector("dialog");
  document.body.append(dialog); // outside the page's layout
  const open = (term) => {
    for (const node of dialog.querySelectorAll(".ns-meant")) node.classList.remove("ns-meant");
    if (!dialog.open) dialog.showModal();
    if (!term) return void (dialog.scrollTop = 0);
    term.classList.add("ns-meant");
    term.scrollIntoView({ block: "center" });
    term.focus({ preventScroll: true });
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#term-'], [data-glossary]");
    if (link) {
      event.preventDefault();
      event.stopPropagation();
      open(link.dataset.glossary === undefined && document.getElementById(link.getAttribute("href").slice(1)));
    } else if (event.target === dialog || event.target.closest?.("[data-close]")?.closest("dialog") === dialog) {
      dialog.close();
    }
  }, true);
}
