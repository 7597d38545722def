/* SPDX-License-Identifier: MIT
 *
 * text_file.c: a small file as a text: what is kept of former runs, settings, files that a command names, a plan.
 *
 * It is read a page at a time until there is no more, and not by the size it is said to have: files of /proc have none,
 * and one that grows meanwhile would be cut. A text's maximum is the bound, so that a device or a file of terabytes in
 * the place of a small one ends the reading, not the program. Left out: pipes and terminals, which cannot be read at a
 * place (-ESPIPE; cli/planning.c reads those). */
#include "base/text_file.h"

#include "base/os.h"

#include <errno.h>

#define READ_BYTES 4096u /* a page: most such files are smaller */

int bt_text_read(bt_text *text, int fd) {
    char buffer[READ_BYTES];
    uint64_t at = 0;
    int64_t got = 0;
    while (!text->failed && (got = bt_os_pread(fd, buffer, sizeof buffer, at)) > 0) {
        bt_text_add_n(text, buffer, (size_t)got);
        at += (uint64_t)got;
    }
    if (got < 0) return (int)got;
    if (text->refused) return -ENOMEM;
    return text->failed ? -EFBIG : 0;
}

int bt_text_read_path(bt_text *text, const char *path) {
    int fd = bt_os_open(path, false);
    if (fd < 0) return fd;
    int rc = bt_text_read(text, fd);
    (void)bt_os_close(fd); /* only read */
    return rc;
}
