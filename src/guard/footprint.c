/* SPDX-License-Identifier: MIT
 *
 * footprint.c: what whole programs took at their peak, remembered.
 *
 *     footprint-HASH:  burthen-footprint 1
 *                      POOL BYTES        a line for each pool, in the order of names
 *
 * A price is a formula, and of some commands there is none: a program that is not known, a model of another kind, a
 * driver whose context is larger than most. Who has run a command once knows better. BYTES is the most of all runs, so
 * that an admission is never given on less than was once seen. HASH is of the program's file, the model's header, the
 * words of the command and variables that change what it takes: another of any of them is another footprint, and is
 * learned anew.
 *
 * A file that is not exactly so is taken as none, to the digit. Nobody waits for a lock here, since who asks waits for
 * nothing: of two that end at the same moment one may be forgotten, and is seen again the next time. Bound: N_FILES_MAX
 * files of BT_POOL_MAX lines; the oldest go. Left out: forgetting; who wants less than was seen removes the file. */
#include "guard/footprint.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "base/state.h"
#include "model/sha256.h"
#include "probe/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_LINE  "burthen-footprint 1"
#define PREFIX      "footprint-"
#define N_FILES_MAX 64u
#define LINE_BYTES  56u /* a name of 31 bytes, a number of 20 digits, a space, the end */
#define FILE_BYTES  (sizeof FIRST_LINE + (size_t)BT_POOL_MAX * LINE_BYTES)

_Static_assert(sizeof PREFIX + 64 <= BT_FOOTPRINT_NAME_BYTES, "the name of a file");

/* ---- the name ---- */

/* Elements that stand for one of these, with the value: 0, 1 or 2. */
static uint32_t n_left_out(char *const *argv) {
    static const char *const names[] = {"--port", "--alias", "-a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(argv[0], names[i], n) != 0) continue;
        if (argv[0][n] == '=') return 1;
        if (argv[0][n] == '\0') return argv[1] ? 2 : 1;
    }
    return 0;
}

void bt_footprint_name(const char *program, const char *header_sha256, uint64_t file_bytes, char *const *argv,
                       const char *variables, char ret_name[BT_FOOTPRINT_NAME_BYTES]) {
    bt_sha256 hash;
    char hex[65];
    bt_sha256_init(&hash);
    (void)bt_sha256_add_file(&hash, program);
    bt_sha256_add_text(&hash, header_sha256 ? header_sha256 : "");
    bt_sha256_add_u64(&hash, file_bytes);
    while (*argv) {
        uint32_t n = n_left_out(argv);
        if (n == 0) bt_sha256_add_text(&hash, *argv);
        argv += n > 0 ? n : 1;
    }
    bt_sha256_add_text(&hash, variables);
    bt_sha256_hex(&hash, hex);
    (void)snprintf(ret_name, BT_FOOTPRINT_NAME_BYTES, PREFIX "%s", hex);
}

/* No other file of the folder, and none outside of it. */
static bool is_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && bt_sha256_is_hex(name + strlen(PREFIX));
}

/* ---- the file ---- */

/* On the stack: what is whole is found out without asking anybody for memory. Returns its length. */
static size_t put(char text[FILE_BYTES], const bt_footprint *what) {
    size_t n = (size_t)snprintf(text, FILE_BYTES, FIRST_LINE "\n");
    for (uint32_t i = 0; i < what->n; i++)
        n += (size_t)snprintf(text + n, FILE_BYTES - n, "%s %" PRIu64 "\n", what->pools[i], what->bytes[i]);
    return n;
}

/* Names that are one word, of which a line can be made. */
static bool is_pool(const char *pool) {
    size_t n = strlen(pool);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)pool[i] <= ' ' || (unsigned char)pool[i] >= 0x7f) return false;
    return n > 0 && n < 32;
}

static bool parse_line(bt_span line, bt_footprint *ret) {
    bt_span word;
    uint64_t bytes = 0;
    if (ret->n == BT_POOL_MAX || !bt_span_word(&line, &word) || word.n_bytes >= sizeof ret->pools[0]) return false;
    char *pool = ret->pools[ret->n];
    memcpy(pool, word.at, word.n_bytes);
    pool[word.n_bytes] = '\0';
    if (!bt_span_word(&line, &word) || !bt_span_number(word, &bytes) || bytes == 0) return false;
    if (ret->n > 0 && strcmp(ret->pools[ret->n - 1], pool) >= 0) return false;
    ret->bytes[ret->n++] = bytes;
    return is_pool(pool);
}

