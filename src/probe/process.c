/* SPDX-License-Identifier: MIT
 *
 * process.c: which process a process is.
 *
 * A number alone names nobody for long: it is given anew when its process has gone, and is another's in another
 * namespace and after the next boot. Boot, namespace, number and start time together name one for good, so a note that
 * holds them (probe/reservations.c, router/reaper_note.c) can be read by whoever comes later. Nothing is kept, and
 * what cannot be read is said to be unknown, never to have gone. Bound: FILE_BYTES of a file. */
#include "probe/process.h"

#include "base/os.h"
#include "probe/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES  1024u /* stat has some 300, boot_id 37 */
#define FIELD_START 22u   /* of stat, from 1; the state is the 3rd (proc(5)) */

/* 0, or minus an errno value. */
static int read_file(const char *path, char text[FILE_BYTES]) {
    int fd = bt_os_open(path, false);
    if (fd < 0) return fd;
    int64_t n = bt_os_pread(fd, text, FILE_BYTES - 1, 0);
    (void)bt_os_close(fd); /* only read */
    if (n < 0) return (int)n;
    text[n] = '\0';
    return 0;
}

static bool read_boot(char ret[64]) {
    char text[FILE_BYTES];
    bt_span word;
    if (read_file("/proc/sys/kernel/random/boot_id", text) < 0) return false;
    if (!bt_span_only_word(text, &word) || word.n_bytes >= 64) return false;
    memcpy(ret, word.at, word.n_bytes);
    ret[word.n_bytes] = '\0';
    return true;
}

/* "pid:[4026531836]" */
static bool read_pid_ns(uint64_t *ret) {
    static const char before[] = "pid:[";
    char link[64];
    ssize_t n = readlink("/proc/self/ns/pid", link, sizeof link);
    if (n < (ssize_t)sizeof before || strncmp(link, before, strlen(before)) != 0 || link[n - 1] != ']') return false;
    return bt_span_number((bt_span){link + strlen(before), (size_t)n - sizeof before}, ret);
}

bool bt_process_home_read(bt_process_home *ret) {
    bt_process_home home = {.pid_ns = 0};
    if (!read_boot(home.boot) || !read_pid_ns(&home.pid_ns)) return false;
    *ret = home;
    return true;
}

bool bt_process_stat_parse(const char *text, bt_process_stat *ret) {
    /* "7 (a name) S 1 ...": the name may hold blanks and brackets. */
    const char *close = strrchr(text, ')');
    if (!close) return false;
    bt_process_stat stat = {.state = '\0'};
    bt_span rest = bt_span_of(close + 1);
    bt_span word;
    for (uint32_t field = 3; field <= FIELD_START; field++) {
        if (!bt_span_word(&rest, &word)) return false;
        if (field == 3) stat.state = word.at[0];
    }
    if (!bt_span_number(word, &stat.start_ticks)) return false;
    *ret = stat;
    return true;
}

int bt_process_stat_read(uint64_t pid, bt_process_stat *ret) {
    char path[64];
    char text[FILE_BYTES];
    if (pid == 0)
        (void)snprintf(path, sizeof path, "/proc/self/stat");
    else
        (void)snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    int rc = read_file(path, text);
    if (rc < 0) return rc;
    return bt_process_stat_parse(text, ret) ? 0 : -EBADMSG;
}

bool bt_process_is_dead(const bt_process_stat *stat) {
    return stat->state == 'Z' || stat->state == 'X';
}
