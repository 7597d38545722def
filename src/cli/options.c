/* SPDX-License-Identifier: MIT
 * options.c: the option table.
 *
 * Names and meanings are llama.cpp's where the meaning is the same (docs/interfaces.md). What llama.cpp's users type
 * and this version cannot do is in the table too, hidden, and answers with that, instead of being taken for a typing
 * error; a value that asks for what happens anyway (-ngl 0, --repack off) passes. Ranges are those of the types and of
 * llama.cpp; what contradicts a model is the plan's to refuse. */
#include "base/error.h"
#include "cli/option_values.h"
#include "report/bench.h"

#include <string.h>

#define ALL_MODEL (BT_CLI_PLAN | BT_CLI_RUN | BT_CLI_BENCH | BT_CLI_PERPLEXITY | BT_CLI_REPORT)
#define EVERY                                                                                                          \
    (ALL_MODEL | BT_CLI_INSPECT | BT_CLI_DEVICES | BT_CLI_HELP | BT_CLI_VERSION | BT_CLI_WORKER | BT_CLI_EXEC |        \
     BT_CLI_SERVE | BT_CLI_CACHE | BT_CLI_COMPLETION)
#define LOADS            (BT_CLI_RUN | BT_CLI_BENCH | BT_CLI_PERPLEXITY)
#define GENERATES        (BT_CLI_RUN | BT_CLI_BENCH)
#define CTX_MAX          ((double)BT_WISH_CTX_MAX)
#define THREAD_MAX       ((double)BT_WISH_THREADS_MAX)
#define ROPE_MAX         1000.0 /* far above what any model bears; a double of micros stays exact */
#define SLOT_MAX         ((double)BT_WISH_BUFFERS_MAX)
#define IMAGE_TOKENS_MAX 1048576.0 /* 16 times the largest limit of a projector type (youtuvl, 62,500) */
/* llama.cpp's defaults for the samplers (common/common.h). */
#define TEMPERATURE 0.8
#define TOP_K       40
#define TOP_P       0.95
#define MIN_P       0.05
#define MICRO       1e6
/* Those that a KV cache takes (src/plan/choices.c), for completion. */
#define KV_TYPES "f32|f16|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|iq4_nl|auto"

/* ---- the table -------------------------------------------------------------------------------------------------- */

#define OPTION(name_, kind_) .name = (name_), .kind = BT_OPTION_##kind_
#define AT(member)           .offset = offsetof(bt_cli_options, member), .set_offset = SIZE_MAX
#define WISH(member)         AT(wishes.member)
#define GIVEN(member, flag)  .offset = offsetof(bt_cli_options, member), .set_offset = offsetof(bt_cli_options, flag)

