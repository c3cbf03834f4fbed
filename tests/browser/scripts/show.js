async ([events, places, speedup, unmeasured, live]) => {
    const [{ Player }, { Sums, numbers, said }, { CHARTS }] =
        await Promise.all(["player", "summary", "charts"].map((name) => import(`/${name}.js`)));
    const [player, sums] = [new Player(), new Sums()];
    player.add(events);
    for (const event of events) sums.add(event);
    return places.map((upto) => {
        const shown = { ...sums.at(upto, player.round(upto)), speedup, unmeasured, live };
        const figures = Object.fromEntries(Object.entries(CHARTS)
          .map(([name, chart]) => [name, chart(shown)]));
        const sentence = said(shown).map((part) => part.textContent ?? part).join("");
        return [JSON.parse(JSON.stringify(figures)), numbers(shown), sentence];
    });
}
