"""What engines say of themselves, with the version and the file it comes from."""

VLLM_LOG = """\
(APIServer pid=347228) INFO 08-04 20:51:08 [loggers.py:310] Engine 000: Avg prompt throughput: 93.9 tokens/s, Avg generation \
throughput: 13.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%
(APIServer pid=347228) INFO 08-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.49, Accepted \
throughput: 0.12 tokens/s, Drafted throughput: 0.34 tokens/s, Accepted: 92 tokens, Drafted: 259 tokens, Per-position \
acceptance rate: 0.757, 0.622, 0.432, 0.324, 0.189, 0.108, 0.054, Avg Draft acceptance rate: 35.5%
(APIServer pid=347228) INFO 08-04 20:51:18 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation \
throughput: 6.2 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%
"""
"""vLLM 0.2x, vllm/v1/spec_decode/metrics.py at ee4ceaae5953, `SpecDecodingLogging.log`; 37 steps
of 7 drafts (DFlash)."""

VLLM_LOG_WITHOUT_THROUGHPUT = (
    "INFO 06-17 11:02:03 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 58.9%, Mean"
    " acceptance length: 2.77, Accepted: 626 tokens, Drafted: 1062 tokens, Per-position acceptance"
    " rate: 0.802, 0.551, 0.415\n"
)
"""vLLM 0.9, vllm/v1/spec_decode/metrics.py: the fields in another order; the numbers are of a
run of EAGLE-3 with k = 3."""

VLLM_LOG_FIRST = (
    "INFO 04-02 09:00:00 [metrics.py:53] SpecDecoding metrics: Draft acceptance rate: 62.5%,"
    " Accepted: 250 tokens, Drafted: 400 tokens\n"
)
"""vLLM 0.8, vllm/v1/spec_decode/metrics.py as it first was: neither steps nor places."""

VLLM_PROMETHEUS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1000.0
# HELP vllm:spec_decode_num_drafts_created Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.781341706e+09
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3000.0
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="m"} 1.781341706e+09
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1740.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 800.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 560.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 380.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.781341706e+09
"""
"""vLLM, vllm/v1/spec_decode/metrics.py at ee4ceaae5953, `SpecDecodingProm`, as prometheus_client
writes it at GET /metrics."""

LLAMACPP_PROMETHEUS = """\
# HELP llamacpp:spec_decode_num_draft_tokens_total Speculative: Total draft tokens generated
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 2160
# HELP llamacpp:spec_decode_num_accepted_tokens_total Speculative: Total draft tokens accepted by the target model
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total 1640
# HELP llamacpp:spec_decode_num_drafts_total Speculative: Total speculative decoding verification steps
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total 720
# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 640
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 540
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 460
"""
"""llama.cpp of mid-2026, tools/server, `llama-server --metrics`, GET /metrics."""

LLAMACPP_SERVER_LOG = """\
slot print_timing: id  3 | task 0 |
prompt eval time =     648.99 ms /   133 tokens (    4.88 ms per token,   204.94 tokens per second)
       eval time =   30387.12 ms /  2048 tokens (   14.84 ms per token,    67.40 tokens per second)
      total time =   31036.11 ms /  2181 tokens
draft acceptance rate = 0.98260 ( 1186 accepted /  1207 generated)
statistics mtp: #calls(b,g,a) = 1 861 690, #gen drafts = 690, #acc drafts = 690, #gen tokens = 1207, #acc tokens = 1186, \
dur(b,g,a) = 0.006, 3112.317, 0.287 ms
slot      release: id  3 | task 0 | stop processing: n_tokens = 2180, truncated = 0
"""
"""llama.cpp of May 2026: tools/server/server-context.cpp, `print_timings`, and
common/speculative.cpp, `print_stats`."""

LLAMACPP_SERVER_TRACE = """\
slot print_timing: id  0 | task 0 | draft acceptance = 0.61667 (   37 accepted /    60 generated), mean len =  2.85
slot print_timing: id  0 | task 0 |      acc per pos = (0.850, 0.600, 0.400)
"""
"""llama.cpp of mid-2026, tools/server/server-context.cpp, `print_timings` at log level trace."""

LLAMACPP_STATISTICS = (
    "spec common_specu: statistics        draft-mtp: #calls(b,g,a) =    2    200    200, #gen"
    " drafts =    200, #acc drafts =   160, #gen tokens =    600, #acc tokens =   360, #mean acc"
    " len = 2.80, #acc rate/pos = (0.800, 0.600, 0.400), dur(b,g,a) = 0.006, 812.317, 0.287 ms\n"
)
"""llama.cpp, common/speculative.cpp at 001d906a6d86, `common_speculative_print_stats`."""

LLAMACPP_TIMINGS = """\
{"index":0,"content":" there was","tokens":[],"id_slot":0,"stop":true,"tokens_predicted":128,"timings":{"cache_n":0,\
"prompt_n":9,"prompt_ms":33.361,"prompt_per_token_ms":3.7067,"prompt_per_second":269.77,"predicted_n":128,"predicted_ms":940.2,\
"predicted_per_token_ms":7.345,"predicted_per_second":136.14,"draft_n":108,"draft_n_accepted":81}}
"""
"""llama.cpp, tools/server/server-task.cpp at 00efb3e18426, `result_timings::to_json` within POST
/completion's answer."""

