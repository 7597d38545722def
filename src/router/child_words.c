/* SPDX-License-Identifier: MIT
 *
 * child_words.c: why a server ended, from its exit and its last lines. Pure.
 *
 * A server that runs out of memory says so in one line and then fails in ten more ways, each with a line of its own: no
 * buffer, so no model, so no server. What counts is the cause, so the rows of a table are ranked: the first row that
 * any line matches wins, and of several lines the first. Two ends need no line: `burthen exec` has an exit code for
 * what it refuses, and the kernel counts whom it killed for memory. A kill that nobody counted is no proof of anything.
 *
 * The texts are those of llama.cpp and of ggml's backends as of the pinned release, and the plainest of other servers';
 * a row that no longer matches makes an end "crashed", no worse. Numbers are read where the line has them: ggml writes
 * MB for what it computed as MiB. */
#include "router/child.h"

#include "base/size.h"
#include "probe/proc.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define EXIT_REFUSED    3   /* of `burthen exec`: docs/errors.md */
#define EXIT_MODEL      4   /* the same */
#define EXIT_NO_START   126 /* of a shell, and of child.c: it is there and cannot be started */
#define EXIT_NOT_FOUND  127
#define EXIT_OF_SIGKILL (128 + SIGKILL) /* a shell's word for a command that was killed */

const char *bt_child_failure_name(bt_child_failure failure) {
    static const char *const failure_names[] = {
        NULL,          "out_of_device_memory", "out_of_memory", "bad_model",
        "port_in_use", "insufficient_memory",  "not_started",   "crashed",
    };
    return (unsigned)failure < sizeof failure_names / sizeof *failure_names ? failure_names[failure] : NULL;
}

/* What a line says. but: a line with this too says something else. */
typedef struct row {
    const char *has, *but;
    bt_child_failure failure;
} row;

static const row rows[] = {
    /* ggml-cuda (and ROCm, MUSA, which are built from it), ggml-cann */
    {"cudaMalloc failed", NULL, BT_CHILD_DEVICE_MEMORY},
    {"aclrtMalloc failed", NULL, BT_CHILD_DEVICE_MEMORY},
    {"CUDA error: out of memory", NULL, BT_CHILD_DEVICE_MEMORY},
    {"ROCm error: out of memory", NULL, BT_CHILD_DEVICE_MEMORY},
    {"CUBLAS_STATUS_ALLOC_FAILED", NULL, BT_CHILD_DEVICE_MEMORY},
    /* ggml-vulkan: its own sentence has the size, Vulkan's the reason */
    {"Device memory allocation of size", NULL, BT_CHILD_DEVICE_MEMORY},
    {"ErrorOutOfDeviceMemory", NULL, BT_CHILD_DEVICE_MEMORY},
    {"Requested buffer size exceeds device", NULL, BT_CHILD_DEVICE_MEMORY},
    /* ggml-metal, ggml-sycl, ggml-opencl */
    {"failed to allocate Metal buffer", NULL, BT_CHILD_DEVICE_MEMORY},
    {"ErrorOutOfMemory", NULL, BT_CHILD_DEVICE_MEMORY},
    {"OUT_OF_DEVICE_MEMORY", NULL, BT_CHILD_DEVICE_MEMORY},
    {"CL_MEM_OBJECT_ALLOCATION_FAILURE", NULL, BT_CHILD_DEVICE_MEMORY},
    /* PyTorch, of other servers */
    {"CUDA out of memory", NULL, BT_CHILD_DEVICE_MEMORY},
    {"HIP out of memory", NULL, BT_CHILD_DEVICE_MEMORY},
    /* a buffer of ggml by name: of a device, or of the host (host_buffer below) */
    {"failed to allocate ", "pinned memory", BT_CHILD_DEVICE_MEMORY},
    {"unable to allocate ", NULL, BT_CHILD_DEVICE_MEMORY},
    /* the host */
    {"std::bad_alloc", NULL, BT_CHILD_HOST_MEMORY},
    {"insufficient memory (attempted to allocate", NULL, BT_CHILD_HOST_MEMORY},
    {"ErrorOutOfHostMemory", NULL, BT_CHILD_HOST_MEMORY},
    {"failed to allocate buffer of size", NULL, BT_CHILD_HOST_MEMORY},
    {"Cannot allocate memory", "mlock", BT_CHILD_HOST_MEMORY},
    {"MemoryError", NULL, BT_CHILD_HOST_MEMORY},
    /* the address */
    {"couldn't bind HTTP server socket", NULL, BT_CHILD_PORT},
    {"Address already in use", NULL, BT_CHILD_PORT},
    {"address already in use", NULL, BT_CHILD_PORT},
    /* the file: the reason first, then that it is so */
    {"error loading model", NULL, BT_CHILD_BAD_MODEL},
    {"gguf_init_from", NULL, BT_CHILD_BAD_MODEL},
    {"unable to load model", NULL, BT_CHILD_BAD_MODEL},
    {"failed to load model", NULL, BT_CHILD_BAD_MODEL},
    {"exiting due to model loading error", NULL, BT_CHILD_BAD_MODEL},
    /* what is worth more than the last line: assertions, exceptions, options */
    {"GGML_ASSERT(", NULL, BT_CHILD_OTHER},
    {"what(): ", NULL, BT_CHILD_OTHER},
    {": fatal error", NULL, BT_CHILD_OTHER},
    {"error while handling argument", NULL, BT_CHILD_OTHER},
    {"error: ", NULL, BT_CHILD_OTHER},
};

