/* SPDX-License-Identifier: MIT
 * log_out.h: where the lines of the log go: a file, or standard error, which may be the journal. */
#pragma once

#include "base/log_line.h"

typedef struct bt_log_out_ask {
    const char *file;      /* NULL: standard error. Kept: must live as long. */
    const char *component; /* the command; kept */
    bool json;
    bool colour; /* standard error is a terminal that wants it */
    bool waits;  /* for a reader that is slow; else lines that he does not take are lost, and counted */
} bt_log_out_ask;

typedef struct bt_log_out {
    bt_log_out_ask ask;
    bt_log_form form;        /* of the log */
    bt_log_form stderr_form; /* of what must be seen on standard error, wherever the log goes */
    int fd;
    bool broken;       /* the last line was written in part */
    uint64_t n_lost;   /* lines since the last that was written */
    uint64_t n_missed; /* of all */
} bt_log_out;

/* The file is made with mode 0600, or appended to, and a first line is written at once, so that a full disk is an error
 * now. BT_E_IO, code "log_file". */
BT_MUST_CHECK bt_status bt_log_out_open(const bt_log_out_ask *ask, bt_log_out *ret, bt_error *err);
/* The file of that name anew (it was moved away). Where that fails the old one is written on to. */
BT_MUST_CHECK bt_status bt_log_out_reopen(bt_log_out *out, bt_error *err);
/* BT_E_IO, code "log_file": lines are missing in the file. */
bt_status bt_log_out_close(bt_log_out *out, bt_error *err);
/* A bt_log_sink; user is the bt_log_out. One write a line. */
void bt_log_out_write(const bt_log_entry *entry, void *user);
/* On standard error too, where the log is a file. */
void bt_log_out_write_both(bt_log_out *out, const bt_log_entry *entry);
/* Whether standard error is the journal: JOURNAL_STREAM has its device and inode (systemd.exec(5)). environ_get: NULL
 * is getenv. */
bool bt_log_is_journal(int fd, const char *(*environ_get)(const char *));
