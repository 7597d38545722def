/* SPDX-License-Identifier: MIT
 * proc.h: the small text files of /proc and /sys: read whole, bounded, and taken apart without copies. */
#pragma once

#include "burthen.h"

/* Most of one file that is held: meminfo and status are under 4 KiB, memory.stat under 8 KiB; mountinfo of a host full
 * of containers is larger and is read window by window. */
#define BT_PROC_TEXT_MAX 65536u
#define BT_PROC_PATH_MAX 4096u /* PATH_MAX of Linux (linux/limits.h) */

typedef struct bt_proc_text {
    char data[BT_PROC_TEXT_MAX + 1]; /* ends in NUL */
    size_t n_bytes;                  /* of the file, that data stands for */
    bool cut;                        /* more follows; data ends at the end of a line, never inside a number */
} bt_proc_text;

/* Read root + path from offset. 0, or minus an errno value and empty text: -ENAMETOOLONG for a path over the limit,
 * -E2BIG for a line over BT_PROC_TEXT_MAX. */
int bt_proc_read(const char *root, const char *path, uint64_t offset, bt_proc_text *text);
/* No such file, or none any more: a cgroup removed under us reads ENODEV. */
bool bt_proc_is_absent(int rc);

/* A piece of somebody else's text. */
typedef struct bt_span {
    const char *at;
    size_t n_bytes;
} bt_span;

bt_span bt_span_of(const char *text);
bool bt_span_is(bt_span span, const char *text);
bool bt_span_starts(bt_span span, const char *prefix);
/* Each takes the next piece off *rest; false when nothing is left. A line loses its \n or \r\n; words are what spaces
 * and tabs separate; a part ends before the character at (or at the end), which is dropped. */
bool bt_span_line(bt_span *rest, bt_span *ret_line);
bool bt_span_word(bt_span *rest, bt_span *ret_word);
bool bt_span_part(bt_span *rest, char at, bt_span *ret_part);
/* Decimal digits and nothing else, no overflow; false otherwise and *ret untouched. */
bool bt_span_number(bt_span span, uint64_t *ret);
/* The first word of a file that holds one value ("max\n", "123\n"); false when there are more, or none. */
bool bt_span_only_word(const char *text, bt_span *ret_word);
/* The first line that starts with prefix: what follows it. */
bool bt_span_find_line(const char *text, const char *prefix, bt_span *ret_rest);
