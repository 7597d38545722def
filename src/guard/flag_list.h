/* SPDX-License-Identifier: MIT
 * flag_list.h: every option of the llama.cpp programs that the guard reads, one row an option.
 *
 * The rows follow common/arg.cpp of llama.cpp (ggml 0.25.3), inside each part in its order, because variables of the
 * environment act in it; tests/integration/test_flag_list holds both to each other. A row is
 *
 *   X(name, kind, repeated, programs, "spellings", "spellings that say no", variable)
 *
 * kind: what follows it, bt_flag_kind. repeated: LAST wins, or each one ADDS. programs: S server, C cli, O completion,
 * P perplexity, E embedding, F fit-params, ALL of these; D sd-server, M sam3; 0: of earlier builds only. The variable
 * ARG(X) is LLAMA_ARG_X. Includers define these words, ARG and X. */
#pragma once

/* what a spawn takes, and where: these are read (guard/effective.h), and some are written */
#define BT_FLAGS_MEMORY(X)                                                                                             \
    X(THREADS, INT, LAST, ALL, "-t --threads", NULL, ARG(THREADS))                                                     \
    X(THREADS_BATCH, INT, LAST, ALL, "-tb --threads-batch", NULL, NULL)                                                \
    X(CTX_SIZE, INT, LAST, ALL, "-c --ctx-size", NULL, ARG(CTX_SIZE))                                                  \
    X(KV_UNIFIED_PER_SLOT, INT, LAST, S, "--kv-unified-per-slot", NULL, ARG(KV_UNIFIED_PER_SLOT))                      \
    X(BATCH, INT, LAST, ALL, "-b --batch-size", NULL, ARG(BATCH))                                                      \
    X(UBATCH, INT, LAST, ALL, "-ub --ubatch-size", NULL, ARG(UBATCH))                                                  \
    X(SWA_FULL, SWITCH, LAST, ALL, "--swa-full", NULL, ARG(SWA_FULL))                                                  \
    X(CHECKPOINTS, INT, LAST, S | C, "-ctxcp --ctx-checkpoints --swa-checkpoints", NULL, ARG(CTX_CHECKPOINTS))         \
    X(CHECKPOINT_STEP, INT, LAST, S, "-cms --checkpoint-min-step", NULL, ARG(CHECKPOINT_MIN_SPACING_NT))               \
    X(CACHE_RAM, INT, LAST, S | C, "-cram --cache-ram", NULL, ARG(CACHE_RAM))                                          \
    X(KV_UNIFIED, PAIR, LAST, S | P, "-kvu --kv-unified", "-no-kvu --no-kv-unified", ARG(KV_UNIFIED))                  \
    X(CACHE_IDLE_SLOTS, PAIR, LAST, S, "--cache-idle-slots", "--no-cache-idle-slots", ARG(CACHE_IDLE_SLOTS))           \
    X(CONTEXT_SHIFT, PAIR, LAST, S | C | O | P, "--context-shift", "--no-context-shift", ARG(CONTEXT_SHIFT))           \
    X(FLASH_ATTN, FLASH, LAST, ALL, "-fa --flash-attn", NULL, ARG(FLASH_ATTN))                                         \
    X(WARMUP, PAIR, LAST, S | C | O | P | E, "--warmup", "--no-warmup", NULL)                                          \
    X(POOLING, CHOICE, LAST, S | E, "--pooling", NULL, ARG(POOLING))                                                   \
    X(ROPE_SCALING, CHOICE, LAST, ALL, "--rope-scaling", NULL, ARG(ROPE_SCALING_TYPE))                                 \
    X(ROPE_SCALE, REAL, LAST, ALL, "--rope-scale", NULL, ARG(ROPE_SCALE))                                              \
    X(ROPE_FREQ_BASE, REAL, LAST, ALL, "--rope-freq-base", NULL, ARG(ROPE_FREQ_BASE))                                  \
    X(ROPE_FREQ_SCALE, REAL, LAST, ALL, "--rope-freq-scale", NULL, ARG(ROPE_FREQ_SCALE))                               \
    X(YARN_ORIG_CTX, INT, LAST, ALL, "--yarn-orig-ctx", NULL, ARG(YARN_ORIG_CTX))                                      \
    X(KV_OFFLOAD, PAIR, LAST, ALL, "-kvo --kv-offload", "-nkvo --no-kv-offload", ARG(KV_OFFLOAD))                      \
    X(REPACK, PAIR, LAST, ALL, "--repack", "-nr --no-repack", ARG(REPACK))                                             \
    X(NO_HOST, SWITCH, LAST, ALL, "--no-host", NULL, ARG(NO_HOST))                                                     \
    X(CACHE_TYPE_K, CHOICE, LAST, ALL, "-ctk --cache-type-k", NULL, ARG(CACHE_TYPE_K))                                 \
    X(CACHE_TYPE_V, CHOICE, LAST, ALL, "-ctv --cache-type-v", NULL, ARG(CACHE_TYPE_V))                                 \
    X(SLOTS, INT, LAST, ALL, "-np --parallel", NULL, ARG(N_PARALLEL))                                                  \
    X(MMPROJ, PATH, LAST, S | C, "-mm --mmproj", NULL, ARG(MMPROJ))                                                    \
    X(MMPROJ_URL, TEXT, LAST, S | C, "-mmu --mmproj-url", NULL, ARG(MMPROJ_URL))                                       \
    X(MMPROJ_AUTO, PAIR, LAST, S | C, "--mmproj-auto", "--no-mmproj --no-mmproj-auto", ARG(MMPROJ_AUTO))               \
    X(MMPROJ_OFFLOAD, PAIR, LAST, S | C, "--mmproj-offload", "--no-mmproj-offload", ARG(MMPROJ_OFFLOAD))               \
    X(MMPROJ_DEVICE, TEXT, LAST, S | C, "-mmdev --mmproj-device", NULL, "MTMD_BACKEND_DEVICE")                         \
    X(IMAGE_MIN_TOKENS, INT, LAST, S | C, "--image-min-tokens", NULL, ARG(IMAGE_MIN_TOKENS))                           \
    X(IMAGE_MAX_TOKENS, INT, LAST, S | C, "--image-max-tokens", NULL, ARG(IMAGE_MAX_TOKENS))                           \
    X(MTMD_BATCH_MAX_TOKENS, INT, LAST, S, "--mtmd-batch-max-tokens", NULL, ARG(MTMD_BATCH_MAX_TOKENS))                \
    X(RPC, LIST, ADDS, ALL, "--rpc", NULL, ARG(RPC))                                                                   \
    X(LOAD_MODE, CHOICE, LAST, ALL, "-lm --load-mode", NULL, ARG(LOAD_MODE))                                           \
    X(LAZY_MODE, CHOICE, LAST, ALL, "-lzm --lazy-mode", NULL, ARG(LAZY_MODE))                                          \
    X(NUMA, CHOICE, LAST, ALL, "--numa", NULL, ARG(NUMA))                                                              \
    X(DEVICE, LIST, LAST, ALL, "-dev --device", NULL, ARG(DEVICE))                                                     \
    X(OVERRIDE_TENSOR, RULES, ADDS, ALL, "-ot --override-tensor", NULL, ARG(OVERRIDE_TENSOR))                          \
    X(CPU_MOE, SWITCH, ADDS, ALL, "-cmoe --cpu-moe", NULL, ARG(CPU_MOE))                                               \
    X(N_CPU_MOE, INT, ADDS, ALL, "-ncmoe --n-cpu-moe", NULL, ARG(N_CPU_MOE))                                           \
    X(N_CPU_FFN, INT, ADDS, ALL, "-ncffn --n-cpu-ffn", NULL, ARG(N_CPU_FFN))                                           \
    X(GPU_LAYERS, LAYERS, LAST, ALL, "-ngl --gpu-layers --n-gpu-layers", NULL, ARG(N_GPU_LAYERS))                      \
    X(SPLIT_MODE, CHOICE, LAST, ALL, "-sm --split-mode", NULL, ARG(SPLIT_MODE))                                        \
    X(TENSOR_SPLIT, LIST, LAST, ALL, "-ts --tensor-split", NULL, ARG(TENSOR_SPLIT))                                    \
    X(MAIN_GPU, INT, LAST, ALL, "-mg --main-gpu", NULL, ARG(MAIN_GPU))                                                 \
    X(FIT, CHOICE, LAST, ALL, "-fit --fit", NULL, ARG(FIT))                                                            \
    X(FIT_PRINT, CHOICE, LAST, F, "-fitp --fit-print", NULL, ARG(FIT_ESTIMATE))                                        \
    X(FIT_TARGET, LIST, LAST, ALL, "-fitt --fit-target", NULL, ARG(FIT_TARGET))                                        \
    X(FIT_CTX, INT, LAST, ALL, "-fitc --fit-ctx", NULL, ARG(FIT_CTX))                                                  \
    X(OVERRIDE_KV, LIST, ADDS, ALL, "--override-kv", NULL, NULL)                                                       \
    X(OP_OFFLOAD, PAIR, LAST, ALL, "--op-offload", "--no-op-offload", NULL)                                            \
    X(LORA, PATHS, ADDS, ALL, "--lora", NULL, NULL)                                                                    \
    X(LORA_SCALED, SCALED, ADDS, ALL, "--lora-scaled", NULL, NULL)                                                     \
    X(CONTROL_VECTOR, PATHS, ADDS, ALL, "--control-vector", NULL, NULL)                                                \
    X(CONTROL_VECTOR_SCALED, SCALED, ADDS, ALL, "--control-vector-scaled", NULL, NULL)                                 \
    X(CONTROL_VECTOR_RANGE, RANGE, LAST, ALL, "--control-vector-layer-range", NULL, NULL)                              \
    X(MODEL, PATH, LAST, ALL, "-m --model", NULL, ARG(MODEL))                                                          \
    X(MODEL_URL, TEXT, LAST, ALL, "-mu --model-url", NULL, ARG(MODEL_URL))                                             \
    X(DOCKER_REPO, TEXT, LAST, ALL, "-dr --docker-repo", NULL, ARG(DOCKER_REPO))                                       \
    X(HF_REPO, TEXT, LAST, ALL, "-hf -hfr --hf-repo", NULL, ARG(HF_REPO))                                              \
    X(HF_FILE, TEXT, LAST, ALL, "-hff --hf-file", NULL, ARG(HF_FILE))                                                  \
    X(EMBEDDING, SWITCH, LAST, S, "--embedding --embeddings", NULL, ARG(EMBEDDINGS))                                   \
    X(RERANK, SWITCH, LAST, S, "--rerank --reranking", NULL, ARG(RERANKING))                                           \
    X(CACHE_REUSE, INT, LAST, S, "--cache-reuse", NULL, ARG(CACHE_REUSE))                                              \
    X(MODELS_DIR, PATH, LAST, S, "--models-dir", NULL, ARG(MODELS_DIR))                                                \
    X(MODELS_PRESET, PATH, LAST, S, "--models-preset", NULL, ARG(MODELS_PRESET))                                       \
    X(MODELS_MAX, INT, LAST, S, "--models-max", NULL, ARG(MODELS_MAX))                                                 \
    X(SLEEP_IDLE_SECONDS, INT, LAST, S, "--sleep-idle-seconds", NULL, NULL)

