//! The families of metrics: names, kinds, buckets and help texts.
//! Names and buckets are a contract with dashboards: one that changes is a new one.

/// How a family is written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Histogram(&'static [f64]),
    /// A histogram whose buckets are 1, 2, 5, 10, ... up to the longest sequence.
    Tokens,
}

const TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const ITERATION: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const MASKS: &[f64] = &[
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
    0.5, 1.0,
];
const COMPILE: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Every family: name, kind, help. In the order of the page.
pub(super) const FAMILIES: &[(&str, Kind, &str)] = &[
    (
        "vllm:num_requests_running",
        Kind::Gauge,
        "Sequences in the running batch.",
    ),
    (
        "vllm:num_requests_waiting",
        Kind::Gauge,
        "Sequences that wait to run.",
    ),
    (
        "vllm:kv_cache_usage_perc",
        Kind::Gauge,
        "Share of KV blocks in use, 0 to 1; what only the prefix cache holds is free.",
    ),
    (
        "vllm:gpu_cache_usage_perc",
        Kind::Gauge,
        "Older name of vllm:kv_cache_usage_perc.",
    ),
    (
        "vllm:cache_config_info",
        Kind::Gauge,
        "Block size and number of blocks, as labels.",
    ),
    (
        "vllm:engine_healthy",
        Kind::Gauge,
        "1 while the engine runs.",
    ),
    (
        "vllm:num_preemptions_total",
        Kind::Counter,
        "Sequences that lost their blocks and started over.",
    ),
    (
        "vllm:prompt_tokens_total",
        Kind::Counter,
        "Prompt tokens of scheduled requests.",
    ),
    (
        "vllm:generation_tokens_total",
        Kind::Counter,
        "Tokens generated.",
    ),
    (
        "vllm:request_success_total",
        Kind::Counter,
        "Sequences that ended, by reason.",
    ),
    (
        "vllm:prefix_cache_queries_total",
        Kind::Counter,
        "Tokens looked up in the prefix cache, once per sequence.",
    ),
    (
        "vllm:prefix_cache_hits_total",
        Kind::Counter,
        "Of these, tokens found.",
    ),
    (
        "vllm:admission_rejections_total",
        Kind::Counter,
        "Requests refused because too much was waiting.",
    ),
    (
        "vllm:iteration_tokens_total",
        Kind::Histogram(ITERATION),
        "Query tokens of a step.",
    ),
    (
        "vllm:time_to_first_token_seconds",
        Kind::Histogram(TTFT),
        "From arrival to the first token.",
    ),
    (
        "vllm:inter_token_latency_seconds",
        Kind::Histogram(PER_TOKEN),
        "Between two tokens of a sequence.",
    ),
    (
        "vllm:time_per_output_token_seconds",
        Kind::Histogram(PER_TOKEN),
        "Older name of vllm:inter_token_latency_seconds.",
    ),
    (
        "vllm:request_time_per_output_token_seconds",
        Kind::Histogram(PER_TOKEN),
        "Mean time per token after the first, by request.",
    ),
    (
        "vllm:e2e_request_latency_seconds",
        Kind::Histogram(LATENCY),
        "From arrival to the end.",
    ),
    (
        "vllm:request_queue_time_seconds",
        Kind::Histogram(LATENCY),
        "From arrival to the first step.",
    ),
    (
        "vllm:request_prefill_time_seconds",
        Kind::Histogram(LATENCY),
        "From the first step to the first token.",
    ),
    (
        "vllm:request_decode_time_seconds",
        Kind::Histogram(LATENCY),
        "From the first token to the end.",
    ),
    (
        "vllm:request_inference_time_seconds",
        Kind::Histogram(LATENCY),
        "From the first step to the end.",
    ),
    (
        "vllm:request_prompt_tokens",
        Kind::Tokens,
        "Prompt tokens of a request.",
    ),
    (
        "vllm:request_generation_tokens",
        Kind::Tokens,
        "Tokens generated for a request.",
    ),
    (
        "vllm:request_prefill_kv_computed_tokens",
        Kind::Tokens,
        "Prompt tokens that had to be computed.",
    ),
    (
        "vllm:request_params_max_tokens",
        Kind::Tokens,
        "max_tokens of a request.",
    ),
    (
        "vllm:request_max_num_generation_tokens",
        Kind::Tokens,
        "Most tokens that a request may generate.",
    ),
    (
        "vllm:request_params_n",
        Kind::Histogram(CHOICES),
        "Choices of a request.",
    ),
    (
        "lockstep_prefix_cache_blocks",
        Kind::Gauge,
        "Blocks that only the prefix cache holds.",
    ),
    (
        "lockstep_prefix_cache_evicted_blocks_total",
        Kind::Counter,
        "Cached blocks given up for others.",
    ),
    (
        "lockstep_prefix_cache_evicted_rows_total",
        Kind::Counter,
        "Cached rows of recurrent state given up for others.",
    ),
    (
        "lockstep_http_responses_total",
        Kind::Counter,
        "Responses by route and status.",
    ),
    (
        "lockstep_unknown_fields_total",
        Kind::Counter,
        "Fields of requests that were ignored, being unknown.",
    ),
    (
        "lockstep_refused_total",
        Kind::Counter,
        "Requests refused, by error code.",
    ),
    (
        "lockstep_dropped_special_tokens_total",
        Kind::Counter,
        "Control tokens out of place, left out of text.",
    ),
    (
        "lockstep_dropped_calls_total",
        Kind::Counter,
        "Tool calls that the token limit cut off.",
    ),
    (
        "lockstep_request_errors_total",
        Kind::Counter,
        "Sequences that ended with an error, by kind.",
    ),
    (
        "lockstep_slow_readers_total",
        Kind::Counter,
        "Streams cut off because they were read too slowly.",
    ),
    (
        "lockstep_step_failures_total",
        Kind::Counter,
        "Steps that the backend could not compute.",
    ),
    (
        "lockstep_proposal_failures_total",
        Kind::Counter,
        "Times that a model could not be asked for drafts.",
    ),
    (
        "lockstep_capture_records_lost",
        Kind::Gauge,
        "Records missing in captures: they came too fast, or the disk did not take them.",
    ),
    ("lockstep_steps_total", Kind::Counter, "Steps planned."),
    (
        "lockstep_steps_overlapped_total",
        Kind::Counter,
        "Of these, steps that were planned while one ran.",
    ),
    (
        "lockstep_void_parts_total",
        Kind::Counter,
        "Sequences' parts of steps that did not count, since a draft before them was wrong.",
    ),
    (
        "lockstep_clamped_parameters_total",
        Kind::Counter,
        "Sampling parameters moved into the package's range.",
    ),
    (
        "lockstep_mask_fill_seconds",
        Kind::Histogram(MASKS),
        "Time spent on the masks of a step, all threads together.",
    ),
    (
        "lockstep_mask_wait_seconds",
        Kind::Histogram(MASKS),
        "From the end of a forward pass until its masks are filled.",
    ),
    (
        "lockstep_mask_rows_total",
        Kind::Counter,
        "Positions for which a grammar said what is allowed.",
    ),
    (
        "lockstep_mask_rows_left_out_total",
        Kind::Counter,
        "Positions left out after a draft that the grammar forbids.",
    ),
    (
        "lockstep_matcher_rollback_tokens_total",
        Kind::Counter,
        "Drafts that a grammar walked over and took back.",
    ),
    (
        "lockstep_drafts_total",
        Kind::Counter,
        "Drafts that were part of a step, by drafter.",
    ),
    (
        "lockstep_drafts_accepted_total",
        Kind::Counter,
        "Of these, drafts accepted, by drafter.",
    ),
    (
        "lockstep_drafted_requests_total",
        Kind::Counter,
        "Sequences that ended and had drafts, by drafter.",
    ),
    (
        "lockstep_drafted_requests_acceptance_total",
        Kind::Counter,
        "The share of its drafts that each of these accepted, all together, by drafter.",
    ),
    (
        "vllm:spec_decode_num_draft_tokens_total",
        Kind::Counter,
        "Drafts that were part of a step.",
    ),
    (
        "vllm:spec_decode_num_accepted_tokens_total",
        Kind::Counter,
        "Of these, drafts accepted.",
    ),
    (
        "lockstep_constrained_requests_total",
        Kind::Counter,
        "Requests whose answer was held to a grammar, by kind of constraint.",
    ),
    (
        "lockstep_grammar_compile_seconds",
        Kind::Histogram(COMPILE),
        "Time to make a request's grammar, or to find it in the cache.",
    ),
    (
        "lockstep_grammar_cache_hits_total",
        Kind::Counter,
        "Grammars found in the cache of compiled ones.",
    ),
    (
        "lockstep_grammar_cache_misses_total",
        Kind::Counter,
        "Grammars that had to be compiled.",
    ),
    (
        "lockstep_grammar_cache_evictions_total",
        Kind::Counter,
        "Compiled grammars that left the cache for others.",
    ),
    (
        "lockstep_grammar_cache_entries",
        Kind::Gauge,
        "Compiled grammars in the cache.",
    ),
];
