// A dialog: what each strategy would have accepted of the run's draft tokens. A button below the chart of accepted lengths
// opens it.

export function mount({ element, server, trigger }) {
  const dialog = element.querySelector("dialog");
  document.body.append(dialog); // out of the page's layout
  const [said, body] = [".ns-others-said", ".ns-others-body"].map((name) => dialog.querySelector(name));
  const open = async () => {
    const run = document.querySelector(".ns-stage").dataset.run;
    body.replaceChildren();
    said.textContent = "Loading …";
    dialog.showModal();
    const told = await server.compare(run);
    if (told === undefined) return void (said.textContent = "The server does not answer. Try again.");
    if (!told) {
      dialog.close();
      return void trigger("lost", {});
    }
    body.innerHTML = told; // escaped on the server
    said.textContent = body.firstElementChild.textContent; // the line that screen readers announce
    body.firstElementChild.remove();
  };
  document.addEventListener("click", ({ target }) => { if (target.closest?.("[data-others]")) open(); });
}
