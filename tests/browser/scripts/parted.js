async (folder) => {
    const from = (name) => import(new URL(`.${folder}/${name}.js`, document.baseURI));
    const [{ raced }, { Sums }] = await Promise.all(["race", "summary"].map(from));
    const [prompt, settings] =
      ["Once upon a time", { temperature: 0, verify_strategy: "greedy_match" }];
    const sums = (...words) => {
        const run = new Sums();
        run.add({ kind: "started", time: 0, prompt, prompt_texts: [prompt], settings });
        for (const [n, [token_id, text]] of words.entries()) {
            run.add({ kind: "bonus", token_id, text });
            run.add({ kind: "step", figures: { sums: { time: 0.01, tokens: n + 1 } } });
        }
        return run;
    };
    const plain = sums([5, " there was"], [7, " a king"]);
    plain.add({ kind: "finished" });
    raced.tell({
        serial: "parted", done: true, live: true, plain,
        drafts: sums([5, " there was"], [6, " a fox"], [9, " who"], [10, "\n"], [11, " had"],
          [12, " two"]),
    });
}
