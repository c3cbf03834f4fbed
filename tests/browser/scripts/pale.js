([buttons, least, large, leastLarge]) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const known = new Map();
    const rgba = (color) => known.get(color) ?? known.set(color, read(color)).get(color);
    const read = (color) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((c, n) => c * a + below[n] * (1 - a));
    const lines = (node) => (node ? [...lines(node.parentElement), node] : []);
    const linear = (c) =>
      (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    // The ground and the text as they are painted: `opacity` mixes all of an element with what lies
    // below it.
    const painted = (node, chain) => {
        let ground = [255, 255, 255];
        let opacity = 1, below = ground;
        for (const one of chain) {
            const style = getComputedStyle(one);
            if (style.opacity !== "1") {
              below = opacity === 1 ? ground : below;
              opacity *= Number(style.opacity);
            }
            ground = over(rgba(style.backgroundColor), ground);
        }
        const text = over(rgba(getComputedStyle(node).color), ground);
        return [ground, text].map((color) =>
          over([...color, opacity], opacity === 1 ? color : below));
    };
    const found = [];
    for (const button of document.querySelectorAll(buttons)) {
        for (const node of [button, ...button.querySelectorAll("*")]) {
            const texts = [...node.childNodes].filter(({ nodeType }) => nodeType === 3);
            const said = texts.map(({ data }) => data.trim()).join("").slice(0, 40);
            const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
            if (!said || !seen || !node.getClientRects().length) continue;
            const [ground, text] = painted(node, lines(node)).map(luminance);
            const contrast = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
            const size = parseFloat(getComputedStyle(node).fontSize);
            if (contrast >= (size >= large ? leastLarge : least)) continue;
            found.push(`${said}: ${contrast.toFixed(2)} in ${button.className}`);
        }
    }
    return [...new Set(found)];
}
