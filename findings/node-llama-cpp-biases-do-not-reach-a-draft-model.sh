#!/usr/bin/env bash
# Guess: node-llama-cpp hands the options of evaluate() on to the draft model ("evaluate options default
#   to the values of the target sequence"), so a TokenBias works with a draft model as without one.
# So it is: a TokenBias belongs to the model that it was made for. With a draft model of its own file the
#   draft refuses the target's bias with an error, in a promise that nobody awaits: unless the program
#   listens for unhandled rejections, it ends. With the target as its own draft (one model, two
#   contexts), or with the lookup in the input, the bias works. And a pass keeps one draft token at most:
#   a target that drafts for itself takes 12 passes or more for 24 tokens.
#   The source: dist/evaluator/LlamaContext/LlamaContext.js, getTokenBiasesForAddon (2060) and
#   _speculativeEvaluate (1713, 1853).
# Versions: node-llama-cpp 3.22.1 (its own build of llama.cpp, CPU), Node 20.20.2, gguf 0.19.0, numpy 2.4.6;
#   2026-11-29, x86-64.
# Output seen:
#   without drafts the bias changes the text: true
#   the target as its own draft, no bias: 24 tokens in 21 passes
#   the target as its own draft, the bias: text as without drafts true
#   lookup in the input, the bias: text as without drafts true
#   a draft model, the bias: This TokenBias instance was created with a different model t
#   as described: a draft model refuses the target's bias
# Exit status: 0 as described, 1 changed, 2 the packages cannot be installed.
set -u
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work" || exit 2
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/python -m pip install --quiet --only-binary :all: gguf==0.19.0 numpy==2.4.6 2>/dev/null || exit 2
npm init -y >/dev/null 2>&1 || exit 2
npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional -E \
  node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1 >/dev/null 2>&1 || exit 2
cat > tiny.py <<'PY'
import gguf
import numpy as np

SIZE, WORDS = 32, ["<end>", *"pqrstuvwxyz"]
for name, seed in (("target", 3), ("draft", 4)):
    random, file = np.random.default_rng(seed), gguf.GGUFWriter(f"{name}.gguf", "llama")
    for add, value in (
        (file.add_context_length, 128), (file.add_embedding_length, SIZE), (file.add_block_count, 1),
        (file.add_feed_forward_length, SIZE), (file.add_head_count, 2), (file.add_head_count_kv, 2),
        (file.add_layer_norm_rms_eps, 1e-5), (file.add_rope_dimension_count, SIZE // 2),
        (file.add_vocab_size, len(WORDS)), (file.add_file_type, gguf.LlamaFileType.ALL_F32),
        (file.add_tokenizer_model, "gpt2"), (file.add_tokenizer_pre, "gpt-2"),
        (file.add_token_list, WORDS), (file.add_token_types, [3] + [1] * (len(WORDS) - 1)),
        (file.add_eos_token_id, 0), (file.add_bos_token_id, 0), (file.add_add_bos_token, False),
    ):
        add(value)
    file.add_array("tokenizer.ggml.merges", ["p q"])
    for matrix in ("token_embd", "output"):
        file.add_tensor(f"{matrix}.weight", random.normal(0, 0.3, (len(WORDS), SIZE)).astype("f4"))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        file.add_tensor(f"blk.0.{part}.weight", random.normal(0, 0.3, (SIZE, SIZE)).astype("f4"))
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        file.add_tensor(f"{norm}.weight", np.ones(SIZE, "f4"))
    file.write_header_to_file(), file.write_kv_data_to_file(), file.write_tensors_to_file(), file.close()
PY
venv/bin/python tiny.py || exit 2
cat > bias.mjs <<'JS'
import {
    DraftSequenceTokenPredictor, getLlama, InputLookupTokenPredictor, LlamaLogLevel, TokenBias
} from "node-llama-cpp";

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 1});
const load = (name) => llama.loadModel({modelPath: `${name}.gguf`});
const [target, draft] = [await load("target"), await load("draft")];
const sequence = async (model, options = {}) =>
    (await model.createContext({contextSize: 128, threads: 1})).getSequence(options);
const never = new TokenBias(target.tokenizer).set(5, "never");
const drafting = async (model) => new DraftSequenceTokenPredictor(
    await sequence(model), {minTokens: 3, maxTokens: 3, minConfidence: 0});

async function text(tokenPredictor, options) {
    const own = await sequence(target, tokenPredictor ? {tokenPredictor} : {}), ids = [];
    const refused = new Promise((resolve) => process.once("unhandledRejection", resolve));
    const decode = async () => {
        for await (const token of own.evaluate([1, 2, 1, 2], {temperature: 0, ...options})) {
            ids.push(token);
            if (ids.length === 24) break;
        }
    };
    const error = await Promise.race([decode(), refused]);
    const {validated} = own.tokenPredictions;
    return {ids: ids.join(), passes: 24 - validated, error: error?.message.slice(0, 60)};
}

const plain = await text(), forbidden = await text(undefined, {tokenBias: never});
const itself = await text(await drafting(target)), seen = {
    "the target as its own draft": await text(await drafting(target), {tokenBias: never}),
    "lookup in the input": await text(new InputLookupTokenPredictor(), {tokenBias: never}),
    "a draft model": await text(await drafting(draft), {tokenBias: never})
};
console.log(`without drafts the bias changes the text: ${plain.ids !== forbidden.ids}`);
console.log(`the target as its own draft, no bias: 24 tokens in ${itself.passes} passes`);
for (const [name, own] of Object.entries(seen))
    console.log(`${name}, the bias: ${own.error ?? `text as without drafts ${own.ids === forbidden.ids}`}`);
const works = (name) => !seen[name].error && seen[name].ids === forbidden.ids;
const asDescribed = works("the target as its own draft") && works("lookup in the input")
    && seen["a draft model"].error !== undefined && itself.passes >= 12 && plain.ids === itself.ids;
console.log(asDescribed ? "as described: a draft model refuses the target's bias" : "CHANGED");
process.exit(asDescribed ? 0 : 1);
JS
node bias.mjs