static bool has(bt_span line, const char *text) {
    return memmem(line.at, line.n_bytes, text, strlen(text)) != NULL;
}

/* What follows text in the line. */
static bool after(bt_span line, const char *text, bt_span *ret) {
    const char *found = memmem(line.at, line.n_bytes, text, strlen(text));
    if (!found) return false;
    ret->at = found + strlen(text);
    ret->n_bytes = line.n_bytes - (size_t)(ret->at - line.at);
    return true;
}

/* ---- what a line names ---- */

/* "allocate CUDA0 buffer": the name, one word. */
static bool buffer_of(bt_span line, bt_span *ret_name) {
    bt_span rest;
    bt_span name;
    bt_span word;
    if (!after(line, "to allocate ", &rest) || !bt_span_word(&rest, &name) || !bt_span_word(&rest, &word)) return false;
    *ret_name = name;
    return bt_span_is(word, "buffer");
}

static bool ends_in(bt_span span, const char *text) {
    size_t n = strlen(text);
    return span.n_bytes >= n && memcmp(span.at + span.n_bytes - n, text, n) == 0;
}

/* CPU, CPU_REPACK, CUDA_Host, and our own device, whose memory is the host's. */
static bool is_host(bt_span name) {
    return bt_span_starts(name, "CPU") || bt_span_starts(name, "Burthen") || ends_in(name, "_Host");
}

static bool matches(const row *r, bt_span line, bt_child_failure *ret_failure) {
    bt_span name;
    if (!has(line, r->has) || (r->but && has(line, r->but))) return false;
    bool by_name = ends_in(bt_span_of(r->has), " allocate ");
    if (by_name && !buffer_of(line, &name)) return false;
    *ret_failure = by_name && is_host(name) ? BT_CHILD_HOST_MEMORY : r->failure;
    return true;
}

/* "1234.50 MiB", "2.00 GiB", "1073741824", "1073741824 bytes". */
static bool read_size(bt_span rest, bt_known *ret) {
    bt_span word;
    bt_span unit = {.at = "", .n_bytes = 0};
    char text[48];
    if (!bt_span_word(&rest, &word)) return false;
    (void)bt_span_word(&rest, &unit);
    while (word.n_bytes > 0 && !(word.at[word.n_bytes - 1] >= '0' && word.at[word.n_bytes - 1] <= '9'))
        word.n_bytes--; /* a full stop, a bracket */
    char letter = unit.n_bytes >= 2 && (unit.at[1] == 'i' || unit.at[1] == 'B') ? unit.at[0] : '\0';
    if (letter == '\0' || !strchr("KMGT", letter)) letter = 'B';
    (void)snprintf(text, sizeof text, "%.*s%c", (int)(word.n_bytes < 32 ? word.n_bytes : 32), word.at, letter);
    ret->known = bt_size_parse(text, "", &ret->value, NULL) == BT_OK;
    return ret->known;
}

/* The first of these that a size follows. */
static void read_first(bt_span line, const char *const *before, size_t n, bt_known *ret) {
    bt_span rest;
    for (size_t i = 0; i < n && !ret->known; i++)
        if (after(line, before[i], &rest)) (void)read_size(rest, ret);
}

static void read_need(bt_span line, bt_child_end *end) {
    static const char *const need[] = {"allocating ", "attempted to allocate ", "Tried to allocate ", "of size ",
                                       "size = ", "Metal buffer of ",
                                       /* burthen exec: guard/place.c, plan/refusal.c */
                                       "needs at least ", " needs "};
    static const char *const have[] = {"of which ",   "budget is ", "which has ",
                                       "VRAM: with ", "there is; ", "than it has; "};
    read_first(line, need, sizeof need / sizeof *need, &end->need_bytes);
    read_first(line, have, sizeof have / sizeof *have, &end->have_bytes);
}

static void read_device(bt_span line, bt_child_end *end) {
    bt_span name;
    bt_span rest;
    uint64_t index = 0;
    if (buffer_of(line, &name) && !is_host(name)) {
        (void)snprintf(end->device, sizeof end->device, "%.*s", (int)(name.n_bytes < 31 ? name.n_bytes : 31), name.at);
    } else if (end->device[0] == '\0' && after(line, "on device ", &rest) && bt_span_part(&rest, ':', &name) &&
               bt_span_number(name, &index) && has(line, "cudaMalloc")) {
        (void)snprintf(end->device, sizeof end->device, "CUDA%u", (unsigned)index);
    }
}

