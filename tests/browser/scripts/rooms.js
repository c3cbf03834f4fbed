async (theirs) => {
    const found = new Map(), places = [];
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const until = async (holds) => { while (!holds()) await frame(); };
    const look = (where) => {
        places.push(where);
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const add = (text) => {
          if (/\p{L}{2}/u.test(text) && !found.has(text)) found.set(text, where);
        };
        while (walker.nextNode()) {
          if (!walker.currentNode.parentElement.closest(theirs)) add(walker.currentNode.data);
        }
        for (const name of ["title", "aria-label", "placeholder", "aria-valuetext"]) {
            for (const node of document.querySelectorAll(`[${name}]`)) {
              if (!node.closest(theirs)) add(node.getAttribute(name));
            }
        }
        for (const menu of document.querySelectorAll("[role=listbox]")) add(menu.value);
    };
    look("run");
    for (const tab of document.querySelectorAll("#tabs [role=tablist] [role=tab]")) {
        tab.click();
        await until(() => tab.getAttribute("aria-selected") === "true");
        await frame();
        look(tab.dataset.tabId);
    }
    const [learn, next] = [document.querySelector(".ns-learn"), document.querySelector(".ns-next")];
    for (const lesson of document.querySelectorAll(".ns-course button")) {
        lesson.click();
        await until(() => learn.dataset.lesson === lesson.dataset.lesson);
        for (const dot of document.querySelectorAll(".ns-dots button")) {
            await frame();
            look(`lesson ${learn.dataset.lesson}, step ${learn.dataset.step}`);
            (document.querySelector(".ns-ask:not([hidden]) .ns-choices button") ?? next).click();
        }
    }
    // What has a translation has it already.
    return [places,
      [...found].map(([text, where]) => [text, where, window.translated(text) === text])];
}
