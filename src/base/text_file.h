/* SPDX-License-Identifier: MIT
 * text_file.h: a small file as a text. */
#pragma once

#include "base/text.h"

/* What the file has, behind what the text has already: 0, or minus an errno value; -EFBIG where that is more than the
 * text's maximum, -ENOMEM where the heap has not so much. It is read from its beginning, wherever fd stands. */
int bt_text_read(bt_text *text, int fd);
int bt_text_read_path(bt_text *text, const char *path);
