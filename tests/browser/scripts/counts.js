() => {
    const inside = (node) => {
        const { top, bottom, width, height } = node.getBoundingClientRect();
        return width > 1 && height > 1 && top < innerHeight && bottom > 0 &&
          node.checkVisibility({ visibilityProperty: true });
    };
    // What can be pressed, typed into or reached with Tab; the tokens count once, since arrow keys
    // move between them.
    const usable = "button, input, textarea, select, summary, a[href], [tabindex='0']";
    const controls = [...document.querySelectorAll(usable)].filter(inside);
    // The page's own text, without that of prompt and models.
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts = controls.filter((node) => node.type === "number").map((node) => node.value);
    while (walker.nextNode()) {
        const { parentElement: node, data } = walker.currentNode;
        const theirs = node.closest("#tokens, .ns-clean, .ns-own, script, style, .ns-said");
        if (data.trim() && inside(node) && !theirs) texts.push(data);
    }
    const all = texts.join(" ");
    return [controls.length, (all.match(/\p{L}+/gu) ?? []).length,
      (all.match(/\d+(\.\d+)?/g) ?? []).length, all];
}