const bt_option bt_cli_option_table[] = {
    {OPTION("ram-budget", CUSTOM), WISH(budget_bytes), .parse = bt_cli_parse_budget, .choices = "auto|0", .arg = "SIZE",
     .help = "peak memory of the process that is never passed: 512M, 1.5G; auto takes what is available less a "
             "reserve, 0 sets no budget",
     .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("ram-budget", CUSTOM), GIVEN(wishes.budget_bytes, budget_given), .parse = bt_cli_parse_budget,
     .choices = "auto|0", .arg = "SIZE",
     .help = "hold the command under so much host memory: its model is pinned and streamed by the memory device; auto, "
             "0 as of run",
     .shown_default = "none", .commands = BT_CLI_EXEC, .no_env = true},
    {OPTION("ram-budget", CUSTOM), GIVEN(wishes.budget_bytes, budget_given), .parse = bt_cli_parse_budget,
     .choices = "auto|0", .arg = "SIZE",
     .help = "host memory of the router and all that it starts: models beyond it are unloaded, streamed or refused; "
             "auto and 0: what the host leaves",
     .shown_default = "auto", .commands = BT_CLI_SERVE},
    {OPTION("listen", TEXT), AT(serve_listen), .arg = "HOST:PORT",
     .help = "where clients find the router; port 0: one that is free", .shown_default = "127.0.0.1:8080",
     .commands = BT_CLI_SERVE},
    {OPTION("models-dir", TEXT), AT(models_dir), .arg = "DIR", .help = "every GGUF file below is a model",
     .commands = BT_CLI_SERVE},
    {OPTION("llama-server", TEXT), AT(llama_server), .arg = "FILE",
     .help = "the program that is started for a model file",
     .shown_default = "the one that comes with burthen, else that of PATH", .commands = BT_CLI_SERVE},
    {OPTION("api-key", TEXT), AT(api_key), .arg = "KEY",
     .help = "what clients must show; better in BURTHEN_API_KEY, where other users do not see it",
     .commands = BT_CLI_SERVE},
    {OPTION("insecure", FLAG), AT(insecure), .help = "listen where other machines can reach it, without a key",
     .commands = BT_CLI_SERVE},
    {OPTION("allowed-host", CUSTOM), AT(n_allowed_hosts), .parse = bt_cli_parse_allowed_host, .arg = "HOST",
     .help = "a name that clients may call the router by, as behind a proxy: box.lan, *.example.org, * for any; may be "
             "given more than once",
     .shown_default = "loopback names, addresses and that of --listen", .commands = BT_CLI_SERVE},
    {OPTION("tls-cert-file", TEXT), AT(tls_cert_file), .arg = "FILE", .help = "certificate (PEM), for HTTPS",
     .commands = BT_CLI_SERVE},
    {OPTION("tls-key-file", TEXT), AT(tls_key_file), .arg = "FILE", .help = "its key (PEM)", .commands = BT_CLI_SERVE},
    {OPTION("check-config", FLAG), AT(check_config),
     .help = "say what is understood of the configuration, and start nothing", .commands = BT_CLI_SERVE,
     .no_env = true},
    {OPTION("force", FLAG), WISH(force), .alias = "ram-budget-force",
     .help = "run a refused plan after printing what it costs", .commands = ALL_MODEL},
    {OPTION("listen", TEXT), AT(listen), .arg = "HOST:PORT",
     .help = "where clients find the worker: a name or an IPv4 address of this machine",
     .shown_default = "127.0.0.1:50052", .commands = BT_CLI_WORKER},
    {OPTION("memory", SIZE), GIVEN(worker_memory_bytes, worker_memory_given), .arg = "SIZE",
     .help = "what clients' buffers and computing take at most; must be given", .commands = BT_CLI_WORKER},
    {OPTION("insecure", FLAG), AT(insecure),
     .help = "listen where other machines can reach it; ggml's RPC is neither authenticated nor memory-safe",
     .commands = BT_CLI_WORKER},
    {OPTION("force", FLAG), WISH(force), .help = "offer more memory than this machine leaves",
     .commands = BT_CLI_WORKER},
    {OPTION("ctx-size", U32), WISH(n_ctx), .shorts = "c", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "context in tokens; honoured or refused", .shown_default = "the trained length, at most 4096",
     .commands = ALL_MODEL & ~BT_CLI_BENCH},
    {OPTION("ctx-size", U32), WISH(n_ctx), .shorts = "c", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "context in tokens; honoured or refused", .shown_default = "what the prompt and the tokens after it need",
     .commands = BT_CLI_BENCH},
    {OPTION("allow-ctx-reduction", FLAG), WISH(allow_ctx_reduction), .help = "let --ctx-size shrink to fit the budget",
     .commands = ALL_MODEL},
    {OPTION("parallel", U32), WISH(n_parallel), .shorts = "np", .min = 1, .max = 256, .arg = "N", .help = "sequences",
     .shown_default = "1", .commands = ALL_MODEL}, /* 256: LLAMA_MAX_SEQ */
    {OPTION("batch-size", U32), WISH(n_batch), .shorts = "b", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "tokens handed over at once", .shown_default = "2048", .commands = ALL_MODEL},
    {OPTION("ubatch-size", U32), WISH(n_ubatch), .shorts = "ub", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "tokens computed at once; honoured or refused", .shown_default = "512, less when the budget needs it",
     .commands = ALL_MODEL},
    {OPTION("cache-type-k", CUSTOM), WISH(type_k), .shorts = "ctk", .parse = bt_cli_parse_type_k, .choices = KV_TYPES,
     .arg = "TYPE", .help = "type of the KV cache's keys; auto takes q8_0 when the budget needs it",
     .shown_default = "f16", .commands = ALL_MODEL},
    {OPTION("cache-type-v", CUSTOM), WISH(type_v), .shorts = "ctv", .parse = bt_cli_parse_type_v, .choices = KV_TYPES,
     .arg = "TYPE", .help = "type of the KV cache's values; auto takes q8_0 when the budget needs it",
     .shown_default = "f16", .commands = ALL_MODEL},
    {OPTION("flash-attn", CHOICE), WISH(flash_attn), .shorts = "fa", .choices = "auto|on|off",
     .help = "flash attention", .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("threads", U32), WISH(n_threads), .shorts = "t", .min = 1, .max = THREAD_MAX, .arg = "N",
     .help = "threads that compute", .shown_default = "the cores allowed", .commands = ALL_MODEL | BT_CLI_WORKER},
    {OPTION("buffers", U32), WISH(n_buffers), .min = 1, .max = SLOT_MAX, .arg = "N",
     .help =
         "how many of the largest unit the ring holds that weights stream through; with 1 that unit is not read ahead",
     .shown_default = "2", .commands = ALL_MODEL},
    {OPTION("stream-head", CHOICE), WISH(stream_head), .choices = "auto|on|off",
     .help = "stream the output projection, or keep it in memory", .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("elastic", CHOICE), WISH(elastic), .choices = "auto|on|off",
     .help = "let weights use the memory of the context until the context needs it", .shown_default = "auto",
     .commands = ALL_MODEL},
    {OPTION("gpu-layers", CUSTOM), WISH(n_gpu_layers), .alias = "n-gpu-layers", .shorts = "ngl",
     .parse = bt_cli_parse_gpu_layers, .choices = "auto|all|0", .blank_unsets = true, .arg = "N",
     .help = "blocks on devices, counted from the first one; at all of them what is outside the blocks goes there too "
             "(llama.cpp counts from the last, and the head as one); auto takes as many as fit, all takes all",
     .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("n-cpu-moe", CUSTOM), WISH(n_cpu_moe), .shorts = "ncmoe", .parse = bt_cli_parse_cpu_moe,
     .choices = "auto|all|0", .blank_unsets = true, .arg = "N",
     .help = "of the first N blocks on devices the experts stay on the host; auto: of no more than must",
     .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("device", CUSTOM), WISH(n_devices), .shorts = "dev", .parse = bt_cli_parse_device, .choices = "none",
     .blank_unsets = true, .arg = "NAME[=SIZE]",
     .help = "a device to use, as burthen devices names it, and how much of it: else three quarters of what it has "
             "free; repeatable; none: the host alone",
     .shown_default = "all that there are", .commands = ALL_MODEL | BT_CLI_EXEC | BT_CLI_SERVE},
    {OPTION("require-device", FLAG), WISH(require_device),
     .help = "end with an error where a device cannot hold what it should, instead of going on with the host alone",
     .commands = ALL_MODEL},
    {OPTION("tensor-split", CUSTOM), WISH(n_tensor_splits), .shorts = "ts", .parse = bt_cli_parse_tensor_split,
     .blank_unsets = true, .arg = "N0,N1,...",
     .help = "shares of the devices in the blocks; else each is filled before the next", .commands = ALL_MODEL},
    {OPTION("main-gpu", U32), WISH(main_gpu), .shorts = "mg", .max = BT_DEVICE_MAX - 1, .arg = "N",
     .help = "number of the device that is filled first", .shown_default = "0", .commands = ALL_MODEL},
    {OPTION("rpc", CUSTOM), AT(n_rpc), .parse = bt_cli_parse_rpc, .blank_unsets = true, .arg = "HOST:PORT",
     .help = "a worker (burthen worker, or llama.cpp's rpc-server) whose devices may be used; repeatable",
     .commands = ALL_MODEL | BT_CLI_DEVICES},
    {OPTION("gpu-mem", CUSTOM), WISH(gpu_mem_bytes), .parse = bt_cli_parse_gpu_mem, .blank_unsets = true,
     .commands = ALL_MODEL, .hidden = true},
    {OPTION("dry-run", FLAG), AT(dry_run),
     .help = "print the command as it would be started, an argument a line, and start nothing", .commands = BT_CLI_EXEC,
     .no_env = true},
    {OPTION("target-vram", SIZE), GIVEN(target_vram_bytes, target_vram_given), .arg = "SIZE",
     .help = "what may be used of all devices together, where less than that is free: what is free",
     .shown_default = "what is free", .commands = BT_CLI_EXEC},
    {OPTION("min-gpu-fraction", CUSTOM), AT(min_gpu_fraction), .parse = bt_cli_parse_fraction, .choices = "off",
     .arg = "F", .help = "share of the model that must stay on devices, or the start is refused; off: any",
     .shown_default = "0.5", .commands = BT_CLI_EXEC | BT_CLI_SERVE},
    {OPTION("vision-overhead", SIZE), GIVEN(vision_overhead_bytes, vision_overhead_given), .arg = "SIZE",
     .help = "what encoding a picture takes, instead of what is computed", .commands = BT_CLI_EXEC},
    {OPTION("degrade", FLAG), AT(degrade), .help = "start with however little fits on devices, this once",
     .commands = BT_CLI_EXEC},
    {OPTION("hold", SIZE), GIVEN(hold_bytes, hold_given), .arg = "SIZE",
     .help = "what the command may take of the host: it is decided against that, and started in a cgroup with that "
             "limit where one can be made",
     .shown_default = "what the host has", .commands = BT_CLI_EXEC, .no_env = true},
    {OPTION("no-wait", FLAG), AT(no_wait), .help = "do not wait for memory of a program that has just ended",
     .commands = BT_CLI_EXEC},
    {OPTION("speculate", CUSTOM), WISH(speculate), .parse = bt_cli_parse_speculate, .choices = "off|auto|ngram|draft",
     .arg = "off|auto|GUESS[:K]",
     .help = "guess up to K of 6 tokens and verify them in one pass, with the same text; GUESS is ngram, from what the "
             "context repeats, or draft, by the model of --draft; auto does what it can where weights stream",
     .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("repack", CHOICE), WISH(repack), .choices = "auto|on|off",
     .help = "hold weights that stay in memory in a faster layout: instead of the plain one where that gains "
             "throughout, beside it where the budget has room; auto does so when nothing streams",
     .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("mlock", FLAG), WISH(mlock),
     .help = "lock what is held in memory, as far as RLIMIT_MEMLOCK allows it; says how much it is",
     .commands = ALL_MODEL},
    {OPTION("rope-scaling", CUSTOM), WISH(rope_scaling), .parse = bt_cli_parse_rope_scaling,
     .choices = "none|linear|yarn", .arg = "TYPE",
     .help = "how positions are stretched over a context above the trained one: none, linear or yarn",
     .shown_default = "what the model says", .commands = ALL_MODEL},
    {OPTION("rope-scale", REAL), AT(rope_scale), .min = 0.001, .max = ROPE_MAX, .arg = "X",
     .help = "by how much: the context may be X times the trained one", .shown_default = "what the model says",
     .commands = ALL_MODEL},
    {OPTION("yarn-orig-ctx", U32), WISH(yarn_orig_ctx), .max = CTX_MAX, .arg = "N",
     .help = "context that YaRN starts from", .shown_default = "the trained length", .commands = ALL_MODEL},
    {OPTION("policy", CHOICE), WISH(policy), .choices = "ctx|speed", .help = "what memory goes to first",
     .shown_default = "ctx", .commands = ALL_MODEL},
    {OPTION("io", CHOICE), WISH(io), .choices = "auto|direct|buffered",
     .help = "read past the page cache, or through it", .shown_default = "auto", .commands = ALL_MODEL},
    {OPTION("machine", TEXT), AT(machine_file), .arg = "FILE", .files = "json",
     .help = "take the machine of this machine.json (see devices --json)", .shown_default = "this machine",
     .commands = ALL_MODEL | BT_CLI_DEVICES | BT_CLI_EXEC},
    {OPTION("disk", TEXT), AT(disk_path), .arg = "PATH",
     .help = "measure the disk of this file or folder, and remember it", .commands = BT_CLI_DEVICES},
    {OPTION("plan", TEXT), AT(plan_file), .arg = "FILE", .files = "json",
     .help = "run this plan.json; refused when model, machine or version are not those it was made for",
     .shown_default = "a new plan", .commands = LOADS,
     .no_env = true}, /* BURTHEN_PLAN is the memory device's (plugin.c): what its program starts inherits it */
    {OPTION("exact", FLAG), AT(exact), .help = "price by a dry run instead of by formula",
     .commands = BT_CLI_PLAN | BT_CLI_REPORT},
    {OPTION("draft", TEXT), AT(draft_file), .shorts = "md", .arg = "FILE", .files = "gguf",
     .help = "a small model of the same tokens that guesses what the model will say",
     .commands = BT_CLI_PLAN | BT_CLI_RUN},
    {OPTION("mmproj", TEXT), AT(mmproj_file), .shorts = "mm", .arg = "FILE", .files = "gguf",
     .help = "price a multimodal projector beside the model, at the largest picture", .commands = BT_CLI_PLAN},
    {OPTION("image-max-tokens", U32), AT(n_image_tokens), .min = 1, .max = IMAGE_TOKENS_MAX, .arg = "N",
     .help = "tokens that a picture takes at most, where its size may vary",
     .shown_default = "the projector type's own limit", .commands = BT_CLI_PLAN},

    {OPTION("prompt", TEXT), AT(prompt), .shorts = "p", .arg = "TEXT", .help = "the prompt", .commands = BT_CLI_RUN,
     .no_env = true},
    {OPTION("file", TEXT), AT(prompt_file), .shorts = "f", .arg = "FILE",
     .help = "read the text from a file; - is standard input", .commands = BT_CLI_RUN | BT_CLI_PERPLEXITY,
     .no_env = true},
    {OPTION("n-predict", I32), AT(n_predict), .alias = "predict", .shorts = "n", .min = -1, .max = INT32_MAX,
     .arg = "N", .help = "tokens to generate; -1 goes on to the end of the context", .shown_default = "-1",
     .commands = BT_CLI_RUN},
    {OPTION("temp", REAL), AT(temperature), .alias = "temperature", .min = 0, .max = 100, .arg = "X",
     .help = "temperature; 0 is greedy", .shown_default = "0.8", .commands = BT_CLI_RUN},
    {OPTION("top-k", I32), AT(top_k), .min = 0, .max = INT32_MAX, .arg = "N",
     .help = "sample among the N likeliest tokens; 0: all", .shown_default = "40", .commands = BT_CLI_RUN},
    {OPTION("top-p", REAL), AT(top_p), .min = 0, .max = 1, .arg = "X",
     .help = "sample among the likeliest tokens that together reach X", .shown_default = "0.95",
     .commands = BT_CLI_RUN},
    {OPTION("min-p", REAL), AT(min_p), .min = 0, .max = 1, .arg = "X",
     .help = "drop tokens less likely than X times the likeliest", .shown_default = "0.05", .commands = BT_CLI_RUN},
    {OPTION("repeat-penalty", REAL), AT(repeat_penalty), .min = 0, .max = 100, .arg = "X",
     .help = "penalty of tokens seen before; 1: none", .shown_default = "1", .commands = BT_CLI_RUN},
    {OPTION("seed", U32), GIVEN(seed, seed_given), .shorts = "s", .arg = "N", .help = "seed of the sampler",
     .shown_default = "a new one each time", .commands = BT_CLI_RUN},
    {OPTION("greedy", FLAG), AT(greedy), .help = "always take the likeliest token; same as --temp 0",
     .commands = BT_CLI_RUN},
    {OPTION("chunks", I32), AT(n_chunks), .min = -1, .max = 1073741824.0, .arg = "N",
     .help = "score at most N chunks of the text; -1: all", .shown_default = "-1", .commands = BT_CLI_PERPLEXITY},
    {OPTION("ignore-eos", FLAG), AT(ignore_eos), .help = "go on when the model would end", .commands = BT_CLI_RUN},
    {OPTION("grammar", TEXT), AT(grammar_file), .arg = "FILE", .files = "gbnf",
     .help = "generate only what this GBNF grammar allows", .commands = BT_CLI_RUN},

    {OPTION("n-prompt", U32), GIVEN(n_prompt, n_prompt_given), .shorts = "p", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "tokens of the prompt, pseudo-random", .shown_default = "512, less when the context is smaller",
     .commands = BT_CLI_BENCH},
    {OPTION("n-gen", U32), AT(n_gen), .shorts = "n", .min = 1, .max = CTX_MAX, .arg = "N",
     .help = "tokens after it, pseudo-random too, each in a pass of its own", .shown_default = "64",
     .commands = BT_CLI_BENCH},
    {OPTION("repetitions", U32), AT(n_repetitions), .shorts = "r", .min = 1, .max = BT_BENCH_REPETITION_MAX, .arg = "N",
     .help = "how often; medians are shown, with the least and the most", .shown_default = "3",
     .commands = BT_CLI_BENCH},
    {OPTION("vs-budget", TEXT), AT(vs_budget), .arg = "LIST",
     .help = "measure at each of these budgets: sizes, or shares of the way from the least that runs to all in memory; "
             "25%,50%,300M",
     .commands = BT_CLI_BENCH, .no_env = true},
    {OPTION("plot", TEXT), AT(plot_file), .arg = "FILE", .files = "svg", .help = "draw speed over --vs-budget as SVG",
     .commands = BT_CLI_BENCH, .no_env = true},
    {OPTION("bench-step", FLAG), AT(bench_step), .help = "one budget of --vs-budget, which is not looked at",
     .commands = BT_CLI_BENCH, .hidden = true, .no_env = true},

    {OPTION("chat", FLAG), WISH(chat), .alias = "conversation", .shorts = "cnv",
     .help = "talk with the model through its chat template; so does a terminal without a prompt",
     .commands = BT_CLI_RUN | BT_CLI_PLAN, .no_env = true},
    {OPTION("system-prompt", TEXT), AT(system_prompt), .shorts = "sys", .arg = "TEXT",
     .help = "what the conversation stands under", .commands = BT_CLI_RUN, .no_env = true},
    {OPTION("chat-template", TEXT), WISH(chat_template), .arg = "NAME",
     .help = "chatml, a variant in the model's file, or Jinja text, instead of the model's own",
     .commands = BT_CLI_RUN | BT_CLI_PLAN},
    {OPTION("chat-template-file", TEXT), AT(chat_template_file), .arg = "FILE", .files = "jinja",
     .help = "the same, from a file", .commands = BT_CLI_RUN | BT_CLI_PLAN},
    {OPTION("session", TEXT), AT(session_file), .arg = "FILE",
     .help = "go on where this file was left, if it is there, and leave it at the end", .commands = BT_CLI_RUN,
     .no_env = true},

    {OPTION("clear", FLAG), AT(clear), .help = "remove what can be made again: of the kinds that are named, or of all",
     .commands = BT_CLI_CACHE, .no_env = true},

    {OPTION("json", FLAG), AT(json), .help = "print a refusal as JSON", .commands = BT_CLI_RUN | BT_CLI_PERPLEXITY,
     .no_env = true},
    {OPTION("json", FLAG), AT(json),
     .help = "print the decision as JSON: with --dry-run, or where the start is refused", .commands = BT_CLI_EXEC,
     .no_env = true},
    {OPTION("json", FLAG), AT(json), .help = "print JSON",
     .commands =
         EVERY & ~(BT_CLI_RUN | BT_CLI_PERPLEXITY | BT_CLI_EXEC | BT_CLI_SERVE | BT_CLI_WORKER | BT_CLI_COMPLETION),
     .no_env = true},
    {OPTION("stats", TEXT), AT(stats_file), .arg = "FILE", .help = "write plan, text and what was measured as JSON",
     .commands = GENERATES},
    {OPTION("quiet", FLAG), .shorts = "q", AT(quiet), .help = "say nothing but the answer", .commands = EVERY},
    {OPTION("verbose", FLAG), .shorts = "v", AT(verbose), .help = "say what is being done", .commands = EVERY},
    {OPTION("log-file", TEXT), AT(log_file), .arg = "FILE", .help = "append the log to a file",
     .shown_default = "standard error", .commands = EVERY},
    {OPTION("log-level", CHOICE), GIVEN(log_level, log_level_given), .choices = "error|warn|info|debug",
     .help = "what is logged", .shown_default = "warn", .commands = EVERY & ~(uint32_t)BT_CLI_SERVE},
    {OPTION("log-level", CHOICE), GIVEN(log_level, log_level_given), .choices = "error|warn|info|debug",
     .help = "what is logged: info has a line for each request and decision", .shown_default = "info",
     .commands = BT_CLI_SERVE},
    {OPTION("log-json", FLAG), AT(log_json), .help = "log JSON, an object a line", .commands = EVERY},
    {OPTION("help", FLAG), .shorts = "h", AT(help), .help = "print this", .commands = EVERY, .no_env = true},

    /* for tests */
    {OPTION("root", TEXT), AT(root), .arg = "DIR", .help = "read DIR/proc and DIR/sys",
     .commands = ALL_MODEL | BT_CLI_DEVICES | BT_CLI_WORKER | BT_CLI_SERVE, .hidden = true, .no_env = true},
    {OPTION("reader", CHOICE), AT(reader), .choices = "auto|uring|pread", .help = "how weights are read",
     .commands = LOADS, .hidden = true},

    {OPTION("guess-always", FLAG), AT(guess_always), .help = "guess whatever it costs", .commands = BT_CLI_RUN,
     .hidden = true, .no_env = true},

    /* what llama.cpp's users type */
    {OPTION("model-draft", TEXT), AT(draft_file), .commands = BT_CLI_PLAN | BT_CLI_RUN, .hidden = true},
    {OPTION("model", CUSTOM), AT(help), .shorts = "m", .parse = bt_cli_parse_model_word,
     .commands = ALL_MODEL | BT_CLI_SERVE, .hidden = true, .no_env = true},
    {OPTION("hf-repo", CUSTOM), AT(help), .alias = "model-url", .shorts = "hf hfr mu", .parse = bt_cli_parse_fetched,
     .commands = ALL_MODEL | BT_CLI_SERVE, .hidden = true, .no_env = true},
    {OPTION("port", CUSTOM), AT(help), .alias = "host", .parse = bt_cli_parse_address, .commands = BT_CLI_SERVE,
     .hidden = true, .no_env = true},
    {OPTION("draft", CUSTOM), AT(help), .alias = "model-draft", .shorts = "md", .parse = bt_cli_parse_draft,
     .commands = BT_CLI_BENCH | BT_CLI_PERPLEXITY, .hidden = true},
    {OPTION("mmproj", CUSTOM), AT(help), .shorts = "mm", .parse = bt_cli_parse_projector, .commands = LOADS,
     .hidden = true},
};
const size_t bt_cli_option_count = sizeof bt_cli_option_table / sizeof *bt_cli_option_table;