/* drafting: a second model, or none */
#define BT_FLAGS_DRAFT(X)                                                                                              \
    X(LOOKUP_CACHE_STATIC, PATH, LAST, S, "-lcs --lookup-cache-static", NULL, NULL)                                    \
    X(LOOKUP_CACHE_DYNAMIC, PATH, LAST, S, "-lcd --lookup-cache-dynamic", NULL, NULL)                                  \
    X(DRAFT_HF_REPO, TEXT, LAST, S | C, "--spec-draft-hf -hfd -hfrd --hf-repo-draft", NULL, ARG(SPEC_DRAFT_HF_REPO))   \
    X(THREADS_DRAFT, INT, LAST, S | C, "--spec-draft-threads -td --threads-draft", NULL, NULL)                         \
    X(THREADS_BATCH_DRAFT, INT, LAST, S | C, "--spec-draft-threads-batch -tbd --threads-batch-draft", NULL, NULL)      \
    X(CPU_MASK_DRAFT, TEXT, LAST, S | C, "--spec-draft-cpu-mask -Cd --cpu-mask-draft", NULL, NULL)                     \
    X(CPU_RANGE_DRAFT, TEXT, LAST, S | C, "--spec-draft-cpu-range -Crd --cpu-range-draft", NULL, NULL)                 \
    X(CPU_STRICT_DRAFT, INT, LAST, S | C, "--spec-draft-cpu-strict --cpu-strict-draft", NULL, NULL)                    \
    X(PRIO_DRAFT, INT, LAST, S | C, "--spec-draft-prio --prio-draft", NULL, NULL)                                      \
    X(POLL_DRAFT, INT, LAST, S | C, "--spec-draft-poll --poll-draft", NULL, NULL)                                      \
    X(CPU_MASK_BATCH_DRAFT, TEXT, LAST, S | C, "--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft", NULL, NULL)  \
    X(CPU_STRICT_BATCH_DRAFT, INT, LAST, S | C, "--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", NULL, NULL)  \
    X(PRIO_BATCH_DRAFT, INT, LAST, S | C, "--spec-draft-prio-batch --prio-batch-draft", NULL, NULL)                    \
    X(POLL_BATCH_DRAFT, INT, LAST, S | C, "--spec-draft-poll-batch --poll-batch-draft", NULL, NULL)                    \
    X(DRAFT_CACHE_TYPE_K, CHOICE, LAST, ALL, "--spec-draft-type-k -ctkd --cache-type-k-draft", NULL,                   \
      ARG(SPEC_DRAFT_CACHE_TYPE_K))                                                                                    \
    X(DRAFT_CACHE_TYPE_V, CHOICE, LAST, ALL, "--spec-draft-type-v -ctvd --cache-type-v-draft", NULL,                   \
      ARG(SPEC_DRAFT_CACHE_TYPE_V))                                                                                    \
    X(DRAFT_OVERRIDE_TENSOR, RULES, ADDS, S | C, "--spec-draft-override-tensor -otd --override-tensor-draft", NULL,    \
      NULL)                                                                                                            \
    X(DRAFT_CPU_MOE, SWITCH, ADDS, S | C, "--spec-draft-cpu-moe -cmoed --cpu-moe-draft", NULL,                         \
      ARG(SPEC_DRAFT_CPU_MOE))                                                                                         \
    X(DRAFT_N_CPU_MOE, INT, ADDS, S | C, "--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", NULL,  \
      ARG(SPEC_DRAFT_N_CPU_MOE))                                                                                       \
    X(DRAFT_N_MAX, INT, LAST, S | C, "--spec-draft-n-max", NULL, ARG(SPEC_DRAFT_N_MAX))                                \
    X(DRAFT_N_MIN, INT, LAST, S | C, "--spec-draft-n-min", NULL, ARG(SPEC_DRAFT_N_MIN))                                \
    X(SPEC_SYNTH_LEN, REAL, LAST, S | C, "--spec-synth-len", NULL, ARG(SPEC_SYNTH_LEN))                                \
    X(SPEC_SYNTH_RATES, LIST, LAST, S | C, "--spec-synth-rates", NULL, ARG(SPEC_SYNTH_RATES))                          \
    X(DRAFT_P_SPLIT, REAL, LAST, S | C, "--spec-draft-p-split --draft-p-split", NULL, ARG(SPEC_DRAFT_P_SPLIT))         \
    X(DRAFT_P_MIN, REAL, LAST, S | C, "--spec-draft-p-min --draft-p-min", NULL, ARG(SPEC_DRAFT_P_MIN))                 \
    X(SPEC_DRAFT_BACKEND_SAMPLING, PAIR, LAST, S | C, "--spec-draft-backend-sampling",                                 \
      "--no-spec-draft-backend-sampling", ARG(SPEC_DRAFT_BACKEND_SAMPLING))                                            \
    X(DRAFT_DEVICE, LIST, LAST, S | C, "--spec-draft-device -devd --device-draft", NULL, NULL)                         \
    X(DRAFT_GPU_LAYERS, LAYERS, LAST, S | C, "--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft", NULL,   \
      ARG(N_GPU_LAYERS_DRAFT))                                                                                         \
    X(DRAFT_MODEL, PATH, LAST, S | C, "--spec-draft-model -md --model-draft", NULL, ARG(SPEC_DRAFT_MODEL))             \
    X(SPEC_TYPE, LIST, ADDS, S | C, "--spec-type", NULL, ARG(SPEC_TYPE))                                               \
    X(SPEC_NGRAM_MOD_N_MIN, INT, LAST, S | C, "--spec-ngram-mod-n-min", NULL, NULL)                                    \
    X(SPEC_NGRAM_MOD_N_MAX, INT, LAST, S | C, "--spec-ngram-mod-n-max", NULL, NULL)                                    \
    X(SPEC_NGRAM_MOD_N_MATCH, INT, LAST, S | C, "--spec-ngram-mod-n-match", NULL, NULL)                                \
    X(SPEC_NGRAM_SIMPLE_SIZE_N, INT, LAST, S | C, "--spec-ngram-simple-size-n", NULL, NULL)                            \
    X(SPEC_NGRAM_SIMPLE_SIZE_M, INT, LAST, S | C, "--spec-ngram-simple-size-m", NULL, NULL)                            \
    X(SPEC_NGRAM_SIMPLE_MIN_HITS, INT, LAST, S | C, "--spec-ngram-simple-min-hits", NULL, NULL)                        \
    X(SPEC_NGRAM_MAP_K_SIZE_N, INT, LAST, S | C, "--spec-ngram-map-k-size-n", NULL, NULL)                              \
    X(SPEC_NGRAM_MAP_K_SIZE_M, INT, LAST, S | C, "--spec-ngram-map-k-size-m", NULL, NULL)                              \
    X(SPEC_NGRAM_MAP_K_MIN_HITS, INT, LAST, S | C, "--spec-ngram-map-k-min-hits", NULL, NULL)                          \
    X(SPEC_NGRAM_MAP_K4V_SIZE_N, INT, LAST, S | C, "--spec-ngram-map-k4v-size-n", NULL, NULL)                          \
    X(SPEC_NGRAM_MAP_K4V_SIZE_M, INT, LAST, S | C, "--spec-ngram-map-k4v-size-m", NULL, NULL)                          \
    X(SPEC_NGRAM_MAP_K4V_MIN_HITS, INT, LAST, S | C, "--spec-ngram-map-k4v-min-hits", NULL, NULL)                      \
    X(OLD_DRAFT_MAX, INT, LAST, S | C, "--draft --draft-n --draft-max", NULL, ARG(DRAFT_MAX))                          \
    X(OLD_DRAFT_MIN, INT, LAST, S | C, "--draft-min --draft-n-min", NULL, ARG(DRAFT_MIN))                              \
    X(SPEC_NGRAM_SIZE_N, INT, LAST, S, "--spec-ngram-size-n", NULL, NULL)                                              \
    X(SPEC_NGRAM_SIZE_M, INT, LAST, S, "--spec-ngram-size-m", NULL, NULL)                                              \
    X(SPEC_NGRAM_MIN_HITS, INT, LAST, S, "--spec-ngram-min-hits", NULL, NULL)                                          \
    X(SPEC_DEFAULT, SWITCH, ADDS, S | C, "--spec-default", NULL, NULL)

