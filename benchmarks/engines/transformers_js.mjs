// transformers.js's part of its adapter: an `Ask` per line in, an `Answer` per line out.
import readline from "node:readline";
import {AutoModelForCausalLM, env, random, Tensor} from "@huggingface/transformers";

Object.assign(env, {allowRemoteModels: false, localModelPath: process.argv[2]});
const [target, draft] = await Promise.all(["target", "draft"].map(
    (name) => AutoModelForCausalLM.from_pretrained(name, {dtype: "fp32"})));
const ways = {
    "plain": {},
    "draft model": {assistant_model: draft, num_assistant_tokens: 3},
    "prompt lookup": {prompt_lookup_num_tokens: 3}
};
let passes = 0;
const forward = target.forward.bind(target);
target.forward = (inputs) => (passes++, forward(inputs));

async function answer(ask) {
    const {forbidden, min_p, min_tokens, no_repeat_ngram_size} = ask.options;
    const wide = (ids) => new Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
    random.seed(ask.seed);
    passes = 0;
    const output = await target.generate({
        input_ids: wide(ask.prompt), attention_mask: wide(ask.prompt.map(() => 1)),
        max_new_tokens: ask.max_tokens, eos_token_id: 0, pad_token_id: 0,
        do_sample: ask.temperature > 0, temperature: ask.temperature || 1, top_k: 0,
        top_p: ask.top_p, repetition_penalty: ask.repetition_penalty,
        ...(forbidden ? {bad_words_ids: forbidden.map((token) => [token])} : {}),
        ...(min_p ? {min_p} : {}), ...(min_tokens ? {min_new_tokens: min_tokens} : {}),
        ...(no_repeat_ngram_size ? {no_repeat_ngram_size} : {}), ...ways[ask.way]
    });
    return {token_ids: Array.from(output.data, Number).slice(ask.prompt.length), passes};
}

for await (const line of readline.createInterface({input: process.stdin}))
    console.log(JSON.stringify(await answer(JSON.parse(line))));
process.exit(0);
