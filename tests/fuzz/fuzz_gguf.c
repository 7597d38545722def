/* SPDX-License-Identifier: MIT
 * fuzz_gguf.c: a GGUF header, as a model's and as a projector's: the tokenizer's facts, the chat template, tensors.
 *
 * The file is the input and then, in a second reading, the input with room for tensors behind it, as a hole. Of what is
 * taken the facts hold together (facts_check.h). */
#include "fuzz.h"

#include "facts_check.h"
#include "model/projector.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOLE_BYTES (1 << 24) /* more than the tensors of any sample */

static int fd = -1;
static char path[64];

static void start(void) {
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

static bool read_as_both(void) {
    bt_facts *facts = NULL;
    bt_projector *projector = NULL;
    bt_error err = {0};
    bt_status status = bt_facts_open(path, &facts, &err);
    if (status == BT_OK)
        facts_check(facts);
    else
        facts_check_refusal(status, &err);
    bt_facts_close(facts);
    err = (bt_error){0};
    bt_status as_projector = bt_projector_open(path, &projector, &err);
    if (as_projector == BT_OK)
        FUZZ_CHECK(projector->vision.exists || projector->audio.exists);
    else if (as_projector != BT_E_ARG)
        facts_check_refusal(as_projector, &err);
    bt_projector_close(projector);
    return status == BT_OK || as_projector == BT_OK;
}

static bool one(char *text, size_t n) {
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, n, 0) != (ssize_t)n) abort();
    bool taken = read_as_both();
    if (ftruncate(fd, (off_t)n + HOLE_BYTES) != 0) abort();
    return read_as_both() || taken;
}

static const char *word(size_t i) {
    return facts_word(i);
}

const fuzz_target fuzz_here = {
    .name = "gguf", .one = one, .bare = true, .start = start, .word = word, .n_rounds = 1000};