/* a model of its own and settings for it, in one word: left alone */
#define BT_FLAGS_BUNDLE(X)                                                                                             \
    X(EMBD_GEMMA_DEFAULT, SWITCH, LAST, S | E, "--embd-gemma-default", NULL, NULL)                                     \
    X(FIM_QWEN_1_5B_DEFAULT, SWITCH, LAST, S, "--fim-qwen-1.5b-default", NULL, NULL)                                   \
    X(FIM_QWEN_3B_DEFAULT, SWITCH, LAST, S, "--fim-qwen-3b-default", NULL, NULL)                                       \
    X(FIM_QWEN_7B_DEFAULT, SWITCH, LAST, S, "--fim-qwen-7b-default", NULL, NULL)                                       \
    X(FIM_QWEN_7B_SPEC, SWITCH, LAST, S, "--fim-qwen-7b-spec", NULL, NULL)                                             \
    X(FIM_QWEN_14B_SPEC, SWITCH, LAST, S, "--fim-qwen-14b-spec", NULL, NULL)                                           \
    X(FIM_QWEN_30B_DEFAULT, SWITCH, LAST, S, "--fim-qwen-30b-default", NULL, NULL)                                     \
    X(GPT_OSS_20B_DEFAULT, SWITCH, LAST, S | C, "--gpt-oss-20b-default", NULL, NULL)                                   \
    X(GPT_OSS_120B_DEFAULT, SWITCH, LAST, S | C, "--gpt-oss-120b-default", NULL, NULL)                                 \
    X(VISION_GEMMA_4B_DEFAULT, SWITCH, LAST, S | C, "--vision-gemma-4b-default", NULL, NULL)                           \
    X(VISION_GEMMA_12B_DEFAULT, SWITCH, LAST, S | C, "--vision-gemma-12b-default", NULL, NULL)

