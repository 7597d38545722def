/* SPDX-License-Identifier: MIT
 * log_out.c: writing lines of the log, one write each, to a file or to standard error.
 *
 * A line is at most BT_LOG_LINE_BYTES, and a file is open for appending: lines of two processes that share it do not
 * mix. What cannot be written (a full disk, a reader who stopped) is counted, and the count is the first line when
 * writing works again; nobody waits for it, and nothing ends because of it. A line that a full disk took in part is
 * ended before the next.
 *
 * Left out: turning logs over by itself (logrotate does; bt_log_out_reopen), and compressing. */
#include "base/log_out.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MODE 0600 /* names of models, addresses of clients */

bool bt_log_is_journal(int fd, const char *(*environ_get)(const char *)) {
    const char *text = environ_get ? environ_get("JOURNAL_STREAM") : getenv("JOURNAL_STREAM");
    struct stat found;
    char *end = NULL;
    if (!text || *text < '0' || *text > '9') return false;
    unsigned long long device = strtoull(text, &end, 10);
    if (*end != ':' || end[1] < '0' || end[1] > '9') return false;
    unsigned long long inode = strtoull(end + 1, &end, 10);
    if (*end != '\0' || fstat(fd, &found) != 0) return false;
    return (unsigned long long)found.st_dev == device && (unsigned long long)found.st_ino == inode;
}

/* ---- one line ---- */

static bool takes_a_line(const bt_log_out *out, int fd) {
    struct pollfd poller = {.fd = fd, .events = POLLOUT};
    return out->ask.waits || poll(&poller, 1, 0) != 0;
}

/* false: it was not written, or not all of it. */
static bool put(bt_log_out *out, const bt_log_entry *entry) {
    char line[BT_LOG_LINE_BYTES + 1];
    size_t n = bt_log_line(&out->form, entry, bt_os_unix_ms(), line);
    if (!takes_a_line(out, out->fd)) return false;
    if (out->broken && bt_os_write(out->fd, "\n", 1) != 0) return false;
    out->broken = bt_os_write(out->fd, line, n) != 0;
    return !out->broken;
}

static bool put_lost(bt_log_out *out) {
    char text[64];
    (void)snprintf(text, sizeof text, "%" PRIu64 " line%s of the log lost", out->n_lost, out->n_lost == 1 ? "" : "s");
    if (!put(out, &(bt_log_entry){.level = BT_LOG_WARN, .message = text})) return false;
    out->n_lost = 0;
    return true;
}

void bt_log_out_write(const bt_log_entry *entry, void *user) {
    bt_log_out *out = user;
    int sys = errno; /* whoever logs may be about to say why something failed */
    if ((out->n_lost > 0 && !put_lost(out)) || !put(out, entry)) {
        out->n_lost++;
        out->n_missed++;
    }
    errno = sys;
}

void bt_log_out_write_both(bt_log_out *out, const bt_log_entry *entry) {
    char line[BT_LOG_LINE_BYTES + 1];
    bt_log_out_write(entry, out);
    if (out->fd == STDERR_FILENO) return;
    size_t n = bt_log_line(&out->stderr_form, entry, bt_os_unix_ms(), line);
    if (takes_a_line(out, STDERR_FILENO)) (void)bt_os_write(STDERR_FILENO, line, n); /* where else to say it */
}

/* ---- the file ---- */

/* A named pipe is opened without waiting for its reader, who must be there: to go on the log is opened anew within the
 * router's one loop. Who waits for nobody does not wait in a write either, the first line's among them. */
static int open_file(const bt_log_out_ask *ask) {
    int fd = open(ask->file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, LOG_MODE);
    if (fd < 0) return -errno;
    int flags = ask->waits ? fcntl(fd, F_GETFL) : 0;
    if (!ask->waits || (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0)) return fd;
    int sys = errno;
    (void)close(fd);
    return -sys;
}

static bt_status fail_open(const bt_log_out_ask *ask, int sys, bt_error *err) {
    return bt_fail_sys(err, sys, "log_file", "cannot open the log file %s%s", ask->file,
                       sys == ENXIO ? ", which nobody reads" : "");
}

/* The first line finds out whether there is room for any. */
static bt_status begin_file(bt_log_out *out, int fd, const char *what, bt_error *err) {
    char line[BT_LOG_LINE_BYTES + 1];
    const bt_log_entry entry = {.level = BT_LOG_INFO, .plain = true, .message = what};
    size_t n = bt_log_line(&out->form, &entry, bt_os_unix_ms(), line);
    int rc = bt_os_write(fd, line, n);
    if (rc == 0) return BT_OK;
    return bt_fail_sys(err, -rc, "log_file", "cannot write the log file %s", out->ask.file);
}

bt_status bt_log_out_open(const bt_log_out_ask *ask, bt_log_out *ret, bt_error *err) {
    bool journal = bt_log_is_journal(STDERR_FILENO, NULL);
    const bt_log_form form = {.json = ask->json,
                              .journal = journal,
                              .colour = ask->colour ? BT_LOG_ANSI : BT_LOG_NO_COLOUR,
                              .component = ask->component,
                              .pid = (int64_t)getpid()};
    *ret = (bt_log_out){.ask = *ask, .form = form, .stderr_form = form, .fd = STDERR_FILENO};
    if (!ask->file) return BT_OK;
    ret->form.journal = false;
    ret->form.dated = true;
    ret->form.colour = BT_LOG_NO_COLOUR;
    int fd = open_file(ask);
    if (fd < 0) return fail_open(ask, -fd, err);
    bt_status status = begin_file(ret, fd, "burthen " BT_VERSION " begins", err);
    if (status == BT_OK)
        ret->fd = fd;
    else
        (void)close(fd);
    return status;
}

bt_status bt_log_out_reopen(bt_log_out *out, bt_error *err) {
    if (out->fd == STDERR_FILENO) return BT_OK;
    int fd = open_file(&out->ask);
    if (fd < 0) return fail_open(&out->ask, -fd, err);
    bt_status status = begin_file(out, fd, "the log goes on", err);
    if (status != BT_OK) {
        (void)close(fd);
        return status;
    }
    (void)close(out->fd);
    out->fd = fd;
    out->broken = false;
    return BT_OK;
}

bt_status bt_log_out_close(bt_log_out *out, bt_error *err) {
    if (out->fd == STDERR_FILENO || out->fd < 0) return BT_OK;
    uint64_t n_missed = out->n_missed;
    bool closed = close(out->fd) == 0; /* a network's file may say only now that it is full */
    int sys = errno;
    out->fd = STDERR_FILENO;
    if (!closed) return bt_fail_sys(err, sys, "log_file", "cannot write the log file %s", out->ask.file);
    if (n_missed == 0) return BT_OK;
    return bt_fail(err, BT_E_IO, "log_file", BT_MEASURE_ITEMS, n_missed, 0,
                   "%" PRIu64 " lines are missing in the log file %s", n_missed, out->ask.file);
}
