() => {
    Object.assign(window, { shift: 0, moved: [] });
    const box = ({ top, height }) => `${Math.round(top)}+${Math.round(height)}`;
    const named = ({ node, previousRect: from, currentRect: to }) =>
      `${node?.id || node?.className} ${box(from)}, ${box(to)}`;
    const add = ({ value, hadRecentInput, sources }) => {
        window.shift += hadRecentInput ? 0 : value;
        if (!hadRecentInput && value > 0.001) window.moved.push(value, ...sources.map(named));
    };
    new PerformanceObserver((list) => list.getEntries().forEach(add))
        .observe({ type: "layout-shift", buffered: true });
}