/* the server: no memory of note */
#define BT_FLAGS_SERVER(X)                                                                                             \
    X(SPM_INFILL, SWITCH, LAST, S, "--spm-infill", NULL, NULL)                                                         \
    X(CONT_BATCHING, PAIR, LAST, S, "-cb --cont-batching", "-nocb --no-cont-batching", ARG(CONT_BATCHING))             \
    X(ALIAS, LIST, ADDS, S, "-a --alias", NULL, ARG(ALIAS))                                                            \
    X(TAGS, LIST, ADDS, S, "--tags", NULL, ARG(TAGS))                                                                  \
    X(HOST, LIST, LAST, S, "--host", NULL, ARG(HOST))                                                                  \
    X(PORT, INT, LAST, S, "--port", NULL, ARG(PORT))                                                                   \
    X(REUSE_PORT, SWITCH, LAST, S, "--reuse-port", NULL, ARG(REUSE_PORT))                                              \
    X(PATH, PATH, LAST, S, "--path", NULL, ARG(STATIC_PATH))                                                           \
    X(CORS_ORIGINS, TEXT, LAST, S, "--cors-origins", NULL, ARG(CORS_ORIGINS))                                          \
    X(CORS_METHODS, TEXT, LAST, S, "--cors-methods", NULL, ARG(CORS_METHODS))                                          \
    X(CORS_HEADERS, TEXT, LAST, S, "--cors-headers", NULL, ARG(CORS_HEADERS))                                          \
    X(CORS_CREDENTIALS, PAIR, LAST, S, "--cors-credentials", "--no-cors-credentials", ARG(CORS_CREDENTIALS))           \
    X(API_PREFIX, TEXT, LAST, S, "--api-prefix", NULL, ARG(API_PREFIX))                                                \
    X(WEBUI_CONFIG, TEXT, LAST, S, "--ui-config --webui-config", NULL, ARG(UI_CONFIG))                                 \
    X(WEBUI_CONFIG_FILE, PATH, LAST, S, "--ui-config-file --webui-config-file", NULL, ARG(UI_CONFIG_FILE))             \
    X(WEBUI_MCP_PROXY, PAIR, LAST, S, "--ui-mcp-proxy --webui-mcp-proxy", "--no-ui-mcp-proxy --no-webui-mcp-proxy",    \
      ARG(UI_MCP_PROXY))                                                                                               \
    X(TOOLS, LIST, LAST, S, "--tools", NULL, ARG(TOOLS))                                                               \
    X(TOOLS_RUNTIME, TEXT, LAST, S, "--tools-runtime", NULL, ARG(TOOLS_RUNTIME))                                       \
    X(MCP_SERVERS_CONFIG, PATH, LAST, S, "--mcp-servers-config", NULL, ARG(MCP_SERVERS_CONFIG))                        \
    X(MCP_SERVERS_JSON, TEXT, LAST, S, "--mcp-servers-json", NULL, ARG(MCP_SERVERS_JSON))                              \
    X(AGENT, PAIR, LAST, S, "-ag --agent", "-no-ag --no-agent", ARG(AGENT))                                            \
    X(WEBUI, PAIR, LAST, S, "--ui --webui", "--no-ui --no-webui", ARG(UI))                                             \
    X(API_KEY, LIST, ADDS, S, "--api-key", NULL, "LLAMA_API_KEY")                                                      \
    X(API_KEY_FILE, PATH, LAST, S, "--api-key-file", NULL, ARG(API_KEY_FILE))                                          \
    X(SSL_KEY_FILE, PATH, LAST, S, "--ssl-key-file", NULL, ARG(SSL_KEY_FILE))                                          \
    X(SSL_CERT_FILE, PATH, LAST, S, "--ssl-cert-file", NULL, ARG(SSL_CERT_FILE))                                       \
    X(TIMEOUT, INT, LAST, S, "-to --timeout", NULL, ARG(TIMEOUT))                                                      \
    X(SSE_PING_INTERVAL, INT, LAST, S, "--sse-ping-interval", NULL, ARG(SSE_PING_INTERVAL))                            \
    X(THREADS_HTTP, INT, LAST, S, "--threads-http", NULL, ARG(THREADS_HTTP))                                           \
    X(CACHE_PROMPT, PAIR, LAST, S, "--cache-prompt", "--no-cache-prompt", ARG(CACHE_PROMPT))                           \
    X(METRICS, SWITCH, LAST, S, "--metrics", NULL, ARG(ENDPOINT_METRICS))                                              \
    X(PROPS, SWITCH, LAST, S, "--props", NULL, ARG(ENDPOINT_PROPS))                                                    \
    X(SLOTS_ENDPOINT, PAIR, LAST, S, "--slots", "--no-slots", ARG(ENDPOINT_SLOTS))                                     \
    X(SLOT_SAVE_PATH, PATH, LAST, S, "--slot-save-path", NULL, NULL)                                                   \
    X(MEDIA_PATH, PATH, LAST, S, "--media-path", NULL, NULL)                                                           \
    X(MODELS_AUTOLOAD, PAIR, LAST, S, "--models-autoload", "--no-models-autoload", ARG(MODELS_AUTOLOAD))               \
    X(PREFILL_ASSISTANT, PAIR, LAST, S, "--prefill-assistant", "--no-prefill-assistant", ARG(PREFILL_ASSISTANT))       \
    X(SLOT_PROMPT_SIMILARITY, REAL, LAST, S, "-sps --slot-prompt-similarity", NULL, NULL)                              \
    X(LORA_INIT_WITHOUT_APPLY, SWITCH, LAST, S, "--lora-init-without-apply", NULL, NULL)

