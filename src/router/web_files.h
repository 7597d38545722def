/* SPDX-License-Identifier: MIT
 * web_files.h: the files of the page (web/), as they are built into the program (cmake/web.cmake). Private to the
 * router. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct bt_web_file {
    const char *name, *type;
    const char *tag; /* of its content, in quotes, as ETag wants it */
    const char *data;
    size_t n_bytes;
} bt_web_file;

extern const bt_web_file bt_web_files[];
extern const uint32_t bt_web_n_files;
