/* SPDX-License-Identifier: MIT
 * program_kit.h: a llama.cpp program started by a test, and what it says of its context. For tests that include
 * cmocka.h first. */
#pragma once

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Start it; its output comes on *ret_output. */
static inline pid_t program_start(char *const *argv, FILE **ret_output) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], 1);
        (void)dup2(ends[1], 2);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)alarm(120); /* whatever the program does instead */
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    (void)close(ends[1]);
    *ret_output = fdopen(ends[0], "r");
    assert_non_null(*ret_output);
    return pid;
}

typedef struct program_context {
    int n_seq, n_ctx, n_batch, n_ubatch, n_outputs_max;
    char flash[16], unified[16], type_k[16], type_v[16];
    double freq_base, freq_scale;
    int n_weight_buffers;
    char weights[32]; /* the first of them */
    bool whole;
} program_context;

static inline void program_context_line(program_context *c, const char *text) {
    const char *said = strstr(text, "llama_context: ");
    const char *cache = strstr(text, "llama_kv_cache: size");
    const char *weights = strstr(text, " model buffer size");
    if (said) {
        said += strlen("llama_context: ");
        (void)sscanf(said, "n_seq_max = %d", &c->n_seq);
        (void)sscanf(said, "n_ctx = %d", &c->n_ctx);
        (void)sscanf(said, "n_batch = %d", &c->n_batch);
        (void)sscanf(said, "n_ubatch = %d", &c->n_ubatch);
        (void)sscanf(said, "n_outputs_max = %d", &c->n_outputs_max);
        (void)sscanf(said, "flash_attn = %15s", c->flash);
        (void)sscanf(said, "kv_unified = %15s", c->unified);
        (void)sscanf(said, "freq_base = %lf", &c->freq_base);
        (void)sscanf(said, "freq_scale = %lf", &c->freq_scale);
    }
    const char *name = weights ? strstr(text, "load_tensors: ") : NULL;
    if (name && c->n_weight_buffers++ == 0) (void)sscanf(name + strlen("load_tensors: "), "%31s", c->weights);
    const char *k = cache ? strstr(cache, "K (") : NULL;
    const char *v = k ? strstr(k, "V (") : NULL;
    c->whole = v && sscanf(k, "K (%15[^)]", c->type_k) == 1 && sscanf(v, "V (%15[^)]", c->type_v) == 1;
}

/* Its first words about a context; then it is ended. */
static inline void program_context_read(char *const *argv, program_context *ret) {
    char text[4096];
    FILE *output;
    memset(ret, 0, sizeof *ret);
    pid_t pid = program_start(argv, &output);
    while (!ret->whole && fgets(text, sizeof text, output))
        program_context_line(ret, text);
    (void)kill(pid, SIGKILL);
    (void)fclose(output);
    (void)waitpid(pid, NULL, 0);
}
