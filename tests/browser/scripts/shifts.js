() => {
    // All layout shifts, and those that no input in the half second before them explains.
    const rest = () => Object.assign(window, { shift: 0, shiftOfAll: 0, moved: [] });
    Object.assign(window, { rest });
    rest();
    const box = ({ top, height }) => `${Math.round(top)}+${Math.round(height)}`;
    const named = ({ node, previousRect: from, currentRect: to }) =>
      `${node?.id || node?.className} ${box(from)}, ${box(to)}`;
    const add = ({ value, hadRecentInput, sources }) => {
        window.shift += hadRecentInput ? 0 : value;
        window.shiftOfAll += value;
        if (value > 0.001) window.moved.push(hadRecentInput, value, ...sources.map(named));
    };
    new PerformanceObserver((list) => list.getEntries().forEach(add))
        .observe({ type: "layout-shift", buffered: true });
}