LLAMACPP_EXAMPLE = """\
encoded    9 tokens in    0.033 seconds, speed:  269.770 t/s
decoded  128 tokens in    0.940 seconds, speed:  136.140 t/s

n_draft   = 4
n_predict = 128
n_drafted = 192
n_accept  = 80
accept    = 41.667%
"""
"""llama.cpp, examples/speculative-simple/speculative-simple.cpp at 08d0baaca674 (as
examples/speculative/speculative.cpp)."""

SGLANG_META_INFO = """\
{"text": " Paris.", "meta_info": {"id": "5f1c", "finish_reason": {"type": "length", "length": 64}, "prompt_tokens": 6,
 "completion_tokens": 64, "cached_tokens": 0, "spec_accept_rate": 0.525, "spec_accept_length": 3.2,
 "spec_num_correct_drafts": 42, "spec_num_proposed_drafts": 80, "spec_verify_ct": 20, "spec_accepted_drafts": 42,
 "spec_proposed_drafts": 80, "spec_correct_drafts_histogram": [3, 4, 4, 6, 3], "spec_accept_histogram": [3, 4, 4, 6, 3]}}
"""
"""SGLang, tokenizer_manager_components/spec_decoding_meta.py, main in May 2026: the counters'
third names, with the second."""

SGLANG_META_INFO_FIRST = (
    "{'text': ' Paris.', 'meta_info': {'id': '5f1c', 'completion_tokens': 64, 'spec_accept_rate':"
    " 0.525, 'spec_accept_length': 3.2, 'spec_accept_token_num': 42, 'spec_draft_token_num': 80,"
    " 'spec_verify_ct': 20}}\n"
)
"""SGLang 0.5, python/sglang/srt/managers/tokenizer_manager.py, as Python prints what
`Engine.generate` returns."""

SGLANG_LOG = (
    "[2026-09-29 00:00:00 TP0] Decode batch, #running-req: 64, #full token: 5632, full token usage:"
    " 0.12, mamba num: 4, mamba usage: 0.03, accept len: 3.10, accept rate: 0.30, cuda graph: True,"
    " gen throughput (token/s): 95.33, #queue-req: 1\n"
)
"""SGLang 0.5.20, python/sglang/srt/managers/scheduler_metrics_mixin.py (78ac30c2056f)."""

VLLM_REQUEST = """\
{"id": "chatcmpl-7", "object": "chat.completion", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 53},
 "metrics": {"speculative_decoding": {"mean_acceptance_length": 1.2325581395348837, "draft_acceptance_rate": 0.0775193798,
 "acceptance_histogram": [39, 1, 0, 3], "num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129,
 "num_spec_tokens": 3}}}
"""
"""vLLM of 2026: the metrics of a response."""

VLLM_BENCH = """\
============ Serving Benchmark Result ============
Successful requests:                     100
---------------Speculative Decoding---------------
Acceptance rate (%):                     43.33
Acceptance length:                       2.30
Drafts:                                  1000
Draft tokens:                            3000
Accepted tokens:                         1300
Per-position acceptance (%):
  Position 0:                            70.00
  Position 1:                            40.00
  Position 2:                            20.00
==================================================
"""
"""vLLM of 2026, `vllm bench serve`."""

VLLM_EXAMPLE = """\
--------------------------------------------------
total_num_output_tokens: 500
num_drafts: 34
num_draft_tokens: 102
num_accepted_tokens: 39
mean acceptance length: 2.15
--------------------------------------------------
acceptance at token 0: 0.56
acceptance at token 1: 0.44
acceptance at token 2: 0.15
"""
"""vLLM of 2025, examples/offline_inference/spec_decode.py."""

LLAMACPP_SERVER_WORDS = """\
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token)
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean \
acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
"""
"""llama.cpp of June 2026 (llama.cpp#24536): `print_timings` in full words, on one line."""

MLX_VLM_TIMINGS = (
    '{"id": "c1", "timings": {"prompt_n": 9, "prompt_ms": 80.0, "predicted_n": 111, "draft_kind":'
    ' "mtp", "draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}}\n'
)
"""mlx-vlm of August 2026 (mlx-vlm#1788), the server's timings."""

