"""llama.cpp's server, from its prebuilt package, until standard input ends:
`python llama_server.py TARGET.gguf [DRAFT.gguf]`. Prints its address."""

import sys

import xllamacpp


def main(target: str, draft: str | None = None) -> None:
    """Serve a model, with a draft model of four tokens per step if one is given."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = target, 1024, 2
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.warmup, params.verbosity, params.fit_params = False, 0, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if draft is not None:
        kinds = xllamacpp.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path, params.speculative.draft.n_max = draft, 4
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
