async ([presets, speedup, moves]) => {
    const { changed, machinesOf, measuredHere, waterfall, advice, question } =
      await import("/waterfall.js");
    const { breakdown, breakEven, checkOf, expectedTokens, gain } = await import("/theory.js");
    const here = measuredHere({ sums: { accepted: 9, judged: 12 }, speedup });
    const all = { ...machinesOf(presets), here };
    const of = (what) =>
      Object.fromEntries(Object.entries(all).map(([name, state]) => [name, what(state)]));
    return {
        figures: of(waterfall),
        advice: of(advice),
        moved: waterfall(
            moves.reduce((state, [name, value]) => changed(state, name, value), all.laptop)),
        grid: [0, 0.3, 0.75, 1].flatMap((alpha) => [1, 4, 9].flatMap((k) =>
          [[0.1, 1], [0.4, 2.5]].map(([c, check]) => [
            expectedTokens(alpha, k), Object.values(breakdown(2.5, k, c, check)),
            breakEven(k, c, check), gain(alpha, k, c, checkOf(k, check, k))]))),
        asked: [all.here, all.laptop].map(question),
        mean: [4, 4.5, 5].map((k) => expectedTokens(0.75, k)),
    };
}
