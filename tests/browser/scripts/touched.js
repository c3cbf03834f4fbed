() => {
    window.touched = new Set();
    new MutationObserver((changes) => {
        for (const { target } of changes) {
            const node = target instanceof Element ? target : target.parentElement;
            const paragraph = node.closest(".ns-paragraph");
            if (paragraph) window.touched.add(
              [...document.querySelectorAll("#tokens .ns-paragraph")].indexOf(paragraph));
        }
    }).observe(document.querySelector("#tokens"),
      { subtree: true, childList: true, attributes: true, characterData: true });
}