/* What is written from it again is this file, byte for byte. */
static bool is_whole(const bt_footprint *what, const bt_text *text) {
    char again[FILE_BYTES];
    size_t n = put(again, what);
    return n == text->n_bytes && memcmp(again, bt_text_str(text), n) == 0;
}

static bool parse(const bt_text *text, bt_footprint *ret) {
    bt_span rest = bt_span_of(bt_text_str(text));
    bt_span line;
    bt_footprint what = {0};
    if (!bt_span_line(&rest, &line) || !bt_span_is(line, FIRST_LINE)) return false;
    while (rest.n_bytes > 0) {
        if (!bt_span_line(&rest, &line) || !parse_line(line, &what)) return false;
    }
    if (what.n == 0 || !is_whole(&what, text)) return false;
    *ret = what;
    return true;
}

/* n 0: there is none, or none that is exactly so. An error when what is there could not be read. */
static bt_status recall(int dir, const char *name, bt_footprint *ret, bt_error *err) {
    bt_error why = {0};
    bt_text text;
    *ret = (bt_footprint){0};
    bt_text_init(&text, FILE_BYTES);
    bt_status status = bt_state_read(dir, name, &text, &why);
    if (status == BT_OK && !parse(&text, ret)) *ret = (bt_footprint){0};
    bt_text_done(&text);
    if (status == BT_OK || status == BT_E_LIMIT || why.sys == ENOENT) return BT_OK;
    *err = why;
    return status;
}

void bt_footprint_read(const char *name, bt_footprint *ret) {
    int dir = -1;
    bt_error err = {0};
    *ret = (bt_footprint){0};
    if (!is_name(name) || bt_state_open(false, &dir, NULL) != BT_OK) return;
    if (recall(dir, name, ret, &err) != BT_OK)
        bt_log(BT_LOG_INFO, "what was seen of the command is not used: %s", err.text);
    (void)bt_os_close(dir);
}

uint64_t bt_footprint_find(const bt_footprint *footprint, const char *pool) {
    for (uint32_t i = 0; i < footprint->n; i++)
        if (strcmp(footprint->pools[i], pool) == 0) return footprint->bytes[i];
    return 0;
}

/* In its place by name; a pool that finds no room is left out, which no machine has. */
static void raise(bt_footprint *what, const char *pool, uint64_t bytes) {
    uint32_t at = 0;
    while (at < what->n && strcmp(what->pools[at], pool) < 0)
        at++;
    if (at < what->n && strcmp(what->pools[at], pool) == 0) {
        what->bytes[at] = bt_max_u64(what->bytes[at], bytes);
        return;
    }
    if (what->n == BT_POOL_MAX) return;
    memmove(what->pools[at + 1], what->pools[at], (what->n - at) * sizeof what->pools[0]);
    memmove(&what->bytes[at + 1], &what->bytes[at], (what->n - at) * sizeof what->bytes[0]);
    (void)snprintf(what->pools[at], sizeof what->pools[at], "%s", pool);
    what->bytes[at] = bytes;
    what->n++;
}

/* What cannot be read now is not replaced: it may be the more. */
static bt_status update(int dir, const char *name, const bt_footprint *seen, bt_error *err) {
    bt_footprint what;
    char text[FILE_BYTES];
    BT_TRY(recall(dir, name, &what, err));
    for (uint32_t i = 0; i < seen->n; i++)
        raise(&what, seen->pools[i], seen->bytes[i]);
    return bt_state_write(dir, name, text, put(text, &what), err);
}

static bt_status keep(const char *name, const bt_footprint *seen, bt_error *err) {
    int dir = -1;
    BT_TRY(bt_state_open(true, &dir, err));
    bt_status status = update(dir, name, seen, err);
    bt_state_trim(dir, PREFIX, N_FILES_MAX);
    (void)bt_os_close(dir);
    return status;
}

void bt_footprint_keep(const char *name, const char *const *pools, uint32_t n_pools, const bt_known *peak_bytes) {
    bt_footprint seen = {0};
    bt_error err = {0};
    for (uint32_t i = 0; i < n_pools; i++)
        if (peak_bytes[i].known && peak_bytes[i].value > 0 && is_pool(pools[i]))
            raise(&seen, pools[i], peak_bytes[i].value);
    if (seen.n == 0 || !is_name(name)) return;
    if (keep(name, &seen, &err) != BT_OK) bt_log(BT_LOG_INFO, "what the command took is not kept: %s", err.text);
}
