/* SPDX-License-Identifier: MIT
 * fuzz_router_words.c: what a server said last, and the kernel's counters of those it killed: why it ended, in words
 * that can be shown; and the note of a router that is gone. */
#include "fuzz.h"

#include "plain_check.h"
#include "router/child.h"
#include "router/child_oom.h"
#include "router/marked.h"
#include "router/reaper_note.h"

#include <signal.h>

static void check_end(const bt_child_end *end) {
    FUZZ_CHECK(memchr(end->words, '\0', sizeof end->words) && memchr(end->device, '\0', sizeof end->device));
    if (end->words[0]) plain_check(end->words);
    if (end->device[0]) plain_check(end->device);
    FUZZ_CHECK(end->failure == BT_CHILD_NO_FAILURE || bt_child_failure_name(end->failure));
}

static bool one(char *text, size_t n) {
    static const struct {
        int code, signal;
        bool oom;
    } ends[] = {{0, 0, false},   {1, 0, false},        {3, 0, false},       {4, 0, false},
                {127, 0, false}, {-1, SIGABRT, false}, {-1, SIGKILL, true}, {-1, SIGKILL, false}};
    bt_reaper_note note;
    bool taken = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        bt_child_end end;
        bt_child_classify(ends[i].code, ends[i].signal, ends[i].oom, text, &end);
        check_end(&end);
        FUZZ_CHECK(ends[i].code != 0 || end.failure == BT_CHILD_NO_FAILURE);
        taken = taken || end.need_bytes.known;
    }
    bt_known count = bt_oom_count_parse(text);
    FUZZ_CHECK(count.known || count.value == 0);
    if (bt_reaper_note_parse(text, &note)) {
        FUZZ_CHECK(bt_mark_is_valid(note.mark) && note.home.boot[0] &&
                   memchr(note.home.boot, '\0', sizeof note.home.boot));
        taken = true;
    }
    (void)n;
    return taken || count.known;
}

static const char *word(size_t i) {
    static const char *const words[] = {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1234.50 MiB on device "
                                        "0: cudaMalloc failed: out of memory\n",
                                        "ggml_vulkan: Device memory allocation of size 123456 failed.\n",
                                        "ErrorOutOfDeviceMemory",
                                        "std::bad_alloc",
                                        "CUDA out of memory. Tried to allocate 2.00 GiB",
                                        "failed to load model",
                                        "couldn't bind HTTP server socket",
                                        "burthen: refused: ",
                                        "burthen: error: ",
                                        "MiB",
                                        "on device ",
                                        "oom_kill ",
                                        "oom_kill_disable 0\n",
                                        "burthen-serve 1 boot\n",
                                        "1 2 3 0123456789abcdef0123456789abcdef\n",
                                        "\n",
                                        "\x1b[31m",
                                        "\xff",
                                        ".",
                                        "-",
                                        "18446744073709551615",
                                        "1e308"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "router_words", .one = one, .word = word, .n_rounds = 15000};