/* texts, sampling, threads, logs: no memory of note */
#define BT_FLAGS_OTHER(X)                                                                                              \
    X(HELP, ACTION, LAST, ALL, "-h --help --usage", NULL, NULL)                                                        \
    X(VERSION, ACTION, LAST, ALL, "--version", NULL, NULL)                                                             \
    X(CACHE_LIST, ACTION, LAST, ALL, "-cl --cache-list", NULL, NULL)                                                   \
    X(COMPLETION_BASH, ACTION, LAST, ALL, "--completion-bash", NULL, NULL)                                             \
    X(SERVER_BASE, TEXT, LAST, C, "--server-base", NULL, NULL)                                                         \
    X(VERBOSE_PROMPT, SWITCH, LAST, C | O | E, "--verbose-prompt", NULL, NULL)                                         \
    X(DISPLAY_PROMPT, PAIR, LAST, C | O, "--display-prompt", "--no-display-prompt", NULL)                              \
    X(COLOR, CHOICE, LAST, C | O, "-co --color", NULL, NULL)                                                           \
    X(CPU_MASK, TEXT, LAST, ALL, "-C --cpu-mask", NULL, NULL)                                                          \
    X(CPU_RANGE, TEXT, LAST, ALL, "-Cr --cpu-range", NULL, NULL)                                                       \
    X(CPU_STRICT, TEXT, LAST, ALL, "--cpu-strict", NULL, NULL)                                                         \
    X(PRIO, INT, LAST, ALL, "--prio", NULL, NULL)                                                                      \
    X(POLL, TEXT, LAST, ALL, "--poll", NULL, NULL)                                                                     \
    X(CPU_MASK_BATCH, TEXT, LAST, ALL, "-Cb --cpu-mask-batch", NULL, NULL)                                             \
    X(CPU_RANGE_BATCH, TEXT, LAST, ALL, "-Crb --cpu-range-batch", NULL, NULL)                                          \
    X(CPU_STRICT_BATCH, INT, LAST, ALL, "--cpu-strict-batch", NULL, NULL)                                              \
    X(PRIO_BATCH, INT, LAST, ALL, "--prio-batch", NULL, NULL)                                                          \
    X(POLL_BATCH, INT, LAST, ALL, "--poll-batch", NULL, NULL)                                                          \
    X(N_PREDICT, INT, LAST, ALL, "-n --predict --n-predict", NULL, ARG(N_PREDICT))                                     \
    X(KEEP, INT, LAST, ALL, "--keep", NULL, NULL)                                                                      \
    X(CHUNKS, INT, LAST, P, "--chunks", NULL, NULL)                                                                    \
    X(PROMPT, TEXT, LAST, ALL & ~S, "-p --prompt", NULL, NULL)                                                         \
    X(SYSTEM_PROMPT, TEXT, LAST, C | O, "-sys --system-prompt", NULL, NULL)                                            \
    X(PERF, PAIR, LAST, ALL, "--perf", "--no-perf", ARG(PERF))                                                         \
    X(SHOW_TIMINGS, PAIR, LAST, C, "--show-timings", "--no-show-timings", ARG(SHOW_TIMINGS))                           \
    X(FILE, PATH, ADDS, ALL & ~S, "-f --file", NULL, NULL)                                                             \
    X(SYSTEM_PROMPT_FILE, PATH, LAST, C | O, "-sysf --system-prompt-file", NULL, NULL)                                 \
    X(BINARY_FILE, PATH, LAST, ALL & ~S, "-bf --binary-file", NULL, NULL)                                              \
    X(ESCAPE, PAIR, LAST, ALL, "-e --escape", "--no-escape", NULL)                                                     \
    X(PRINT_TOKEN_COUNT, INT, LAST, O, "-ptc --print-token-count", NULL, NULL)                                         \
    X(PROMPT_CACHE, PATH, LAST, O, "--prompt-cache", NULL, NULL)                                                       \
    X(PROMPT_CACHE_ALL, SWITCH, LAST, O, "--prompt-cache-all", NULL, NULL)                                             \
    X(PROMPT_CACHE_RO, SWITCH, LAST, O, "--prompt-cache-ro", NULL, NULL)                                               \
    X(REVERSE_PROMPT, TEXT, ADDS, S | C | O, "-r --reverse-prompt", NULL, NULL)                                        \
    X(SPECIAL, SWITCH, LAST, S | C | O, "-sp --special", NULL, NULL)                                                   \
    X(CONVERSATION, PAIR, LAST, O, "-cnv --conversation", "-no-cnv --no-conversation", NULL)                           \
    X(SINGLE_TURN, SWITCH, LAST, C | O, "-st --single-turn", NULL, NULL)                                               \
    X(INTERACTIVE, SWITCH, LAST, O, "-i --interactive", NULL, NULL)                                                    \
    X(INTERACTIVE_FIRST, SWITCH, LAST, O, "-if --interactive-first", NULL, NULL)                                       \
    X(MULTILINE_INPUT, SWITCH, LAST, C | O, "-mli --multiline-input", NULL, NULL)                                      \
    X(IN_PREFIX_BOS, SWITCH, LAST, O, "--in-prefix-bos", NULL, NULL)                                                   \
    X(IN_PREFIX, TEXT, LAST, O, "--in-prefix", NULL, NULL)                                                             \
    X(IN_SUFFIX, TEXT, LAST, O, "--in-suffix", NULL, NULL)                                                             \
    X(SAMPLERS, TEXT, LAST, ALL, "--samplers", NULL, NULL)                                                             \
    X(SEED, TEXT, LAST, ALL, "-s --seed", NULL, NULL)                                                                  \
    X(SAMPLING_SEQ, TEXT, LAST, ALL, "--sampler-seq --sampling-seq", NULL, NULL)                                       \
    X(IGNORE_EOS, SWITCH, LAST, ALL, "--ignore-eos", NULL, NULL)                                                       \
    X(TEMPERATURE, REAL, LAST, ALL, "--temp --temperature", NULL, ARG(TEMPERATURE))                                    \
    X(TOP_K, INT, LAST, ALL, "--top-k", NULL, ARG(TOP_K))                                                              \
    X(TOP_P, REAL, LAST, ALL, "--top-p", NULL, ARG(TOP_P))                                                             \
    X(MIN_P, REAL, LAST, ALL, "--min-p", NULL, ARG(MIN_P))                                                             \
    X(TOP_N_SIGMA, REAL, LAST, ALL, "--top-nsigma --top-n-sigma", NULL, NULL)                                          \
    X(XTC_PROBABILITY, REAL, LAST, ALL, "--xtc-probability", NULL, NULL)                                               \
    X(XTC_THRESHOLD, REAL, LAST, ALL, "--xtc-threshold", NULL, NULL)                                                   \
    X(TYPICAL_P, REAL, LAST, ALL, "--typical --typical-p", NULL, NULL)                                                 \
    X(REPEAT_LAST_N, INT, LAST, ALL, "--repeat-last-n", NULL, NULL)                                                    \
    X(REPEAT_PENALTY, REAL, LAST, ALL, "--repeat-penalty", NULL, ARG(REPEAT_PENALTY))                                  \
    X(PRESENCE_PENALTY, REAL, LAST, ALL, "--presence-penalty", NULL, ARG(PRESENCE_PENALTY))                            \
    X(FREQUENCY_PENALTY, REAL, LAST, ALL, "--frequency-penalty", NULL, ARG(FREQUENCY_PENALTY))                         \
    X(DRY_MULTIPLIER, REAL, LAST, ALL, "--dry-multiplier", NULL, NULL)                                                 \
    X(DRY_BASE, REAL, LAST, ALL, "--dry-base", NULL, NULL)                                                             \
    X(DRY_ALLOWED_LENGTH, INT, LAST, ALL, "--dry-allowed-length", NULL, NULL)                                          \
    X(DRY_PENALTY_LAST_N, INT, LAST, ALL, "--dry-penalty-last-n", NULL, NULL)                                          \
    X(DRY_SEQUENCE_BREAKER, TEXT, ADDS, ALL, "--dry-sequence-breaker", NULL, NULL)                                     \
    X(ADAPTIVE_TARGET, REAL, LAST, ALL, "--adaptive-target", NULL, NULL)                                               \
    X(ADAPTIVE_DECAY, REAL, LAST, ALL, "--adaptive-decay", NULL, NULL)                                                 \
    X(DYNATEMP_RANGE, REAL, LAST, ALL, "--dynatemp-range", NULL, NULL)                                                 \
    X(DYNATEMP_EXP, REAL, LAST, ALL, "--dynatemp-exp", NULL, NULL)                                                     \
    X(MIROSTAT, INT, LAST, ALL, "--mirostat", NULL, NULL)                                                              \
    X(MIROSTAT_LR, REAL, LAST, ALL, "--mirostat-lr", NULL, NULL)                                                       \
    X(MIROSTAT_ENT, REAL, LAST, ALL, "--mirostat-ent", NULL, NULL)                                                     \
    X(LOGIT_BIAS, TEXT, ADDS, ALL, "-l --logit-bias", NULL, NULL)                                                      \
    X(GRAMMAR, TEXT, LAST, ALL, "--grammar", NULL, NULL)                                                               \
    X(GRAMMAR_FILE, PATH, LAST, ALL, "--grammar-file", NULL, NULL)                                                     \
    X(JSON_SCHEMA, TEXT, LAST, ALL, "-j --json-schema", NULL, NULL)                                                    \
    X(JSON_SCHEMA_FILE, PATH, LAST, ALL, "-jf --json-schema-file", NULL, NULL)                                         \
    X(BACKEND_SAMPLING, SWITCH, LAST, ALL, "-bs --backend-sampling", NULL, ARG(BACKEND_SAMPLING))                      \
    X(ATTENTION, CHOICE, LAST, E, "--attention", NULL, NULL)                                                           \
    X(YARN_EXT_FACTOR, REAL, LAST, ALL, "--yarn-ext-factor", NULL, ARG(YARN_EXT_FACTOR))                               \
    X(YARN_ATTN_FACTOR, REAL, LAST, ALL, "--yarn-attn-factor", NULL, ARG(YARN_ATTN_FACTOR))                            \
    X(YARN_BETA_SLOW, REAL, LAST, ALL, "--yarn-beta-slow", NULL, ARG(YARN_BETA_SLOW))                                  \
    X(YARN_BETA_FAST, REAL, LAST, ALL, "--yarn-beta-fast", NULL, ARG(YARN_BETA_FAST))                                  \
    X(GRP_ATTN_N, INT, LAST, O, "-gan --grp-attn-n", NULL, ARG(GRP_ATTN_N))                                            \
    X(GRP_ATTN_W, INT, LAST, O, "-gaw --grp-attn-w", NULL, ARG(GRP_ATTN_W))                                            \
    X(HELLASWAG, SWITCH, LAST, P, "--hellaswag", NULL, NULL)                                                           \
    X(HELLASWAG_TASKS, INT, LAST, P, "--hellaswag-tasks", NULL, NULL)                                                  \
    X(WINOGRANDE, SWITCH, LAST, P, "--winogrande", NULL, NULL)                                                         \
    X(WINOGRANDE_TASKS, INT, LAST, P, "--winogrande-tasks", NULL, NULL)                                                \
    X(MULTIPLE_CHOICE, SWITCH, LAST, P, "--multiple-choice", NULL, NULL)                                               \
    X(MULTIPLE_CHOICE_TASKS, INT, LAST, P, "--multiple-choice-tasks", NULL, NULL)                                      \
    X(KL_DIVERGENCE, SWITCH, LAST, P, "--kl-divergence", NULL, NULL)                                                   \
    X(KL_DIVERGENCE_BASE, PATH, LAST, P, "--save-all-logits --kl-divergence-base", NULL, NULL)                         \
    X(PPL_STRIDE, INT, LAST, P, "--ppl-stride", NULL, NULL)                                                            \
    X(PPL_OUTPUT_TYPE, INT, LAST, P, "--ppl-output-type", NULL, NULL)                                                  \
    X(DEFRAG_THOLD, REAL, LAST, ALL, "-dt --defrag-thold", NULL, ARG(DEFRAG_THOLD))                                    \
    X(IMAGE, PATHS, ADDS, C, "--image --audio --video", NULL, NULL)                                                    \
    X(VIDEO_FPS, REAL, LAST, S | C, "--video-fps", NULL, ARG(VIDEO_FPS))                                               \
    X(VIDEO_TIMESTAMP_INTERVAL, INT, LAST, S | C, "--video-timestamp-interval", NULL, ARG(VIDEO_TIMESTAMP_INTERVAL))   \
    X(VIDEO_FFMPEG_DIR, PATH, LAST, S | C, "--video-ffmpeg-dir", NULL, ARG(VIDEO_FFMPEG_DIR))                          \
    X(LIST_DEVICES, ACTION, LAST, ALL, "--list-devices", NULL, NULL)                                                   \
    X(CHECK_TENSORS, SWITCH, LAST, ALL, "--check-tensors", NULL, NULL)                                                 \
    X(HF_TOKEN, TEXT, LAST, ALL, "-hft --hf-token", NULL, "HF_TOKEN")                                                  \
    X(OUTPUT_FILE, PATH, LAST, C, "-o --output --output-file", NULL, NULL)                                             \
    X(EMBD_NORMALIZE, INT, LAST, S | E, "--embd-normalize", NULL, NULL)                                                \
    X(EMBD_OUTPUT_FORMAT, TEXT, LAST, E, "--embd-output-format", NULL, NULL)                                           \
    X(EMBD_SEPARATOR, TEXT, LAST, E, "--embd-separator", NULL, NULL)                                                   \
    X(CLS_SEPARATOR, TEXT, LAST, E, "--cls-separator", NULL, NULL)                                                     \
    X(CHAT_TEMPLATE_KWARGS, TEXT, LAST, S | C, "--chat-template-kwargs", NULL, ARG(CHAT_TEMPLATE_KWARGS))              \
    X(JINJA, PAIR, LAST, S | C | O, "--jinja", "--no-jinja", ARG(JINJA))                                               \
    X(REASONING_FORMAT, CHOICE, LAST, S | C | O, "--reasoning-format", NULL, ARG(THINK))                               \
    X(REASONING, CHOICE, LAST, S | C | O, "-rea --reasoning", NULL, ARG(REASONING))                                    \
    X(REASONING_EFFORT, TEXT, LAST, S | C | O, "--reasoning-effort", NULL, ARG(REASONING_EFFORT))                      \
    X(REASONING_BUDGET, INT, LAST, S | C | O, "--reasoning-budget", NULL, ARG(THINK_BUDGET))                           \
    X(REASONING_BUDGET_MESSAGE, TEXT, LAST, S | C | O, "--reasoning-budget-message", NULL, ARG(THINK_BUDGET_MESSAGE))  \
    X(REASONING_PRESERVE, PAIR, LAST, S | C | O, "--reasoning-preserve", "--no-reasoning-preserve",                    \
      ARG(REASONING_PRESERVE))                                                                                         \
    X(CHAT_TEMPLATE, TEXT, LAST, S | C | O, "--chat-template", NULL, ARG(CHAT_TEMPLATE))                               \
    X(CHAT_TEMPLATE_FILE, PATH, LAST, S | C | O, "--chat-template-file", NULL, ARG(CHAT_TEMPLATE_FILE))                \
    X(SKIP_CHAT_PARSING, PAIR, LAST, S | C | O, "--skip-chat-parsing", "--no-skip-chat-parsing",                       \
      ARG(SKIP_CHAT_PARSING))                                                                                          \
    X(SIMPLE_IO, SWITCH, LAST, C | O, "--simple-io", NULL, NULL)                                                       \
    X(LOG_DISABLE, SWITCH, LAST, ALL, "--log-disable", NULL, NULL)                                                     \
    X(LOG_FILE, PATH, LAST, ALL, "--log-file", NULL, ARG(LOG_FILE))                                                    \
    X(LOG_JSONL, PAIR, LAST, ALL, "--log-jsonl", "--no-log-jsonl", ARG(LOG_JSONL))                                     \
    X(LOG_PROMPTS_DIR, PATH, LAST, S | C, "--log-prompts-dir", NULL, NULL)                                             \
    X(LOG_COLORS, CHOICE, LAST, ALL, "--log-colors", NULL, ARG(LOG_COLORS))                                            \
    X(LOG_VERBOSE, SWITCH, LAST, ALL, "-v --verbose --log-verbose", NULL, NULL)                                        \
    X(OFFLINE, SWITCH, LAST, ALL, "--offline", NULL, ARG(OFFLINE))                                                     \
    X(LOG_VERBOSITY, INT, LAST, ALL, "-lv --verbosity --log-verbosity", NULL, ARG(LOG_VERBOSITY))                      \
    X(LOG_PREFIX, PAIR, LAST, ALL, "--log-prefix", "--no-log-prefix", ARG(LOG_PREFIX))                                 \
    X(LOG_TIMESTAMPS, PAIR, LAST, ALL, "--log-timestamps", "--no-log-timestamps", ARG(LOG_TIMESTAMPS))