SGLANG_FINISH = (
    "[2025-10-02 23:42:16] Finish: obj=GenerateReqInput(rid='57',"
    " sampling_params={'max_new_tokens': 64, 'stop': '}'}, stream=True), out={'meta_info': {'id':"
    " '57', 'finish_reason': {'type': 'stop'}, 'completion_tokens': 64, 'spec_accept_token_num':"
    " 42, 'spec_draft_token_num': 80, 'spec_verify_ct': 20}}\n"
)
"""SGLang 0.5, `--log-requests`: what Python prints, after another object."""

SGLANG_LOG_BEFORE = (
    "[2026-02-10 09:00:13 TP0] Decode batch, #running-req: 4, #token: 12000, token usage: 0.06,"
    " accept len: 2.50, accept rate: 0.62, cuda graph: True, gen throughput (token/s): 410.00,"
    " #queue-req: 0\n"
)
"""SGLang 0.5.9, scheduler_metrics_mixin.py before sglang#23530: the rate counts the target's own
token."""

LLAMACPP_STEPS = """\
0.01.100.001 I slot print_timing: id  3 | task 0 | prompt processing, n_tokens = 650, progress = 1.00
0.01.100.100 I slot update_slots: id  3 | task 0 | accepted  1/ 4 draft tokens
0.01.100.101 D slot update_slots: id  3 | task 0 | add accepted tokens: sampled=12, ids.size=2, n_draft=4
0.01.100.102 D slot update_slots: id  3 | task 0 | accepted 1/4 draft tokens, new n_tokens = 652
0.01.200.100 I slot update_slots: id  3 | task 0 | accepted  4/ 4 draft tokens
0.01.200.102 D slot update_slots: id  3 | task 0 | add accepted tokens: sampled=12, ids.size=5, n_draft=4
0.01.200.103 D slot update_slots: id  3 | task 0 | accepted 4/4 draft tokens, new n_tokens = 657
0.01.300.100 I slot update_slots: id  3 | task 0 | accepted  0/ 2 draft tokens
0.01.300.101 D slot update_slots: id  3 | task 0 | add accepted tokens: sampled=12, ids.size=1, n_draft=2
0.01.400.103 D slot update_slots: id  3 | task 0 | accepted 0/2 draft tokens, new n_tokens = 658
0.01.500.100 I slot update_slots: id  3 | task 0 | accepted  2/ 3 draft tokens
0.01.500.101 D slot update_slots: id  3 | task 0 | add accepted tokens: sampled=2, ids.size=3, n_draft=3
"""
"""llama.cpp of October 2026 (001d906a6d86), LLAMA_TRACE and debug: one line or three a step, the
last step's third missing."""