/* ---- the end ---- */

static void put_words(bt_child_end *end, const char *before, bt_span line) {
    bt_text text;
    bt_text_init(&text, BT_CHILD_WORDS_BYTES - 1); /* a heap that refuses: no words */
    bt_text_add(&text, before);
    bt_text_add_escaped(&text, line.at, line.n_bytes);
    (void)snprintf(end->words, sizeof end->words, "%s", bt_text_str(&text));
    bt_text_done(&text);
}

/* The last line that is not blank. */
static bt_span last_line(const char *lines) {
    bt_span rest = bt_span_of(lines);
    bt_span line;
    bt_span found = bt_span_of("");
    while (bt_span_line(&rest, &line)) {
        bt_span copy = line;
        bt_span word;
        if (bt_span_word(&copy, &word)) found = line;
    }
    return found;
}

/* The first line of the first row that has one; the failure, or BT_CHILD_NO_FAILURE. */
static bt_child_failure find_cause(const char *lines, bt_span *ret_line) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_span rest = bt_span_of(lines);
        bt_child_failure failure = BT_CHILD_NO_FAILURE;
        while (bt_span_line(&rest, ret_line))
            if (matches(&rows[i], *ret_line, &failure)) return failure;
    }
    return BT_CHILD_NO_FAILURE;
}

static void read_memory(const char *lines, bt_span cause, bt_child_end *end) {
    bt_span rest = bt_span_of(lines);
    bt_span line;
    bt_child_failure of_line = BT_CHILD_NO_FAILURE;
    read_need(cause, end);
    while (bt_span_line(&rest, &line)) {
        bool is_memory = false;
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !is_memory; i++)
            is_memory = matches(&rows[i], line, &of_line) && of_line == end->failure;
        if (is_memory) read_need(line, end);
        if (is_memory && end->failure == BT_CHILD_DEVICE_MEMORY) read_device(line, end);
    }
}

static void classify_signal(const char *lines, bt_child_end *end) {
    char text[64];
    bt_span cause;
    (void)snprintf(text, sizeof text, "killed by signal %d", end->signal);
    if (end->signal == SIGKILL) { /* from outside: what was said last is no reason */
        end->failure = BT_CHILD_OTHER;
        put_words(end, text, bt_span_of(""));
        return;
    }
    end->failure = find_cause(lines, &cause);
    if (end->failure != BT_CHILD_NO_FAILURE) {
        put_words(end, "", cause);
        read_memory(lines, cause, end);
        return;
    }
    end->failure = BT_CHILD_OTHER;
    bt_span last = last_line(lines);
    (void)snprintf(text, sizeof text, "killed by signal %d%s", end->signal, last.n_bytes > 0 ? ": " : "");
    put_words(end, text, last);
}

static void classify_exit(const char *lines, bt_child_end *end) {
    bt_span line = last_line(lines);
    bt_span cause;
    end->failure = BT_CHILD_OTHER;
    if (end->exit_code == EXIT_NO_START || end->exit_code == EXIT_NOT_FOUND) {
        end->failure = BT_CHILD_NOT_STARTED;
    } else if (end->exit_code == EXIT_REFUSED && bt_span_find_line(lines, "burthen: refused: ", &cause)) {
        end->failure = BT_CHILD_REFUSED;
        line = cause;
        read_need(cause, end);
    } else if (end->exit_code == EXIT_MODEL && bt_span_find_line(lines, "burthen: error: ", &cause)) {
        end->failure = BT_CHILD_BAD_MODEL;
        line = cause;
    } else {
        bt_child_failure found = find_cause(lines, &cause);
        if (found != BT_CHILD_NO_FAILURE) {
            end->failure = found;
            line = cause;
            read_memory(lines, cause, end);
        }
    }
    put_words(end, "", line);
}

void bt_child_classify(int exit_code, int signal, bool oom_killed, const char *last_lines, bt_child_end *ret) {
    *ret = (bt_child_end){.exit_code = signal != 0 ? -1 : exit_code, .signal = signal};
    if (oom_killed && (signal == SIGKILL || (signal == 0 && exit_code == EXIT_OF_SIGKILL))) {
        ret->failure = BT_CHILD_HOST_MEMORY;
        put_words(ret, "killed by the system: its memory group, or the machine, is out of memory", bt_span_of(""));
    } else if (signal != 0) {
        classify_signal(last_lines, ret);
    } else if (exit_code == 0) {
        put_words(ret, "", last_line(last_lines));
    } else {
        classify_exit(last_lines, ret);
    }
}