/* Of earlier builds, which nobody stopped using; today's refuse them. Variables only of those that price higher:
 * today's ignore them, and nobody knows which build will read them. */
#define BT_FLAGS_OLD(X)                                                                                                \
    X(OLD_MMAP, PAIR, LAST, 0, "--mmap", "--no-mmap", ARG(MMAP))                                                       \
    X(OLD_MLOCK, SWITCH, LAST, 0, "--mlock", NULL, ARG(MLOCK))                                                         \
    X(OLD_DIRECT_IO, PAIR, LAST, 0, "-dio --direct-io", "-ndio --no-direct-io", ARG(DIO))                              \
    X(OLD_DRAFT_CTX_SIZE, INT, LAST, 0, "-cd --ctx-size-draft", NULL, NULL)                                            \
    X(OLD_DUMP_KV_CACHE, SWITCH, LAST, 0, "-dkvc --dump-kv-cache", NULL, NULL)                                         \
    X(OLD_VOCODER, PATH, LAST, 0, "-mv --model-vocoder", NULL, NULL)                                                   \
    X(OLD_SPEC_REPLACE, RANGE, ADDS, 0, "--spec-replace", NULL, NULL)

/* other engines: the two options that the guard writes, and those that name files */
#define BT_FLAGS_ENGINES(X)                                                                                            \
    X(SD_MAX_VRAM, REAL, LAST, D, "--max-vram", NULL, NULL)                                                            \
    X(SD_DIFFUSION_MODEL, PATH, LAST, D, "--diffusion-model", NULL, NULL)                                              \
    X(SAM_NO_GPU, SWITCH, LAST, M, "--no-gpu", NULL, NULL)

#define BT_FLAGS(X)                                                                                                    \
    BT_FLAGS_MEMORY(X)                                                                                                 \
    BT_FLAGS_DRAFT(X) BT_FLAGS_BUNDLE(X) BT_FLAGS_SERVER(X) BT_FLAGS_OTHER(X) BT_FLAGS_OLD(X) BT_FLAGS_ENGINES(X)