SGLANG_GAUGES = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 4.0
# HELP sglang:spec_accept_length Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2.8
sglang:spec_accept_length{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 2.8
# HELP sglang:spec_accept_rate Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).
# TYPE sglang:spec_accept_rate gauge
sglang:spec_accept_rate{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.6
# HELP sglang:spec_num_steps Currently active speculative_num_steps.
# TYPE sglang:spec_num_steps gauge
sglang:spec_num_steps{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 3.0
# TYPE sglang:spec_num_draft_tokens gauge
sglang:spec_num_draft_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 4.0
"""
"""SGLang, python/sglang/srt/observability/metrics_collector.py at 44cedc2b9c7d, GET /metrics
with two tensor-parallel ranks."""

VLLM_REQUEST_DETAILED = """\
{"id": "chatcmpl-9", "choices": [], "category": "code", "usage": {"prompt_tokens": 12, "completion_tokens": 20},
 "metrics": {"time_to_first_token_ms": 85.2, "speculative_decoding": {"mean_acceptance_length": 2.5,
 "draft_acceptance_rate": 0.6, "acceptance_histogram": [2, 3, 0, 3], "acceptance_histogram_by_draft_length":
 {"1": [0, 2], "3": [2, 1, 0, 3]}, "num_spec_steps": 8, "num_accepted_draft_tokens": 12, "num_draft_tokens": 20,
 "num_spec_tokens": 3, "per_step_accepted": [0, 1, 3, 3, 1, 0, 3, 1], "per_step_drafted": [3, 1, 3, 3, 1, 3, 3, 3]}}}
"""
"""vLLM of August 2026 (02cf515f0b62), `--per-request-spec-decode-metrics detailed`; the category
is a benchmark's."""

SGLANG_BENCH = """\
============ Serving Benchmark Result ============
Max request concurrency:                 1
Successful requests:                     10
Accept length:                           2.46
Mean TPOT (ms):                          9.09
==================================================
"""
"""SGLang of 2026, python/sglang/bench_serving.py."""

TRTLLM_PROMETHEUS = """\
# HELP trtllm_num_requests_running Number of active requests
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 2.0
# TYPE trtllm_spec_decode_num_draft_tokens_total counter
trtllm_spec_decode_num_draft_tokens_total{engine_type="trtllm",model_name="m"} 99.0
# TYPE trtllm_spec_decode_num_accepted_tokens_total counter
trtllm_spec_decode_num_accepted_tokens_total{engine_type="trtllm",model_name="m"} 66.0
# TYPE trtllm_spec_decode_drafted_tokens_total counter
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="0"} 30.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="1"} 30.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="2"} 30.0
# TYPE trtllm_spec_decode_accepted_tokens_total counter
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="0"} 27.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="1"} 18.0
# TYPE trtllm_speculative_config_info gauge
trtllm_speculative_config_info{spec_enabled="True",spec_method="MTP",spec_num_tokens="3"} 1.0
"""
"""TensorRT-LLM, tensorrt_llm/metrics/collector.py at 050f80def8df, GET /prometheus/metrics: no
request accepted index 2."""

TRTLLM_ITERATIONS = """\
[{"iter": 7, "iterLatencyMS": 9.1, "numActiveRequests": 2, "specDecodingStats": {"numDraftTokens": 6, "numAcceptedTokens": 3,
  "numRequestsWithDraftTokens": 2, "acceptanceLength": 2.5, "iterLatencyMS": 1.0, "draftOverhead": 0.1}},
 {"iter": 8, "iterLatencyMS": 9.3, "numActiveRequests": 3, "specDecodingStats": {"numDraftTokens": 9, "numAcceptedTokens": 7,
  "numRequestsWithDraftTokens": 3, "acceptanceLength": 3.33, "iterLatencyMS": 1.0, "draftOverhead": 0.1}},
 {"iter": 9, "iterLatencyMS": 4.0, "numActiveRequests": 0, "specDecodingStats": {"numDraftTokens": 0, "numAcceptedTokens": 0,
  "numRequestsWithDraftTokens": 0, "acceptanceLength": 1.0, "iterLatencyMS": 0.0, "draftOverhead": 0.0}}]
"""
"""TensorRT-LLM, GET /metrics with enable_iter_perf_stats: the last iteration was without a
request."""

TRTLLM_REQUESTS = (
    '[{"request_id": 1, "perf_metrics": {"first_iter": 1, "last_iter": 50, "speculative_decoding":'
    ' {"acceptance_rate": 0.57, "total_accepted_draft_tokens": 57, "total_draft_tokens": 100}}}]\n'
)
"""TensorRT-LLM, GET /perf_metrics with return_perf_metrics."""

TRTLLM_BENCH = """\
= DECODING STATISTICS (MTP)
-- Number of Draft Tokens Details --------------------------------
[DT] MINIMUM: 90.00
[DT] AVERAGE: 300.00
-- Number of Accepted Draft Tokens Details --------------------------------
[ADT] MINIMUM: 60.00
[ADT] AVERAGE: 170.00
-- Draft Acceptance Rate Details --------------------------------
[DAR] MINIMUM: 0.41
[DAR] AVERAGE: 0.58
-- Acceptance Length Details --------------------------------
[AL] MINIMUM: 2.20
[AL] AVERAGE: 2.73
[AL] P99    : 3.10
"""
"""TensorRT-LLM, tensorrt_llm/bench/dataclasses/reporting.py at 024997657505, `trtllm-bench
throughput`, shortened."""

LM_STUDIO_LOG = """\
[2026-09-10 00:35:56][INFO][qwen3.8-27b] Generated prediction: {
  "id": "chatcmpl-kn6",
  "choices": [{"index": 0, "message": {"role": "assistant", "content": "{ and"}}],
  "usage": {
    "prompt_tokens": 66,
    "completion_tokens": 300,
    "total_draft_tokens_count": 500,
    "accepted_draft_tokens_count": 176,
    "rejected_draft_tokens_count": 316,
    "ignored_draft_tokens_count": 8
  },
  "stats": {"tokens_per_second": 17.9}
}
"""
"""LM Studio 0.4.24 of September 2026, the server's log; earlier the counts are in `stats`."""

TABBY_LINE = (
    "INFO:     Metrics (ID: 5f1c): 211 tokens generated in 9.3 seconds (Queue: 0.0 s, Process: 0"
    " cached tokens and 20 new tokens at 100 T/s, Generate: 21 T/s, Context: 20 tokens, Draft: 120"
    " / 270 tokens accepted (44.44%))\n"
)
"""tabbyAPI of August 2026, common/gen_logging.py."""

MTP_BENCH = """\
 code_python        pred= 192 draft= 132 acc= 125 rate=0.947 tok/s=80.0
 code_cpp           pred=  58 draft=  40 acc=  37 rate=0.925 tok/s=80.0
"""
"""mtp-bench.py (a gist of llama.cpp#22673, May 2026), which prints the timings of each prompt."""