void bt_cli_options_default(bt_cli_options *ret) {
    *ret = (bt_cli_options){
        .wishes = {.type_k = 1, .type_v = 1}, /* GGML_TYPE_F16 */
        .root = "",
        .listen = "127.0.0.1:50052", /* as llama.cpp's rpc-server */
        .n_predict = -1,
        .n_chunks = -1,
        .n_prompt = 512, /* as llama-bench */
        .n_gen = 64,
        .n_repetitions = 3,
        .temperature = TEMPERATURE,
        .top_k = TOP_K,
        .top_p = TOP_P,
        .min_p = MIN_P,
        .repeat_penalty = 1,
        .log_level = 1, /* BT_LOG_WARN */
    };
}

bt_status bt_cli_options_parse(bt_cli_command command, int argc, char *const *argv,
                               const char *(*environ_get)(const char *), const bt_option_file *file,
                               bt_cli_options *ret, bt_option_result *args, bt_error *err) {
    bt_cli_options_default(ret);
    BT_TRY(bt_options_parse(bt_cli_option_table, bt_cli_option_count, (uint32_t)command, argc, argv, environ_get, file,
                            ret, args, err));
    ret->argc = argc;
    ret->argv = argv;
    if (ret->greedy) ret->temperature = 0;
    ret->wishes.rope_scale_micro = (uint64_t)(ret->rope_scale * MICRO + 0.5);
    ret->wishes.session = ret->wishes.chat || ret->session_file != NULL;
    bool by_draft = ret->wishes.speculate == BT_SPECULATE_DRAFT && (command & (BT_CLI_PLAN | BT_CLI_RUN));
    if (by_draft && !ret->draft_file)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--speculate draft needs a draft model: --draft FILE");
    return BT_OK;
}
